"""Quaternion scalars and world-rotation kinematics for the IK kernels (Numba, no allocation).

Quaternions (w, x, y, z) and vectors travel as scalars and come back as tuples, so that everything stays in registers.
"""

from __future__ import annotations

import math

from numba import njit

from engine.skeleton import COM_OFFSETS, OFFSETS, PARENTS

NJIT = {"cache": True, "error_model": "numpy"}
_PARENTS = tuple(int(p) for p in PARENTS)


@njit(**NJIT)
def quat_mul(aw, ax, ay, az, bw, bx, by, bz):
    """Product ``a b`` (apply ``b`` first)."""
    return (
        aw * bw - ax * bx - ay * by - az * bz,
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
    )


@njit(**NJIT)
def quat_rotate(w, x, y, z, vx, vy, vz):
    """Rotate ``v`` by the unit quaternion."""
    tx = 2.0 * (y * vz - z * vy)
    ty = 2.0 * (z * vx - x * vz)
    tz = 2.0 * (x * vy - y * vx)
    return vx + w * tx + y * tz - z * ty, vy + w * ty + z * tx - x * tz, vz + w * tz + x * ty - y * tx


@njit(**NJIT)
def quat_exp(x, y, z):
    """Quaternion of a rotation vector."""
    angle2 = x * x + y * y + z * z
    if angle2 < 1e-12:
        s = 0.5 - angle2 / 48.0
        w = 1.0 - angle2 / 8.0
    else:
        angle = math.sqrt(angle2)
        s = math.sin(0.5 * angle) / angle
        w = math.cos(0.5 * angle)
    return w, s * x, s * y, s * z


@njit(**NJIT)
def quat_log(w, x, y, z):
    """Rotation vector of a unit quaternion, angle in [0, pi]."""
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    s = math.sqrt(x * x + y * y + z * z)
    k = 2.0 if s < 1e-12 else 2.0 * math.atan2(s, w) / s
    return k * x, k * y, k * z


@njit(**NJIT)
def quat_between(ax, ay, az, bx, by, bz, sx, sy, sz):
    """Shortest rotation that turns direction ``a`` into ``b`` (any lengths); half a turn about ``s`` if opposite."""
    w = math.sqrt((ax * ax + ay * ay + az * az) * (bx * bx + by * by + bz * bz))
    x, y, z = ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx
    dot = ax * bx + ay * by + az * bz
    if w + dot < 1e-9 * w:
        return 0.0, sx, sy, sz
    w += dot
    n = math.sqrt(w * w + x * x + y * y + z * z)
    return w / n, x / n, y / n, z / n


@njit(**NJIT)
def bodies_from_world_into(pos, coms, quat, first, last):
    """Joint positions and centres of mass of bodies ``first`` to ``last`` (inclusive) from their world rotations.

    The parents' positions must stand in ``pos`` already; the root's own position is left as it is. Bone lengths are
    those of the skeleton whatever the rotations.

    Args:
        pos: Body positions, world frame [m], shape (15, 3); read for the parents, written.
        coms: Body centres of mass, world frame [m], shape (15, 3); written.
        quat: Unit world rotations, shape (15, 4).
        first: First body.
        last: Last body.
    """
    for i in range(first, last + 1):
        if i > 0:
            p = _PARENTS[i]
            x, y, z = quat_rotate(
                quat[p, 0], quat[p, 1], quat[p, 2], quat[p, 3], OFFSETS[i, 0], OFFSETS[i, 1], OFFSETS[i, 2]
            )
            pos[i, 0] = pos[p, 0] + x
            pos[i, 1] = pos[p, 1] + y
            pos[i, 2] = pos[p, 2] + z
        x, y, z = quat_rotate(
            quat[i, 0], quat[i, 1], quat[i, 2], quat[i, 3], COM_OFFSETS[i, 0], COM_OFFSETS[i, 1], COM_OFFSETS[i, 2]
        )
        coms[i, 0] = pos[i, 0] + x
        coms[i, 1] = pos[i, 1] + y
        coms[i, 2] = pos[i, 2] + z
