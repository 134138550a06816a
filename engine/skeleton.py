"""The character: 15 rigid bodies, 34 degrees of freedom, 45 kg; kinematics and mass properties on batches of poses.

Zero pose: standing, arms hanging, every local rotation the identity. z up, x forward, y left. The origin of a body is
its joint. Joint offsets, shapes and masses are the figures of the DeepMimic humanoid (``humanoid3d.txt`` of
xbpeng/DeepMimic, MIT; y up there, so (x, y, z) becomes (x, -z, y) here; its shape sizes are diameters). The inertia of
a body is that of its homogeneous shape, as Bullet and MuJoCo compute it. ``engine/assets/humanoid.xml`` is the same
character.

A pose is ``root_pos_w`` (..., 3) [m] with ``local_quat`` (..., 15, 4): rotations to the parent, entry 0 root to world.
Knees and elbows are hinges about the body's -y axis, wrists are fixed; the functions here accept any rotation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine import rotation

Array = NDArray[np.float64]

BODY_NAMES = (
    "root", "chest", "neck",
    "right_shoulder", "right_elbow", "right_wrist",
    "left_shoulder", "left_elbow", "left_wrist",
    "right_hip", "right_knee", "right_ankle",
    "left_hip", "left_knee", "left_ankle",
)  # fmt: skip
N_BODIES = len(BODY_NAMES)
PARENTS = np.array([-1, 0, 1, 1, 3, 4, 1, 6, 7, 0, 9, 10, 0, 12, 13])
"""Index of the parent of each body; -1 for the root. Parents come before their children."""

JOINT_TYPES = (
    "free", "ball", "ball",
    "ball", "hinge", "fixed",
    "ball", "hinge", "fixed",
    "ball", "hinge", "ball",
    "ball", "hinge", "ball",
)  # fmt: skip
HINGE_AXIS = np.array([0.0, -1.0, 0.0])
KNEE_RANGE = (-2.7, 0.0)
ELBOW_RANGE = (0.0, 3.14)

THIGH_LENGTH = 0.421546
SHANK_LENGTH = 0.40987
OFFSETS = np.array(
    [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 0.236151],
        [0.0, 0.0, 0.223894],
        [-0.02405, -0.18311, 0.2435],
        [0.0, 0.0, -0.274788],
        [0.0, 0.0, -0.258947],
        [-0.02405, 0.18311, 0.2435],
        [0.0, 0.0, -0.274788],
        [0.0, 0.0, -0.258947],
        [0.0, -0.084887, 0.0],
        [0.0, 0.0, -THIGH_LENGTH],
        [0.0, 0.0, -SHANK_LENGTH],
        [0.0, 0.084887, 0.0],
        [0.0, 0.0, -THIGH_LENGTH],
        [0.0, 0.0, -SHANK_LENGTH],
    ]
)
"""Joint position in the parent's frame [m], shape (15, 3)."""

SHAPES = (
    ("sphere", (0.09,)), ("sphere", (0.11,)), ("sphere", (0.1025,)),
    ("capsule", (0.045, 0.09)), ("capsule", (0.04, 0.0675)), ("sphere", (0.04,)),
    ("capsule", (0.045, 0.09)), ("capsule", (0.04, 0.0675)), ("sphere", (0.04,)),
    ("capsule", (0.055, 0.15)), ("capsule", (0.05, 0.155)), ("box", (0.0885, 0.045, 0.0275)),
    ("capsule", (0.055, 0.15)), ("capsule", (0.05, 0.155)), ("box", (0.0885, 0.045, 0.0275)),
)  # fmt: skip
"""Shape of each body [m]: sphere (radius), capsule along z (radius, half length of the cylinder), box (half sizes)."""

MASSES = np.array([6.0, 14.0, 2.0, 1.5, 1.0, 0.5, 1.5, 1.0, 0.5, 4.5, 3.0, 1.0, 4.5, 3.0, 1.0])
"""Mass of each body [kg], shape (15,)."""
TOTAL_MASS = float(MASSES.sum())

