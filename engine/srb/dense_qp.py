"""A general dense QP with checked inputs and checked outputs, on Clarabel.

``min 1/2 x^T P x + q^T x   subject to   l <= A x <= u``

Solvers accept, without a word, matrices that are not symmetric, not convex or not a number, and leave garbage behind
when a problem has no solution. Here the input is refused before the solver sees it, and a solution is handed out only
where its own residuals bear it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from engine.errors import InputError

#: Bounds of all rows; None for none, also entry by entry.
Bounds = ArrayLike | Sequence[float | None] | None

SYMMETRY_NOTE = "P is not symmetric: (P + P^T) / 2 is used"
_TOLERANCE = 1e-10
_ACCEPTED = 1e-6  # residuals relative to the size of their terms
_DEFINITENESS = 1e-10  # smallest eigenvalue over the largest


class DenseResiduals(NamedTuple):
    """Relative optimality residuals of `DenseSolution`."""

    stationarity: float
    """``|P x + q + A^T y|`` over the largest of its terms."""
    feasibility: float
    """Largest violation of ``l <= A x <= u`` over ``1 + |A x|``."""
    complementarity: float
    """Largest |multiplier times distance to its bound| over ``1 + |objective|``."""


class DenseSolution(NamedTuple):
    """Answer of `solve_dense_qp`."""

    x: NDArray[np.float64] | None
    """Solution, shape (n,); None unless ``status`` is ``solved`` or ``inaccurate``."""
    status: str
    """``solved``, ``inaccurate``, ``infeasible``, ``unbounded``, ``max_iterations`` or ``numerical_error``."""
    iterations: int
    residuals: DenseResiduals | None
    objective: float | None
    notes: tuple[str, ...] = ()
    """What was changed in the input before solving."""


def solve_dense_qp(
    P: ArrayLike,
    q: ArrayLike,
    A: ArrayLike | None = None,
    l: Bounds = None,  # noqa: E741 (the name in the problem)
    u: Bounds = None,
) -> DenseSolution:
    """Solve a convex QP.

    Args:
        P: Cost matrix, positive semidefinite, shape (n, n). Not symmetric: its symmetric part is used and noted.
        q: Cost vector, shape (n,).
        A: Constraint matrix, shape (m, n); None for no constraints.
        l: Lower bounds, shape (m,); None (the whole or an entry) or -inf for no bound.
        u: Upper bounds, shape (m,); None (the whole or an entry) or inf for no bound. ``l == u`` is an equality.

    Returns:
        The solution, or a status that says why there is none.

    Raises:
        InputError: Wrong shape, NaN or infinity where a number belongs, ``l > u`` in a row, or P not convex.
    """
    P_array, q_array, notes = _check_cost(P, q)
    A_array, lower, upper = _check_constraints(A, l, u, len(q_array))
    equal = np.isfinite(lower) & (lower == upper)
    below = np.isfinite(upper) & ~equal
    above = np.isfinite(lower) & ~equal
    G = np.concatenate([A_array[equal], A_array[below], -A_array[above]])
    h = np.concatenate([upper[equal], upper[below], -lower[above]])
    n_equal = int(equal.sum())
    if len(h) == 0:
        return _solve_unconstrained(P_array, q_array, notes)

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = _TOLERANCE
    cones = [clarabel.ZeroConeT(n_equal)] if n_equal else []
    if len(h) > n_equal:
        cones.append(clarabel.NonnegativeConeT(len(h) - n_equal))
    solver = clarabel.DefaultSolver(sp.csc_matrix(np.triu(P_array)), q_array, sp.csc_matrix(G), h, cones, settings)
    answer = solver.solve()
    status, iterations = str(answer.status), int(answer.iterations)
    if status in ("PrimalInfeasible", "AlmostPrimalInfeasible"):
        return DenseSolution(None, "infeasible", iterations, None, None, notes)
    if status in ("DualInfeasible", "AlmostDualInfeasible"):
        return DenseSolution(None, "unbounded", iterations, None, None, notes)
    x = np.array(answer.x, dtype=np.float64)
    y = np.array(answer.z, dtype=np.float64)
    if not (np.all(np.isfinite(x)) and np.all(np.isfinite(y))):
        return DenseSolution(None, "numerical_error", iterations, None, None, notes)
    residuals = _residuals(P_array, q_array, G, h, n_equal, x, y)
    polished = _polish(P_array, q_array, G, h, n_equal, x, y)
    if polished is not None:
        polished_residuals = _residuals(P_array, q_array, G, h, n_equal, *polished)
        if max(polished_residuals) <= max(*residuals, 1e-12):
            x, residuals = polished[0], polished_residuals
    objective = float(0.5 * x @ P_array @ x + q_array @ x)
    if max(residuals) <= _ACCEPTED:
        return DenseSolution(x, "solved", iterations, residuals, objective, notes)
    if status in ("Solved", "AlmostSolved"):
        return DenseSolution(x, "inaccurate", iterations, residuals, objective, notes)
    reason = "max_iterations" if status in ("MaxIterations", "MaxTime") else "numerical_error"
    return DenseSolution(None, reason, iterations, residuals, None, notes)


def _solve_unconstrained(P: NDArray[np.float64], q: NDArray[np.float64], notes: tuple[str, ...]) -> DenseSolution:
    """Solve ``P x = -q`` in the least-squares sense; unbounded where ``q`` is outside the range of ``P``."""
    x = np.asarray(np.linalg.lstsq(P, -q, rcond=None)[0], dtype=np.float64)
    empty = np.zeros(0)
    residuals = _residuals(P, q, np.zeros((0, len(q))), empty, 0, x, empty)
    if residuals.stationarity > _ACCEPTED:
        return DenseSolution(None, "unbounded", 0, None, None, notes)
    return DenseSolution(x, "solved", 0, residuals, float(0.5 * x @ P @ x + q @ x), notes)


def _polish(
    P: NDArray[np.float64],
    q: NDArray[np.float64],
    G: NDArray[np.float64],
    h: NDArray[np.float64],
    n_equal: int,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Solve the optimality conditions on the rows that look active, in unknowns scaled to a unit diagonal of P.

    An interior point leaves directions with a small curvature unresolved; with the active rows known they are not.
    """
    n = len(q)
    slack = h - G @ x
    active = np.concatenate([np.ones(n_equal, dtype=bool), y[n_equal:] > slack[n_equal:]])
    diagonal = np.diag(P)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    rows = G[active] * scale
    size = np.maximum(np.max(np.abs(rows), axis=1, initial=0.0), 1e-300)
    rows = rows / size[:, None]
    m = len(rows)
    kkt = np.block([[P * np.outer(scale, scale), rows.T], [rows, np.zeros((m, m))]])
    answer = np.linalg.lstsq(kkt, np.concatenate([-q * scale, h[active] / size]), rcond=None)[0]
    if not np.all(np.isfinite(answer)):
        return None
    multipliers = np.zeros(len(h))
    multipliers[active] = answer[n:] / size
    return answer[:n] * scale, multipliers


