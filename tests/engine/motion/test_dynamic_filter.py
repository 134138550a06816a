from __future__ import annotations

from dataclasses import replace

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import lsq_linear

from engine.motion.build import apply_filter
from engine.motion.dynamic_filter import GRAVITY, filter_height, filter_path, filter_turn
from engine.rotation import quat_exp, quat_inv, quat_log, quat_mul, quat_to_matrix
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
    got_root, got_local, shift = apply_filter(root, local, contact, replace(FILTER, flight_m_s2=0.05))
    pos, quat = forward_kinematics(got_root, got_local)
    stance = contact == 3
    np.testing.assert_allclose(pos[stance][:, [11, 14]], before[stance][:, [11, 14]], atol=0.012)
    com_before = com_pos_w(*forward_kinematics(root, local))
    np.testing.assert_allclose(com_pos_w(pos, quat), com_before + shift, atol=2e-3)
    assert np.abs(shift).max() > 0.005


HEIGHT_M = 0.9


def _zero_moment(y: np.ndarray) -> np.ndarray:
    """Zero-moment points of a path at constant height, without the two ends."""
    return y[1:-1] - _acceleration_of_rows(y) * HEIGHT_M / GRAVITY


def _acceleration_of_rows(y: np.ndarray) -> np.ndarray:
    return np.diff(y, 2, axis=0) * FPS**2


def _soles(n: int, apart: float = 0.2) -> np.ndarray:
    return np.tile([[0.0, apart / 2], [0.0, -apart / 2]], (n, 1, 1))


def _filter(y: np.ndarray, stands: np.ndarray, soles: np.ndarray | None = None, yaw: float = 0.0) -> np.ndarray:
    n = len(y)
    soles = _soles(n) if soles is None else soles
    return filter_path(y, np.full(n, HEIGHT_M), soles, np.full((n, 2), yaw), stands, FPS, FILTER)


def _jerked_sway() -> tuple[np.ndarray, np.ndarray]:
    """A body that sways over its feet and is thrown sideways by 0.3 m/s within two frames, as slipping markers do."""
    n = 80
    y = np.zeros((n, 2))
    y[:, 1] = 0.02 * np.sin(np.arange(n) / 8.0)
    y[:, 1] += 0.3 / FPS * np.clip(np.arange(n) - 40, 0, 2)
    return y, np.ones((n, 2), bool)


def test_the_zero_moment_point_comes_under_the_feet_and_the_path_stays_close() -> None:
    y, stands = _jerked_sway()
    outside = np.abs(_zero_moment(y)[:, 1]).max() - 0.1 - FILTER.support_width_m
    assert outside > 0.3
    got = _filter(y, stands)
    assert np.abs(_zero_moment(got)[:, 1]).max() < 0.1 + FILTER.support_width_m + 0.005
    assert np.abs(got - y).max() < 0.03


def test_a_path_over_the_feet_is_left_alone() -> None:
    y, stands = _jerked_sway()
    y[:, 1] = 0.02 * np.sin(np.arange(len(y)) / 8.0)
    np.testing.assert_allclose(_filter(y, stands), y, atol=1e-9)


def test_the_body_flies_straight() -> None:
    rng = np.random.default_rng(0)
    y = np.stack([np.arange(60) * 0.1, 0.01 * rng.normal(size=60)], axis=1)
    stands = np.ones((60, 2), bool)
    stands[20:32] = False
    soles = _soles(60) + np.stack([y[:, 0], 0 * y[:, 0]], axis=1)[:, None]
    got = _acceleration_of_rows(_filter(y, stands, soles))[~stands[1:-1].any(axis=1)]
    assert np.abs(got).max() < 0.2
    assert np.abs(_acceleration_of_rows(y)[19:31]).max() > 10


def test_one_standing_foot_carries_alone_and_in_its_own_heading() -> None:
    y = np.zeros((60, 2))
    stands = np.tile([True, False], (60, 1))
    got = _filter(y, stands, yaw=np.pi / 2)  # the left foot points to the left: its length lies along y
    inside = _zero_moment(got)[10:-10] - np.array([0.0, 0.1])
    assert np.abs(inside[:, 0]).max() < FILTER.support_width_m + 0.005
    np.testing.assert_allclose(got, y, atol=0.01)  # 0.1 m away is just within the half-length