COM_OFFSETS = np.array(
    [
        [0.0, 0.0, 0.07],
        [0.0, 0.0, 0.12],
        [0.0, 0.0, 0.175],
        [0.0, 0.0, -0.14],
        [0.0, 0.0, -0.12],
        [0.0, 0.0, 0.0],
        [0.0, 0.0, -0.14],
        [0.0, 0.0, -0.12],
        [0.0, 0.0, 0.0],
        [0.0, 0.0, -0.21],
        [0.0, 0.0, -0.2],
        [0.045, 0.0, -0.0225],
        [0.0, 0.0, -0.21],
        [0.0, 0.0, -0.2],
        [0.045, 0.0, -0.0225],
    ]
)
"""Centre of mass (= centre of the shape) in the body's frame [m], shape (15, 3)."""

LEFT_ANKLE = 14
RIGHT_ANKLE = 11
FOOT_BODIES = (LEFT_ANKLE, RIGHT_ANKLE)
SOLE_OFFSET = np.array([0.045, 0.0, -0.05])
TOE_OFFSET = np.array([0.125, 0.0, -0.05])
HEEL_OFFSET = np.array([-0.035, 0.0, -0.05])
MIRROR_BODIES = np.array([0, 1, 2, 6, 7, 8, 3, 4, 5, 12, 13, 14, 9, 10, 11])
"""Body that takes the place of body i under the left-right mirror (y -> -y)."""


def _shape_inertia(shape: str, size: tuple[float, ...], mass: float) -> Array:
    """Principal inertia of a homogeneous shape about its centre [kg m^2], shape (3, 3)."""
    if shape == "sphere":
        return np.eye(3) * 0.4 * mass * size[0] ** 2
    if shape == "box":
        x2, y2, z2 = (s * s for s in size)
        return np.diag([y2 + z2, x2 + z2, x2 + y2]) * mass / 3.0
    r, half = size  # capsule: cylinder and two half balls, masses by volume
    height = 2.0 * half
    cylinder = mass * height / (height + 4.0 / 3.0 * r)
    balls = mass - cylinder
    along = cylinder * r * r / 2.0 + 0.4 * balls * r * r
    across = cylinder * (3.0 * r * r + height * height) / 12.0
    across += balls * (0.4 * r * r + half * half + 0.75 * half * r)
    return np.diag([across, across, along])


BODY_INERTIAS = np.stack([_shape_inertia(s, size, m) for (s, size), m in zip(SHAPES, MASSES, strict=True)])
"""Inertia of each body about its own centre of mass, body axes [kg m^2], shape (15, 3, 3); diagonal."""


def forward_kinematics(root_pos_w: ArrayLike, local_quat: ArrayLike) -> tuple[Array, Array]:
    """World transforms of the bodies.

    Args:
        root_pos_w: Position of the root joint, world frame [m], shape (..., 3).
        local_quat: Rotations to the parent (entry 0: root to world), shape (..., 15, 4).

    Returns:
        ``body_pos_w`` (..., 15, 3) [m] and ``body_quat_w`` (..., 15, 4).
    """
    local_quat = np.asarray(local_quat, np.float64)
    pos = np.empty((*local_quat.shape[:-1], 3))
    quat = np.empty_like(local_quat)
    pos[..., 0, :] = root_pos_w
    quat[..., 0, :] = local_quat[..., 0, :]
    for i in range(1, N_BODIES):
        p = PARENTS[i]
        pos[..., i, :] = pos[..., p, :] + rotation.quat_rotate(quat[..., p, :], OFFSETS[i])
        quat[..., i, :] = rotation.quat_mul(quat[..., p, :], local_quat[..., i, :])
    return pos, quat


def local_from_world(body_quat_w: ArrayLike) -> Array:
    """Rotations to the parent (..., 15, 4) from world rotations (..., 15, 4); entry 0 stays root to world."""
    world = np.asarray(body_quat_w, np.float64)
    local = world.copy()
    local[..., 1:, :] = rotation.quat_mul(rotation.quat_inv(world[..., PARENTS[1:], :]), world[..., 1:, :])
    return local


