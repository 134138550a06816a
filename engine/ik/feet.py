r"""Where each foot goes: locked to the simulated foot in stance, the predicted foot plus a decaying offset in swing.

* **Stance.** The foot takes the simulated foot's position and rotation. With ``stance_roll`` it may also roll about its
  toe (heel lifted) or its heel (toe lifted) as far as the predicted foot is pitched against the simulated one; the
  marker it rolls about stays where the simulated foot has it. At touch-down the height and pitch left over from the
  swing decay; horizontal position and heading are exact from the first frame, so nothing slides.
* **Swing.** Offset and turn against the predicted foot are carried over from stance, velocity included, and follow a
  critically damped spring (inertialisation) towards ``swing_follow`` times the way from the predicted to the simulated
  foot, horizontally and in heading. The markers are kept above the ground.

Spring: ``y = 2 ln 2 / half-life``, ``j = v + x y``: ``x' = e^(-y dt) (x + j dt)``, ``v' = e^(-y dt) (v - j y dt)``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.ik.kinematics import NJIT, quat_exp, quat_log, quat_mul, quat_rotate
from engine.skeleton import HEEL_OFFSET, SOLE_OFFSET, TOE_OFFSET

SOLE_X, SOLE_Z = float(SOLE_OFFSET[0]), float(SOLE_OFFSET[2])
TOE_X, TOE_Z = float(TOE_OFFSET[0]), float(TOE_OFFSET[2])
HEEL_X, HEEL_Z = float(HEEL_OFFSET[0]), float(HEEL_OFFSET[2])
_SETTLED_M, _SETTLED_RAD = 1e-4, 1e-3


class FootState(NamedTuple):
    """Memory of the feet: (character, foot, ...)."""

    offset: NDArray[np.float64]
    """Ankle target minus predicted ankle, world frame [m], (n, 2, 3)."""
    offset_vel: NDArray[np.float64]
    turn: NDArray[np.float64]
    """Rotation vector from the predicted to the target foot, world frame [rad], (n, 2, 3)."""
    turn_vel: NDArray[np.float64]
    landing: NDArray[np.float64]
    """Height [m], its rate, pitch [rad], its rate left over from the swing, (n, 2, 4)."""
    stance: NDArray[np.bool_]


def make_foot_state(n: int) -> FootState:
    """Zeroed memory for ``n`` characters."""
    return FootState(*(np.zeros((n, 2, 3)) for _ in range(4)), np.zeros((n, 2, 4)), np.zeros((n, 2), np.bool_))


@njit(**NJIT)
def spring(x, v, y, dt):
    """One step of the critically damped spring towards zero; ``y`` = inf jumps there."""
    if y == math.inf:
        return 0.0, 0.0
    j = v + x * y
    e = math.exp(-y * dt)
    return e * (x + j * dt), e * (v - j * y * dt)


@njit(**NJIT)
def lowest_marker(w, x, y, z):
    """Height of the lower of toe and heel against the ankle [m] for a foot rotation."""
    _, _, toe = quat_rotate(w, x, y, z, TOE_X, 0.0, TOE_Z)
    _, _, heel = quat_rotate(w, x, y, z, HEEL_X, 0.0, HEEL_Z)
    return min(toe, heel)


@njit(**NJIT)
def relative_pitch(fw, fx, fy, fz, w, x, y, z):
    """Pitch [rad], toe up positive, of the foot axis of rotation (w..z) in the frame of the foot (fw..fz)."""
    ax, ay, az = quat_rotate(w, x, y, z, 1.0, 0.0, 0.0)
    ax, ay, az = quat_rotate(fw, -fx, -fy, -fz, ax, ay, az)
    return math.atan2(az, math.sqrt(ax * ax + ay * ay))


@njit(**NJIT)
def heading(w, x, y, z):
    """Heading [rad] of a rotation's x axis."""
    ax, ay, _ = quat_rotate(w, x, y, z, 1.0, 0.0, 0.0)
    return math.atan2(ay, ax)


