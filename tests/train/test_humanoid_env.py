"""Starts, ends, rounds, mirror and goal of the imitation environment."""

from __future__ import annotations

import dataclasses
from typing import Any

import mujoco
import numpy as np
import pytest

from engine.errors import InputError
from engine.humanoid.observe import OBS, mirror_action
from engine.motion.library import MotionLibrary
from engine.skeleton import BODY_NAMES
from train.envs.humanoid_env import FEET, HumanoidEnv, ImitationOptions, lowest_points
from train.envs.imitation_reward import OFFICIAL

OPTIONS = ImitationOptions(
    rsi=True, early_termination=True, fall_bodies=tuple(name for name in BODY_NAMES if name not in FEET),
    pose_limit_m=1.0, mirroring=True, residual=True, lead_s=0.06, feedforward=0.0, episode_frames=600,
    version="official", weights=OFFICIAL, sharpness=1.0, w_i=1.0, w_g=0.0, goal_speed_m_s=1.0, goal_turn_rad=0.5,
    goal_frames=30,
)  # fmt: skip


def make(library: MotionLibrary, n: int = 16, clip: str = "walk", threads: int = 1, **changes: Any) -> HumanoidEnv:
    options = dataclasses.replace(OPTIONS, **changes)
    return HumanoidEnv(n, library, clip, options, np.random.default_rng(0), threads)


def test_rsi_starts_on_the_reference_all_over_the_clip(library: MotionLibrary) -> None:
    env = make(library, 200)
    assert np.unique(env.frame).size > 30
    np.testing.assert_array_equal(env.batch.qpos, env.cycle.qpos[env.frame])
    np.testing.assert_array_equal(env.batch.qvel, env.cycle.qvel[env.frame])
    np.testing.assert_allclose(env.reward(env.reference()), 1.0, atol=1e-9)
    assert not make(library, 200, rsi=False).frame.any()
    obs = env.observe()
    assert obs.shape == (200, OBS)
    assert obs.dtype == np.float32
    assert np.isfinite(obs).all()


@pytest.mark.parametrize("clip", ["walk", "run", "jump"])
def test_replaying_the_reference_stays_up_for_a_while_without_a_warning(library: MotionLibrary, clip: str) -> None:
    env = make(library, clip=clip)
    lived = np.ones(16, bool)
    for _ in range(8):
        reward, fell, over = env.step(np.zeros((16, 28)))
        lived &= ~fell
        assert not over.any()
    assert lived.mean() > 0.8
    assert reward[lived].mean() > 0.6
    assert env.batch.warnings == 0


def test_a_fall_ends_the_episode_with_reward_zero_unless_switched_off(library: MotionLibrary) -> None:
    env, without = make(library, 4), make(library, 4, early_termination=False)
    for each in (env, without):
        qpos = each.batch.qpos.copy()
        qpos[0, 2] -= 0.8  # the pelvis in the floor
        qpos[1, 0] += 2.0  # two metres ahead of the reference
        each.batch.set_state(np.arange(4), qpos, each.batch.qvel.copy())
    reward, fell, _ = env.step(np.zeros((4, 28)))
    assert fell[:2].all()
    assert (reward[:2] == 0).all()
    assert not fell[2:].any()
    assert (reward[2:] > 0.5).all()
    reward, fell, _ = without.step(np.zeros((4, 28)))
    assert not fell[1]
    assert reward[1] > 0


def test_an_episode_is_over_when_its_time_is_up(library: MotionLibrary) -> None:
    env = make(library, 8, episode_frames=3)
    for t in range(3):
        _, fell, over = env.step(np.zeros((8, 28)))
        assert over.sum() == (0 if t < 2 else (~fell).sum())
    env.restart(np.array([1]))
    assert env.age.tolist() == [3, 0, 3, 3, 3, 3, 3, 3]


def test_a_warning_ends_the_episode(library: MotionLibrary) -> None:
    env = make(library, 3, early_termination=False)
    action = np.zeros((3, 28))
    action[1, 4] = np.nan
    reward, fell, over = env.step(action)
    assert fell.tolist() == [False, True, False]
    assert reward[1] == 0
    assert not over.any()
    assert env.batch.warnings == 1


def test_the_reference_is_put_under_the_character_when_a_round_begins(library: MotionLibrary) -> None:
    env = make(library, 2, rsi=False)
    env.frame[:] = len(env.cycle) - 1
    qpos = env.cycle.qpos[env.frame].copy()
    qpos[0, :2] += [0.05, -0.07]
    env.batch.set_state(np.arange(2), qpos, env.cycle.qvel[env.frame])
    env.step(np.zeros((2, 28)))
    assert (env.frame == 0).all()
    np.testing.assert_allclose(env.reference().qpos[:, :2], env.batch.bodies.body_pos_w[:, 0, :2], atol=1e-12)
    moved = np.linalg.norm(env.offset_m[:, :2] - env.cycle.travel_m[:2], axis=1)
    assert (moved < 0.15).all()  # a round ahead of where it stood


