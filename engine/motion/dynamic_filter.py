r"""Make a motion physically possible: weight on the ground in stance, free fall and constant momentum in flight.

Reconstructed, retargeted and retimed clips do not fall at g. The height ``z`` of the centre of mass is replaced by the
least-squares solution of

.. math::
    \min_z \sum_t \frac{(z - z_0)^2}{s_z^2} + \sum_{stance} \frac{(\ddot z - \max(\ddot z_0, -g))^2}{s_s^2}
    + \sum_{flight} \frac{(\ddot z + g)^2}{s_f^2}

with central second differences: a symmetric pentadiagonal system, solved for the whole clip at once. Then its path in
the plane, ``y``, is moved as little as it takes for the point that the ground's force must act at, the zero-moment
point ``y - \ddot y / w^2`` with ``w^2 = (g + \ddot z) / z``, to lie under the feet that stand:

.. math::
    \min_y \sum_t \frac{|y - y_0|^2}{s_p^2} + \sum_{stance} \frac{w^4 d(y - \ddot y / w^2)^2}{s_t^2}
    + \sum_{flight} \frac{|\ddot y|^2}{s_f^2}

with ``d`` the distance to the support. Markers that slip and labels that come a frame late ask for sideways forces that
no foot on the ground can give; a controller that must follow them walks with its feet too far out.

Last, the orientation ``R`` of the single rigid body leaves the pelvis's ``R_0`` as far as it takes for the rigid body
to have the angular momentum of the whole body, up to a constant, and a constant one in flight:

.. math::
    \min_R \sum_t \frac{|\log(R R_0^T)|^2}{s_r^2} + \sum_{stance} \frac{|I_w^{-1}(\dot L - \dot H)|^2}{s_m^2}
    + \sum_{flight} \frac{|I_w^{-1} \dot L|^2}{s_l^2}, \qquad L = I_w \omega

with ``H`` the angular momentum of the 15 bodies. A pelvis that turns against the limbs does so without any torque from
the ground; a rigid body that copies it needs one, and in flight there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve_banded, cholesky_banded, solveh_banded

from engine.motion.config import DynamicFilterParams
from engine.rotation import quat_exp, quat_inv, quat_log, quat_mul, quat_to_matrix

Array = NDArray[np.float64]
GRAVITY = 9.81
_TURNS, _STILL_M = 3000, 1e-7  # of projection and least squares: at most so many, and where the path stands still
_NEWTON_STEPS, _STILL_RAD = 50, 1e-9


def filter_height(com_z: Array, flight: NDArray[np.bool_], fps: float, params: DynamicFilterParams) -> Array:
    """Filter the height of the centre of mass.

    Args:
        com_z: Recorded height [m] (T,).
        flight: Frames without contact (T,).
        fps: Frames a second.
        params: Standard deviations.

    Returns:
        Height [m] (T,) that falls at g in flight.
    """
    n = len(com_z)
    if n < 3:
        return np.array(com_z, np.float64)
    z0 = np.asarray(com_z, np.float64)
    acc0 = (z0[2:] - 2 * z0[1:-1] + z0[:-2]) * fps**2
    in_flight = flight[1:-1]
    target = np.where(in_flight, -GRAVITY, np.maximum(acc0, -GRAVITY))
    weight = np.where(in_flight, params.flight_m_s2, params.stance_m_s2) ** -2.0
    stencil = np.tile(np.array([[1.0], [-2.0], [1.0]]) * fps**2, n - 2)
    rhs = z0 / params.height_m**2 + _transposed(stencil, weight * target)
    return solveh_banded(_normal_bands(stencil, weight, params.height_m), rhs)


def filter_path(
    com_xy: Array,
    com_z: Array,
    sole_xy: Array,
    foot_yaw: Array,
    stands: NDArray[np.bool_],
    fps: float,
    params: DynamicFilterParams,
) -> Array:
    """Filter the path of the centre of mass in the plane.

    The convex problem is solved by turns: the zero-moment points are projected on the support, then the path is the
    least-squares solution for these points.

    Args:
        com_xy: Recorded path [m] (T, 2). com_z: Height above the ground, filtered [m] (T,).
        sole_xy: Centres of the soles, left first [m] (T, 2, 2). foot_yaw: Their headings [rad] (T, 2).
        stands: Feet on the ground (T, 2).
        fps: Frames a second.
        params: Standard deviations and the half-size of the support.

    Returns:
        Path [m] (T, 2).
    """
    n = len(com_xy)
    if n < 3:
        return np.array(com_xy, np.float64)
    y0 = np.asarray(com_xy, np.float64)
    up = np.maximum(GRAVITY + (com_z[2:] - 2 * com_z[1:-1] + com_z[:-2]) * fps**2, 0.0)
    on_ground = stands[1:-1].any(axis=1)
    stiffness = np.where(on_ground, up / np.maximum(com_z[1:-1], 0.1), 0.0)  # w^2
    weight = np.where(on_ground, params.path_stance_m_s2, params.flight_m_s2) ** -2.0
    stencil = np.stack([np.full(n - 2, fps**2), -2 * fps**2 - stiffness, np.full(n - 2, fps**2)])
    factor = cholesky_banded(_normal_bands(stencil, weight, params.path_m))
    y, ahead, speed = y0, y0, 1.0
    for _ in range(_TURNS):
        acc = (ahead[2:] - 2 * ahead[1:-1] + ahead[:-2]) * fps**2
        zmp = ahead[1:-1] - acc / np.maximum(stiffness, 1e-6)[:, None]
        held = _on_support(zmp, sole_xy[1:-1], foot_yaw[1:-1], stands[1:-1], params)
        pull = _transposed(stencil, -(weight * stiffness)[:, None] * held)
        before, y = y, cho_solve_banded((factor, False), y0 / params.path_m**2 + pull)
        # each turn is a proximal gradient step; Nesterov's momentum, restarted where it points uphill
        if np.sum((ahead - y) * (y - before)) > 0:
            speed = 1.0
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * speed**2))
        ahead, speed = y + (speed - 1.0) / faster * (y - before), faster
        if np.abs(y - before).max() < _STILL_M:
            break
    return y


def filter_turn(
    quat: Array,
    momentum_w: Array,
    inertia_b: Array,
    flight: NDArray[np.bool_],
    fps: float,
    params: DynamicFilterParams,
) -> Array:
    """Filter the orientation of the single rigid body.

    Newton steps with the derivative of small turns: a change of the orientations changes the angular acceleration by
    its second difference.

    Args:
        quat: Pelvis orientation (T, 4).
        momentum_w: Angular momentum of the whole body about its centre of mass, from each frame to the next
            [kg m^2/s] (T - 1, 3).
        inertia_b: Inertia of the rigid body in its own axes [kg m^2] (3, 3).
        flight: Frames without contact (T,).
        fps: Frames a second.
        params: Standard deviations.

    Returns:
        Orientation (T, 4).
    """
    n, q = len(quat), np.array(quat, np.float64)
    if n < 3:
        return q
    in_flight = flight[1:-1]
    torque = np.where(in_flight[:, None], 0.0, np.diff(momentum_w, axis=0) * fps)
    weight = np.where(in_flight, params.turn_flight_rad_s2, params.turn_stance_rad_s2) ** -2.0
    stencil = np.tile(np.array([[1.0], [-2.0], [1.0]]) * fps**2, n - 2)
    factor = cholesky_banded(_normal_bands(stencil, weight, params.turn_rad))
    for _ in range(_NEWTON_STEPS):
        turn = quat_log(quat_mul(q[1:], quat_inv(q[:-1])))
        rot = quat_to_matrix(quat_mul(quat_exp(0.5 * turn), q[:-1]))
        inertia_w = rot @ inertia_b @ np.swapaxes(rot, -1, -2)
        momentum = fps * (inertia_w @ turn[..., None])[..., 0]
        missing = np.linalg.solve(inertia_w[1:], (torque - fps * np.diff(momentum, axis=0))[..., None])[..., 0]
        away = quat_log(quat_mul(q, quat_inv(quat)))
        rhs = _transposed(stencil, weight[:, None] * missing) - away / params.turn_rad**2
        step = cho_solve_banded((factor, False), rhs)
        q = quat_mul(quat_exp(step), q)
        if np.abs(step).max() < _STILL_RAD:
            break
    return q


def _normal_bands(stencil: Array, weight: Array, sd: float) -> Array:
    """Upper bands (3, T) of 1/sd^2 + A^T W A; row t of A holds ``stencil[:, t]`` (3, T - 2) at t, t + 1, t + 2."""
    n = len(weight) + 2
    bands = np.zeros((3, n))  # bands[2] diagonal, bands[1] first, bands[0] second off-diagonal
    bands[2] = 1.0 / sd**2
    for a in range(3):
        for b in range(a, 3):
            bands[2 - (b - a), b : n - 2 + b] += weight * stencil[a] * stencil[b]
    return bands


def _transposed(stencil: Array, values: Array) -> Array:
    """A^T values, (T,) or (T, k) of (T - 2,) or (T - 2, k)."""
    n = len(values) + 2
    out = np.zeros((n, *values.shape[1:]))
    for a in range(3):
        out[a : n - 2 + a] += (stencil[a] * values.T).T
    return out


def _on_support(
    point: Array, sole_xy: Array, foot_yaw: Array, stands: NDArray[np.bool_], params: DynamicFilterParams
) -> Array:
    """Points (T, 2) moved onto the soles that stand; between two feet the sole slides from one to the other."""
    left, right = sole_xy[:, 0], sole_xy[:, 1]
    across = right - left
    share = np.sum((point - left) * across, axis=1) / np.maximum(np.sum(across**2, axis=1), 1e-9)
    share = np.where(stands.all(axis=1), np.clip(share, 0.0, 1.0), stands[:, 1].astype(float))
    centre = left + share[:, None] * across
    turn = (foot_yaw[:, 1] - foot_yaw[:, 0] + np.pi) % (2 * np.pi) - np.pi
    yaw = foot_yaw[:, 0] + share * turn
    c, s = np.cos(yaw), np.sin(yaw)
    away = point - centre
    forward = np.clip(c * away[:, 0] + s * away[:, 1], -params.support_length_m, params.support_length_m)
    side = np.clip(-s * away[:, 0] + c * away[:, 1], -params.support_width_m, params.support_width_m)
    return centre + np.stack([c * forward - s * side, s * forward + c * side], axis=1)
