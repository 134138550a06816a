r"""Contact-force QP kernel: semismooth Newton on the six-dimensional dual.

Both cones solve, with ``A`` of six rows (the wrench, already multiplied by the square root of the metric)

``min_f  1/2 |A f - b|^2 + eps/2 |f|^2   subject to  f in K``

* contact form: ``f`` has three components ``(tangent 1, tangent 2, normal)`` per contact, ``K`` the capped friction
  pyramid of `engine.srb.cone` with its own ``mu`` and ``fmax`` per contact;
* generator form: ``f >= 0``, one component per generator of the cone (the form of the papers).

With the dual ``u = (b - A f) / eps`` (six numbers, whatever the number of contacts) the optimality conditions are

``f(u) = Proj_K(A^T u)``  and  ``F(u) = eps u + A f(u) - b = 0``.

``F`` is the gradient of a strongly convex, piecewise quadratic function, so a Newton step with the matrix
``H = eps I + A P A^T`` (``P`` the projection's Jacobian) is exact once the active faces are right: the iteration ends
at rounding, not at a tolerance. Along a step the derivative is piecewise linear and increasing, which makes the line
search exact and cheap. Where the full problem resists (most contacts saturated), it is solved for a falling sequence
of ``eps``.

Warm start: the previous ``u``; it does not depend on which contacts there are. The achieved wrench is ``b - eps u``.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.srb.dual_terms import GENERATORS, PYRAMID, dual_residual, newton_step

MAX_CONTACTS = 10
MAX_GENERATORS = 4 * MAX_CONTACTS

#: Status codes of the kernels.
QP_SOLVED = 0
QP_MAX_ITERATIONS = 1  # f is in the cone, but not optimal
QP_BAD_INPUT = 2  # non-finite or out-of-range data; f is zero
QP_STATUS_NAMES = ("solved", "max_iterations", "bad_input")

TOLERANCE = 1e-11  # on |F|, relative to 1 + |b|
DIRECT_ITERATIONS = 10  # first attempt
DIRECT_STEP = 4.0  # a cold first attempt also ends at a step outside [1/4, 4], which means saturation
STAGE_ITERATIONS = 40  # per eps of a homotopy
#: Homotopies tried in turn: first eps (over the mean squared column of A), factor per stage, stage tolerance over |b|.
FAST_HOMOTOPY = (0.01, 0.05, 0.1)
SLOW_HOMOTOPY = (1.0, 0.3, 1e-3)

WORK_SIZE = 3 * MAX_GENERATORS


def make_workspace(columns: int = MAX_GENERATORS) -> np.ndarray:
    """Scratch of one solver call at a time for problems of up to ``columns`` unknowns, shape (3 * columns,)."""
    return np.zeros(3 * columns)


@njit(cache=True, error_model="numpy", forceinline=True)
def _squared_norm(A, columns):
    """Squared Frobenius norm of the columns in use; not finite where an entry is not."""
    s0 = s1 = s2 = s3 = s4 = s5 = 0.0
    for j in range(columns):
        s0 += A[0, j] * A[0, j]
        s1 += A[1, j] * A[1, j]
        s2 += A[2, j] * A[2, j]
        s3 += A[3, j] * A[3, j]
        s4 += A[4, j] * A[4, j]
        s5 += A[5, j] * A[5, j]
    return s0 + s1 + s2 + s3 + s4 + s5


@njit(cache=True, error_model="numpy", forceinline=True)
def _clear(columns, u, f):
    for j in range(columns):
        f[j] = 0.0
    for k in range(6):
        u[k] = 0.0


@njit(cache=True, error_model="numpy")
def _solve(A, n, columns, b, mu, fmax, eps, cone, u, f, work):
    """Check the data, then attempt in turn: Newton from the given dual, fast homotopy, slow homotopy.

    One loop holds all three, because every call between compiled functions costs more than a residual: an attempt is a
    sequence of stages, each with its own ``eps``, tolerance and limit of iterations.
    """
    size = _squared_norm(A, columns)
    target = 0.0
    start = 0.0
    for k in range(6):
        target += b[k] * b[k]
        start += u[k] * u[k]
    good = size < np.inf and target < np.inf and eps > 0.0 and eps < np.inf
    if cone == PYRAMID:
        for i in range(n):
            good = good and mu[i] >= 0.0 and mu[i] < np.inf and fmax[i] >= 0.0
    if not good:
        _clear(columns, u, f)
        return QP_BAD_INPUT, 0, np.inf
    if not start < np.inf:
        for k in range(6):
            u[k] = 0.0
    target = np.sqrt(target)
    tolerance = TOLERANCE * (1.0 + target)

    attempt = 0
    first, factor, loose = FAST_HOMOTOPY
    stage_eps = eps
    stage_tolerance = tolerance
    limit = DIRECT_ITERATIONS
    max_step = DIRECT_STEP if start == 0.0 else np.inf
    total = 0
    iterations = 0
    while True:
        g = dual_residual(A, n, columns, b, mu, fmax, stage_eps, cone, u, f, work)
        residual = abs(g[0]) + abs(g[1]) + abs(g[2]) + abs(g[3]) + abs(g[4]) + abs(g[5])
        largest = abs(u[0]) + abs(u[1]) + abs(u[2]) + abs(u[3]) + abs(u[4]) + abs(u[5])
        # The second term is the rounding error of F, below which no iteration can go.
        found = residual <= stage_tolerance + 1e-15 * size * largest
        if found and stage_eps == eps:
            return QP_SOLVED, total, residual
        if not found and iterations < limit and residual < np.inf:
            t, d = newton_step(A, n, columns, b, mu, fmax, stage_eps, cone, u, g, work)
            iterations += 1
            total += 1
            if t <= max_step and t * max_step >= 1.0:
                for k in range(6):
                    u[k] -= t * d[k]
                continue
        iterations = 0
        if stage_eps > eps and residual < np.inf:  # next stage
            stage_eps *= factor
        else:  # next attempt
            attempt += 1
            if attempt == 3:
                break
            if attempt == 2:
                first, factor, loose = SLOW_HOMOTOPY
            limit = STAGE_ITERATIONS
            max_step = np.inf
            stage_eps = first * size / columns
            for k in range(6):
                u[k] = 0.0
        stage_tolerance = max(loose * target, tolerance)
        if stage_eps <= eps:
            stage_eps = eps
            stage_tolerance = tolerance
    if not residual < np.inf:
        _clear(columns, u, f)
    return QP_MAX_ITERATIONS, total, residual


@njit(cache=True, error_model="numpy")
def solve_contact_qp(A, n_contacts, b, mu, fmax, eps, u, f, work):
    """Solve the contact form: ``min 1/2 |A f - b|^2 + eps/2 |f|^2`` with every ``f_i`` in its capped pyramid.

    Nothing is allocated. Scale forces (by the body weight) so that ``b`` is of order one.

    Args:
        A: Contact map times the square root of the metric, shape (6, >= 3 n_contacts); columns per contact
            (tangent 1, tangent 2, normal).
        n_contacts: Contacts in use. 0 is flight: nothing is solved, ``u`` and ``f`` stay as they are.
        b: Wanted wrench in the same scaling, shape (6,).
        mu: Friction coefficient per contact, shape (>= n_contacts,).
        fmax: Largest normal force per contact in the force unit of ``b``, infinity for none, shape (>= n_contacts,).
        eps: Weight of the forces, > 0.
        u: In: start (previous dual, or zeros). Out: the dual; ``A f = b - eps u``. Shape (6,).
        f: Overwritten with the forces, contact frames, shape (>= 3 n_contacts,); always inside the cone.
        work: Scratch from `make_workspace`, at least 9 n_contacts numbers.

    Returns:
        ``(status, iterations, residual)``: a QP_* code, Newton steps taken, and the sum of ``|F_k(u)|``.
    """
    if n_contacts == 0:
        return QP_SOLVED, 0, 0.0
    columns = 3 * n_contacts
    if n_contacts < 0 or columns > A.shape[1] or 3 * columns > work.shape[0]:
        return QP_BAD_INPUT, 0, np.inf
    return _solve(A, n_contacts, columns, b, mu, fmax, eps, PYRAMID, u, f, work)


@njit(cache=True, error_model="numpy")
def solve_generator_qp(A, n_generators, b, eps, u, f, work):
    """Solve the generator form: ``min 1/2 |A f - b|^2 + eps/2 |f|^2`` subject to ``f >= 0``.

    Arguments and returns as in `solve_contact_qp`; ``A`` has one column per generator.
    """
    if n_generators == 0:
        return QP_SOLVED, 0, 0.0
    if n_generators < 0 or n_generators > A.shape[1] or 3 * n_generators > work.shape[0]:
        return QP_BAD_INPUT, 0, np.inf
    return _solve(A, n_generators, n_generators, b, b, b, eps, GENERATORS, u, f, work)
