r"""The set of admissible contact forces: Euclidean projection and its Jacobian, in closed form.

A contact force in its own frame ``(tangent 1, tangent 2, normal)`` must lie in the capped friction pyramid

``K = { (x, y, z) : |x| <= mu z,  |y| <= mu z,  0 <= z <= fmax }``.

Given the height ``z``, the best ``x`` and ``y`` are clamps to ``[-mu z, mu z]``. What remains is a convex piecewise
quadratic in ``z`` alone with three pieces (no side face, the nearer one, or both active), so the projection needs no
iteration. A linear piece of the projection is an orthogonal projection onto a face's span, so each Jacobian is
symmetric, idempotent and of rank 0 to 3.
"""

from __future__ import annotations

import numpy as np
from numba import njit

#: Bits of a face code: what is active at the projected point.
FACE_X = 1  # |x| = mu z
FACE_Y = 2  # |y| = mu z
FACE_CAP = 4  # z = fmax
FACE_APEX = 8  # z = 0


@njit(cache=True, error_model="numpy", forceinline=True)
def project_pyramid(x, y, z, mu, fmax):
    """Project a force onto the capped pyramid.

    Args:
        x: First tangential component, contact frame.
        y: Second tangential component.
        z: Normal component.
        mu: Friction coefficient, >= 0.
        fmax: Largest normal force, >= 0; infinity for none.

    Returns:
        ``(px, py, pz, face)``: the nearest point of K and the code of the active faces there.
    """
    ax = abs(x)
    ay = abs(y)
    far = max(ax, ay)
    near = min(ax, ay)
    height = z
    if mu * height < far:
        height = (z + mu * far) / (1.0 + mu * mu)
        if mu * height < near:
            height = (z + mu * (far + near)) / (1.0 + 2.0 * mu * mu)
    if height < 0.0:
        return 0.0, 0.0, 0.0, FACE_APEX
    face = 0
    if height > fmax:
        height = fmax
        face = FACE_CAP
    limit = mu * height
    if ax > limit:
        x = limit if x > 0.0 else -limit
        face += FACE_X
    if ay > limit:
        y = limit if y > 0.0 else -limit
        face += FACE_Y
    return x, y, height, face


@njit(cache=True, error_model="numpy")
def projection_jacobian(x, y, z, mu, fmax):
    """Jacobian of `project_pyramid` at a point (one element of the generalised Jacobian where two pieces meet).

    Returns:
        ``(pxx, pxy, pxz, pyy, pyz, pzz)``: the upper triangle of the symmetric 3 x 3 matrix.
    """
    _, _, _, face = project_pyramid(x, y, z, mu, fmax)
    if face == FACE_APEX:
        return 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    on_x = face & FACE_X != 0
    on_y = face & FACE_Y != 0
    if face & FACE_CAP:
        return (0.0 if on_x else 1.0), 0.0, 0.0, (0.0 if on_y else 1.0), 0.0, 0.0
    sx = (mu if x > 0.0 else -mu) if on_x else 0.0
    sy = (mu if y > 0.0 else -mu) if on_y else 0.0
    w = 1.0 / (1.0 + sx * sx + sy * sy)
    pxx = sx * sx * w if on_x else 1.0
    pyy = sy * sy * w if on_y else 1.0
    return pxx, sx * sy * w, sx * w, pyy, sy * w, w


@njit(cache=True, error_model="numpy")
def projection_jacobians_into(out, A, n_contacts, mu, fmax, u):
    """Jacobian blocks ``P_i`` of the projection at ``A^T u``, for the derivative of a solved contact problem.

    With ``H = eps I + sum_i A_i P_i A_i^T`` the solution ``u(A, b)`` obeys
    ``H du = db - dA f - sum_i A_i P_i dA_i^T u`` and the forces ``df_i = P_i (dA_i^T u + A_i^T du)``; see
    `dual_hessian_into` for ``H``.

    Args:
        out: Overwritten with the blocks, shape (>= n_contacts, 3, 3).
        A: Scaled contact map, shape (6, >= 3 n_contacts), columns (tangent 1, tangent 2, normal) per contact.
        n_contacts: Number of contacts in use.
        mu: Friction coefficients, shape (>= n_contacts,).
        fmax: Normal force caps in the problem's force unit, shape (>= n_contacts,).
        u: Dual solution, shape (6,).
    """
    for i in range(n_contacts):
        x = 0.0
        y = 0.0
        z = 0.0
        for k in range(6):
            x += A[k, 3 * i] * u[k]
            y += A[k, 3 * i + 1] * u[k]
            z += A[k, 3 * i + 2] * u[k]
        pxx, pxy, pxz, pyy, pyz, pzz = projection_jacobian(x, y, z, mu[i], fmax[i])
        out[i, 0, 0] = pxx
        out[i, 0, 1] = pxy
        out[i, 0, 2] = pxz
        out[i, 1, 0] = pxy
        out[i, 1, 1] = pyy
        out[i, 1, 2] = pyz
        out[i, 2, 0] = pxz
        out[i, 2, 1] = pyz
        out[i, 2, 2] = pzz


@njit(cache=True, error_model="numpy")
def dual_hessian_into(out, A, n_contacts, blocks, eps):
    """Newton matrix ``H = eps I + sum_i A_i P_i A_i^T`` of the dual, shape (6, 6), from `projection_jacobians_into`."""
    for k in range(6):
        for m in range(6):
            out[k, m] = eps if k == m else 0.0
    for i in range(n_contacts):
        for k in range(6):
            for c in range(3):
                row = 0.0
                for d in range(3):
                    row += A[k, 3 * i + d] * blocks[i, d, c]
                for m in range(6):
                    out[k, m] += row * A[m, 3 * i + c]


def pyramid_project(points: np.ndarray, mu: np.ndarray, fmax: np.ndarray) -> np.ndarray:
    """Project forces (n, 3), contact frames, onto their pyramids; ``mu`` and ``fmax`` have shape (n,)."""
    out = np.empty_like(points, dtype=np.float64)
    for i, (x, y, z) in enumerate(points):
        out[i] = project_pyramid(float(x), float(y), float(z), float(mu[i]), float(fmax[i]))[:3]
    return out
