"""The reference cycle: velocities, rounds, halves and the observation with its mirror image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import rotation
from engine.errors import InputError
from engine.humanoid.model import load_humanoid, qpos_from_pose
from engine.humanoid.observe import OBS, mirror_action, mirror_observation, observe
from engine.humanoid.reference import build_reference, quat_yaw
from engine.humanoid.simulation import BodyStates, joint_targets
from engine.motion.library import MotionLibrary
from engine.policy_layout import humanoid_action, humanoid_observation, slices, width
from engine.skeleton import MIRROR_BODIES, mirror_pose


@pytest.fixture(scope="module")
def library() -> MotionLibrary:
    return MotionLibrary.load(Path(__file__).resolve().parents[3] / "data" / "library.npz")


def observed(root: np.ndarray, local: np.ndarray, qvel: np.ndarray, ref: np.ndarray, yaw: np.ndarray) -> np.ndarray:
    qpos = qpos_from_pose(load_humanoid(), root, local)
    bodies = BodyStates(len(root))
    bodies.update(qpos, qvel)
    return observe(qpos, qvel, bodies, ref, yaw, np.full(len(root), 0.2), 0.7 + yaw)


def test_velocities_are_the_slopes_of_the_motion(library: MotionLibrary) -> None:
    cycle = build_reference(library, "walk", 0.0, 0.0)
    rows = cycle.rows
    slope = (library.body_pos_w[rows + 1] - library.body_pos_w[rows - 1]) * 15.0
    error = np.linalg.norm(cycle.bodies.body_vel_w - slope, axis=-1)
    assert error.mean() < 0.02  # of some 1 m/s: the chord of a turning limb against its tangent
    assert error.max() < 0.25
    com = (library.com_pos_w[rows + 1] - library.com_pos_w[rows - 1]) * 15.0
    np.testing.assert_allclose(cycle.bodies.com_vel_w, com, atol=0.03)
    assert np.linalg.norm(cycle.travel_m) * 30 / len(cycle) == pytest.approx(0.978, abs=0.02)  # the clip's speed


def test_targets_hold_the_pose_and_lead_it(library: MotionLibrary) -> None:
    now, ahead = build_reference(library, "walk", 0.0, 0.0), build_reference(library, "walk", 1.0 / 30.0, 0.0)
    np.testing.assert_allclose(now.targets, joint_targets(library.local_quat[now.rows]), atol=1e-7)
    np.testing.assert_allclose(ahead.targets, np.roll(now.targets, -1, axis=0), atol=1e-7)


@pytest.mark.parametrize(("clip", "symmetric"), [("walk", True), ("run", True), ("jump", False)])
def test_a_symmetric_clip_is_seen_by_half_rounds(library: MotionLibrary, clip: str, symmetric: bool) -> None:
    cycle = build_reference(library, clip, 0.0, 0.0)
    assert cycle.half == (len(cycle) // 2 if symmetric else 0)
    frame = np.arange(len(cycle))
    phase, mirrored = cycle.phase(frame, mirroring=True)
    assert mirrored.any() == symmetric
    if symmetric:
        np.testing.assert_array_equal(phase[: cycle.half], phase[cycle.half :])
        assert not cycle.phase(frame, mirroring=False)[1].any()


def test_a_round_begins_where_the_last_one_ended(library: MotionLibrary) -> None:
    cycle = build_reference(library, "walk", 0.0, 0.0)
    one = np.zeros(1, np.int64)
    placed = cycle.placed(one, np.array([cycle.turn_rad]), cycle.travel_m[None])
    after = cycle.rows[-1] + 1
    np.testing.assert_allclose(placed.body_pos_w[0], library.body_pos_w[after], atol=0.02)
    turned = cycle.placed(one, np.array([0.5 * np.pi]), np.array([[1.0, 2.0, 0.0]]))
    x, y, z = cycle.qpos[0, :3]
    np.testing.assert_allclose(turned.qpos[0, :3], [1.0 - y, 2.0 + x, z], atol=1e-12)
    assert turned.yaw_rad[0] == pytest.approx(cycle.yaw_rad[0] + 0.5 * np.pi)
    assert quat_yaw(turned.qpos[:, 3:7])[0] == pytest.approx(turned.yaw_rad[0])


def test_an_unknown_clip_is_named(library: MotionLibrary) -> None:
    with pytest.raises(InputError, match="found moonwalk, expected one of walk"):
        build_reference(library, "moonwalk", 0.0, 0.0)


def test_the_observation_does_not_know_where_the_character_stands(library: MotionLibrary) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 600, 6)
    root, local, qvel = library.root_pos_w[rows], library.local_quat[rows], rng.standard_normal((6, 34))
    ref, yaw = root + 0.1, rng.uniform(-1, 1, 6)
    here = observed(root, local, qvel, ref, yaw)
    assert here.shape == (6, OBS + 2)
    assert OBS == 120
    assert width(humanoid_observation(goal=True)) == OBS + 2
    assert width(humanoid_action()) == 28
    turn = rotation.quat_from_axis_angle([0.0, 0.0, 1.0], 2.0)
    elsewhere = local.copy()
    elsewhere[:, 0] = rotation.quat_mul(turn, local[:, 0])
    away = np.array([3.0, -1.0, 0.0])
    moved = qvel.copy()
    moved[:, :3] = rotation.quat_rotate(turn, qvel[:, :3])
    there = observed(
        rotation.quat_rotate(turn, root) + away, elsewhere, moved, rotation.quat_rotate(turn, ref) + away, yaw + 2.0
    )
    np.testing.assert_allclose(there, here, atol=1e-10)
    place = slices(humanoid_observation())
    np.testing.assert_allclose(here[:, place["root_height"]][:, 0], root[:, 2])


def test_the_mirror_of_the_observation_is_the_observation_of_the_mirror(library: MotionLibrary) -> None:
    rng = np.random.default_rng(1)
    rows = np.concatenate([rng.integers(0, 600, 4), rng.integers(2600, 3200, 4)])
    root, local, qvel = library.root_pos_w[rows], library.local_quat[rows], rng.standard_normal((8, 34))
    ref, yaw = root + rng.uniform(-0.2, 0.2, (8, 3)), rng.uniform(-1, 1, 8)
    flip = np.array([1.0, -1.0, 1.0])
    mirrored_root, mirrored_local = mirror_pose(root, local)
    mirrored_vel = np.concatenate([qvel[:, :3] * flip, qvel[:, 3:6] * -flip, mirror_action(qvel[:, 6:])], axis=1)
    qpos = qpos_from_pose(load_humanoid(), root, local)
    bodies, image = BodyStates(8), BodyStates(8)
    bodies.update(qpos, qvel)
    image_qpos = qpos_from_pose(load_humanoid(), mirrored_root, mirrored_local)
    image.update(image_qpos, mirrored_vel)
    np.testing.assert_allclose(image.body_vel_w, bodies.body_vel_w[:, MIRROR_BODIES] * flip, atol=1e-10)
    seen = observe(qpos, qvel, bodies, ref, yaw, np.full(8, 0.2), yaw + 0.7)
    seen_image = observe(image_qpos, mirrored_vel, image, ref * flip, -yaw, np.full(8, 0.2), -yaw - 0.7)
    np.testing.assert_allclose(mirror_observation(seen), seen_image, atol=1e-10)
    np.testing.assert_array_equal(mirror_observation(mirror_observation(seen)), seen)
    targets = joint_targets(local)
    np.testing.assert_allclose(mirror_action(targets), joint_targets(mirrored_local), atol=1e-12)