@njit(**NJIT)
def _swing_into(pos, quat, i, k, state, settings, first, dt, ankle, pred, foot_pos, foot_quat, ground):
    """Swing target; advances the spring."""
    dx, dy, _ = quat_rotate(pred[0], pred[1], pred[2], pred[3], SOLE_X, 0.0, SOLE_Z)
    follow = settings.swing_follow
    gx = follow * (foot_pos[0] - ankle[0] - dx)
    gy = follow * (foot_pos[1] - ankle[1] - dy)
    yaw = heading(foot_quat[0], foot_quat[1], foot_quat[2], foot_quat[3]) - heading(pred[0], pred[1], pred[2], pred[3])
    yaw -= 2.0 * math.pi * np.round(yaw / (2.0 * math.pi))
    for r in range(3):
        goal = gx if r == 0 else (gy if r == 1 else 0.0)
        turn_goal = follow * yaw if r == 2 else 0.0
        if first:
            state.offset[i, k, r] = goal
            state.turn[i, k, r] = turn_goal
            state.offset_vel[i, k, r] = 0.0
            state.turn_vel[i, k, r] = 0.0
        else:
            x, v = spring(state.offset[i, k, r] - goal, state.offset_vel[i, k, r], settings.swing_rate, dt)
            state.offset[i, k, r] = x + goal
            state.offset_vel[i, k, r] = v
            x, v = spring(state.turn[i, k, r] - turn_goal, state.turn_vel[i, k, r], settings.swing_rate, dt)
            state.turn[i, k, r] = x + turn_goal
            state.turn_vel[i, k, r] = v
        pos[r] = ankle[r] + state.offset[i, k, r]
    ew, ex, ey, ez = quat_exp(state.turn[i, k, 0], state.turn[i, k, 1], state.turn[i, k, 2])
    w, x, y, z = quat_mul(ew, ex, ey, ez, pred[0], pred[1], pred[2], pred[3])
    quat[0], quat[1], quat[2], quat[3] = w, x, y, z
    pos[2] = max(pos[2], ground - lowest_marker(w, x, y, z))


@njit(**NJIT)
def _roll(settings, pitch):
    """Pitch that the stance foot copies from the prediction: none, or all beyond a dead band, within limits."""
    if not settings.stance_roll:
        return 0.0
    pitch = min(max(pitch, -settings.heel_lift_max), settings.toe_lift_max)
    return math.copysign(max(abs(pitch) - settings.roll_deadband, 0.0), pitch)


@njit(**NJIT)
def foot_target_into(pos, quat, i, k, state, settings, first, dt, ankle, pred, foot_pos, foot_quat, contact, ground):
    """Ankle target of one foot.

    Args:
        pos: Ankle target, world frame [m], shape (3,); written.
        quat: Foot rotation target, shape (4,); written.
        i: Character.
        k: Foot, 0 left, 1 right.
        state: `FootState` of all characters; entry (i, k) is advanced.
        settings: ``stance_roll``, ``heel_lift_max``, ``toe_lift_max``, ``roll_deadband`` [rad], ``swing_follow``,
            ``swing_rate`` and ``landing_rate`` (spring rates y [1/s]).
        first: True in the first frame after a reset.
        dt: Control step [s].
        ankle: Predicted ankle, world frame [m], shape (3,).
        pred: Predicted foot rotation, shape (4,).
        foot_pos: Simulated sole centre, world frame [m], shape (3,).
        foot_quat: Simulated foot rotation, shape (4,).
        contact: Simulated stance of this foot.
        ground: Ground height under the foot [m].

    Returns:
        Whether the foot has just touched down, and whether its heel may be lifted.
    """
    if not contact:
        state.stance[i, k] = False
        _swing_into(pos, quat, i, k, state, settings, first, dt, ankle, pred, foot_pos, foot_quat, ground)
        return False, False
    fw, fx, fy, fz = foot_quat[0], foot_quat[1], foot_quat[2], foot_quat[3]
    goal = _roll(settings, relative_pitch(fw, fx, fy, fz, pred[0], pred[1], pred[2], pred[3]))
    land = state.landing[i, k]
    touch_down = not state.stance[i, k]
    state.stance[i, k] = True
    if first or (touch_down and settings.landing_rate == math.inf):
        land[:] = 0.0
    elif touch_down:
        _swing_into(pos, quat, i, k, state, settings, first, dt, ankle, pred, foot_pos, foot_quat, ground)
        land[0] = max(pos[2] + lowest_marker(quat[0], quat[1], quat[2], quat[3]) - foot_pos[2], 0.0)
        land[2] = relative_pitch(fw, fx, fy, fz, quat[0], quat[1], quat[2], quat[3]) - goal
        land[1] = 0.0
        land[3] = 0.0
    else:
        land[0], land[1] = spring(land[0], land[1], settings.landing_rate, dt)
        land[2], land[3] = spring(land[2], land[3], settings.landing_rate, dt)
        if land[0] < _SETTLED_M:
            land[0] = 0.0
            land[1] = 0.0
        if abs(land[2]) < _SETTLED_RAD:
            land[2] = 0.0
            land[3] = 0.0
    pitch = goal + land[2]
    w, x, y, z = fw, fx, fy, fz
    sx, sy, sz = foot_pos[0], foot_pos[1], foot_pos[2] + land[0]
    if pitch != 0.0:
        w, x, y, z = quat_mul(fw, fx, fy, fz, math.cos(0.5 * pitch), 0.0, -math.sin(0.5 * pitch), 0.0)
        pivot = (TOE_X if pitch < 0.0 else HEEL_X) - SOLE_X
        ax, ay, az = quat_rotate(fw, fx, fy, fz, pivot, 0.0, 0.0)
        bx, by, bz = quat_rotate(w, x, y, z, pivot, 0.0, 0.0)
        sx, sy, sz = sx + ax - bx, sy + ay - by, sz + az - bz
    dx, dy, dz = quat_rotate(w, x, y, z, SOLE_X, 0.0, SOLE_Z)
    pos[0], pos[1], pos[2] = sx - dx, sy - dy, sz - dz
    quat[0], quat[1], quat[2], quat[3] = w, x, y, z
    return touch_down, settings.stance_roll and pitch <= 0.0


