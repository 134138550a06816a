"""Characters in a batch move as MuJoCo moves a single one; kinematics, pushes, failures, threads."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from engine.humanoid.model import load_humanoid, qpos_from_pose
from engine.humanoid.simulation import SUBSTEPS, BodyStates, HumanoidBatch, joint_targets
from engine.rotation import quat_exp
from engine.skeleton import BODY_NAMES, TOTAL_MASS

#: An angle that each hinge allows: elbows bend by a positive, knees by a negative one.
HINGES = {4: 1.0, 7: 1.0, 10: -1.0, 13: -1.0}


def random_states(n: int, seed: int = 0, height_m: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Characters above the floor in bent poses, moving, with targets near them.

    Far targets would saturate the servos, which MuJoCo then does not damp implicitly.
    """
    rng = np.random.default_rng(seed)
    model = load_humanoid()
    root = rng.uniform([-1, -1, height_m], [1, 1, height_m + 0.3], (n, 3))
    local = quat_exp(0.4 * rng.standard_normal((n, 15, 3)))
    for body, sign in HINGES.items():
        local[:, body] = quat_exp(np.array([0.0, -sign, 0.0]) * rng.uniform(0.2, 0.8, (n, 1)))
    target = joint_targets(local) + 0.05 * rng.standard_normal((n, 28))
    return qpos_from_pose(model, root, local), 0.2 * rng.standard_normal((n, model.nv)), target


def test_body_states_are_those_of_mujoco() -> None:
    model = load_humanoid()
    qpos, qvel, _ = random_states(5)
    states = BodyStates(5)
    states.update(qpos, qvel)
    data = mujoco.MjData(model)
    for k in range(5):
        data.qpos[:], data.qvel[:] = qpos[k], qvel[k]
        mujoco.mj_forward(model, data)
        mujoco.mj_subtreeVel(model, data)
        for i, name in enumerate(BODY_NAMES):
            body = model.body(name).id
            velocity = np.zeros(6)
            mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, body, velocity, 0)
            np.testing.assert_allclose(states.body_pos_w[k, i], data.xpos[body], atol=1e-12)
            np.testing.assert_allclose(abs(states.body_quat_w[k, i] @ data.xquat[body]), 1.0, atol=1e-12)
            np.testing.assert_allclose(states.body_spin_w[k, i], velocity[:3], atol=1e-11)
            np.testing.assert_allclose(states.body_vel_w[k, i], velocity[3:], atol=1e-11)
        np.testing.assert_allclose(states.com_pos_w[k], data.subtree_com[1], atol=1e-12)
        np.testing.assert_allclose(states.com_vel_w[k], data.subtree_linvel[1], atol=1e-11)


def test_a_step_is_four_steps_of_mujoco() -> None:
    qpos, qvel, target = random_states(3)
    batch = HumanoidBatch(3)
    batch.set_state(np.arange(3), qpos, qvel)
    batch.step(target)
    data = mujoco.MjData(batch.model)
    for k in range(3):
        mujoco.mj_resetData(batch.model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos[k], qvel[k], target[k]
        for _ in range(SUBSTEPS):
            mujoco.mj_step(batch.model, data)
        np.testing.assert_allclose(batch.qpos[k], data.qpos, atol=1e-10)
        np.testing.assert_allclose(batch.qvel[k], data.qvel, atol=1e-8)
    assert batch.warnings == 0


def test_threads_do_not_change_a_bit() -> None:
    qpos, qvel, target = random_states(8, height_m=0.9)
    targets = target + 0.05 * np.random.default_rng(2).standard_normal((20, 8, 28))
    ends = []
    for threads in (1, 2):
        batch = HumanoidBatch(8, threads)
        batch.set_state(np.arange(8), qpos, qvel)
        for target in targets:
            batch.step(target)
        ends.append((batch.qpos.tobytes(), batch.qvel.tobytes(), batch.warnings))
    assert ends[0] == ends[1]


def test_a_held_pose_is_where_the_servos_rest() -> None:
    rng = np.random.default_rng(3)
    local = quat_exp(0.5 * rng.standard_normal((2, 15, 3)))
    for body, sign in HINGES.items():
        local[:, body] = quat_exp([0.0, -0.8 * sign, 0.0])
    batch = HumanoidBatch(2, floor=False)
    batch.model.opt.gravity[:] = 0.0
    qpos = qpos_from_pose(batch.model, np.zeros((2, 3)), local)
    batch.set_state(np.arange(2), qpos, np.zeros((2, 34)))
    batch.step(joint_targets(local))
    np.testing.assert_allclose(batch.qvel, 0.0, atol=1e-10)
    assert joint_targets(local)[0, 9] == pytest.approx(0.8)  # an elbow bends by a positive angle


def test_a_push_gives_its_impulse_at_the_centre_of_mass_and_no_turn() -> None:
    """In free flight: 90 N for 1/30 s on 45 kg are 1/15 m/s, and a force at the centre of mass turns nothing."""
    force = np.array([[90.0, -45.0, 0.0]])
    batch = HumanoidBatch(1, floor=False)
    local = np.tile([1.0, 0, 0, 0], (1, 15, 1))
    batch.set_state(np.arange(1), qpos_from_pose(batch.model, np.zeros((1, 3)), local), np.zeros((1, 34)))
    batch.step(joint_targets(local), push_force_w=force)
    np.testing.assert_allclose(batch.bodies.com_vel_w[0, :2], force[0, :2] / 30.0 / TOTAL_MASS, rtol=2e-3)
    data = mujoco.MjData(batch.model)
    data.qpos[:], data.qvel[:] = batch.qpos[0], batch.qvel[0]
    mujoco.mj_forward(batch.model, data)
    mujoco.mj_subtreeVel(batch.model, data)
    # the arm is that of the step's start, so the turn left over is of second order
    assert np.abs(data.subtree_angmom[1]).max() < 0.02
    batch.step(joint_targets(local), push_torque_w=np.array([[0.0, 0.0, 30.0]]))
    data.qpos[:], data.qvel[:] = batch.qpos[0], batch.qvel[0]
    mujoco.mj_forward(batch.model, data)
    mujoco.mj_subtreeVel(batch.model, data)
    assert data.subtree_angmom[1][2] == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_warning_marks_the_character_keeps_its_state_and_spares_the_others(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    qpos, qvel, target = random_states(4)
    calm = HumanoidBatch(4, threads)
    calm.set_state(np.arange(4), qpos, qvel)
    calm.step(target)
    qvel[1, 3] = 1e12  # diverges: MuJoCo resets it
    bad = target.copy()
    bad[2, 5] = np.nan  # a control that is not finite
    batch = HumanoidBatch(4, threads)
    batch.set_state(np.arange(4), qpos, qvel)
    batch.step(bad)
    assert batch.failed.tolist() == [False, True, True, False]
    assert batch.warnings == 2
    np.testing.assert_array_equal(batch.qpos[[0, 3]], calm.qpos[[0, 3]])
    np.testing.assert_array_equal(batch.qpos[[1, 2]], qpos[[1, 2]])
    batch.set_state(np.array([1, 2]), qpos[[1, 2]], np.zeros((2, 34)))
    assert not batch.failed.any()
    batch.step(target)
    assert not batch.failed.any()
    assert not list(tmp_path.iterdir())  # no MUJOCO_LOG.TXT
