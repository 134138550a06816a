"""Terms of the six-dimensional contact dual and one Newton step on it; see `engine.srb.dual_newton`.

All functions are inlined into the solver, because a call between compiled functions costs more than their work. ``n``
is the number of contacts (pyramid) or generators, ``columns`` the number of unknowns; ``work`` holds ``v = A^T u``,
``w = A^T d`` (``d`` the Newton direction) and the face codes, one after the other.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.srb.cone import FACE_APEX, FACE_CAP, FACE_X, FACE_Y, project_pyramid

PYRAMID = 0
GENERATORS = 1

FULL_STEP_SLOPE = 0.3  # the full step is taken where it brings the slope down to this fraction
SEARCH_SLOPE = 0.1  # otherwise the line search ends at this fraction
MAX_SLOPES = 50


@njit(cache=True, error_model="numpy", forceinline=True)
def dual_residual(A, n, columns, b, mu, fmax, eps, cone, u, f, work):
    """Evaluate ``f(u)`` (into ``f``) and return ``F(u)``; ``A^T u`` and the faces stay in the workspace."""
    u0, u1, u2, u3, u4, u5 = u[0], u[1], u[2], u[3], u[4], u[5]
    g0 = eps * u0 - b[0]
    g1 = eps * u1 - b[1]
    g2 = eps * u2 - b[2]
    g3 = eps * u3 - b[3]
    g4 = eps * u4 - b[4]
    g5 = eps * u5 - b[5]
    if cone == PYRAMID:
        for i in range(n):
            j = 3 * i
            x = A[0, j] * u0 + A[1, j] * u1 + A[2, j] * u2 + A[3, j] * u3 + A[4, j] * u4 + A[5, j] * u5
            j += 1
            y = A[0, j] * u0 + A[1, j] * u1 + A[2, j] * u2 + A[3, j] * u3 + A[4, j] * u4 + A[5, j] * u5
            j += 1
            z = A[0, j] * u0 + A[1, j] * u1 + A[2, j] * u2 + A[3, j] * u3 + A[4, j] * u4 + A[5, j] * u5
            j -= 2
            work[j] = x
            work[j + 1] = y
            work[j + 2] = z
            x, y, z, face = project_pyramid(x, y, z, mu[i], fmax[i])
            work[2 * columns + i] = face
            f[j] = x
            f[j + 1] = y
            f[j + 2] = z
            if face != FACE_APEX:
                g0 += A[0, j] * x + A[0, j + 1] * y + A[0, j + 2] * z
                g1 += A[1, j] * x + A[1, j + 1] * y + A[1, j + 2] * z
                g2 += A[2, j] * x + A[2, j + 1] * y + A[2, j + 2] * z
                g3 += A[3, j] * x + A[3, j + 1] * y + A[3, j + 2] * z
                g4 += A[4, j] * x + A[4, j + 1] * y + A[4, j + 2] * z
                g5 += A[5, j] * x + A[5, j + 1] * y + A[5, j + 2] * z
    else:
        for j in range(n):
            x = A[0, j] * u0 + A[1, j] * u1 + A[2, j] * u2 + A[3, j] * u3 + A[4, j] * u4 + A[5, j] * u5
            work[j] = x
            x = max(x, 0.0)
            f[j] = x
            if x > 0.0:
                g0 += A[0, j] * x
                g1 += A[1, j] * x
                g2 += A[2, j] * x
                g3 += A[3, j] * x
                g4 += A[4, j] * x
                g5 += A[5, j] * x
    return g0, g1, g2, g3, g4, g5


@njit(cache=True, error_model="numpy", forceinline=True)
def _add_outer(h, s, c0, c1, c2, c3, c4, c5):
    """``h + s c c^T`` on the lower triangle of a symmetric 6 x 6 matrix, row by row in a tuple of 21."""
    s0, s1, s2, s3, s4, s5 = s * c0, s * c1, s * c2, s * c3, s * c4, s * c5
    return (
        h[0] + s0 * c0,
        h[1] + s1 * c0, h[2] + s1 * c1,
        h[3] + s2 * c0, h[4] + s2 * c1, h[5] + s2 * c2,
        h[6] + s3 * c0, h[7] + s3 * c1, h[8] + s3 * c2, h[9] + s3 * c3,
        h[10] + s4 * c0, h[11] + s4 * c1, h[12] + s4 * c2, h[13] + s4 * c3, h[14] + s4 * c4,
        h[15] + s5 * c0, h[16] + s5 * c1, h[17] + s5 * c2, h[18] + s5 * c3, h[19] + s5 * c4, h[20] + s5 * c5,
    )  # fmt: skip


@njit(cache=True, error_model="numpy", forceinline=True)
def _newton_matrix(A, n, columns, mu, eps, cone, work):
    """``eps I + A P A^T`` for the faces in the workspace, as 21 numbers."""
    h = (
        eps,
        0.0, eps,
        0.0, 0.0, eps,
        0.0, 0.0, 0.0, eps,
        0.0, 0.0, 0.0, 0.0, eps,
        0.0, 0.0, 0.0, 0.0, 0.0, eps,
    )  # fmt: skip
    if cone == PYRAMID:
        for i in range(n):
            face = int(work[2 * columns + i])
            if face == FACE_APEX:
                continue
            j = 3 * i
            k = j + 1
            m = j + 2
            sx = 0.0
            sy = 0.0
            if face & FACE_X:
                sx = mu[i] if work[j] > 0.0 else -mu[i]
            else:
                h = _add_outer(h, 1.0, A[0, j], A[1, j], A[2, j], A[3, j], A[4, j], A[5, j])
            if face & FACE_Y:
                sy = mu[i] if work[k] > 0.0 else -mu[i]
            else:
                h = _add_outer(h, 1.0, A[0, k], A[1, k], A[2, k], A[3, k], A[4, k], A[5, k])
            if face & FACE_CAP == 0:
                h = _add_outer(
                    h,
                    1.0 / (1.0 + sx * sx + sy * sy),
                    A[0, m] + sx * A[0, j] + sy * A[0, k],
                    A[1, m] + sx * A[1, j] + sy * A[1, k],
                    A[2, m] + sx * A[2, j] + sy * A[2, k],
                    A[3, m] + sx * A[3, j] + sy * A[3, k],
                    A[4, m] + sx * A[4, j] + sy * A[4, k],
                    A[5, m] + sx * A[5, j] + sy * A[5, k],
                )
    else:
        for j in range(n):
            if work[j] > 0.0:
                h = _add_outer(h, 1.0, A[0, j], A[1, j], A[2, j], A[3, j], A[4, j], A[5, j])
    return h


@njit(cache=True, error_model="numpy", forceinline=True)
def _solve6(h, g, floor):
    """``H^-1 g`` by LDL^T; pivots are kept at ``floor`` or above, so that rounding cannot make them negative."""
    e0 = 1.0 / max(h[0], floor)
    a10, a20, a30, a40, a50 = h[1], h[3], h[6], h[10], h[15]
    l10, l20, l30, l40, l50 = a10 * e0, a20 * e0, a30 * e0, a40 * e0, a50 * e0
    e1 = 1.0 / max(h[2] - l10 * a10, floor)
    a21 = h[4] - l20 * a10
    a31 = h[7] - l30 * a10
    a41 = h[11] - l40 * a10
    a51 = h[16] - l50 * a10
    l21, l31, l41, l51 = a21 * e1, a31 * e1, a41 * e1, a51 * e1
    e2 = 1.0 / max(h[5] - l20 * a20 - l21 * a21, floor)
    a32 = h[8] - l30 * a20 - l31 * a21
    a42 = h[12] - l40 * a20 - l41 * a21
    a52 = h[17] - l50 * a20 - l51 * a21
    l32, l42, l52 = a32 * e2, a42 * e2, a52 * e2
    e3 = 1.0 / max(h[9] - l30 * a30 - l31 * a31 - l32 * a32, floor)
    a43 = h[13] - l40 * a30 - l41 * a31 - l42 * a32
    a53 = h[18] - l50 * a30 - l51 * a31 - l52 * a32
    l43, l53 = a43 * e3, a53 * e3
    e4 = 1.0 / max(h[14] - l40 * a40 - l41 * a41 - l42 * a42 - l43 * a43, floor)
    a54 = h[19] - l50 * a40 - l51 * a41 - l52 * a42 - l53 * a43
    l54 = a54 * e4
    e5 = 1.0 / max(h[20] - l50 * a50 - l51 * a51 - l52 * a52 - l53 * a53 - l54 * a54, floor)
    y0 = g[0]
    y1 = g[1] - l10 * y0
    y2 = g[2] - l20 * y0 - l21 * y1
    y3 = g[3] - l30 * y0 - l31 * y1 - l32 * y2
    y4 = g[4] - l40 * y0 - l41 * y1 - l42 * y2 - l43 * y3
    y5 = g[5] - l50 * y0 - l51 * y1 - l52 * y2 - l53 * y3 - l54 * y4
    x5 = y5 * e5
    x4 = y4 * e4 - l54 * x5
    x3 = y3 * e3 - l43 * x4 - l53 * x5
    x2 = y2 * e2 - l32 * x3 - l42 * x4 - l52 * x5
    x1 = y1 * e1 - l21 * x2 - l31 * x3 - l41 * x4 - l51 * x5
    x0 = y0 * e0 - l10 * x1 - l20 * x2 - l30 * x3 - l40 * x4 - l50 * x5
    return x0, x1, x2, x3, x4, x5


@njit(cache=True, error_model="numpy", forceinline=True)
def _slope(t, linear, quadratic, n, columns, mu, fmax, cone, work):
    """First and second derivative of the dual along the step, at ``t``.

    They are ``linear + t quadratic + w . Proj(v + t w)`` and ``quadratic + w . P w`` with ``v = A^T u``, ``w = A^T d``.
    """
    first = linear + t * quadratic
    second = quadratic
    if cone == PYRAMID:
        for i in range(n):
            j = 3 * i
            wx = work[columns + j]
            wy = work[columns + j + 1]
            wz = work[columns + j + 2]
            x, y, z, face = project_pyramid(
                work[j] + t * wx, work[j + 1] + t * wy, work[j + 2] + t * wz, mu[i], fmax[i]
            )
            if face == FACE_APEX:
                continue
            first += wx * x + wy * y + wz * z
            weight = 1.0
            along = wz
            if face & FACE_X:
                sx = mu[i] if x > 0.0 else -mu[i]
                along += sx * wx
                weight += sx * sx
            else:
                second += wx * wx
            if face & FACE_Y:
                sy = mu[i] if y > 0.0 else -mu[i]
                along += sy * wy
                weight += sy * sy
            else:
                second += wy * wy
            if face & FACE_CAP == 0:
                second += along * along / weight
    else:
        for j in range(n):
            w = work[columns + j]
            x = work[j] + t * w
            if x > 0.0:
                first += w * x
                second += w * w
    return first, second


@njit(cache=True, error_model="numpy", forceinline=True)
def _step_length(slope0, linear, quadratic, n, columns, mu, fmax, cone, work):
    """Step at which the derivative along the step is (nearly) zero: the full step where good enough, else a search.

    The derivative is piecewise linear and increasing: Newton on it ends in a few evaluations on the right piece. Where
    Newton leaves the bracket, and every second time later on, the bracket is halved on a logarithmic scale, because the
    pieces lie orders of magnitude apart when most contacts are saturated.
    """
    enough = FULL_STEP_SLOPE * abs(slope0)
    t_lo = 0.0
    t_hi = np.inf
    t = 1.0
    for evaluation in range(MAX_SLOPES):
        s, c = _slope(t, linear, quadratic, n, columns, mu, fmax, cone, work)
        if abs(s) <= enough:
            break
        enough = SEARCH_SLOPE * abs(slope0)
        if s > 0.0:
            t_hi = t
        else:
            t_lo = t
        step = t - s / c
        if t_hi < np.inf and (step <= t_lo or step >= t_hi or (evaluation > 2 and evaluation & 1)):
            inner = max(t_lo, 0.01 * t_hi)
            step = np.sqrt(inner * t_hi) if t_hi > 2.0 * inner else 0.5 * (t_lo + t_hi)
        t = step
    return t


@njit(cache=True, error_model="numpy", forceinline=True)
def newton_step(A, n, columns, b, mu, fmax, eps, cone, u, g, work):
    """Newton direction and line search at the evaluated ``u``; returns ``(t, d)``, the step being ``u - t d``."""
    d = _solve6(_newton_matrix(A, n, columns, mu, eps, cone, work), g, 0.5 * eps)
    d0, d1, d2, d3, d4, d5 = d
    for j in range(columns):
        work[columns + j] = -(A[0, j] * d0 + A[1, j] * d1 + A[2, j] * d2 + A[3, j] * d3 + A[4, j] * d4 + A[5, j] * d5)
    slope0 = -(d0 * g[0] + d1 * g[1] + d2 * g[2] + d3 * g[3] + d4 * g[4] + d5 * g[5])
    along_u = d0 * u[0] + d1 * u[1] + d2 * u[2] + d3 * u[3] + d4 * u[4] + d5 * u[5]
    along_b = d0 * b[0] + d1 * b[1] + d2 * b[2] + d3 * b[3] + d4 * b[4] + d5 * b[5]
    quadratic = eps * (d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3 + d4 * d4 + d5 * d5)
    t = _step_length(slope0, along_b - eps * along_u, quadratic, n, columns, mu, fmax, cone, work)
    return t, d