def test_both_halves_of_a_symmetric_clip_look_alike_and_act_alike(library: MotionLibrary) -> None:
    env = make(library, 2, rsi=False)
    env.frame[:] = [3, 3 + env.cycle.half]
    env.batch.set_state(np.arange(2), env.cycle.qpos[env.frame], env.cycle.qvel[env.frame])
    obs = env.observe()
    np.testing.assert_allclose(obs[0], obs[1], atol=0.25)
    assert np.abs(obs[0] - obs[1]).mean() < 0.02
    action = np.tile(0.05 * np.random.default_rng(0).standard_normal(28), (2, 1))
    reward, _, _ = env.step(action)
    assert reward[0] == pytest.approx(reward[1], abs=0.03)
    plain = make(library, 2, rsi=False, mirroring=False)
    plain.frame[:], action[1] = [3, 3 + env.cycle.half], mirror_action(action)[1]
    plain.batch.set_state(np.arange(2), plain.cycle.qpos[plain.frame], plain.cycle.qvel[plain.frame])
    np.testing.assert_array_equal(plain.step(action)[0], reward)


def test_absolute_targets_are_the_action(library: MotionLibrary) -> None:
    residual, absolute = make(library, 2, mirroring=False), make(library, 2, mirroring=False, residual=False)
    action = 0.02 * np.random.default_rng(0).standard_normal((2, 28))
    full = action + absolute.cycle.targets[absolute.frame]
    np.testing.assert_array_equal(residual.step(action)[0], absolute.step(full)[0])


def test_a_goal_is_seen_followed_and_rewarded(library: MotionLibrary) -> None:
    env = make(library, 4, w_i=0.7, w_g=0.3, mirroring=False, goal_frames=2)
    assert env.goal_yaw_rad is not None
    env.goal_yaw_rad[:] = env.cycle.yaw_rad[env.frame] + 0.4
    np.testing.assert_allclose(env.observe()[:, OBS:], np.tile([np.cos(0.4), np.sin(0.4)], (4, 1)), atol=1e-5)
    before = env.goal_yaw_rad.copy()
    env.step(np.zeros((4, 28)))
    np.testing.assert_array_equal(env.goal_yaw_rad, before)
    ref = env.reference()
    np.testing.assert_allclose(ref.qpos[:, :2], env.batch.bodies.body_pos_w[:, 0, :2], atol=1e-12)
    assert (env.reward(ref) < 1.0).all()
    env.step(np.zeros((4, 28)))
    assert (env.goal_yaw_rad != before).all()


def test_the_lowest_point_of_a_shape_is_where_mujoco_meets_the_floor(library: MotionLibrary) -> None:
    """Each body alone is lowered into the floor by a millimetre; MuJoCo's contact distance says the same."""
    env = make(library, 4)
    bodies = env.batch.bodies
    low = lowest_points(bodies.body_pos_w, bodies.body_quat_w, np.arange(15))
    data = mujoco.MjData(env.batch.model)
    for k in range(4):
        for body in (0, 2, 4, 10, 11, 14):
            data.qpos[:], data.qvel[:] = env.batch.qpos[k], 0.0
            data.qpos[2] -= low[k, body] + 1e-3
            mujoco.mj_forward(env.batch.model, data)
            geom = env.batch.model.geom(BODY_NAMES[body]).id
            touching = [c.dist for c in data.contact[: data.ncon] if geom in c.geom]
            assert min(touching) == pytest.approx(-1e-3, abs=1e-9)


def test_threads_and_a_restored_state_give_the_same_numbers(library: MotionLibrary) -> None:
    actions = 0.05 * np.random.default_rng(1).standard_normal((6, 8, 28))
    one, two = make(library, 8), make(library, 8, threads=2)
    for action in actions[:3]:
        np.testing.assert_array_equal(one.step(action)[0], two.step(action)[0])
    kept = {key: value.copy() for key, value in one.arrays().items()}
    later = make(library, 8)
    later.restore(kept)
    for action in actions[3:]:
        np.testing.assert_array_equal(one.step(action)[0], later.step(action)[0])
    np.testing.assert_array_equal(one.observe(), later.observe())


def test_an_unknown_fall_body_is_named(library: MotionLibrary) -> None:
    with pytest.raises(InputError, match="found tail, expected of root"):
        make(library, 1, fall_bodies=("tail",))
