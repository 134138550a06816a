r"""Analytic two-bone IK of a leg (hip ball joint, knee hinge), closed form, Numba.

With bone lengths a (thigh) and b (shank) and knee flexion t >= 0 about the thigh's +y axis, the ankle lies at
``(-b sin t, 0, -a - b cos t)`` in the thigh frame, at distance ``d^2 = a^2 + b^2 + 2 a b cos t`` from the hip. Given d,
the flexion follows; the thigh then turns by the shortest arc from its predicted rotation, which keeps the knee's plane
and leaves a pose alone whose ankle is at the target already.
"""

from __future__ import annotations

import math

from numba import njit

from engine.ik.kinematics import NJIT, quat_between, quat_mul, quat_rotate
from engine.skeleton import KNEE_RANGE, SHANK_LENGTH, THIGH_LENGTH

LEG_LENGTH = THIGH_LENGTH + SHANK_LENGTH
MAX_FLEXION = -KNEE_RANGE[0]
_SUM2 = THIGH_LENGTH * THIGH_LENGTH + SHANK_LENGTH * SHANK_LENGTH
_TWO_AB = 2.0 * THIGH_LENGTH * SHANK_LENGTH
MIN_LEG_LENGTH = math.sqrt(_SUM2 + _TWO_AB * math.cos(MAX_FLEXION))


@njit(**NJIT)
def leg_length(flexion):
    """Hip-ankle distance [m] at a knee flexion [rad]."""
    return math.sqrt(_SUM2 + _TWO_AB * math.cos(flexion))


@njit(**NJIT)
def knee_flexion(tw, tx, ty, tz, sw, sx, sy, sz):
    """Knee flexion [rad] in [0, 2.7]: twist about +y of the shank's rotation (s) relative to the thigh's (t)."""
    w = tw * sw + tx * sx + ty * sy + tz * sz
    y = tw * sy - ty * sw + tx * sz - tz * sx
    flexion = 2.0 * math.atan2(y, w)
    if flexion > math.pi:
        flexion -= 2.0 * math.pi
    elif flexion < -math.pi:
        flexion += 2.0 * math.pi
    return min(max(flexion, 0.0), MAX_FLEXION)


@njit(**NJIT)
def soft_length(d, predicted, start, limit):
    """Leg length [m] to use where ``d`` is asked for: ``d`` up to the soft zone, then smoothly towards the limit.

    The zone runs from ``start`` to ``limit`` (both as lengths [m]); where the predicted leg is longer than these, they
    move out to it, so that a consistent pose is not touched. ``start + w (1 - exp(-(d - start) / w))``, w the width.
    """
    predicted = min(predicted, LEG_LENGTH)
    start, limit = max(start, predicted), max(limit, predicted)
    if d <= start:
        return d
    width = limit - start
    if width < 1e-9:
        return limit
    return start - width * math.expm1(-(d - start) / width)


@njit(**NJIT)
def solve_leg_into(quat, thigh, hip_x, hip_y, hip_z, ankle_x, ankle_y, ankle_z, tw, tx, ty, tz, length):
    """Turn thigh and shank so that the ankle lies towards the target at distance ``length`` from the hip.

    Args:
        quat: World rotations of the bodies, shape (15, 4); rows ``thigh`` and ``thigh + 1`` are written.
        thigh: Body index of the hip (the thigh).
        hip_x: Hip position, world frame [m], with ``hip_y`` and ``hip_z``.
        ankle_x: Ankle target, world frame [m], with ``ankle_y`` and ``ankle_z``.
        tw: Predicted thigh rotation (unit quaternion), with ``tx``, ``ty`` and ``tz``; fixes the knee's plane.
        length: Hip-ankle distance wanted [m]; clipped to what the knee's range allows.

    Returns:
        The distance reached [m]; the ankle is at the target if that is the target's distance.
    """
    length = min(max(length, MIN_LEG_LENGTH), LEG_LENGTH)
    c = min(max((length * length - _SUM2) / _TWO_AB, -1.0), 1.0)
    s = math.sqrt(1.0 - c * c)
    dx, dy, dz = ankle_x - hip_x, ankle_y - hip_y, ankle_z - hip_z
    vx, vy, vz = quat_rotate(tw, tx, ty, tz, -SHANK_LENGTH * s, 0.0, -THIGH_LENGTH - SHANK_LENGTH * c)
    yx, yy, yz = quat_rotate(tw, tx, ty, tz, 0.0, 1.0, 0.0)
    if dx * dx + dy * dy + dz * dz < 1e-18:
        dx, dy, dz = vx, vy, vz
    bw, bx, by, bz = quat_between(vx, vy, vz, dx, dy, dz, yx, yy, yz)
    w, x, y, z = quat_mul(bw, bx, by, bz, tw, tx, ty, tz)
    n = 1.0 / math.sqrt(w * w + x * x + y * y + z * z)
    w, x, y, z = n * w, n * x, n * y, n * z
    quat[thigh, 0] = w
    quat[thigh, 1] = x
    quat[thigh, 2] = y
    quat[thigh, 3] = z
    half_c = math.sqrt(0.5 * (1.0 + c))
    half_s = s / (2.0 * half_c)
    w, x, y, z = quat_mul(w, x, y, z, half_c, 0.0, half_s, 0.0)
    quat[thigh + 1, 0] = w
    quat[thigh + 1, 1] = x
    quat[thigh + 1, 2] = y
    quat[thigh + 1, 3] = z
    return length