@njit(**NJIT)
def heel_lift_into(pos, quat, hip_x, hip_y, hip_z, length, lift_max):
    """Lift the heel, rolling about the toe, until the ankle is at ``length`` from the hip or the lift is at its limit.

    Newton on ``|ankle(t) - hip| = length`` in the lift t; the toe marker keeps its place.

    Args:
        pos: Ankle target, world frame [m], shape (3,); changed.
        quat: Foot rotation target, shape (4,); changed.
        hip_x: Hip position, world frame [m], with ``hip_y`` and ``hip_z``.
        length: Distance wanted [m].
        lift_max: Largest lift [rad].
    """
    w, x, y, z = quat[0], quat[1], quat[2], quat[3]
    ox, oy, oz = quat_rotate(w, x, y, z, TOE_X, 0.0, TOE_Z)
    toe_x, toe_y, toe_z = pos[0] + ox, pos[1] + oy, pos[2] + oz
    yx, yy, yz = quat_rotate(w, x, y, z, 0.0, 1.0, 0.0)
    lift = 0.0
    for _ in range(4):
        c, s = math.cos(0.5 * lift), math.sin(0.5 * lift)
        rx, ry, rz = quat_rotate(c, s * yx, s * yy, s * yz, -ox, -oy, -oz)  # toe to ankle
        dx, dy, dz = toe_x + rx - hip_x, toe_y + ry - hip_y, toe_z + rz - hip_z
        d = math.sqrt(dx * dx + dy * dy + dz * dz)
        slope = (dx * (yy * rz - yz * ry) + dy * (yz * rx - yx * rz) + dz * (yx * ry - yy * rx)) / d
        if slope > -0.02:  # lifting does not bring the ankle nearer
            break
        lift = min(max(lift - (d - length) / slope, 0.0), lift_max)
    if lift > 0.0:
        c, s = math.cos(0.5 * lift), math.sin(0.5 * lift)
        rx, ry, rz = quat_rotate(c, s * yx, s * yy, s * yz, -ox, -oy, -oz)
        pos[0], pos[1], pos[2] = toe_x + rx, toe_y + ry, toe_z + rz
        quat[0], quat[1], quat[2], quat[3] = quat_mul(w, x, y, z, c, 0.0, s, 0.0)


@njit(**NJIT)
def remember_stance(i, k, state, calm, dt, pos, quat, ankle, pred):
    """Offset and turn of a stance foot against the prediction, from which the next swing starts.

    Args:
        i: Character.
        k: Foot.
        state: `FootState`; entry (i, k) is written.
        calm: True where no rate can be had (first frame, touch-down).
        dt: Control step [s].
        pos: Final ankle target, world frame [m], shape (3,).
        quat: Final foot rotation, shape (4,).
        ankle: Predicted ankle, world frame [m], shape (3,).
        pred: Predicted foot rotation, shape (4,).
    """
    w, x, y, z = quat_mul(quat[0], quat[1], quat[2], quat[3], pred[0], -pred[1], -pred[2], -pred[3])
    tx, ty, tz = quat_log(w, x, y, z)
    for r in range(3):
        turn = tx if r == 0 else (ty if r == 1 else tz)
        offset = pos[r] - ankle[r]
        state.offset_vel[i, k, r] = 0.0 if calm else (offset - state.offset[i, k, r]) / dt
        state.turn_vel[i, k, r] = 0.0 if calm else (turn - state.turn[i, k, r]) / dt
        state.offset[i, k, r] = offset
        state.turn[i, k, r] = turn