def body_com_pos_w(body_pos_w: ArrayLike, body_quat_w: ArrayLike) -> Array:
    """Centres of mass of the single bodies, world frame [m], shape (..., 15, 3)."""
    return np.asarray(body_pos_w, np.float64) + rotation.quat_rotate(body_quat_w, COM_OFFSETS)


def com_pos_w(body_pos_w: ArrayLike, body_quat_w: ArrayLike) -> Array:
    """Centre of mass of the character, world frame [m], shape (..., 3)."""
    return np.einsum("b,...bi->...i", MASSES / TOTAL_MASS, body_com_pos_w(body_pos_w, body_quat_w))


def composite_inertia_w(body_pos_w: ArrayLike, body_quat_w: ArrayLike) -> Array:
    """Inertia of the frozen pose about the character's centre of mass, world axes [kg m^2], shape (..., 3, 3)."""
    centres = body_com_pos_w(body_pos_w, body_quat_w)
    r = centres - np.einsum("b,...bi->...i", MASSES / TOTAL_MASS, centres)[..., None, :]
    own = _inertias_w(np.asarray(body_quat_w, np.float64)).sum(axis=-3)
    moments = np.einsum("b,...bi,...bj->...ij", MASSES, r, r)
    return own + np.trace(moments, axis1=-2, axis2=-1)[..., None, None] * np.eye(3) - moments


def momentum_w(pos0: ArrayLike, quat0: ArrayLike, pos1: ArrayLike, quat1: ArrayLike, dt: float) -> tuple[Array, Array]:
    r"""Mean momentum of the motion from one pose to the next, about the centre of mass.

    ``P = sum m_i v_i`` and ``L = sum m_i (c_i - c) x v_i + R_i I_i R_i^T w_i`` with ``v_i = (c_i1 - c_i0) / dt`` and
    ``w_i = log(R_i1 R_i0^T) / dt``; arms and inertias are those half way (second order in ``dt``).

    Args:
        pos0: Body positions before, world frame [m], shape (..., 15, 3).
        quat0: Body rotations before, shape (..., 15, 4).
        pos1: Body positions after, shape (..., 15, 3).
        quat1: Body rotations after, shape (..., 15, 4).
        dt: Time between the poses [s].

    Returns:
        Linear momentum [kg m/s] and angular momentum [kg m^2/s], world axes, each (..., 3).
    """
    c0, c1 = body_com_pos_w(pos0, quat0), body_com_pos_w(pos1, quat1)
    turn = rotation.quat_log(rotation.quat_mul(quat1, rotation.quat_inv(quat0)))
    inertia = _inertias_w(rotation.quat_mul(rotation.quat_exp(0.5 * turn), quat0))
    weights = MASSES / TOTAL_MASS
    middle, move = 0.5 * (c0 + c1), c1 - c0
    arm = middle - np.einsum("b,...bi->...i", weights, middle)[..., None, :]
    linear = np.einsum("b,...bi->...i", MASSES, move)
    angular = np.einsum("b,...bi->...i", MASSES, np.cross(arm, move)) + np.einsum("...bij,...bj->...i", inertia, turn)
    return linear / dt, angular / dt


def mirror_pose(root_pos_w: ArrayLike, local_quat: ArrayLike) -> tuple[Array, Array]:
    """Left-right mirror image of poses in the plane y = 0: root positions (..., 3), local rotations (..., 15, 4)."""
    pos = np.asarray(root_pos_w, np.float64) * np.array([1.0, -1.0, 1.0])
    quat = np.asarray(local_quat, np.float64)[..., MIRROR_BODIES, :] * np.array([1.0, -1.0, 1.0, -1.0])
    return pos, quat


def _inertias_w(quat: Array) -> Array:
    m = rotation.quat_to_matrix(quat)
    return m @ BODY_INERTIAS @ np.swapaxes(m, -1, -2)
