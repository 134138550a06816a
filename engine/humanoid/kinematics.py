"""World positions, rotations and velocities of the 15 bodies from MuJoCo's generalised coordinates, many characters.

MuJoCo's conventions: the free joint's linear velocity is in world axes, its angular velocity and those of ball joints
are in the axes of the moving body; a hinge's is about its own axis. The model's joints must stand in the order of
`engine.skeleton.BODY_NAMES` (`joints_in_order` checks it by name), as ``engine/assets/humanoid.xml`` has them.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine import rotation
from engine.ik.kinematics import NJIT, quat_mul, quat_rotate
from engine.skeleton import BODY_NAMES, COM_OFFSETS, JOINT_TYPES, MASSES, OFFSETS, PARENTS, SHAPES, TOTAL_MASS

Array = NDArray[np.float64]
N_JOINT_DOF = 28
"""Rotational degrees of freedom below the root: three a ball joint, one a hinge, in the order of the bodies."""
_KIND = np.array([{"free": 0, "ball": 1, "hinge": 2, "fixed": 3}[kind] for kind in JOINT_TYPES])
_WIDTH = {"free": (7, 6), "ball": (4, 3), "hinge": (1, 1), "fixed": (0, 0)}
_QPOS = np.concatenate([[0], np.cumsum([_WIDTH[kind][0] for kind in JOINT_TYPES])[:-1]])
_QVEL = np.concatenate([[0], np.cumsum([_WIDTH[kind][1] for kind in JOINT_TYPES])[:-1]])
_OFFSETS, _PARENTS, _COM, _SHARE = OFFSETS, PARENTS, COM_OFFSETS, MASSES / TOTAL_MASS


def joints_in_order(model: mujoco.MjModel) -> bool:
    """Whether every joint of the model has the addresses that `body_states_into` reads."""
    named = [(i, name) for i, name in enumerate(BODY_NAMES) if JOINT_TYPES[i] != "fixed"]
    return all(
        model.joint(name).qposadr[0] == _QPOS[i] and model.joint(name).dofadr[0] == _QVEL[i] for i, name in named
    )


def qpos_addresses(kind: str) -> NDArray[np.int64]:
    """First coordinates in qpos of the joints of a kind, ``ball`` or ``hinge``, in the order of the bodies."""
    return np.array([int(_QPOS[i]) for i, each in enumerate(JOINT_TYPES) if each == kind])


def joint_slices() -> list[tuple[int, slice]]:
    """Body and its run of the 28 joint coordinates, for every body with a ball joint or a hinge."""
    return [
        (i, slice(int(_QVEL[i]) - 6, int(_QVEL[i]) - 6 + _WIDTH[kind][1]))
        for i, kind in enumerate(JOINT_TYPES)
        if kind in ("ball", "hinge")
    ]


@njit(**NJIT)
def body_states_into(body_pos_w, body_quat_w, body_vel_w, body_spin_w, com_pos_w, com_vel_w, qpos, qvel):
    """Compute the bodies' world states.

    Args:
        body_pos_w: Receives body origins [m], (n, 15, 3). body_quat_w: Receives rotations, unit, (n, 15, 4).
        body_vel_w: Receives velocities of the origins [m/s], (n, 15, 3). body_spin_w: Receives angular velocities,
            world axes [rad/s], (n, 15, 3).
        com_pos_w: Receives the character's centre of mass [m], (n, 3). com_vel_w: Receives its velocity [m/s], (n, 3).
        qpos: Generalised positions (n, 43). qvel: Generalised velocities (n, 34).
    """
    for k in range(qpos.shape[0]):
        for j in range(3):
            com_pos_w[k, j] = 0.0
            com_vel_w[k, j] = 0.0
        for i in range(15):
            p, at, dof, kind = _PARENTS[i], _QPOS[i], _QVEL[i], _KIND[i]
            quat, spin = body_quat_w[k, i], body_spin_w[k, i]
            if kind == 0:
                norm = 0.0
                for j in range(3):
                    body_pos_w[k, i, j] = qpos[k, j]
                    body_vel_w[k, i, j] = qvel[k, j]
                for j in range(4):
                    norm += qpos[k, 3 + j] ** 2
                norm = np.sqrt(norm)
                for j in range(4):
                    quat[j] = qpos[k, 3 + j] / norm
                spin[0], spin[1], spin[2] = quat_rotate(
                    quat[0], quat[1], quat[2], quat[3], qvel[k, 3], qvel[k, 4], qvel[k, 5]
                )
            else:
                q = body_quat_w[k, p]
                ox, oy, oz = quat_rotate(q[0], q[1], q[2], q[3], _OFFSETS[i, 0], _OFFSETS[i, 1], _OFFSETS[i, 2])
                wx, wy, wz = body_spin_w[k, p, 0], body_spin_w[k, p, 1], body_spin_w[k, p, 2]
                body_pos_w[k, i, 0] = body_pos_w[k, p, 0] + ox
                body_pos_w[k, i, 1] = body_pos_w[k, p, 1] + oy
                body_pos_w[k, i, 2] = body_pos_w[k, p, 2] + oz
                body_vel_w[k, i, 0] = body_vel_w[k, p, 0] + wy * oz - wz * oy
                body_vel_w[k, i, 1] = body_vel_w[k, p, 1] + wz * ox - wx * oz
                body_vel_w[k, i, 2] = body_vel_w[k, p, 2] + wx * oy - wy * ox
                lw, lx, ly, lz, rx, ry, rz = 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
                if kind == 1:
                    lw, lx, ly, lz = qpos[k, at], qpos[k, at + 1], qpos[k, at + 2], qpos[k, at + 3]
                    norm = np.sqrt(lw * lw + lx * lx + ly * ly + lz * lz)
                    lw, lx, ly, lz = lw / norm, lx / norm, ly / norm, lz / norm
                    rx, ry, rz = qvel[k, dof], qvel[k, dof + 1], qvel[k, dof + 2]
                elif kind == 2:  # about -y
                    lw, ly = np.cos(0.5 * qpos[k, at]), -np.sin(0.5 * qpos[k, at])
                    ry = -qvel[k, dof]
                quat[0], quat[1], quat[2], quat[3] = quat_mul(q[0], q[1], q[2], q[3], lw, lx, ly, lz)
                sx, sy, sz = quat_rotate(quat[0], quat[1], quat[2], quat[3], rx, ry, rz)
                spin[0], spin[1], spin[2] = wx + sx, wy + sy, wz + sz
            cx, cy, cz = quat_rotate(quat[0], quat[1], quat[2], quat[3], _COM[i, 0], _COM[i, 1], _COM[i, 2])
            com_pos_w[k, 0] += _SHARE[i] * (body_pos_w[k, i, 0] + cx)
            com_pos_w[k, 1] += _SHARE[i] * (body_pos_w[k, i, 1] + cy)
            com_pos_w[k, 2] += _SHARE[i] * (body_pos_w[k, i, 2] + cz)
            com_vel_w[k, 0] += _SHARE[i] * (body_vel_w[k, i, 0] + spin[1] * cz - spin[2] * cy)
            com_vel_w[k, 1] += _SHARE[i] * (body_vel_w[k, i, 1] + spin[2] * cx - spin[0] * cz)
            com_vel_w[k, 2] += _SHARE[i] * (body_vel_w[k, i, 2] + spin[0] * cy - spin[1] * cx)


def lowest_points(body_pos_w: Array, body_quat_w: Array, which: NDArray[np.int64]) -> Array:
    """Height of the lowest point of bodies' shapes [m], (n, len(which)); spheres, capsules along z and boxes."""
    out = np.empty((len(body_pos_w), len(which)))
    for k, body in enumerate(which):
        kind, size = SHAPES[body]
        quat = body_quat_w[:, body]
        centre = body_pos_w[:, body, 2] + rotation.quat_rotate(quat, COM_OFFSETS[body])[:, 2]
        w, x, y, z = quat.T
        axis = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], axis=1)  # row z of R
        if kind == "sphere":
            out[:, k] = centre - size[0]
        elif kind == "capsule":
            out[:, k] = centre - size[0] - size[1] * np.abs(axis[:, 2])
        else:
            out[:, k] = centre - np.abs(axis) @ np.array(size)
    return out
