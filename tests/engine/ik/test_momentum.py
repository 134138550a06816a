"""Centre of mass, angular momentum and their Jacobians against MuJoCo, the numpy code and finite differences."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from engine import rotation
from engine import skeleton as sk
from engine.humanoid.model import load_humanoid, set_pose
from engine.ik.momentum import (
    angular_displacement_into,
    com_into,
    damped_least_squares_into,
    rotation_columns_into,
)

SUBTREES = [(0, 14), (0, 8), (1, 8), (2, 2), (3, 5), (4, 5), (6, 8), (7, 8), (9, 11), (10, 11), (11, 11), (12, 14)]


def random_pose(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    pos, quat = sk.forward_kinematics(rng.normal(size=3), rotation.quat_exp(rng.normal(size=(15, 3)) * 0.6))
    coms, com = sk.body_com_pos_w(pos, quat), np.empty(3)
    com_into(com, coms)
    return pos, quat, coms, com


def test_com_and_angular_displacement_equal_the_numpy_code() -> None:
    pos, quat, coms, com = random_pose(0)
    np.testing.assert_allclose(com, sk.com_pos_w(pos, quat), atol=1e-12)
    pos1, quat1, coms1, _ = random_pose(1)
    out = np.empty(3)
    angular_displacement_into(out, coms, quat, coms1, quat1)
    np.testing.assert_allclose(out, sk.momentum_w(pos, quat, pos1, quat1, 1.0)[1], atol=1e-10)


@pytest.mark.parametrize(("first", "last"), SUBTREES)
def test_rotation_columns_equal_finite_differences(first: int, last: int) -> None:
    pos, quat, coms, com = random_pose(2)
    com_jac, ang_jac = np.full((3, 4), np.nan), np.full((3, 4), np.nan)
    rotation_columns_into(com_jac, ang_jac, 1, first, last, pos[first], com, coms, quat)
    step = 1e-5
    for k in range(3):
        ends = []
        for sign in (-0.5, 0.5):
            turn = rotation.quat_exp(np.eye(3)[k] * sign * step)
            moved, turned = coms.copy(), quat.copy()
            part = slice(first, last + 1)
            moved[part] = pos[first] + rotation.quat_rotate(turn, coms[part] - pos[first])
            turned[part] = rotation.quat_mul(turn, quat[part])
            moved_com = np.empty(3)
            com_into(moved_com, moved)
            ends.append((moved, turned, moved_com))
        out = np.empty(3)
        angular_displacement_into(out, *ends[0][:2], *ends[1][:2])
        np.testing.assert_allclose(com_jac[:, 1 + k], (ends[1][2] - ends[0][2]) / step, atol=1e-8)
        np.testing.assert_allclose(ang_jac[:, 1 + k], out / step, atol=1e-7)
    assert np.isnan(com_jac[:, 0]).all()


def test_the_columns_of_all_joints_give_mujocos_angular_momentum() -> None:
    model = load_humanoid(floor=False)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(3)
    root, local = rng.normal(size=3), rotation.quat_exp(rng.normal(size=(15, 3)) * 0.5)
    for i, kind in enumerate(sk.JOINT_TYPES):
        if kind != "ball" and i:
            local[i] = rotation.quat_from_axis_angle(sk.HINGE_AXIS, 0.5 if kind == "hinge" else 0.0)
    set_pose(model, data, root, local)
    data.qvel[:] = rng.normal(size=model.nv)
    mujoco.mj_forward(model, data)
    mujoco.mj_subtreeVel(model, data)
    pos, quat = sk.forward_kinematics(root, local)
    coms, com = sk.body_com_pos_w(pos, quat), sk.com_pos_w(pos, quat)
    total, com_rate = np.zeros(3), data.qvel[:3].copy()
    last_of = {0: 14, 1: 8, 2: 2, 3: 5, 4: 5, 6: 8, 7: 8, 9: 11, 10: 11, 11: 11, 12: 14, 13: 14, 14: 14}
    for i, last in last_of.items():
        start = model.joint(sk.BODY_NAMES[i]).dofadr[0] + 3 * (i == 0)
        local_rate = data.qvel[start : start + 3] if sk.JOINT_TYPES[i] != "hinge" else data.qvel[start] * sk.HINGE_AXIS
        rate = rotation.quat_rotate(quat[i], local_rate)
        com_jac, ang_jac = np.empty((3, 3)), np.empty((3, 3))
        rotation_columns_into(com_jac, ang_jac, 0, i, last, pos[i], com, coms, quat)
        total += ang_jac @ rate
        com_rate += com_jac @ rate
    np.testing.assert_allclose(total, data.subtree_angmom[0], atol=1e-10)
    np.testing.assert_allclose(com_rate, data.subtree_linvel[0], atol=1e-10)


def test_the_damped_step_is_the_minimiser_of_the_damped_problem() -> None:
    rng = np.random.default_rng(4)
    jac, weight, target, out = rng.normal(size=(3, 9)), rng.uniform(0.1, 2.0, 9), rng.normal(size=3), np.empty(9)
    damped_least_squares_into(out, jac, weight, target, 0.1)
    square = (jac * weight) @ jac.T
    expected = weight * (jac.T @ np.linalg.solve(square + 0.1 * np.trace(square) / 3.0 * np.eye(3), target))
    np.testing.assert_allclose(out, expected, rtol=1e-10)
