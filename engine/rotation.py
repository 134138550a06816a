"""Rotations on batches of arrays: quaternions (w, x, y, z), matrices, the 6-D form, rotation vectors, yaw frames.

All functions broadcast over leading axes and return float64. Quaternions map body to world. The 6-D form is the first
two COLUMNS of the matrix, concatenated. Rotation vectors are axis times angle [rad].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
_EPS = 1e-12


def quat_mul(a: ArrayLike, b: ArrayLike) -> Array:
    """Hamilton product ``a b`` (apply ``b`` first); shapes (..., 4)."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    aw, ax, ay, az = np.moveaxis(a, -1, 0)
    bw, bx, by, bz = np.moveaxis(b, -1, 0)
    return np.stack(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ],
        axis=-1,
    )


def quat_inv(q: ArrayLike) -> Array:
    """Inverse of unit quaternions (..., 4)."""
    return np.asarray(q, np.float64) * np.array([1.0, -1.0, -1.0, -1.0])


def quat_normalise(q: ArrayLike) -> Array:
    """Unit quaternions (..., 4); the caller has ruled out zero norms."""
    q = np.asarray(q, np.float64)
    return q / np.linalg.norm(q, axis=-1, keepdims=True)


def quat_rotate(q: ArrayLike, v: ArrayLike) -> Array:
    """Rotate vectors (..., 3) by unit quaternions (..., 4)."""
    q, v = np.asarray(q, np.float64), np.asarray(v, np.float64)
    w, u = q[..., :1], q[..., 1:]
    t = 2.0 * np.cross(u, v)
    return v + w * t + np.cross(u, t)


def quat_to_matrix(q: ArrayLike) -> Array:
    """Rotation matrices (..., 3, 3) of unit quaternions (..., 4)."""
    w, x, y, z = np.moveaxis(np.asarray(q, np.float64), -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(r, axis=-1) for r in rows], axis=-2)


def quat_from_matrix(m: ArrayLike) -> Array:
    """Unit quaternions (..., 4), w >= 0, of rotation matrices (..., 3, 3), by the largest of the four candidates."""
    m = np.asarray(m, np.float64)
    t = np.trace(m, axis1=-2, axis2=-1)
    d = np.diagonal(m, axis1=-2, axis2=-1)
    n2 = np.concatenate([(1 + t)[..., None], 1 + 2 * d - t[..., None]], axis=-1)  # 4 w^2, 4 x^2, 4 y^2, 4 z^2
    best = np.argmax(n2, axis=-1)
    wx, wy, wz = m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]
    xy, xz, yz = m[..., 0, 1] + m[..., 1, 0], m[..., 0, 2] + m[..., 2, 0], m[..., 1, 2] + m[..., 2, 1]
    rows = np.stack(
        [
            np.stack([n2[..., 0], wx, wy, wz], -1),
            np.stack([wx, n2[..., 1], xy, xz], -1),
            np.stack([wy, xy, n2[..., 2], yz], -1),
            np.stack([wz, xz, yz, n2[..., 3]], -1),
        ],
        axis=-2,
    )
    q = np.take_along_axis(rows, best[..., None, None], axis=-2)[..., 0, :]
    q = quat_normalise(q)
    return np.where(q[..., :1] < 0, -q, q)


def quat_exp(rotvec: ArrayLike) -> Array:
    """Quaternions (..., 4) of rotation vectors (..., 3)."""
    v = np.asarray(rotvec, np.float64)
    angle = np.linalg.norm(v, axis=-1, keepdims=True)
    half = 0.5 * angle
    return np.concatenate([np.cos(half), v * 0.5 * np.sinc(half / np.pi)], axis=-1)


def quat_log(q: ArrayLike) -> Array:
    """Rotation vectors (..., 3) of unit quaternions (..., 4), angle in [0, pi]."""
    q = np.asarray(q, np.float64)
    q = np.where(q[..., :1] < 0, -q, q)
    s = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2.0 * np.arctan2(s, q[..., :1])
    return q[..., 1:] * np.where(s > _EPS, angle / np.maximum(s, _EPS), 2.0)


def quat_from_axis_angle(axis: ArrayLike, angle: ArrayLike) -> Array:
    """Quaternions (..., 4) for unit ``axis`` (..., 3) and ``angle`` [rad] (...)."""
    half = 0.5 * np.asarray(angle, np.float64)[..., None]
    axis = np.asarray(axis, np.float64)
    return np.concatenate([np.cos(half) + 0.0 * axis[..., :1], np.sin(half) * axis], axis=-1)


def quat_slerp(a: ArrayLike, b: ArrayLike, t: ArrayLike) -> Array:
    """Shortest-way spherical interpolation from ``a`` to ``b`` (..., 4); ``t`` (...) in [0, 1]."""
    rel = quat_log(quat_mul(quat_inv(a), b))
    return quat_normalise(quat_mul(a, quat_exp(rel * np.asarray(t, np.float64)[..., None])))


def quat_align(q: ArrayLike) -> Array:
    """Flip signs along axis 0 (time) so that neighbours lie in one hemisphere; shape (T, ..., 4)."""
    q = np.array(q, np.float64)
    dots = np.sum(q[1:] * q[:-1], axis=-1)
    sign = (
        np.concatenate([np.ones_like(dots[:1]), np.cumprod(np.where(dots < 0, -1.0, 1.0), axis=0)]) if len(q) > 1 else 1
    )
    return q * np.asarray(sign)[..., None] if len(q) > 1 else q


def exp_so3(rotvec: ArrayLike) -> Array:
    """Rotation matrices (..., 3, 3) of rotation vectors (..., 3)."""
    return quat_to_matrix(quat_exp(rotvec))


def log_so3(m: ArrayLike) -> Array:
    """Rotation vectors (..., 3) of rotation matrices (..., 3, 3)."""
    return quat_log(quat_from_matrix(m))


def matrix_to_6d(m: ArrayLike) -> Array:
    """First two columns of (..., 3, 3), concatenated column by column: (..., 6)."""
    m = np.asarray(m, np.float64)
    return np.concatenate([m[..., :, 0], m[..., :, 1]], axis=-1)


def matrix_from_6d(d: ArrayLike) -> Array:
    """Gram-Schmidt on the two columns in (..., 6); rotation matrices (..., 3, 3)."""
    d = np.asarray(d, np.float64)
    x = d[..., :3] / np.maximum(np.linalg.norm(d[..., :3], axis=-1, keepdims=True), _EPS)
    y = d[..., 3:] - np.sum(x * d[..., 3:], axis=-1, keepdims=True) * x
    y = y / np.maximum(np.linalg.norm(y, axis=-1, keepdims=True), _EPS)
    return np.stack([x, y, np.cross(x, y)], axis=-1)


def yaw_of(m: ArrayLike) -> Array:
    """Heading [rad] of the body x axis of (..., 3, 3) projected on the ground."""
    m = np.asarray(m, np.float64)
    return np.arctan2(m[..., 1, 0], m[..., 0, 0])


def rot_z(angle: ArrayLike) -> Array:
    """Rotation matrices (..., 3, 3) about z by ``angle`` [rad]."""
    a = np.asarray(angle, np.float64)
    c, s, o, i = np.cos(a), np.sin(a), np.zeros_like(a), np.ones_like(a)
    return np.stack([np.stack([c, -s, o], -1), np.stack([s, c, o], -1), np.stack([o, o, i], -1)], axis=-2)


def yaw_matrix(m: ArrayLike) -> Array:
    """Yaw frame Y(R) of (..., 3, 3): x axis = body x projected on the ground, z = up (srb.md 1.1)."""
    return rot_z(yaw_of(m))
