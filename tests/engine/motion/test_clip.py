"""Clip: forward kinematics, resampling by slerp, cutting, bone lengths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import InputError
from engine.motion.bvh import read_bvh
from engine.motion.clip import Clip
from engine.rotation import quat_exp, quat_inv, quat_log, quat_mul, quat_to_matrix, yaw_of


def chain(n_frames: int = 5, fps: float = 10.0, **fields) -> Clip:
    """Root, arm one metre along x, turning 0.2 rad a frame about z."""
    quat = np.zeros((n_frames, 2, 4))
    quat[:, 0] = [1, 0, 0, 0]
    quat[:, 1] = quat_exp(np.outer(0.2 * np.arange(n_frames), [0, 0, 1]))
    root = np.stack([np.arange(n_frames, dtype=float), np.zeros(n_frames), np.ones(n_frames)], axis=1)
    offsets = np.array([[9.0, 9.0, 9.0], [0.0, 0.0, 0.5]])
    parents = np.array([-1, 0])
    tips = {"arm": np.array([1.0, 0.0, 0.0])}
    return Clip("c", ["root", "arm"], parents, offsets, fps, root, quat, end_sites=tips, **fields)


def test_world_adds_offsets_but_never_the_roots() -> None:
    clip = chain()
    pos, _ = clip.world()
    np.testing.assert_allclose(pos[2], [[2, 0, 1], [2, 0, 1.5]])
    np.testing.assert_allclose(clip.world_end_sites()["arm"][2], [2 + np.cos(0.4), np.sin(0.4), 1.5])


def test_world_rotations_are_products_along_the_chain_in_one_hemisphere() -> None:
    clip = chain(40)
    clip.local_quat[:, 0] = quat_exp(np.outer(0.3 * np.arange(40), [1, 0, 0]))
    _, quat = clip.world()
    wanted = quat_to_matrix(quat_mul(clip.local_quat[:, 0], clip.local_quat[:, 1]))
    np.testing.assert_allclose(quat_to_matrix(quat[:, 1]), wanted, atol=1e-12)
    assert (np.sum(quat[1:] * quat[:-1], axis=-1) > 0).all()


def test_resampling_keeps_the_frames_it_shares_and_the_duration() -> None:
    clip = chain(5, fps=10.0)
    fine = clip.resample(40.0)
    assert fine.n_frames == 17
    assert fine.duration_s == pytest.approx(clip.duration_s)
    np.testing.assert_allclose(fine.root_pos_m[::4], clip.root_pos_m)
    np.testing.assert_allclose(fine.resample(10.0).local_quat, clip.local_quat, atol=1e-12)
    turn = quat_log(quat_mul(quat_inv(fine.local_quat[:-1, 1]), fine.local_quat[1:, 1]))
    np.testing.assert_allclose(turn[:, 2], 0.05, atol=1e-12)


def test_resampling_to_the_same_rate_loses_no_frame_to_rounding() -> None:
    clip = chain(39, fps=30.0, times_s=np.arange(39) * 0.033332)
    assert clip.resample(30.0).n_frames == 39
    assert chain(107, fps=60.0, times_s=np.arange(107) * 0.016666).resample(30.0).n_frames == 54


def test_resampling_goes_by_time_where_frames_are_uneven() -> None:
    clip = chain(3, fps=10.0, times_s=np.array([0.0, 0.05, 0.2]))
    assert not clip.is_uniform
    np.testing.assert_allclose(clip.resample(20.0).root_pos_m[:, 0], [0, 1, 4 / 3, 5 / 3, 2])


@pytest.mark.shared
def test_heading_that_wraps_at_180_degrees_is_not_turned_the_long_way(shared_dir: Path) -> None:
    clip = read_bvh(shared_dir / "cases/bvh/sem_euler_wrap.bvh")
    fine = clip.resample(60.0)
    x_axis = quat_to_matrix(fine.local_quat[:, 0])[:, :, 0]  # y up: heading in the x-z plane
    yaw = np.rad2deg(np.arctan2(-x_axis[:, 2], x_axis[:, 0]))
    assert abs(yaw[1]) == pytest.approx(180.0, abs=1e-4)
    turn = quat_log(quat_mul(quat_inv(clip.local_quat[:-1, 0]), clip.local_quat[1:, 0]))
    np.testing.assert_allclose(np.rad2deg(np.linalg.norm(turn, axis=1)) * clip.fps, 120.0, atol=1e-3)


@pytest.mark.shared
def test_rate_of_29_97_frames_spans_the_same_time_at_60(shared_dir: Path) -> None:
    clip = read_bvh(shared_dir / "cases/bvh/ok_frame_time_2997.bvh")
    assert clip.duration_s == pytest.approx(2 * 0.0333667, abs=1e-6)
    fine = clip.resample(60.0)
    assert fine.n_frames == 5
    np.testing.assert_allclose(fine.root_pos_m[2], clip.sample(np.array([2 / 60])).root_pos_m[0])


@pytest.mark.parametrize("fps", [0.0, -30.0, float("nan"), float("inf"), 1e12])
def test_impossible_rate_is_refused(fps: float) -> None:
    with pytest.raises(InputError):
        chain().resample(fps)


def test_cut_begins_at_time_zero_and_leaves_the_clip_alone() -> None:
    clip = chain(5)
    part = clip.cut(2, 4)
    np.testing.assert_allclose(part.times_s, [0.0, 0.1])
    np.testing.assert_allclose(part.root_pos_m[:, 0], [2, 3])
    assert clip.n_frames == 5


def test_sampled_moving_joint_origins_follow() -> None:
    clip = chain(2, joint_pos_m={"arm": np.array([[0, 0, 1.0], [0, 0, 3.0]])})
    half = clip.sample(np.array([0.05]))
    np.testing.assert_allclose(half.world()[0][0, 1], [0.5, 0, 3.0])
    assert clip.bone_length_variation() == {"arm": 2.0}


def test_yaw_of_a_looping_clip_is_not_accumulated() -> None:
    clip = chain(5, loop="wrap")
    late = clip.sample_cycles(np.array([0.1, 0.1 + clip.duration_s]))
    np.testing.assert_allclose(late.root_pos_m[1] - late.root_pos_m[0], [4, 0, 0])
    np.testing.assert_allclose(yaw_of(quat_to_matrix(late.local_quat[:, 1])), 0.2, atol=1e-9)
