"""Both versions of DeepMimic's reward against numbers worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine import rotation
from engine.errors import InputError
from engine.humanoid.reference import ReferenceCycle, build_reference
from engine.humanoid.simulation import BodyStates
from engine.motion.library import MotionLibrary
from train.config import TermWeights
from train.envs.imitation_reward import (
    JOINT_WEIGHTS,
    OFFICIAL,
    PAPER,
    goal_reward,
    imitation_reward,
    imitation_terms,
    joint_errors,
)

CHEST = slice(7, 11)


@pytest.fixture(scope="module")
def cycle(library: MotionLibrary) -> ReferenceCycle:
    return build_reference(library, "walk", 0.0, 0.0)


def terms(
    cycle: ReferenceCycle, version: str, qpos: np.ndarray, qvel: np.ndarray, sharpness: float = 1.0
) -> dict[str, np.ndarray]:
    bodies = BodyStates(len(qpos))
    bodies.update(qpos, qvel)
    zeros = np.zeros(len(qpos), np.int64)
    ref = cycle.placed(zeros, np.zeros(len(qpos)), np.zeros((1, 3)))
    return imitation_terms(version, qpos, qvel, bodies, ref, sharpness)


def test_a_perfect_imitation_earns_everything(cycle: ReferenceCycle) -> None:
    frame = np.arange(len(cycle))
    bodies = BodyStates(len(cycle))
    yaw, offset = np.full(len(cycle), 0.8), np.tile([2.0, -1.0, 0.0], (len(cycle), 1))
    ref = cycle.placed(frame, yaw, offset)
    bodies.update(ref.qpos, ref.qvel)
    for version, weights in (("paper", PAPER), ("official", OFFICIAL)):
        np.testing.assert_allclose(imitation_reward(version, weights, ref.qpos, ref.qvel, bodies, ref), 1.0, atol=1e-9)


def test_weights_are_the_published_ones() -> None:
    assert (PAPER.w_p, PAPER.w_v, PAPER.w_e, PAPER.w_c) == (0.65, 0.1, 0.15, 0.1)
    assert (OFFICIAL.w_p, OFFICIAL.w_v, OFFICIAL.w_e, OFFICIAL.w_r, OFFICIAL.w_c) == (0.5, 0.05, 0.15, 0.2, 0.1)
    assert JOINT_WEIGHTS[[0, 1, 2, 3, 4, 5, 9, 10, 11]] * 4.8 == pytest.approx(
        [1, 0.5, 0.3, 0.3, 0.2, 0, 0.5, 0.3, 0.2]
    )


def test_a_neck_turned_by_half_a_radian_costs_pose_alone(cycle: ReferenceCycle) -> None:
    qpos, qvel = cycle.qpos[:1].copy(), cycle.qvel[:1].copy()
    neck = slice(11, 15)
    qpos[:, neck] = rotation.quat_mul(qpos[:, neck], rotation.quat_exp([0.0, 0.0, 0.5]))
    paper, official = terms(cycle, "paper", qpos, qvel), terms(cycle, "official", qpos, qvel)
    assert paper["w_p"][0] == pytest.approx(math.exp(-2 * 0.25))
    assert official["w_p"][0] == pytest.approx(math.exp(-2 * 0.3 / 4.8 * 0.25))
    for name in ("w_v", "w_e"):
        assert paper[name][0] == pytest.approx(1.0, abs=1e-9)


def test_sharpness_counts_all_errors_but_the_end_effectors_several_times(cycle: ReferenceCycle) -> None:
    qpos, qvel = cycle.qpos[:1].copy(), cycle.qvel[:1].copy()
    neck = slice(11, 15)
    qpos[:, neck] = rotation.quat_mul(qpos[:, neck], rotation.quat_exp([0.0, 0.0, 0.5]))
    qvel[:, 10] += 2.0
    qpos[:, 0] += 0.05
    plain, sharp = (terms(cycle, "official", qpos, qvel, sharpness) for sharpness in (1.0, 4.8))
    for name in ("w_p", "w_v", "w_r", "w_c"):
        assert plain[name][0] < 1.0
        assert sharp[name][0] == pytest.approx(plain[name][0] ** 4.8)
    assert sharp["w_e"][0] == plain["w_e"][0]
    bodies = BodyStates(1)
    bodies.update(qpos, qvel)
    ref = cycle.placed(np.zeros(1, np.int64), np.zeros(1), np.zeros((1, 3)))
    total = imitation_reward("official", OFFICIAL, qpos, qvel, bodies, ref, 4.8)
    assert total[0] == pytest.approx(sum(getattr(OFFICIAL, name) * value[0] for name, value in sharp.items()))


def test_a_root_shifted_by_ten_centimetres_costs_root_and_com(cycle: ReferenceCycle) -> None:
    qpos, qvel = cycle.qpos[:1].copy(), cycle.qvel[:1].copy()
    qpos[:, 0] += 0.1
    paper, official = terms(cycle, "paper", qpos, qvel), terms(cycle, "official", qpos, qvel)
    assert paper["w_c"][0] == pytest.approx(math.exp(-10 * 0.01))
    assert official["w_c"][0] == pytest.approx(1.0, abs=1e-9)
    assert official["w_r"][0] == pytest.approx(math.exp(-5 * 0.01))
    assert paper["w_e"][0] == pytest.approx(1.0, abs=1e-9)
    qpos[:, 0] -= 0.1
    qpos[:, 2] += 0.05  # heights of hands and feet count absolutely
    assert terms(cycle, "paper", qpos, qvel)["w_e"][0] == pytest.approx(math.exp(-40 * 4 * 0.0025))
    assert terms(cycle, "official", qpos, qvel)["w_e"][0] == pytest.approx(math.exp(-40 * 0.0025))


def test_velocities(cycle: ReferenceCycle) -> None:
    qpos, qvel = cycle.qpos[:1].copy(), cycle.qvel[:1].copy()
    qvel[:, 0] += 0.3  # the whole character faster
    official = terms(cycle, "official", qpos, qvel)
    assert official["w_c"][0] == pytest.approx(math.exp(-10 * 0.1 * 0.09))
    assert official["w_r"][0] == pytest.approx(math.exp(-5 * 0.01 * 0.09))
    qvel[:, 0] -= 0.3
    qvel[:, 9:12] += [1.0, 0.0, 2.0]  # the neck turns
    assert terms(cycle, "paper", qpos, qvel)["w_v"][0] == pytest.approx(math.exp(-0.1 * 5.0))
    assert terms(cycle, "official", qpos, qvel)["w_v"][0] == pytest.approx(math.exp(-0.1 * 0.3 / 4.8 * 5.0))


def test_errors_do_not_mind_the_sign_of_a_quaternion(cycle: ReferenceCycle) -> None:
    qpos, qvel = cycle.qpos[:3].copy(), cycle.qvel[:3]
    qpos[:, CHEST] *= -1.0
    bodies = BodyStates(3)
    bodies.update(qpos, qvel)
    ref = cycle.placed(np.arange(3), np.zeros(3), np.zeros((3, 3)))
    angle2, spin2 = joint_errors(qpos, qvel, bodies, ref)
    assert angle2.max() < 1e-14
    assert spin2.max() < 1e-14


@pytest.mark.parametrize("name", ["w_p", "w_v", "w_e", "w_r", "w_c"])
def test_a_weight_of_zero_takes_its_term_out(cycle: ReferenceCycle, name: str) -> None:
    rng = np.random.default_rng(0)
    qpos, qvel = cycle.qpos[:4].copy(), cycle.qvel[:4] + 0.3 * rng.standard_normal((4, 34))
    bodies = BodyStates(4)
    bodies.update(qpos, qvel)
    ref = cycle.placed(np.arange(4), np.zeros(4), np.full((4, 3), 0.05))
    found = imitation_terms("official", qpos, qvel, bodies, ref)
    without = TermWeights(**{**vars(OFFICIAL), name: 0.0})
    expected = imitation_reward("official", OFFICIAL, qpos, qvel, bodies, ref) - vars(OFFICIAL)[name] * found[name]
    np.testing.assert_allclose(imitation_reward("official", without, qpos, qvel, bodies, ref), expected, atol=1e-12)


def test_the_goal_rewards_speed_along_its_direction() -> None:
    velocity = np.array([[0.0, 1.0, 0.2], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    found = goal_reward(velocity, np.array([0.5 * np.pi, 0.5 * np.pi, 0.5 * np.pi]), 1.2)
    np.testing.assert_allclose(found, [math.exp(-2.5 * 0.04), math.exp(-2.5 * 0.04), math.exp(-2.5 * 1.44)])
    assert goal_reward(velocity[:1], np.array([0.5 * np.pi]), 0.9)[0] == 1.0


def test_an_unknown_version_is_named(cycle: ReferenceCycle) -> None:
    with pytest.raises(InputError, match="found codex, expected paper or official"):
        terms(cycle, "codex", cycle.qpos[:1], cycle.qvel[:1])
