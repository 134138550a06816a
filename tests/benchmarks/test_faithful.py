"""The paper-faithful step gives what the engine's step gives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import faithful
from benchmarks.faithful import FaithfulBatch
from engine import skeleton
from engine.srb.body import SrbParams, controller_row, pack_state
from engine.srb.step import SrbBatch
from engine.srb.terrain import Terrain

INERTIA = np.array([[5.1, 0.1, 0.2], [0.1, 4.8, -0.05], [0.2, -0.05, 1.1]])
PAPER = {
    "kp_linear": 120, "kd_linear": 35, "kp_angular": 120, "kd_angular": 35, "weight_linear_xy": 1, "weight_linear_z": 1,
    "weight_angular_xy": 1, "weight_angular_z": 1, "w_lambda": 1e-3, "foot_half_length_m": 0.12,
    "foot_half_width_m": 0.06, "contact_points": 5, "friction": 1.44, "force_max_n": 1e9, "cone": "yaw_generators",
    "recovery_distance_m": 9.0, "recovery_frames": 0, "heel_toe": False,
}  # fmt: skip
OURS = PAPER | {
    "kp_linear": 286, "kd_linear": 52, "weight_linear_xy": 1.37, "weight_linear_z": 3.49, "weight_angular_xy": 0.857,
    "weight_angular_z": 0.616, "w_lambda": 1e-5, "contact_points": 4, "friction": 0.8, "force_max_n": 1500.0,
    "cone": "foot_pyramid",
}  # fmt: skip


def batch(values: dict, n: int = 3) -> SrbBatch:
    """Bodies standing in double stance, slightly turned and moving."""
    params = SrbParams(**values)
    made = SrbBatch(np.tile(controller_row(params, skeleton.TOTAL_MASS, INERTIA), (n, 1)), Terrain.flat())
    rng = np.random.default_rng(1)
    quat = np.array([[1.0, 0.02, -0.03, 0.4]]) + 0.02 * rng.normal(size=(n, 4))
    quat /= np.linalg.norm(quat, axis=-1, keepdims=True)
    com = np.array([0.3, -0.2, 0.9]) + 0.01 * rng.normal(size=(n, 3))
    offset = np.array([0.05, 0.1, 0.0])
    feet = np.stack([com + offset, com - offset], axis=1) * [1, 1, 0]
    still = np.tile([1.0, 0, 0, 0], (n, 2, 1))
    made.state[:] = pack_state(
        com, quat, 0.1 * rng.normal(size=(n, 3)), 0.2 * rng.normal(size=(n, 3)), feet, still, INERTIA
    )
    made.stance[:] = 1
    return made


def play(made: SrbBatch, frames: int, push: np.ndarray | None = None) -> np.ndarray:
    """States over some frames in which single stance, double stance and flight take turns."""
    n = len(made.state)
    action = np.tile([0.2, 0, 0, 0, 0, 0.1, 0.005, 0.002, 0.001, 0.01, 0.02, 0.0], (n, 1))
    command = np.zeros((n, 2, 9))
    command[:, :, 3], command[:, :, 7] = 1, 1
    command[:, 0, :3], command[:, 1, :3] = [0.1, 0.1, -0.85], [-0.05, -0.1, -0.85]
    states = []
    for t in range(frames):
        contact = np.array([3, 1, 2, 0])[np.full(n, t // 3 % 4)]
        made.step(action, command, contact, push)
        states.append(made.state.copy())
    return np.array(states)


@pytest.mark.parametrize(("values", "name"), [(PAPER, "paper"), (OURS, "ours")])
def test_same_trajectory_as_the_engine_on_a_short_horizon(values, name):
    ours = play(batch(values), 12)
    theirs = play(FaithfulBatch(batch(values), se3=False), 12)
    assert np.abs(theirs - ours)[..., :3].max() < 1e-3, name
    assert np.abs(theirs - ours)[..., 3:12].max() < 3e-3, name
    assert np.abs(theirs - ours)[..., 12:15].max() < 1e-2, name
    np.testing.assert_allclose(theirs[..., 18:], ours[..., 18:], atol=2e-3)


def test_first_step_agrees_to_the_integrators_order():
    ours, theirs = batch(PAPER), FaithfulBatch(batch(PAPER), se3=False)
    a, b = play(ours, 1)[0], play(theirs, 1)[0]
    assert np.abs(a - b)[:, :15].max() < 2e-4
    np.testing.assert_allclose(ours.forces.sum(axis=1), theirs.forces.sum(axis=1), rtol=5e-3, atol=0.5)


def test_logarithm_on_se3_stays_close_to_the_world_error():
    a = play(FaithfulBatch(batch(PAPER), se3=True), 6)
    b = play(FaithfulBatch(batch(PAPER), se3=False), 6)
    assert 0 < np.abs(a - b)[..., :3].max() < 2e-3


def test_push_acts_as_in_the_engine():
    push = np.tile([200.0, -100.0, 0.0], (3, 1))
    ours, theirs = play(batch(OURS), 6, push), play(FaithfulBatch(batch(OURS), se3=False), 6, push)
    assert np.abs(theirs - ours)[..., :3].max() < 1e-3


def test_flight_is_ballistic():
    made = FaithfulBatch(batch(PAPER))
    made.stance[:] = 0
    before = made.state.copy()
    made.step(np.zeros((3, 12)), np.tile([0, 0, -0.8, 1, 0, 0, 0, 1, 0.0], (3, 2, 1)), np.zeros(3, np.int64))
    np.testing.assert_allclose(made.state[:, 14], before[:, 14] - 9.81 / 30, atol=1e-9)
    np.testing.assert_allclose(made.state[:, 12:14], before[:, 12:14], atol=1e-12)
    assert not made.forces.any()


def test_player_of_the_same_policy_stays_with_the_engines(repo):
    library_path, policies = repo / "data" / "library.npz", sorted((repo / "models").rglob("policy.onnx"))
    if not library_path.is_file() or not policies:
        pytest.skip("no library or no policy here yet: `dvc repro` makes them")
    from engine import players
    from engine.motion.library import MotionLibrary

    library = MotionLibrary.load(library_path)
    walk = library.kind.index("walk")
    both = [load(str(policies[0]), n=2, library=library) for load in (players.load, faithful.load)]
    for player in both:
        player.reset([walk, walk], [0, 11])
    for _ in range(10):
        ours, theirs = (player.step() for player in both)
    np.testing.assert_array_equal(ours.contact, theirs.contact)
    np.testing.assert_allclose(theirs.body_pos_w, ours.body_pos_w, atol=2e-3)
    np.testing.assert_allclose(theirs.com_vel_w, ours.com_vel_w, atol=1e-2)
