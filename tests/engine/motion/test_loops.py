from __future__ import annotations

import numpy as np
import pytest

from engine.motion.legs import foot_points, place_ankles
from engine.motion.loops import close_cycle, cut, repair_jumps, unroll
from engine.motion.mirror import mirror, mirrored_half
from engine.motion.retarget import CharacterMotion
from engine.rotation import quat_exp, quat_inv, quat_log, quat_mul, quat_to_matrix, yaw_of
from engine.skeleton import forward_kinematics
from tests.engine.motion.synthetic import walk


def _motion(loop: str = "none", **options: float) -> CharacterMotion:
    return CharacterMotion("walk", *walk(**options), loop=loop)


def _steps_deg(local: np.ndarray) -> np.ndarray:
    return np.degrees(np.linalg.norm(quat_log(quat_mul(quat_inv(local[:-1]), local[1:])), axis=-1))


def test_mirroring_twice_is_the_identity() -> None:
    motion = _motion(turn_rad_s=0.5)
    twice = mirror(mirror(motion))
    np.testing.assert_array_equal(twice.root_pos_w, motion.root_pos_w)
    np.testing.assert_array_equal(twice.local_quat, motion.local_quat)


def test_the_mirror_image_swaps_the_feet_and_turns_the_other_way() -> None:
    motion = _motion(turn_rad_s=0.5)
    image = mirror(motion)
    feet = foot_points(*forward_kinematics(motion.root_pos_w, motion.local_quat))["sole"]
    feet_m = foot_points(*forward_kinematics(image.root_pos_w, image.local_quat))["sole"]
    np.testing.assert_allclose(feet_m, feet[:, ::-1] * np.array([1.0, -1.0, 1.0]), atol=1e-9)
    assert yaw_of(quat_to_matrix(image.local_quat[-1, 0])) == pytest.approx(
        -yaw_of(quat_to_matrix(motion.local_quat[-1, 0]))
    )


def test_a_closed_loop_repeats_without_a_jump_and_travels_on() -> None:
    motion = _motion("wrap", seconds=1.0, turn_rad_s=0.3)
    cycle = close_cycle(motion, 0.4, 0.2)
    assert len(cycle) == 30
    pos, local = unroll(cycle, 100)
    assert len(pos) == 120
    inner = _steps_deg(motion.local_quat).max()
    assert _steps_deg(local).max() < inner + 1.0
    assert np.linalg.norm(np.diff(pos, axis=0), axis=-1).max() < 0.04
    assert yaw_of(quat_to_matrix(local[90, 0])) == pytest.approx(0.9, abs=0.02)
    np.testing.assert_allclose(np.linalg.norm(np.diff(pos[::30, :2], axis=0), axis=-1), 1.0, atol=0.03)


def test_a_seam_that_does_not_close_is_spread_on_both_sides() -> None:
    motion = _motion("wrap", seconds=1.0)
    gap = np.radians(28.5)
    ramp = np.linspace(0, 1, len(motion))[:, None] * np.array([0.0, gap, 0.0])
    motion.local_quat[:, 3] = quat_mul(motion.local_quat[:, 3], quat_exp(ramp))
    _, local = unroll(close_cycle(motion, 0.4, 0.2), 90)
    steps = _steps_deg(local)[:, 3]
    assert steps.max() < 9.0  # 28.5 degrees in one frame before
    assert steps[20:40].sum() > 20.0


def test_a_standing_foot_does_not_slide_where_a_loop_is_closed() -> None:
    motion = _motion("wrap", seconds=1.0)
    tilt = np.linspace(0, 1, len(motion))[:, None] * np.array([np.radians(6.0), 0.0, 0.0])
    feet = foot_points(*forward_kinematics(motion.root_pos_w, motion.local_quat))["ankle"]
    motion.local_quat[:, 0] = quat_mul(motion.local_quat[:, 0], quat_exp(tilt))
    motion.local_quat, _ = place_ankles(motion.root_pos_w, motion.local_quat, feet)
    pos, local = unroll(close_cycle(motion, 0.4, 0.2), 60)
    ankles = foot_points(*forward_kinematics(pos, local))["ankle"]
    step = np.linalg.norm(np.diff(ankles[22:38], axis=0), axis=-1)
    assert step.min(axis=1).max() < 0.004  # at any time one of the feet stands


