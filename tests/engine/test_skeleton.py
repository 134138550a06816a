"""Kinematics and mass properties of the character, with MuJoCo as the oracle."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from engine import rotation
from engine import skeleton as sk
from engine.humanoid.model import load_humanoid, set_pose


def random_pose(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Poses within the joints' freedom: hinges turn about -y in their range, wrists do not turn."""
    local = rotation.quat_exp(rng.normal(size=(n, 15, 3)) * 0.6)
    for i, kind in enumerate(sk.JOINT_TYPES):
        if kind == "fixed":
            local[:, i] = [1.0, 0.0, 0.0, 0.0]
        if kind == "hinge":
            low, high = sk.KNEE_RANGE if "knee" in sk.BODY_NAMES[i] else sk.ELBOW_RANGE
            local[:, i] = rotation.quat_from_axis_angle(sk.HINGE_AXIS, rng.uniform(low, high, n))
    return rng.normal(size=(n, 3)), local


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return load_humanoid(floor=False)


def test_the_character_weighs_45_kg_and_stands_on_its_soles_with_the_root_at_hip_height() -> None:
    assert sk.TOTAL_MASS == 45.0
    pos, quat = sk.forward_kinematics([0.0, 0.0, 0.0], np.tile([1.0, 0.0, 0.0, 0.0], (15, 1)))
    for ankle, side in zip(sk.FOOT_BODIES, (1.0, -1.0), strict=True):
        sole = pos[ankle] + rotation.quat_rotate(quat[ankle], sk.SOLE_OFFSET)
        np.testing.assert_allclose(sole, [0.045, 0.084887 * side, -0.881416], atol=1e-12)


def test_kinematics_com_and_inertia_equal_mujoco(model: mujoco.MjModel) -> None:
    data = mujoco.MjData(model)
    root, local = random_pose(np.random.default_rng(0), 20)
    pos, quat = sk.forward_kinematics(root, local)
    com = sk.com_pos_w(pos, quat)
    inertia = sk.composite_inertia_w(pos, quat)
    for k in range(len(root)):
        set_pose(model, data, root[k], local[k])
        for i, name in enumerate(sk.BODY_NAMES):
            np.testing.assert_allclose(pos[k, i], data.body(name).xpos, atol=1e-12)
            np.testing.assert_allclose(rotation.quat_to_matrix(quat[k, i]).ravel(), data.body(name).xmat, atol=1e-12)
        np.testing.assert_allclose(com[k], data.subtree_com[0], atol=1e-12)
        mass = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, mass)
        about_com = mass[3:6, 3:6]  # root rotation, body axes, about the root joint
        arm = com[k] - root[k]
        turn = rotation.quat_to_matrix(quat[k, 0])
        parallel = sk.TOTAL_MASS * (arm @ arm * np.eye(3) - np.outer(arm, arm))
        np.testing.assert_allclose(inertia[k], turn @ about_com @ turn.T - parallel, atol=1e-9)


def test_momentum_equals_mujoco_for_a_short_step(model: mujoco.MjModel) -> None:
    rng = np.random.default_rng(1)
    data = mujoco.MjData(model)
    dt = 1e-4
    root, local = random_pose(rng, 5)
    for k in range(5):
        set_pose(model, data, root[k], local[k])
        qvel = rng.normal(size=model.nv)
        middle = data.qpos.copy()
        ends = []
        for sign in (-0.5, 0.5):
            data.qpos[:] = middle
            mujoco.mj_integratePos(model, data.qpos, qvel, sign * dt)
            mujoco.mj_forward(model, data)
            ends.append([np.array([getattr(data.body(b), a) for b in sk.BODY_NAMES]) for a in ("xpos", "xquat")])
        data.qpos[:] = middle
        data.qvel[:] = qvel
        mujoco.mj_forward(model, data)
        mujoco.mj_subtreeVel(model, data)
        linear, angular = sk.momentum_w(*ends[0], *ends[1], dt)
        np.testing.assert_allclose(linear, sk.TOTAL_MASS * data.subtree_linvel[0], atol=1e-5)
        np.testing.assert_allclose(angular, data.subtree_angmom[0], atol=1e-5)


def test_momentum_of_a_rigid_turn_is_inertia_times_angular_velocity() -> None:
    root, local = random_pose(np.random.default_rng(2), 1)
    pos, quat = sk.forward_kinematics(root, local)
    com = sk.com_pos_w(pos, quat)[:, None]
    rate, dt = np.array([0.3, -0.2, 0.5]), 1e-3
    ends = []
    for half in (-0.5 * dt, 0.5 * dt):
        turn = rotation.quat_exp(rate * half)
        ends += [com + rotation.quat_rotate(turn, pos - com), rotation.quat_mul(turn, quat)]
    linear, angular = sk.momentum_w(*ends, dt)
    np.testing.assert_allclose(linear, 0.0, atol=1e-9)
    np.testing.assert_allclose(angular[0], sk.composite_inertia_w(pos, quat)[0] @ rate, rtol=1e-6)


def test_local_rotations_survive_the_way_through_world_rotations() -> None:
    root, local = random_pose(np.random.default_rng(3), 10)
    _, quat = sk.forward_kinematics(root, local)
    np.testing.assert_allclose(np.abs(np.sum(sk.local_from_world(quat) * local, -1)), 1.0, atol=1e-12)


def test_the_mirror_image_reflects_every_body_and_is_its_own_inverse() -> None:
    root, local = random_pose(np.random.default_rng(4), 10)
    mirrored = sk.mirror_pose(root, local)
    pos, quat = sk.forward_kinematics(root, local)
    pos_m, quat_m = sk.forward_kinematics(*mirrored)
    np.testing.assert_allclose(pos_m, (pos * [1.0, -1.0, 1.0])[:, sk.MIRROR_BODIES], atol=1e-12)
    np.testing.assert_allclose(sk.com_pos_w(pos_m, quat_m), sk.com_pos_w(pos, quat) * [1.0, -1.0, 1.0], atol=1e-12)
    again = sk.mirror_pose(*mirrored)
    np.testing.assert_allclose(again[0], root)
    np.testing.assert_allclose(again[1], local)