def _residuals(
    P: NDArray[np.float64],
    q: NDArray[np.float64],
    G: NDArray[np.float64],
    h: NDArray[np.float64],
    n_equal: int,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> DenseResiduals:
    terms = (P @ x, q, G.T @ y)
    size = max(max(float(np.max(np.abs(term))) for term in terms), 1e-300)
    slack = h - G @ x
    violation = np.concatenate([np.abs(slack[:n_equal]), np.maximum(-slack[n_equal:], 0.0), [0.0]])
    wrong_sign = float(np.max(-y[n_equal:], initial=0.0))
    objective = 0.5 * x @ P @ x + q @ x
    gap = np.abs(y[n_equal:] * slack[n_equal:])
    return DenseResiduals(
        (float(np.max(np.abs(sum(terms)))) + wrong_sign) / size,
        float(np.max(violation / (1.0 + np.append(np.abs(h), 0.0)))),
        float(np.max(gap, initial=0.0) / (1.0 + abs(objective))),
    )


def _check_cost(P: ArrayLike, q: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]:
    q_array = _array(q, "q", 1)
    P_array = _array(P, "P", 2)
    n = len(q_array)
    if n == 0:
        raise InputError("q is empty (found 0 numbers, expected at least 1)")
    if P_array.shape != (n, n):
        raise InputError(f"P has the wrong shape (found {P_array.shape}, expected {(n, n)} for {n} numbers in q)")
    for name, array in (("P", P_array), ("q", q_array)):
        _check_finite(array, name)
    notes: tuple[str, ...] = ()
    if not np.allclose(P_array, P_array.T, rtol=1e-12, atol=1e-12 * float(np.max(np.abs(P_array)))):
        notes = (SYMMETRY_NOTE,)
    P_array = 0.5 * P_array + 0.5 * P_array.T
    eigenvalues = np.linalg.eigvalsh(P_array)
    if eigenvalues[0] < -_DEFINITENESS * max(abs(eigenvalues[-1]), abs(eigenvalues[0])):
        raise InputError(f"P is not convex (found smallest eigenvalue {eigenvalues[0]:g}, expected >= 0)")
    return P_array, q_array, notes


def _check_constraints(
    A: ArrayLike | None,
    l: Bounds,  # noqa: E741
    u: Bounds,
    n: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    if A is None:
        if l is not None or u is not None:
            raise InputError("A is missing (found bounds l or u without it, expected all of them or none)")
        return np.zeros((0, n)), np.zeros(0), np.zeros(0)
    A_array = _array(A, "A", 2) if np.size(A) else np.zeros((0, n))
    m = len(A_array)
    if A_array.shape != (m, n):
        raise InputError(f"A has the wrong shape (found {A_array.shape}, expected {n} columns as in q)")
    _check_finite(A_array, "A")
    lower = _bounds(l, "l", m, -np.inf)
    upper = _bounds(u, "u", m, np.inf)
    for row in range(m):
        if lower[row] > upper[row] or lower[row] == np.inf or upper[row] == -np.inf:
            raise InputError(
                f"row {row}: no value is allowed (found l = {lower[row]:g}, u = {upper[row]:g}, expected l <= u)"
            )
    return A_array, lower, upper


def _bounds(values: Bounds, name: str, m: int, free: float) -> NDArray[np.float64]:
    """Bounds with None as ``free``."""
    if values is None:
        return np.full(m, free)
    listed = isinstance(values, (list, tuple))
    bounds = _array([free if value is None else value for value in values] if listed else values, name, 1)
    if bounds.shape != (m,):
        raise InputError(f"{name} has the wrong length (found {bounds.shape[0]}, expected {m}, the rows of A)")
    for row in np.flatnonzero(np.isnan(bounds)):
        raise InputError(f"row {row}: {name} is not a number (found nan, expected a number, or null for no bound)")
    return bounds


def _array(values: Any, name: str, dimensions: int) -> NDArray[np.float64]:
    kind = "a vector" if dimensions == 1 else "a matrix"
    try:
        raw = np.asarray(values)
        array = raw.astype(np.float64) if raw.dtype.kind in "iuf" or raw.size == 0 else None
    except (TypeError, ValueError, OverflowError):
        array = None
    if array is None or array.ndim != dimensions:
        shown = " ".join(str(values).split())[:60]
        raise InputError(f"{name} is not {kind} of numbers (found {shown}, expected {kind})")
    return array


def _check_finite(array: NDArray[np.float64], name: str) -> None:
    for index in np.argwhere(~np.isfinite(array)):
        place = ", ".join(str(k) for k in index)
        raise InputError(f"{name} is not finite (found {array[tuple(index)]} at [{place}], expected finite numbers)")
