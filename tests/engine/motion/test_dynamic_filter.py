from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import lsq_linear

from engine.motion.build import apply_height_filter
from engine.motion.dynamic_filter import GRAVITY, filter_height
from engine.skeleton import com_pos_w, forward_kinematics
from tests.engine.motion.synthetic import FILTER, walk

FPS = 30.0


def _hop(fall: float) -> tuple[np.ndarray, np.ndarray]:
    """A hop of 12 frames in which the body falls at ``fall``, with 20 frames of standing around it."""
    t = np.arange(12) / FPS
    v = 0.5 * fall * t[-1]
    arc = v * t - 0.5 * fall * t**2
    z = 0.9 + np.concatenate([np.zeros(20), arc, np.zeros(20)])
    flight = np.zeros(len(z), bool)
    flight[20:32] = True
    return z, flight


def _acceleration(z: np.ndarray) -> np.ndarray:
    return np.diff(z, 2) * FPS**2


@pytest.mark.parametrize("fall", [4.0, 6.0, 9.81, 13.0])
def test_the_body_falls_at_g_in_flight(fall: float) -> None:
    z, flight = _hop(fall)
    got = _acceleration(filter_height(z, flight, FPS, FILTER))[flight[1:-1]]
    np.testing.assert_allclose(got, -GRAVITY, atol=0.35)
    assert got.mean() == pytest.approx(-GRAVITY, abs=0.1)


def test_it_is_the_least_squares_solution_of_the_stated_problem() -> None:
    rng = np.random.default_rng(0)
    z0 = 0.9 + 0.05 * rng.normal(size=25).cumsum() * 0.2
    flight = rng.random(25) < 0.4
    acc0 = _acceleration(z0)
    rows, rhs = [np.eye(25) / FILTER.height_m], [z0 / FILTER.height_m]
    for t in range(1, 24):
        row = np.zeros(25)
        row[t - 1 : t + 2] = np.array([1.0, -2.0, 1.0]) * FPS**2
        sd = FILTER.flight_m_s2 if flight[t] else FILTER.stance_m_s2
        target = -GRAVITY if flight[t] else max(acc0[t - 1], -GRAVITY)
        rows.append(row[None] / sd)
        rhs.append(np.array([target / sd]))
    want = lsq_linear(np.concatenate(rows), np.concatenate(rhs)).x
    np.testing.assert_allclose(filter_height(z0, flight, FPS, FILTER), want, atol=1e-9)


def test_a_possible_motion_is_left_alone() -> None:
    z = 0.9 + 0.02 * np.sin(np.arange(60) / 5.0)
    np.testing.assert_allclose(filter_height(z, np.zeros(60, bool), FPS, FILTER), z, atol=1e-12)


def test_two_frames_have_no_acceleration_to_filter() -> None:
    np.testing.assert_array_equal(filter_height(np.array([0.9, 1.0]), np.array([True, True]), FPS, FILTER), [0.9, 1.0])


def test_stance_feet_stay_where_they_are_and_the_centre_of_mass_follows_the_filter() -> None:
    root, local = walk(2.0)
    contact = np.full(len(root), 3)
    contact[20:30] = 0
    before, _ = forward_kinematics(root, local)
    got_root, got_local, shift = apply_height_filter(root, local, contact, replace(FILTER, flight_m_s2=0.05))
    pos, quat = forward_kinematics(got_root, got_local)
    stance = contact == 3
    np.testing.assert_allclose(pos[stance][:, [11, 14]], before[stance][:, [11, 14]], atol=0.012)
    com_before = com_pos_w(*forward_kinematics(root, local))[:, 2]
    np.testing.assert_allclose(com_pos_w(pos, quat)[:, 2], com_before + shift, atol=2e-3)
    assert np.abs(shift).max() > 0.005
