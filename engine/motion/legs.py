"""Two-bone legs of the 15-body character on whole motions: put the ankles where they are wanted, knees as hinges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.rotation import quat_from_matrix, quat_rotate, quat_to_matrix
from engine.skeleton import (
    HEEL_OFFSET,
    SHANK_LENGTH,
    SOLE_OFFSET,
    THIGH_LENGTH,
    TOE_OFFSET,
    forward_kinematics,
    local_from_world,
)

Array = NDArray[np.float64]
#: (hip, knee, ankle) body indices, left leg first.
LEGS = ((12, 13, 14), (9, 10, 11))
#: Longest hip-ankle distance, as a part of the straight leg: a straight knee has no plane.
MAX_REACH = 0.9995
#: Softness of the reach where ankles are taken from another body or the pelvis is moved [m].
SOFT_REACH_M = 0.01


def bend_axis(upper: Array, lower: Array, fallback_y: Array) -> Array:
    """Axis (..., 3) perpendicular to a limb: its plane's normal where it is bent, ``fallback_y`` where straight.

    Args:
        upper: Unit direction of the upper bone, world (..., 3).
        lower: Unit direction of the lower bone, world (..., 3).
        fallback_y: Unit y axis that the upper bone has by its own orientation, world (..., 3).

    Returns:
        Unit vectors orthogonal to ``upper``; the two sources are weighted by the sine of the bend.
    """
    normal = np.cross(upper, lower)
    normal = np.where(np.sum(normal * fallback_y, -1, keepdims=True) < 0, 0.0, normal)  # bent the wrong way
    y = normal + 0.15 * fallback_y
    y = y - np.sum(y * upper, -1, keepdims=True) * upper
    return y / np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1e-9)


def frame_along(bone: Array, y: Array) -> Array:
    """Rotation matrices (..., 3, 3) with z against the bone direction and y as given (made orthogonal)."""
    z = -bone
    y = y - np.sum(y * z, -1, keepdims=True) * z
    y = y / np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1e-9)
    return np.stack([np.cross(y, z), y, z], axis=-1)


def solve_leg(hip: Array, ankle: Array, y: Array, soft_m: float = 0.0) -> tuple[Array, Array, Array]:
    """Bend a leg so that it reaches from ``hip`` to ``ankle`` (T, 3) in the plane with normal ``y`` (T, 3).

    Within ``soft_m`` of the longest reach the leg stretches less and less, so that the knee never snaps straight.

    Returns:
        Rotation matrices of thigh and shank (T, 3, 3), and by how much the ankle is out of reach [m] (T,).
    """
    line = ankle - hip
    wanted = np.linalg.norm(line, axis=-1)
    longest = MAX_REACH * (THIGH_LENGTH + SHANK_LENGTH)
    reach = np.clip(wanted, abs(THIGH_LENGTH - SHANK_LENGTH) + 1e-3, longest)
    if soft_m > 0:
        beyond = wanted - (longest - soft_m)
        reach = np.where(beyond > 0, longest - soft_m * np.exp(-np.maximum(beyond, 0.0) / soft_m), reach)
    u = line / np.maximum(wanted, 1e-9)[:, None]
    y = y - np.sum(y * u, -1, keepdims=True) * u
    y = y / np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), 1e-9)
    forward = np.cross(y, -u)
    along = (THIGH_LENGTH**2 - SHANK_LENGTH**2 + reach**2) / (2 * reach)
    across = np.sqrt(np.maximum(THIGH_LENGTH**2 - along**2, 0.0))
    knee = along[:, None] * u + across[:, None] * forward
    thigh = frame_along(knee / THIGH_LENGTH, y)
    shank = frame_along((reach[:, None] * u - knee) / SHANK_LENGTH, y)
    return thigh, shank, np.abs(wanted - reach)


def place_ankles(
    root_pos_w: Array,
    local_quat: Array,
    ankle_pos_w: Array,
    knee_axis_w: Array | None = None,
    soft_m: float = 0.0,
) -> tuple[Array, Array]:
    """Move the ankles of a motion to given places; pelvis, upper body and foot orientations stay.

    Args:
        root_pos_w: Pelvis positions, world [m] (T, 3).
        local_quat: Local rotations (T, 15, 4).
        ankle_pos_w: Wanted ankle positions, left first, world [m] (T, 2, 3).
        knee_axis_w: Wanted knee axes, left first, world (T, 2, 3); the present ones if None.
        soft_m: Softness of the longest reach [m], see `solve_leg`.

    Returns:
        New local rotations (T, 15, 4), and how far each ankle is out of reach [m] (T, 2).
    """
    pos, quat = forward_kinematics(root_pos_w, local_quat)
    quat = quat.copy()
    short = np.zeros((len(root_pos_w), 2))
    for side, (hip, knee, _) in enumerate(LEGS):
        y = quat_to_matrix(quat[:, hip])[..., 1] if knee_axis_w is None else knee_axis_w[:, side]
        thigh, shank, short[:, side] = solve_leg(pos[:, hip], ankle_pos_w[:, side], y, soft_m)
        quat[:, hip], quat[:, knee] = quat_from_matrix(thigh), quat_from_matrix(shank)
    return local_from_world(quat), short


def foot_points(body_pos_w: Array, body_quat_w: Array) -> dict[str, Array]:
    """Ankles, sole centres, heels and toes, left first, world [m], each (T, 2, 3), under those names."""
    ankle_index = [leg[2] for leg in LEGS]
    ankle, quat = body_pos_w[:, ankle_index], body_quat_w[:, ankle_index]
    points = {"ankle": ankle}
    for name, offset in (("sole", SOLE_OFFSET), ("heel", HEEL_OFFSET), ("toe", TOE_OFFSET)):
        points[name] = ankle + quat_rotate(quat, np.asarray(offset))
    return points


def clear_ground(root_pos_w: Array, local_quat: Array) -> tuple[Array, float]:
    """Raise feet of which the heel or toe is under the ground; returns local rotations and the deepest point [m]."""
    points = foot_points(*forward_kinematics(root_pos_w, local_quat))
    lift = np.maximum(0.0, -np.minimum(points["heel"][..., 2], points["toe"][..., 2]))
    if not lift.any():
        return local_quat, 0.0
    ankle = points["ankle"].copy()
    ankle[..., 2] += lift
    return place_ankles(root_pos_w, local_quat, ankle)[0], float(lift.max())
