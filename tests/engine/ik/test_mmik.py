"""What MMIK promises: rigid bones, locked stance feet, the simulated COM, nothing done where nothing is wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from engine import rotation
from engine import skeleton as sk
from engine.ik.mmik import MMIK, MmikParams

SWING, STANCE = np.zeros((60, 2), bool), np.ones((60, 2), bool)


def markers(pos: np.ndarray, quat: np.ndarray, offset: np.ndarray) -> np.ndarray:
    feet = list(sk.FOOT_BODIES)
    return pos[:, feet] + rotation.quat_rotate(quat[:, feet], offset)


def bone_error(pos: np.ndarray) -> float:
    lengths = np.linalg.norm(pos[:, 1:] - pos[:, sk.PARENTS[1:]], axis=-1)
    return float(np.abs(lengths - np.linalg.norm(sk.OFFSETS[1:], axis=-1)).max())


def disturbed(motion, seed: int = 0, size: float = 0.01):
    """The motion with shaken positions and rotations, as a network would predict it, and a swaying simulated COM."""
    rng = np.random.default_rng(seed)
    t = np.arange(len(motion)) / 30.0
    sway = size * np.stack([np.sin(4.0 * t), np.cos(3.0 * t), 0.3 * np.sin(7.0 * t) - 0.8], -1)
    shake = rotation.quat_exp(0.3 * size * rng.normal(size=(len(motion), 15, 3)))
    return dataclasses.replace(
        motion,
        body_pos=motion.body_pos + sway[:, None] + 0.3 * size * rng.normal(size=motion.body_pos.shape),
        body_quat=rotation.quat_mul(shake, motion.body_quat),
        com=motion.com + sway,
    )


def steps_of(motion, contact: np.ndarray, yaw: float = 0.1, shift: float = 0.015):
    """Simulated feet: flat and frozen through each contact, beside the predicted ones."""
    foot_pos, foot_quat = motion.foot_pos.copy(), motion.foot_quat.copy()
    for t in range(len(motion)):
        for k in range(2):
            foot_pos[t, k, :2] += shift
            if not contact[t, k]:
                continue
            if t and contact[t - 1, k]:
                foot_pos[t, k], foot_quat[t, k] = foot_pos[t - 1, k], foot_quat[t - 1, k]
            else:
                heading = rotation.yaw_of(rotation.quat_to_matrix(motion.foot_quat[t, k])) + yaw
                foot_quat[t, k] = rotation.quat_from_axis_angle([0.0, 0.0, 1.0], heading)
    return foot_pos, foot_quat


@pytest.mark.parametrize("contact", [SWING, STANCE], ids=["swing", "stance"])
def test_a_consistent_motion_is_left_alone(stride, play, contact: np.ndarray) -> None:
    pos, quat, errors, counts = play(stride, contact)
    np.testing.assert_allclose(pos, stride.body_pos, atol=1e-6)
    assert np.abs(np.sum(quat * stride.body_quat, -1)).min() > 1.0 - 1e-10
    assert errors.max() < 1e-6
    assert counts == {"frames": 60, "pelvis_shifted": 0, "stance_missed": 0, "momentum_clipped": 0, "bad_input": 0}


def test_the_walk_of_the_collection_is_left_alone(walk, play) -> None:
    for value in (False, True):
        pos, _, _, _ = play(walk, np.full((len(walk), 2), value), {"roll_deadband_rad": 0.0, "momentum_gain": 0.0})
        np.testing.assert_allclose(pos, walk.body_pos, atol=1e-6)


def test_bones_keep_their_length_whatever_comes_in(stride, play) -> None:
    contact = np.arange(60)[:, None] // 10 % 2 == np.array([0, 1])
    motion = disturbed(stride, size=0.05)
    foot_pos, foot_quat = steps_of(stride, contact, shift=0.1)
    pos, quat, _, _ = play(motion, contact, foot_pos=foot_pos, foot_quat=foot_quat)
    assert bone_error(pos) < 1e-9
    np.testing.assert_allclose(np.linalg.norm(quat, axis=-1), 1.0, atol=1e-12)
    local = sk.local_from_world(quat)
    knees = rotation.quat_log(local[:, [10, 13]])
    np.testing.assert_allclose(knees[..., [0, 2]], 0.0, atol=1e-7)
    assert knees[..., 1].min() >= 0.0


def test_a_flat_stance_sole_does_not_move_at_all(stride, play) -> None:
    contact = np.arange(60)[:, None] // 10 % 2 == np.array([0, 1])
    foot_pos, foot_quat = steps_of(stride, contact)
    pos, quat, errors, counts = play(
        disturbed(stride), contact, {"stance_roll": False, "landing_halflife_s": 0.0},
        foot_pos=foot_pos, foot_quat=foot_quat,
    )  # fmt: skip
    sole = markers(pos, quat, sk.SOLE_OFFSET)
    np.testing.assert_allclose(sole[contact], foot_pos[contact], atol=1e-12)
    held = contact[1:] & contact[:-1]
    assert np.abs(np.diff(sole, axis=0)[held]).max() < 1e-12
    assert np.abs(np.sum(quat[:, list(sk.FOOT_BODIES)] * foot_quat, -1))[contact].min() > 1.0 - 1e-12
    assert counts["stance_missed"] == 0
    assert errors[:, 1:][contact].max() < 1e-12


def test_a_landing_foot_settles_without_sliding(stride, play) -> None:
    contact = np.arange(60)[:, None] // 10 % 2 == np.array([0, 1])
    foot_pos, foot_quat = steps_of(stride, contact)
    foot_pos[..., 2] -= 0.01 * contact  # the ground lies below the predicted landing
    pos, quat, _, _ = play(
        disturbed(stride), contact, {"stance_roll": False, "landing_halflife_s": 0.03},
        foot_pos=foot_pos, foot_quat=foot_quat,
    )  # fmt: skip
    held = contact[1:] & contact[:-1]
    slides = [
        np.linalg.norm(np.diff(markers(pos, quat, o)[..., :2], axis=0), axis=-1)[held]
        for o in (sk.HEEL_OFFSET, sk.TOE_OFFSET)
    ]
    assert np.minimum(*slides).max() < 1e-3  # the marker it rolls about rests
    assert np.median(np.maximum(*slides)) < 1e-12
    last = np.zeros_like(contact)
    last[:-1] = contact[:-1] & ~contact[1:]
    np.testing.assert_allclose(markers(pos, quat, sk.SOLE_OFFSET)[last], foot_pos[last], atol=2e-3)


def test_a_rolling_stance_foot_turns_about_its_fixed_toe(stride, play) -> None:
    pitch = np.linspace(0.0, 0.6, 60)
    feet = list(sk.FOOT_BODIES)
    flat = np.repeat(stride.foot_quat[:1], 60, axis=0)
    toe_down = rotation.quat_mul(flat, rotation.quat_from_axis_angle([0.0, 1.0, 0.0], pitch)[:, None])
    motion = dataclasses.replace(
        stride, body_pos=np.repeat(stride.body_pos[:1], 60, 0), body_quat=np.repeat(stride.body_quat[:1], 60, 0)
    )
    motion.body_quat[:, feet] = toe_down
    state = {"com": np.repeat(stride.com[:1], 60, 0), "foot_pos": np.repeat(stride.foot_pos[:1], 60, 0)}
    changes = {"momentum_gain": 0.0, "reach_heel_lift_max_rad": 0.0, "roll_deadband_rad": 0.0}
    pos, quat, _, _ = play(motion, STANCE, changes, foot_quat=flat, **state)
    toe = markers(pos, quat, sk.TOE_OFFSET)
    assert np.abs(toe - toe[:1]).max() < 1e-12
    assert np.abs(np.sum(quat[:, feet] * toe_down, -1)).min() > 1.0 - 1e-12
    assert markers(pos, quat, sk.HEEL_OFFSET)[-1, 0, 2] - toe[-1, 0, 2] > 0.05


def test_the_com_lies_on_the_simulated_one(stride, play) -> None:
    contact = np.arange(60)[:, None] // 10 % 2 == np.array([0, 1])
    motion = disturbed(stride)
    foot_pos, foot_quat = steps_of(stride, contact, shift=0.01)
    pos, quat, errors, counts = play(motion, contact, foot_pos=foot_pos, foot_quat=foot_quat)
    distance = np.linalg.norm(sk.com_pos_w(pos, quat) - motion.com, axis=-1)
    np.testing.assert_allclose(distance, errors[:, 0], atol=1e-12)
    assert np.median(distance) < 1e-4
    assert np.sum(distance > 1e-3) <= counts["pelvis_shifted"] + 5


def test_a_leg_too_short_lowers_the_pelvis_and_keeps_the_foot(stride, play) -> None:
    far = stride.foot_pos.copy()
    far[..., 2] -= 0.13
    changes = {"reach_heel_lift_max_rad": 0.0, "stance_roll": False}
    pos, quat, errors, counts = play(stride, STANCE, changes, foot_pos=far)
    assert counts["pelvis_shifted"] > 0
    assert counts["stance_missed"] == 0
    np.testing.assert_allclose(markers(pos, quat, sk.SOLE_OFFSET), far, atol=1e-9)
    legs = np.linalg.norm(pos[:, [11, 14]] - pos[:, [9, 12]], axis=-1)
    assert legs.max() < 0.99501 * (sk.THIGH_LENGTH + sk.SHANK_LENGTH)
    assert errors[:, 0].max() > 1e-3  # the COM pays


def test_lifting_the_heel_spares_the_com(stride, play) -> None:
    far = stride.foot_pos.copy()
    far[..., 2] -= 0.06
    flat = play(stride, STANCE, {"stance_roll": False}, foot_pos=far)
    lifted = play(stride, STANCE, foot_pos=far)
    toe = np.array([0.08, 0.0, 0.0])
    kept = far + rotation.quat_rotate(stride.foot_quat, toe)
    np.testing.assert_allclose(markers(*lifted[:2], sk.TOE_OFFSET), kept, atol=1e-9)
    assert lifted[2][:, 0].mean() < 0.5 * flat[2][:, 0].mean()


def test_a_foot_that_no_pelvis_can_reach_is_counted_and_pointed_at(stride, play) -> None:
    away = stride.foot_pos + np.array([[0.0, 1.5, 0.0], [0.0, -1.5, 0.0]])
    pos, _, errors, counts = play(stride, STANCE, foot_pos=away)
    assert counts["stance_missed"] == 60
    assert errors[:, 1:].min() > 0.1
    assert bone_error(pos) < 1e-9


def test_swing_feet_stay_above_the_ground(stride, play) -> None:
    ground = np.full((60, 2), stride.foot_pos[..., 2].min() + 0.03)
    pos, quat, _, _ = play(stride, SWING, {"momentum_gain": 0.0}, ground=ground)
    for offset in (sk.TOE_OFFSET, sk.HEEL_OFFSET):
        assert (markers(pos, quat, offset)[..., 2] - ground).min() > -1e-9


def test_after_lift_off_the_foot_leaves_smoothly(stride, play) -> None:
    contact = np.zeros((60, 2), bool)
    contact[:30] = True
    feet = list(sk.FOOT_BODIES)
    still = dataclasses.replace(
        stride,
        **{name: np.repeat(getattr(stride, name)[:1], 60, 0) for name in ("body_pos", "body_quat", "com", "foot_quat")},
    )
    away = np.repeat(stride.foot_pos[:1], 60, 0) + np.array([0.02, 0.01, 0.0])
    changes = {"momentum_gain": 0.0, "swing_follow": 0.0}
    pos, _, _, _ = play(still, contact, changes, foot_pos=away)
    offset = np.linalg.norm(pos[:, feet] - still.body_pos[:, feet], axis=-1)
    assert offset[29] == pytest.approx(np.full(2, np.hypot(0.02, 0.01)), abs=1e-6)
    assert np.abs(np.diff(offset, axis=0)).max() < 0.4 * offset[29, 0]
    assert np.all(np.diff(offset[29:], axis=0) <= 1e-12)
    assert offset[-1].max() < 1e-5


def test_momentum_mapping_moves_the_motion_towards_the_target(stride, play) -> None:
    wanted = np.array([0.0, 0.0, 2.0])
    errors = []
    for gain in (0.0, 0.3, 0.6):
        pos, quat, _, _ = play(
            stride, SWING, {"momentum_gain": gain, "momentum_max_rad": 1.0}, momentum=stride.momentum + wanted
        )
        made = sk.momentum_w(pos[:-1], quat[:-1], pos[1:], quat[1:], 1.0 / 30.0)[1]
        target = 0.5 * (stride.momentum[1:] + stride.momentum[:-1]) + wanted
        errors.append(np.linalg.norm(made - target, axis=-1)[0])
    assert errors[0] == pytest.approx(2.0, abs=0.05)
    assert errors[2] < errors[1] < errors[0] - 0.2


def test_momentum_mapping_is_limited(stride, play) -> None:
    huge = stride.momentum + np.array([0.0, 0.0, 1e4])
    pos, _, _, counts = play(stride, SWING, {"momentum_max_rad": 0.1}, momentum=huge)
    assert counts["momentum_clipped"] == 59
    assert np.isfinite(pos).all()
    assert np.linalg.norm(pos - stride.body_pos, axis=-1).max() < 0.4


def test_mirrored_input_gives_mirrored_output(stride, play) -> None:
    contact = np.arange(60)[:, None] // 10 % 2 == np.array([0, 1])
    foot_pos, foot_quat = steps_of(stride, contact)
    motion = disturbed(stride)
    flip, turn = np.array([1.0, -1.0, 1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    image = dataclasses.replace(
        motion,
        body_pos=(motion.body_pos * flip)[:, sk.MIRROR_BODIES],
        body_quat=(motion.body_quat * turn)[:, sk.MIRROR_BODIES],
        com=motion.com * flip,
        momentum=motion.momentum * -flip,
    )
    pos, quat, _, _ = play(motion, contact, foot_pos=foot_pos, foot_quat=foot_quat)
    pos_m, quat_m, _, _ = play(
        image, contact[:, ::-1].copy(),
        foot_pos=np.ascontiguousarray((foot_pos * flip)[:, ::-1]),
        foot_quat=np.ascontiguousarray((foot_quat * turn)[:, ::-1]),
    )  # fmt: skip
    np.testing.assert_allclose(pos_m, (pos * flip)[:, sk.MIRROR_BODIES], atol=1e-9)
    assert np.abs(np.sum(quat_m * (quat * turn)[:, sk.MIRROR_BODIES], -1)).min() > 1.0 - 1e-9


def test_characters_do_not_touch_each_other_and_threads_change_nothing(stride, params) -> None:
    contact = np.arange(60)[:, None] // 10 % 2 == np.array([0, 1])
    outputs = []
    for n, threads in ((1, 1), (5, 1), (5, 2)):
        solver = MMIK(n, MmikParams(**params), 30.0, threads=threads)
        pos, quat = np.empty((n, 15, 3)), np.empty((n, 15, 4))
        rows = []
        for t in range(20):
            frame = [np.repeat(a[t : t + 1], n, 0) for a in (stride.body_pos, stride.body_quat, stride.com)]
            if n > 1:  # the others get something else
                frame[0][1:], frame[2][1:] = frame[0][1:] + t, frame[2][1:] + t
            solver.solve_into(
                pos, quat, *frame, frame[1][:, 0], np.zeros((n, 3)), np.repeat(stride.momentum[t : t + 1], n, 0),
                np.repeat(stride.foot_pos[t : t + 1], n, 0), np.repeat(stride.foot_quat[t : t + 1], n, 0),
                np.repeat(contact[t : t + 1], n, 0), np.full((n, 2), -1.0),
            )  # fmt: skip
            rows.append(pos.copy())
        outputs.append(np.array(rows))
    assert np.array_equal(outputs[0][:, 0], outputs[1][:, 0])
    assert np.array_equal(outputs[1], outputs[2])


def test_unusable_input_repeats_the_last_output_and_is_counted(stride, play) -> None:
    body_pos, com = stride.body_pos.copy(), stride.com.copy()
    body_pos[10], com[20, 1] = np.nan, np.inf
    quat = stride.body_quat.copy()
    quat[30, 4] = 0.0
    pos, _, _, counts = play(
        dataclasses.replace(stride, body_pos=body_pos, com=com, body_quat=quat), STANCE, {"momentum_gain": 0.0}
    )
    assert counts["bad_input"] == 3
    for t in (10, 20, 30):
        np.testing.assert_array_equal(pos[t], pos[t - 1])
    np.testing.assert_allclose(pos[31:], stride.body_pos[31:], atol=1e-6)


def test_reset_forgets_the_past(stride, params) -> None:
    solver = MMIK(2, MmikParams(**params), 30.0)
    pos, quat = np.empty((2, 15, 3)), np.empty((2, 15, 4))

    def step(t: int, lift: float) -> None:
        pair = slice(t, t + 2)
        solver.solve_into(
            pos, quat, stride.body_pos[pair], stride.body_quat[pair], stride.com[pair], stride.body_quat[pair, 0],
            np.zeros((2, 3)), stride.momentum[pair], stride.foot_pos[pair] + [0.0, lift, 0.0],
            stride.foot_quat[pair], STANCE[pair], np.full((2, 2), -1.0),
        )  # fmt: skip

    for t in range(5):
        step(t, 0.03)
    solver.reset(np.array([1]))
    assert solver.counters["frames"].tolist() == [5, 0]
    step(20, 0.0)
    np.testing.assert_allclose(pos[1], stride.body_pos[21], atol=1e-9)
    assert np.abs(pos[0] - stride.body_pos[20]).max() > 1e-4
    solver.reset()
    assert solver.counters["frames"].tolist() == [0, 0]
