"""Torques of a motion: MuJoCo's forward dynamics gives its accelerations back, and feet carry what the root needs."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest

from engine.humanoid.inverse import joint_torques
from engine.humanoid.kinematics import joint_slices
from engine.humanoid.model import load_humanoid
from engine.humanoid.reference import build_reference
from engine.humanoid.simulation import HumanoidBatch
from engine.motion.library import MotionLibrary
from engine.skeleton import BODY_NAMES, TOTAL_MASS


@pytest.fixture(scope="module")
def library() -> MotionLibrary:
    return MotionLibrary.load(Path(__file__).resolve().parents[3] / "data" / "library.npz")


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return load_humanoid(floor=False)


def columns(*names: str) -> np.ndarray:
    places = dict(joint_slices())
    return np.concatenate([np.arange(28)[places[BODY_NAMES.index(name)]] for name in names])


def test_in_flight_the_torques_and_the_rest_give_the_accelerations_back(model: mujoco.MjModel) -> None:
    rng = np.random.default_rng(0)
    qpos = np.tile(model.qpos0, (5, 1))
    for k in range(5):
        mujoco.mj_integratePos(model, qpos[k], 0.3 * rng.standard_normal(model.nv), 1.0)
    qvel, qacc = rng.standard_normal((5, model.nv)), 5 * rng.standard_normal((5, model.nv))
    torque, rest = joint_torques(model, qpos, qvel, qacc, np.zeros(5, np.int64))
    free = load_humanoid(floor=False)
    free.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT | mujoco.mjtDisableBit.mjDSBL_ACTUATION
    data = mujoco.MjData(free)
    for k in range(5):
        data.qpos[:], data.qvel[:] = qpos[k], qvel[k]
        data.qfrc_applied[:] = [*rest[k], *torque[k]]
        mujoco.mj_forward(free, data)
        np.testing.assert_allclose(data.qacc, qacc[k], atol=1e-6)


def test_a_standing_character_is_carried_by_its_soles(model: mujoco.MjModel) -> None:
    zero = np.zeros((1, model.nv))
    qpos = model.qpos0[None]
    hanging, need = joint_torques(model, qpos, zero, zero, np.array([0]))
    standing, rest = joint_torques(model, qpos, zero, zero, np.array([3]))
    assert need[0, 2] == pytest.approx(9.81 * TOTAL_MASS, rel=1e-6)
    assert np.abs(rest[0, :3]).max() < 0.01 * need[0, 2]
    upper = columns("chest", "neck", "right_shoulder", "left_shoulder", "right_elbow", "left_elbow")
    np.testing.assert_allclose(standing[0, upper], hanging[0, upper], atol=1e-9)  # no contact force passes them
    ankle = columns("right_ankle", "left_ankle")[[1, 4]]
    # the centre of mass lies a few cm before the ankles, half of the weight on each
    assert (np.abs(standing[0, ankle]) < 0.5 * need[0, 2] * 0.12).all()


def test_a_walks_feet_give_the_root_nearly_all_that_it_needs(model: mujoco.MjModel, library: MotionLibrary) -> None:
    cycle = build_reference(library, "walk", 0.0, 0.0)
    slopes = np.gradient(cycle.qvel, 1.0 / 30.0, axis=0)[2:12]  # the left foot alone
    contact = library.contact[cycle.rows][2:12]
    assert set(contact) == {1}
    torque, rest = joint_torques(model, cycle.qpos[2:12], cycle.qvel[2:12], slopes, contact)
    _, need = joint_torques(model, cycle.qpos[2:12], cycle.qvel[2:12], slopes, np.zeros(10, np.int64))
    free, _ = joint_torques(model, cycle.qpos[2:12], cycle.qvel[2:12], slopes, np.zeros(10, np.int64))
    assert np.linalg.norm(rest[:, :3], axis=1).mean() < 0.1 * np.linalg.norm(need[:, :3], axis=1).mean()
    swing, stance = columns("right_hip", "right_knee", "right_ankle"), columns("left_hip", "left_knee", "left_ankle")
    np.testing.assert_allclose(torque[:, swing], free[:, swing], atol=1e-9)
    assert np.abs(torque[:, stance] - free[:, stance]).max(axis=0).mean() > 5.0


@pytest.mark.parametrize("clip", ["walk", "run", "jump"])
def test_servos_follow_a_motion_better_with_its_torques(library: MotionLibrary, clip: str) -> None:
    errors = []
    for feedforward in (0.0, 1.0):
        cycle = build_reference(library, clip, 0.08, feedforward)
        frame = np.arange(len(cycle) - 6)
        batch = HumanoidBatch(len(frame))
        batch.set_state(frame, cycle.qpos[frame], cycle.qvel[frame])
        for t in range(6):
            batch.step(cycle.targets[frame + t])
        away = batch.bodies.com_vel_w - cycle.bodies.com_vel_w[frame + 6]
        errors.append(float(np.sqrt((away**2).sum(axis=1).mean())))
    assert errors[1] < 0.95 * errors[0]