def test_an_open_motion_is_blended_into_its_start() -> None:
    motion = _motion(seconds=2.4, turn_rad_s=0.2)
    cycle = close_cycle(motion, 0.4, 0.2)
    assert len(cycle) == len(motion) - 12
    pos, local = unroll(cycle, 200)
    assert len(pos) >= 200
    assert np.linalg.norm(np.diff(pos[:, :2], axis=0), axis=-1).max() < 0.05
    assert _steps_deg(local).max() < 2.0 * _steps_deg(motion.local_quat).max()
    np.testing.assert_array_equal(pos[12 : len(cycle)], motion.root_pos_w[12 : len(cycle)])


def test_a_mirror_loop_has_its_mirror_image_as_second_half() -> None:
    root, local = walk(0.5)
    cycle = close_cycle(CharacterMotion("half", root, local, loop="mirror"), 0.4, 0.2)
    assert len(cycle) == 30
    assert cycle.turn_rad == 0.0
    assert cycle.travel_m[0] == pytest.approx(1.0, abs=0.05)
    pos, quat = unroll(cycle, 61)
    assert _steps_deg(quat).max() < _steps_deg(local).max() + 2.0
    want = forward_kinematics(*walk(1.0))[0]
    got = forward_kinematics(pos[:30], quat[:30])[0]
    np.testing.assert_allclose(got, want[:30], atol=0.01)


def test_half_a_cycle_and_its_mirror_image_are_recognised() -> None:
    root, local = walk(1.0)
    assert mirrored_half(root, local) == 15
    bent = local.copy()
    bent[3:9, 3] = quat_mul(bent[3:9, 3], quat_exp(np.array([0.9, 0.0, 0.0])))
    bent[:, 6] = local[:1, 6]
    assert mirrored_half(root, bent) == 0


def test_a_one_frame_jump_is_found_and_spread() -> None:
    root, local = walk(2.0)
    broken = local.copy()
    broken[30:, 6] = quat_mul(broken[30:, 6], quat_exp(np.radians([0.0, 25.0, 0.0])))
    repaired, found = repair_jumps(root, broken, 5.0, 0.2)
    assert [(step, body) for step, body, _ in found] == [(29, 6)]
    assert found[0][2] == pytest.approx(25.0, abs=1.0)
    assert _steps_deg(repaired)[:, 6].max() < 10.0
    np.testing.assert_allclose(np.abs(np.sum(repaired[:20] * broken[:20], -1)), 1.0, atol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(repaired[40:] * broken[40:], -1)), 1.0, atol=1e-12)


def test_a_fast_smooth_swing_is_no_jump() -> None:
    root, local = walk(2.0)
    t = np.arange(len(root)) / 30
    kick = 1.5 * np.exp(-(((t - 1.0) / 0.08) ** 2))
    local[:, 10] = quat_mul(local[:, 10], quat_exp(np.stack([0 * t, kick, 0 * t], -1)))
    _, found = repair_jumps(root, local, 5.0, 0.2)
    assert found == []


def test_cutting_is_by_the_time_of_the_file() -> None:
    motion = _motion(seconds=3.0)
    motion.start_s = 1.0
    part = cut(motion, 2.0, 3.0)
    assert len(part) == 30
    assert part.root_pos_w[0, 0] == pytest.approx(1.0)
    assert cut(motion, 0.0, 0.0) is motion
    first, second = cut(motion, 0.0, 2.5), cut(motion, 2.5, 0.0)
    assert len(first) + len(second) == len(motion)
