"""Per-frame features of a motion: the single-rigid-body state, its feet, and the two reference vectors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.motion.dynamic_filter import GRAVITY
from engine.motion.legs import foot_points
from engine.rotation import matrix_to_6d, quat_align, quat_inv, quat_log, quat_mul, quat_to_matrix, yaw_matrix
from engine.skeleton import FOOT_BODIES, com_pos_w, composite_inertia_w

Array = NDArray[np.float64]
REF_SRB_SIZE = 35
REF_FULL_SIZE = 135


class SrbMotion(NamedTuple):
    """Single-rigid-body motion of a clip; leading axis F frames, feet left first.

    Attributes:
        com_pos_w: Centre of mass [m] (F, 3).
        srb_quat_w: Orientation (F, 4), `engine.motion.dynamic_filter.filter_turn`.
        com_vel_w: Velocity of the centre of mass [m/s] (F, 3), `linear_velocity`.
        ang_vel_w: Angular velocity, world axes [rad/s] (F, 3), `angular_velocity`.
        foot_pos_w: Sole centres [m] (F, 2, 3); z is 0 in stance and never below the ground.
        foot_quat_w: Foot orientations (F, 2, 4).
    """

    com_pos_w: Array
    srb_quat_w: Array
    com_vel_w: Array
    ang_vel_w: Array
    foot_pos_w: Array
    foot_quat_w: Array


def linear_velocity(pos: Array, fps: float, take_off: NDArray[np.bool_] | None = None) -> Array:
    """Central difference of (F, 3) positions; one-sided at the two ends.

    Where a flight follows (``take_off``, (F,)) the push is over and the central difference would mix it with the
    flight: there it is the velocity with which free fall reaches the next frame.
    """
    out = np.gradient(pos, 1.0 / fps, axis=0, edge_order=1)
    if take_off is not None:
        rows = np.flatnonzero(take_off[:-1])
        out[rows] = (pos[rows + 1] - pos[rows]) * fps
        out[rows, 2] += 0.5 * GRAVITY / fps
    return out


def angular_velocity(quat: Array, fps: float, take_off: NDArray[np.bool_] | None = None) -> Array:
    """World angular velocity [rad/s] (F, 3) of (F, 4): log of the turn from the frame before to the frame after.

    Where a flight follows (``take_off``, (F,)): of the turn to the frame after.
    """
    n = len(quat)
    before, after = np.maximum(np.arange(n) - 1, 0), np.minimum(np.arange(n) + 1, n - 1)
    if take_off is not None:
        before = np.where(take_off & (after > np.arange(n)), np.arange(n), before)
    turn = quat_log(quat_mul(quat[after], quat_inv(quat[before])))
    return turn * (fps / np.maximum(after - before, 1))[:, None]


def before_flight(contact: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The last frame on the ground before each flight (F,)."""
    return (contact > 0) & (np.append(contact[1:], 3) == 0)


def srb_motion(
    body_pos_w: Array, body_quat_w: Array, srb_quat_w: Array, contact: NDArray[np.int64], fps: float
) -> SrbMotion:
    """Single-rigid-body motion of body transforms (F, 15, 3), (F, 15, 4) and orientations (F, 4), classes (F,)."""
    com = com_pos_w(body_pos_w, body_quat_w)
    srb_quat, take_off = quat_align(srb_quat_w), before_flight(contact)
    foot_pos = foot_points(body_pos_w, body_quat_w)["sole"].copy()
    stands = np.stack([(contact & 1) > 0, (contact & 2) > 0], axis=1)
    foot_pos[..., 2] = np.where(stands, 0.0, np.maximum(foot_pos[..., 2], 0.0))
    foot_quat = quat_align(body_quat_w[:, list(FOOT_BODIES)])
    return SrbMotion(
        com, srb_quat, linear_velocity(com, fps, take_off), angular_velocity(srb_quat, fps, take_off), foot_pos,
        foot_quat,
    )  # fmt: skip


def srb_features(motion: SrbMotion, contact: NDArray[np.int64]) -> Array:
    """``s_SRB`` (F, 35): height, tilt, velocities in the projected frame; feet in the forward-facing frame; class.

    Layout: height 1, 6-D of Y^T R 6, Y^T v 3, Y^T w 3, left foot (Y^T (foot - com) 3, 6-D of Y^T R_foot 6), right foot
    9, one-hot contact class 4. The features do not change when the motion is turned about z or moved in the plane.
    """
    r = quat_to_matrix(motion.srb_quat_w)
    y_t = np.swapaxes(yaw_matrix(r), -1, -2)
    feet_r = quat_to_matrix(motion.foot_quat_w)
    parts = [
        motion.com_pos_w[:, 2:],
        matrix_to_6d(y_t @ r),
        _turn(y_t, motion.com_vel_w),
        _turn(y_t, motion.ang_vel_w),
    ]
    for foot in range(2):
        parts.append(_turn(y_t, motion.foot_pos_w[:, foot] - motion.com_pos_w))
        parts.append(matrix_to_6d(y_t @ feet_r[:, foot]))
    parts.append(np.eye(4)[contact])
    return np.concatenate(parts, axis=-1)


def full_features(com_w: Array, srb_quat_w: Array, body_pos_w: Array, body_quat_w: Array) -> Array:
    """``s_full`` (F, 135): per body Y^T (p - (com x, com y, 0)) and the 6-D of Y^T R, body-major."""
    y_t = np.swapaxes(yaw_matrix(quat_to_matrix(srb_quat_w)), -1, -2)[:, None]
    origin = com_w * np.array([1.0, 1.0, 0.0])
    pos = _turn(y_t, body_pos_w - origin[:, None])
    rot = matrix_to_6d(y_t @ quat_to_matrix(body_quat_w))
    return np.concatenate([pos, rot], axis=-1).reshape(len(com_w), -1)


def mean_inertia_b(body_pos_w: Array, body_quat_w: Array, srb_quat_w: Array) -> Array:
    """Mean composite inertia about the centre of mass in the axes of ``srb_quat_w`` (F, 4) [kg m^2], (3, 3)."""
    r = quat_to_matrix(srb_quat_w)
    inertia = np.swapaxes(r, -1, -2) @ composite_inertia_w(body_pos_w, body_quat_w) @ r
    return inertia.mean(axis=0)


def _turn(m: Array, v: Array) -> Array:
    return (m @ v[..., None])[..., 0]