def test_the_filtered_path_is_the_minimum_of_the_stated_problem() -> None:
    """Against Clarabel, sideways only: min |y - y0|^2 / s_p^2 + w^4 |zmp - support|^2 / s_t^2 over path and support."""
    y, stands = _jerked_sway()
    n, edge = len(y), 0.1 + FILTER.support_width_m
    w2 = GRAVITY / HEIGHT_M
    middle = sp.eye(n - 2, n, k=1)
    second = (sp.eye(n - 2, n) - 2 * middle + sp.eye(n - 2, n, k=2)) * FPS**2
    rows = sp.vstack([
        sp.hstack([sp.eye(n) / FILTER.path_m, sp.csc_matrix((n, n - 2))]),
        sp.hstack([(second - w2 * middle), w2 * sp.eye(n - 2)]) / FILTER.path_stance_m_s2,
    ])  # fmt: skip
    rhs = np.concatenate([y[:, 1] / FILTER.path_m, np.zeros(n - 2)])
    box = sp.hstack([sp.csc_matrix((n - 2, n)), sp.eye(n - 2)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(2 * (n - 2))]
    solver = clarabel.DefaultSolver(
        sp.triu(rows.T @ rows).tocsc(), -(rows.T @ rhs), sp.vstack([box, -box]).tocsc(), np.full(2 * (n - 2), edge),
        cones, settings,
    )  # fmt: skip
    want = np.array(solver.solve().x)[:n]
    np.testing.assert_allclose(_filter(y, stands)[:, 1], want, atol=2e-4)


INERTIA = np.diag([9.0, 8.0, 2.0])


def _momentum(quat: np.ndarray) -> np.ndarray:
    """Angular momentum of a rigid body of `INERTIA` from each frame to the next (T - 1, 3)."""
    turn = quat_log(quat_mul(quat[1:], quat_inv(quat[:-1])))
    rot = quat_to_matrix(quat_mul(quat_exp(0.5 * turn), quat[:-1]))
    return np.einsum("nij,jk,nlk,nl->ni", rot, INERTIA, rot, turn) * FPS


def _tumble(n: int) -> np.ndarray:
    t = np.arange(n)[:, None] / FPS
    return quat_mul(quat_exp(t * np.array([0.0, 0.0, 1.1])), quat_exp(0.4 * np.sin(t * np.array([3.0, 4.0, 5.0]))))


def test_an_orientation_with_the_momentum_of_the_body_is_left_alone() -> None:
    quat = _tumble(50)
    got = filter_turn(quat, _momentum(quat), INERTIA, np.zeros(50, bool), FPS, FILTER)
    np.testing.assert_allclose(got, quat, atol=1e-8)


def test_momentum_is_constant_in_flight_though_the_pelvis_wriggles() -> None:
    quat, flight = _tumble(60), np.zeros(60, bool)
    flight[22:36] = True
    momentum = _momentum(quat)
    got = filter_turn(quat, momentum, INERTIA, flight, FPS, replace(FILTER, turn_flight_rad_s2=0.01))
    inside = _momentum(got)[21:36]
    assert np.ptp(momentum[21:36], axis=0).max() > 5.0
    assert np.ptp(inside, axis=0).max() < 0.05
    away = np.linalg.norm(quat_log(quat_mul(got, quat_inv(quat))), axis=-1)
    assert 0.02 < away.max() < 0.5
    assert away[[0, -1]].max() < 0.2 * away.max()


def test_turns_about_one_axis_are_the_least_squares_solution_of_the_stated_problem() -> None:
    rng = np.random.default_rng(3)
    n = 25
    angle, flight = 0.05 * rng.normal(size=n).cumsum(), rng.random(n) < 0.4
    body = 6.0 * rng.normal(size=n - 1)
    rows, rhs = [np.eye(n) / FILTER.turn_rad], [angle / FILTER.turn_rad]
    for t in range(1, n - 1):
        row = np.zeros(n)
        row[t - 1 : t + 2] = np.array([1.0, -2.0, 1.0]) * FPS**2
        sd = FILTER.turn_flight_rad_s2 if flight[t] else FILTER.turn_stance_rad_s2
        target = 0.0 if flight[t] else (body[t] - body[t - 1]) * FPS / INERTIA[1, 1]
        rows.append(row[None] / sd)
        rhs.append(np.array([target / sd]))
    want = lsq_linear(np.concatenate(rows), np.concatenate(rhs)).x
    axis = np.array([0.0, 1.0, 0.0])
    got = filter_turn(quat_exp(angle[:, None] * axis), body[:, None] * axis, INERTIA, flight, FPS, FILTER)
    np.testing.assert_allclose(quat_log(got), want[:, None] * axis, atol=1e-8)


def test_the_orientation_turns_with_the_world() -> None:
    quat, flight = _tumble(40), np.zeros(40, bool)
    flight[15:25] = True
    momentum = 0.5 * _momentum(quat)
    yaw = quat_exp(np.array([0.0, 0.0, 2.0]))
    turned = momentum @ quat_to_matrix(yaw).T
    want = quat_mul(yaw, filter_turn(quat, momentum, INERTIA, flight, FPS, FILTER))
    np.testing.assert_allclose(filter_turn(quat_mul(yaw, quat), turned, INERTIA, flight, FPS, FILTER), want, atol=1e-7)


def test_two_frames_have_no_torque_to_filter() -> None:
    quat = _tumble(2)
    np.testing.assert_array_equal(
        filter_turn(quat, _momentum(quat), INERTIA, np.array([True, True]), FPS, FILTER), quat
    )
