"""The analytic leg."""

from __future__ import annotations

import numpy as np
import pytest

from engine import rotation
from engine.ik.limb import LEG_LENGTH, MIN_LEG_LENGTH, knee_flexion, leg_length, soft_length, solve_leg_into
from engine.skeleton import SHANK_LENGTH, THIGH_LENGTH


def ankle_of(quat: np.ndarray, hip: np.ndarray) -> np.ndarray:
    knee = hip + rotation.quat_rotate(quat[12], [0.0, 0.0, -THIGH_LENGTH])
    return knee + rotation.quat_rotate(quat[13], [0.0, 0.0, -SHANK_LENGTH])


def test_the_ankle_meets_every_reachable_target_and_the_knee_stays_a_hinge() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        quat = np.zeros((15, 4))
        thigh = rotation.quat_exp(rng.normal(size=3))
        hip, direction = rng.normal(size=3), rng.normal(size=3)
        length = rng.uniform(MIN_LEG_LENGTH, LEG_LENGTH)
        target = hip + direction / np.linalg.norm(direction) * length
        assert solve_leg_into(quat, 12, *hip, *target, *thigh, length) == pytest.approx(length, abs=1e-12)
        np.testing.assert_allclose(ankle_of(quat, hip), target, atol=1e-12)
        bend = rotation.quat_log(rotation.quat_mul(rotation.quat_inv(quat[12]), quat[13]))
        np.testing.assert_allclose(bend[[0, 2]], 0.0, atol=1e-7)
        assert bend[1] >= 0.0
        assert knee_flexion(*quat[12], *quat[13]) == pytest.approx(bend[1], abs=1e-7)
        assert leg_length(bend[1]) == pytest.approx(length, abs=1e-9)


def test_a_leg_that_fits_already_is_left_alone() -> None:
    rng = np.random.default_rng(1)
    for flexion in (0.01, 0.3, 1.2, 2.5):
        quat = np.zeros((15, 4))
        thigh = rotation.quat_exp(rng.normal(size=3))
        shank = rotation.quat_mul(thigh, rotation.quat_exp([0.0, flexion, 0.0]))
        quat[12], quat[13] = thigh, shank
        ankle = ankle_of(quat, np.zeros(3))
        solve_leg_into(quat, 12, 0.0, 0.0, 0.0, *ankle, *thigh, np.linalg.norm(ankle))
        np.testing.assert_allclose(quat[12], thigh, atol=1e-9)
        np.testing.assert_allclose(quat[13], shank, atol=1e-9)


def test_a_target_out_of_reach_is_pointed_at_with_a_straight_leg() -> None:
    quat = np.zeros((15, 4))
    solve_leg_into(quat, 12, 0.0, 0.0, 1.0, 1.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, 5.0)
    reached = ankle_of(quat, np.array([0.0, 0.0, 1.0])) - [0.0, 0.0, 1.0]
    np.testing.assert_allclose(reached, LEG_LENGTH * np.array([1.0, 0.0, -2.0]) / np.sqrt(5.0), atol=1e-9)


def test_the_soft_limit_is_smooth_and_never_passed_and_leaves_short_and_predicted_legs_alone() -> None:
    start, limit = 0.985 * LEG_LENGTH, 0.995 * LEG_LENGTH
    asked = np.linspace(0.9, 1.2, 3001) * LEG_LENGTH
    given = np.array([soft_length(d, 0.5, start, limit) for d in asked])
    assert np.all(given[asked <= start] == asked[asked <= start])
    assert np.all(given <= limit)
    slope = np.diff(given) / np.diff(asked)
    assert np.all(slope >= -1e-9)
    assert np.abs(np.diff(slope)).max() < 0.02
    for predicted in (0.7, 0.99 * LEG_LENGTH, LEG_LENGTH):
        assert soft_length(predicted, predicted, start, limit) == predicted
