r"""Centre of mass, angular momentum and their Jacobians for the 15-body character (Numba, no allocation).

Turning the bodies of a subtree S rigidly by a small world rotation ``d`` about a pivot p moves the centre of mass by
``(1/M) sum_S m_i d x (c_i - p)`` and adds the angular displacement (angular momentum about the centre of mass times
time) ``sum_S m_i (c_i - c) x (d x (c_i - p)) + R_i I_i R_i^T d``. These are the columns of the centroidal momentum
matrix; the subtrees of this skeleton are runs of body indices.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.ik.kinematics import NJIT, quat_exp, quat_log, quat_mul, quat_rotate
from engine.skeleton import BODY_INERTIAS, MASSES, N_BODIES, TOTAL_MASS

_AXES = np.eye(3)
_I_DIAG = BODY_INERTIAS.diagonal(axis1=1, axis2=2).copy()


@njit(**NJIT)
def com_into(com, coms):
    """Centre of mass of the character (3,) [m] from those of the bodies (15, 3) [m]."""
    x, y, z = 0.0, 0.0, 0.0
    for i in range(N_BODIES):
        x += MASSES[i] * coms[i, 0]
        y += MASSES[i] * coms[i, 1]
        z += MASSES[i] * coms[i, 2]
    com[0] = x / TOTAL_MASS
    com[1] = y / TOTAL_MASS
    com[2] = z / TOTAL_MASS


@njit(**NJIT)
def _inertia_times(i, w, x, y, z, vx, vy, vz):
    """R_i I_i R_i^T v for body ``i`` at the world rotation (w, x, y, z)."""
    bx, by, bz = quat_rotate(w, -x, -y, -z, vx, vy, vz)
    return quat_rotate(w, x, y, z, _I_DIAG[i, 0] * bx, _I_DIAG[i, 1] * by, _I_DIAG[i, 2] * bz)


@njit(**NJIT)
def angular_displacement_into(out, coms0, quat0, coms1, quat1):
    """Angular momentum about the centre of mass times the time between two poses; midpoint rule.

    Same formula as `engine.skeleton.momentum_w` (whose result times ``dt`` this is).

    Args:
        out: Result, world axes [kg m^2 rad], shape (3,).
        coms0: Centres of mass of the bodies before, world frame [m], shape (15, 3).
        quat0: World rotations before, shape (15, 4).
        coms1: Centres of mass after, shape (15, 3).
        quat1: World rotations after, shape (15, 4).
    """
    mx, my, mz = 0.0, 0.0, 0.0
    for i in range(N_BODIES):
        mx += MASSES[i] * (coms0[i, 0] + coms1[i, 0])
        my += MASSES[i] * (coms0[i, 1] + coms1[i, 1])
        mz += MASSES[i] * (coms0[i, 2] + coms1[i, 2])
    half = 0.5 / TOTAL_MASS
    mx, my, mz = half * mx, half * my, half * mz
    ox, oy, oz = 0.0, 0.0, 0.0
    for i in range(N_BODIES):
        ax = 0.5 * (coms0[i, 0] + coms1[i, 0]) - mx
        ay = 0.5 * (coms0[i, 1] + coms1[i, 1]) - my
        az = 0.5 * (coms0[i, 2] + coms1[i, 2]) - mz
        dx = MASSES[i] * (coms1[i, 0] - coms0[i, 0])
        dy = MASSES[i] * (coms1[i, 1] - coms0[i, 1])
        dz = MASSES[i] * (coms1[i, 2] - coms0[i, 2])
        bw, bx, by, bz = quat0[i, 0], quat0[i, 1], quat0[i, 2], quat0[i, 3]
        w, x, y, z = quat_mul(quat1[i, 0], quat1[i, 1], quat1[i, 2], quat1[i, 3], bw, -bx, -by, -bz)
        tx, ty, tz = quat_log(w, x, y, z)
        hw, hx, hy, hz = quat_exp(0.5 * tx, 0.5 * ty, 0.5 * tz)
        w, x, y, z = quat_mul(hw, hx, hy, hz, bw, bx, by, bz)
        ix, iy, iz = _inertia_times(i, w, x, y, z, tx, ty, tz)
        ox += ay * dz - az * dy + ix
        oy += az * dx - ax * dz + iy
        oz += ax * dy - ay * dx + iz
    out[0] = ox
    out[1] = oy
    out[2] = oz


@njit(**NJIT)
def rotation_columns_into(com_jac, ang_jac, column, first, last, pivot, com, coms, quat):
    """Jacobian columns of turning bodies ``first`` to ``last`` about a pivot by a world rotation vector.

    Args:
        com_jac: Centre-of-mass Jacobian [m/rad], shape (3, k); columns ``column`` to ``column + 2`` are written.
        ang_jac: Angular-displacement Jacobian [kg m^2], shape (3, k); likewise.
        column: First column to write.
        first: First body that turns.
        last: Last body that turns (inclusive).
        pivot: Point that stays, world frame [m], shape (3,).
        com: Centre of mass of the character [m], shape (3,).
        coms: Centres of mass of the bodies [m], shape (15, 3).
        quat: World rotations of the bodies, shape (15, 4).
    """
    for k in range(3):
        for r in range(3):
            com_jac[r, column + k] = 0.0
            ang_jac[r, column + k] = 0.0
    for i in range(first, last + 1):
        m = MASSES[i]
        rx, ry, rz = coms[i, 0] - pivot[0], coms[i, 1] - pivot[1], coms[i, 2] - pivot[2]
        ax, ay, az = m * (coms[i, 0] - com[0]), m * (coms[i, 1] - com[1]), m * (coms[i, 2] - com[2])
        for k in range(3):
            ex, ey, ez = _AXES[k, 0], _AXES[k, 1], _AXES[k, 2]
            vx, vy, vz = ey * rz - ez * ry, ez * rx - ex * rz, ex * ry - ey * rx
            ix, iy, iz = _inertia_times(i, quat[i, 0], quat[i, 1], quat[i, 2], quat[i, 3], ex, ey, ez)
            com_jac[0, column + k] += m / TOTAL_MASS * vx
            com_jac[1, column + k] += m / TOTAL_MASS * vy
            com_jac[2, column + k] += m / TOTAL_MASS * vz
            ang_jac[0, column + k] += ay * vz - az * vy + ix
            ang_jac[1, column + k] += az * vx - ax * vz + iy
            ang_jac[2, column + k] += ax * vy - ay * vx + iz


@njit(**NJIT)
def damped_least_squares_into(out, jac, weight, target, damping):
    r"""Weighted damped least-squares step ``out = W J^T (J W J^T + s I)^-1 b`` for three rows.

    ``s`` is ``damping`` times the mean diagonal of ``J W J^T``, so that damping has no unit; 3x3 Cramer solution.

    Args:
        out: Step, shape (k,).
        jac: Jacobian J, shape (3, k).
        weight: Mobility of each variable (diagonal of W), shape (k,).
        target: Right-hand side b, shape (3,).
        damping: Relative damping, > 0.
    """
    a00, a01, a02, a11, a12, a22 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    n = out.shape[0]
    for k in range(n):
        a00 += weight[k] * jac[0, k] * jac[0, k]
        a01 += weight[k] * jac[0, k] * jac[1, k]
        a02 += weight[k] * jac[0, k] * jac[2, k]
        a11 += weight[k] * jac[1, k] * jac[1, k]
        a12 += weight[k] * jac[1, k] * jac[2, k]
        a22 += weight[k] * jac[2, k] * jac[2, k]
    s = damping * (a00 + a11 + a22) / 3.0 + 1e-30
    a00 += s
    a11 += s
    a22 += s
    c00, c01, c02 = a11 * a22 - a12 * a12, a02 * a12 - a01 * a22, a01 * a12 - a02 * a11
    c11, c12, c22 = a00 * a22 - a02 * a02, a01 * a02 - a00 * a12, a00 * a11 - a01 * a01
    det = a00 * c00 + a01 * c01 + a02 * c02
    x = (c00 * target[0] + c01 * target[1] + c02 * target[2]) / det
    y = (c01 * target[0] + c11 * target[1] + c12 * target[2]) / det
    z = (c02 * target[0] + c12 * target[1] + c22 * target[2]) / det
    for k in range(n):
        out[k] = weight[k] * (jac[0, k] * x + jac[1, k] * y + jac[2, k] * z)
