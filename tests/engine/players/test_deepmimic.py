"""The run-time loop of `deepmimic`: against the training environment with torch, and what must hold for any policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import players
from engine.errors import InputError
from engine.humanoid.observe import OBS
from engine.motion.library import MotionLibrary
from engine.params import read_section
from engine.players.deepmimic import PATH_SLACK_M, DeepMimicPlayer, control_numbers, control_of, cycle_digest
from engine.policy import Policy
from engine.rotation import quat_mul, quat_rotate
from engine.skeleton import MIRROR_BODIES, TOTAL_MASS
from engine.srb.terrain import Terrain
from export.__main__ import ExportParams, export_policy
from train.config import DeepMimicParams
from train.deepmimic import imitation_options, policy_facts
from train.envs.humanoid_env import HumanoidEnv
from train.humanoid_policy import HumanoidPolicy

EXPORT = ExportParams(opset=18, seed=0, tolerance=1e-5)


@pytest.fixture(scope="module")
def library(repo: Path) -> MotionLibrary:
    return MotionLibrary.load(repo / "data" / "library.npz")


def environment(repo: Path, library: MotionLibrary, clip: str, n: int) -> tuple[DeepMimicParams, HumanoidEnv]:
    p = read_section(repo / "params.yaml", "train.deepmimic", DeepMimicParams)
    return p, HumanoidEnv(n, library, clip, imitation_options(p), np.random.default_rng(0), 1)


def small_policy(seed: int = 0) -> HumanoidPolicy:
    """A policy that answers to its observation by some hundredths of a radian."""
    torch.manual_seed(seed)
    policy = HumanoidPolicy(OBS, [16], 0.05, 20.0)
    with torch.no_grad():
        policy.network[-1].weight.mul_(20.0)
    return policy.eval()


def exported(module: HumanoidPolicy, repo: Path, library: MotionLibrary, **changes: Any) -> bytes:
    p, env = environment(repo, library, "walk", 4)
    info: dict[str, Any] = {**policy_facts(p, library, env, "walk", 0, 1000), **changes}
    return export_policy(module, info, EXPORT)[0]


@pytest.fixture(scope="module")
def module() -> HumanoidPolicy:
    return small_policy()


@pytest.fixture(scope="module")
def walk(module: HumanoidPolicy, repo: Path, library: MotionLibrary, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deepmimic") / "policy.onnx"
    path.write_bytes(exported(module, repo, library))
    return path


def started(path: Path, library: MotionLibrary, n: int = 8, clip: str = "walk", **options: Any) -> DeepMimicPlayer:
    player = players.load(path, n=n, library=library, **options)
    assert isinstance(player, DeepMimicPlayer)
    player.reset(np.full(n, library.names.index(clip)), 38 + np.arange(n) * 4)
    return player


def test_the_player_is_the_environment_with_the_torch_policy(
    module: HumanoidPolicy, walk: Path, repo: Path, library: MotionLibrary
) -> None:
    n, frames = 8, 24
    player = started(walk, library)
    _, env = environment(repo, library, "walk", n)
    env.frame[:], env.yaw_rad[:], env.offset_m[:] = np.arange(n) * 4, 0.0, 0.0
    env.batch.set_state(np.arange(n), env.cycle.qpos[env.frame], env.cycle.qvel[env.frame])
    mirrored_once = False
    for _ in range(frames):
        obs, mirrored = player.observe()
        mirrored_once |= bool(mirrored.any()) and not mirrored.all()
        np.testing.assert_allclose(obs, env.observe(), atol=2e-4)
        with torch.no_grad():
            env.step(module(torch.from_numpy(env.observe())).double().numpy())
        poses = player.step()
        np.testing.assert_allclose(poses.body_pos_w, env.batch.bodies.body_pos_w, atol=1e-4)
    assert mirrored_once
    np.testing.assert_array_equal(player.round_frame, env.frame)
    assert np.any(player.round_frame < np.arange(n) * 4)  # some began a second round


def test_a_reset_stands_on_the_library_and_frames_follow_it(walk: Path, library: MotionLibrary) -> None:
    player = started(walk, library, 4)
    clip = library.names.index("walk")
    last = library.length[clip] - 1
    player.reset([clip] * 4, [0, 5, 300, last])
    row = library.start[clip] + np.array([0, 5, 300, last])
    np.testing.assert_allclose(player.poses().body_pos_w, library.body_pos_w[row], atol=0.02)
    np.testing.assert_array_equal(player.poses().ref_frame, row)
    np.testing.assert_array_equal(player.step().ref_frame, [*(row[:3] + 1), row[3]])
    for clips, frames, message in (([clip], [0], r"expected \(4,\)"), ([99] * 4, [0] * 4, "clip index"),
                                   ([clip] * 4, [0, 0, 0, last + 1], "frame")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            player.reset(clips, frames)


def test_the_mirrored_clip_is_played_in_the_mirror(walk: Path, library: MotionLibrary) -> None:
    plain, other = started(walk, library), started(walk, library, clip="walk_mirror")
    flip = np.array([1.0, -1.0, 1.0])
    for _ in range(12):
        a, b = plain.step(), other.step()
    np.testing.assert_allclose(b.body_pos_w, (a.body_pos_w * flip)[:, MIRROR_BODIES], atol=5e-3)
    assert np.abs(a.body_pos_w - b.body_pos_w).max() > 0.1


def test_forces_carry_the_weight_and_push_the_centre_of_mass(walk: Path, library: MotionLibrary) -> None:
    player = started(walk, library)
    carried, change = np.zeros(8), np.zeros(8)
    before = player.poses().com_vel_w[:, 2].copy()
    for _ in range(6):
        poses = player.step()
        force = poses.forces_w.sum(axis=1)
        carried += force[:, 2] / 6
        assert (poses.forces_w[..., 2] >= -1e-9).all()
        assert (np.linalg.norm(poses.forces_w[..., :2], axis=-1) <= 1.5 * poses.forces_w[..., 2] + 1e-6).all()
        held = poses.forces_w[..., 2] > 0
        assert (np.abs(poses.force_points_w[held][:, 2]) < 0.03).all()
        left, right = held[:, :4].any(axis=1), held[:, 4:8].any(axis=1)
        np.testing.assert_array_equal(poses.contact, left + 2 * right)
    change = (poses.com_vel_w[:, 2] - before) * 30 / 6  # m (a + g), sampled once a control step
    np.testing.assert_allclose(carried.mean() / TOTAL_MASS - 9.81, change.mean(), atol=1.5)


def test_a_fallen_character_is_not_alive_again(walk: Path, library: MotionLibrary) -> None:
    player = started(walk, library, 2)
    push = np.array([[3000.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    alive = np.array([player.step(push if t < 6 else None).alive.copy() for t in range(45)])
    assert not alive[-1, 0]
    assert (np.diff(alive.astype(int), axis=0) <= 0).all()
    assert alive[:5, 1].all()


def test_path_following_keeps_the_reference_near_its_path(walk: Path, library: MotionLibrary) -> None:
    free, bound = started(walk, library, 4), started(walk, library, 4, path_following=True)
    for player in (free, bound):
        player.reset(np.full(4, library.names.index("walk")), 68 + np.arange(4))  # a round ends soon
        player.batch.qpos[:, :2] += 0.5
        player.batch.set_state(np.arange(4), player.batch.qpos.copy(), player.batch.qvel.copy())
        for _ in range(9):
            player.step()
    ahead = bound.offset_m - free.offset_m
    np.testing.assert_allclose(np.linalg.norm(ahead[:, :2], axis=1), PATH_SLACK_M, rtol=1e-6)
    assert (ahead[:, :2] < 0).all()  # back to where the library has it


def test_latency_friction_and_mass_are_those_asked_for(walk: Path, library: MotionLibrary) -> None:
    late, now = started(walk, library, 2, latency_frames=2), started(walk, library, 2)
    for _ in range(3):
        late.step()
        now.step()
    first = late.action.copy()
    fresh = started(walk, library, 2)
    fresh.step()
    np.testing.assert_allclose(first, fresh.action, atol=1e-6)  # the third action answers the first observation
    heavy = started(walk, library, 2, mass_scale=1.2, friction=0.5)
    assert heavy.batch.model.body_mass.sum() == pytest.approx(1.2 * TOTAL_MASS)
    assert set(heavy.batch.model.geom_friction[:, 0]) == {0.5}


def test_what_does_not_fit_is_refused_in_a_line(
    module: HumanoidPolicy, walk: Path, repo: Path, library: MotionLibrary, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"terrain of deepmimic \(found slope:10, expected flat"):
        players.load(walk, n=1, library=library, terrain=Terrain.parse("slope:10"))
    with pytest.raises(InputError, match=r"unknown option \(found speed"):
        players.load(walk, n=1, library=library, speed=2)
    info = environment_facts(repo, library)
    for changes, message in (
        ({"reference": {**info["reference"], "clip_digest": "0" * 16}}, "clip_digest"),
        ({"reference": {**info["reference"], "model_digest": "0" * 16}}, "model_digest"),
        ({"reference": {**info["reference"], "clip": "moonwalk"}}, r"not in the library \(found moonwalk"),
        ({"reference": {"clip": "walk"}}, "clip_digest missing"),
        ({"controller": {**info["controller"], "round_frames": 40.0}}, "round_frames"),
        ({"controller": {k: v for k, v in info["controller"].items() if k != "lead_s"}}, "lead_s is missing"),
    ):
        path = tmp_path / "policy.onnx"
        path.write_bytes(exported(module, repo, library, **changes))
        with pytest.raises(InputError, match=message):
            players.load(path, n=1, library=library)
    with pytest.raises(InputError, match="body_frame"):
        exported(module, repo, library, body_frame="srb")


def environment_facts(repo: Path, library: MotionLibrary) -> Mapping[str, Any]:
    p, env = environment(repo, library, "walk", 4)
    return policy_facts(p, library, env, "walk", 0, 1000)


def test_the_metadata_says_how_an_action_is_used(walk: Path, repo: Path, library: MotionLibrary) -> None:
    _, env = environment(repo, library, "walk", 2)
    metadata = Policy.load(walk, "deepmimic").metadata
    assert (metadata.control_hz, metadata.physics_hz, metadata.body_frame) == (30, 120, "parent")
    assert metadata.controller["kp.right_knee"] == 500
    assert metadata.controller["kd.chest_x"] == 100
    assert metadata.controller["limit_n_m.left_ankle_y"] == 90
    control = control_of(metadata.controller, "test")
    assert (control.residual, control.mirroring, control.round_frames, control.half_round_frames) == (
        True,
        True,
        38,
        19,
    )
    numbers = control_numbers(control, env.batch.model)
    assert numbers == dict(metadata.controller)
    assert metadata.reference["clip_digest"] == cycle_digest(env.cycle)
    assert "19 of 38 frames" in metadata.reference["phase"]
    turned = dataclasses.replace(env.cycle, qpos=env.cycle.qpos + 0.001)
    assert cycle_digest(turned) != cycle_digest(env.cycle)


def test_the_mirror_of_a_rotated_body_is_its_reflection() -> None:
    """The reflection that the mirror test compares with: R' = S R S for S = diag(1, -1, 1)."""
    quat = np.array([0.5, 0.5, -0.5, 0.5])
    mirrored = quat * np.array([1.0, -1.0, 1.0, -1.0])
    flip, vector = np.array([1.0, -1.0, 1.0]), np.array([0.3, 0.2, -0.7])
    np.testing.assert_allclose(quat_rotate(mirrored, vector), flip * quat_rotate(quat, flip * vector))
    assert np.linalg.norm(quat_mul(mirrored, quat)) == pytest.approx(1.0)
