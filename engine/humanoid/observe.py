"""What a policy of the humanoid sees: 120 numbers, all in the character's heading frame, and their mirror image.

The heading frame stands at the root's ground point, x along the root's x axis in the plane. The state is that of
DeepMimic (heights, positions, rotations, velocities, phase) without what follows from the rest; joints stand in the
order of `engine.skeleton.BODY_NAMES`, ball joints before hinges. With a goal, two numbers follow: the wanted direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine import rotation
from engine.humanoid.kinematics import N_JOINT_DOF, joint_slices, qpos_addresses
from engine.humanoid.reference import quat_yaw, turned
from engine.humanoid.simulation import BodyStates
from engine.policy_layout import HARMONICS, humanoid_observation, width
from engine.skeleton import BODY_NAMES, JOINT_TYPES, MIRROR_BODIES

Array = NDArray[np.float64]
BALLS = tuple(i for i, kind in enumerate(JOINT_TYPES) if kind == "ball")
HINGES = tuple(i for i, kind in enumerate(JOINT_TYPES) if kind == "hinge")
KEY_BODIES = tuple(
    BODY_NAMES.index(name) for name in ("neck", "right_wrist", "left_wrist", "right_ankle", "left_ankle")
)
_BALL_QPOS, _HINGE_QPOS = qpos_addresses("ball"), qpos_addresses("hinge")
OBS = width(humanoid_observation())


def observe(
    qpos: Array, qvel: Array, bodies: BodyStates, ref_root_pos_w: Array, ref_yaw_rad: Array, phase: Array,
    goal_yaw_rad: Array | None = None,
) -> Array:  # fmt: skip
    """Observation rows, not mirrored.

    Args:
        qpos: Generalised positions (n, 43). qvel: Velocities (n, 34). bodies: World states of the same.
        ref_root_pos_w: Root of the reference [m] (n, 3). ref_yaw_rad: Its heading (n,). phase: In [0, 1) (n,).
        goal_yaw_rad: Wanted direction of travel, world (n,), or None.

    Returns:
        (n, 120), or (n, 122) with a goal.
    """
    n = len(qpos)
    yaw = quat_yaw(bodies.body_quat_w[:, 0])
    level = rotation.quat_mul(rotation.quat_from_axis_angle([0.0, 0.0, 1.0], -yaw), bodies.body_quat_w[:, 0])
    root = bodies.body_pos_w[:, 0]
    joints = rotation.quat_normalise(qpos[:, _BALL_QPOS[:, None] + np.arange(4)])
    keys = turned(-yaw[:, None], bodies.body_pos_w[:, list(KEY_BODIES)] - root[:, None])
    angles = [2.0 * np.pi * (k + 1) * phase for k in range(HARMONICS)]
    parts = [
        root[:, 2:],
        rotation.matrix_to_6d(rotation.quat_to_matrix(level)),
        np.stack([np.sin(yaw - ref_yaw_rad), np.cos(yaw - ref_yaw_rad)], axis=1),
        turned(-yaw, ref_root_pos_w - root)[:, :2],
        turned(-yaw, bodies.body_vel_w[:, 0]),
        turned(-yaw, bodies.body_spin_w[:, 0]),
        rotation.matrix_to_6d(rotation.quat_to_matrix(joints)).reshape(n, -1),
        qpos[:, _HINGE_QPOS],
        qvel[:, 6:],
        keys.reshape(n, -1),
        *(np.stack([np.sin(angle), np.cos(angle)], axis=1) for angle in angles),
    ]
    if goal_yaw_rad is not None:
        parts.append(np.stack([np.cos(goal_yaw_rad - yaw), np.sin(goal_yaw_rad - yaw)], axis=1))
    return np.concatenate(parts, axis=1)


def _mirrored(order: tuple[int, ...]) -> list[int]:
    return [order.index(int(MIRROR_BODIES[i])) for i in order]


def _blocks(order: list[int], signs: list[float]) -> tuple[list[int], list[float]]:
    wide = len(signs)
    return [wide * i + j for i in order for j in range(wide)], signs * len(order)


def _mirror_of_action() -> tuple[NDArray[np.int64], Array]:
    places = dict(joint_slices())
    index, sign = np.zeros(N_JOINT_DOF, np.int64), np.ones(N_JOINT_DOF)
    for body, place in places.items():
        other = places[int(MIRROR_BODIES[body])]
        index[place] = np.arange(other.start, other.stop)
        if JOINT_TYPES[body] == "ball":  # a turn keeps its part about y, a hinge is about -y
            sign[place] = (-1.0, 1.0, -1.0)
    return index, sign


def _mirror_of_observation() -> tuple[NDArray[np.int64], Array]:
    vector, turn = [1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]
    action_index, action_sign = _mirror_of_action()
    parts: list[tuple[list[int], list[float]]] = [
        ([0], [1.0]),
        _blocks([0], vector + turn),
        ([0, 1], [-1.0, 1.0]),
        ([0, 1], [1.0, -1.0]),
        _blocks([0], vector),
        _blocks([0], turn),
        _blocks(_mirrored(BALLS), vector + turn),
        (_mirrored(HINGES), [1.0] * len(HINGES)),
        (action_index.tolist(), action_sign.tolist()),
        _blocks(_mirrored(KEY_BODIES), vector),
        ([*range(2 * HARMONICS)], [1.0] * (2 * HARMONICS)),
        ([0, 1], [1.0, -1.0]),
    ]
    index, sign, at = [], [], 0
    for columns, signs in parts:
        index += [at + c for c in columns]
        sign += signs
        at += len(columns)
    return np.array(index), np.array(sign)


_ACTION_INDEX, _ACTION_SIGN = _mirror_of_action()
_OBS_INDEX, _OBS_SIGN = _mirror_of_observation()


def mirror_observation(obs: Array) -> Array:
    """The rows (n, 120 or 122) that the left-right mirror image of the character would give, phase untouched."""
    wide = obs.shape[1]
    return obs[:, _OBS_INDEX[:wide]] * _OBS_SIGN[:wide]


def mirror_action(action: Array) -> Array:
    """The servo numbers (n, 28) of the mirror image; twice is the identity."""
    return action[:, _ACTION_INDEX] * _ACTION_SIGN
