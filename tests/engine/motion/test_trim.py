"""T-pose frames at the ends of a file and extra roots above the hips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.motion.bvh import read_bvh
from engine.motion.clip import Clip
from engine.motion.trim import fold_extra_root, in_tpose, tpose_frames, trim_tpose
from engine.motion.units import normalise_units_and_axes


def load(shared_dir: Path, name: str) -> Clip:
    return normalise_units_and_axes(read_bvh(shared_dir / "motion" / name))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "first", "last"),
    [
        ("lafan1_original/aiming1_subject1.bvh", 75, 22),
        ("cmu_bvh/01_01.bvh", 1, 0),
        ("cmu_bvh/09_11_from_fbx_blender.bvh", 1, 0),
        ("bandai_namco/dataset-2_walk_normal_001.bvh", 0, 0),
        ("lafan1_reconstructed/walk1_subject5_g1recon_f877-3577.bvh", 0, 0),
    ],
)
def test_tpose_frames_of_real_files(shared_dir: Path, name: str, first: int, last: int) -> None:
    clip = load(shared_dir, name)
    assert tpose_frames(clip) == (first, last)
    cut = trim_tpose(clip)
    assert cut.n_frames == clip.n_frames - first - last
    np.testing.assert_array_equal(cut.root_pos_m, clip.root_pos_m[first : clip.n_frames - last])


@pytest.mark.shared
def test_ramp_is_cut_only_where_a_tpose_was(shared_dir: Path) -> None:
    clip = load(shared_dir, "cmu_bvh/01_01.bvh")
    assert trim_tpose(clip, ramp_s=0.5).n_frames == clip.n_frames - 61


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["bandai_namco/dataset-2_walk_normal_001.bvh", "bandai_namco/dataset-1_run_normal_001.bvh"]
)
def test_dropping_an_extra_root_moves_nothing(shared_dir: Path, name: str) -> None:
    clip = load(shared_dir, name)
    folded = fold_extra_root(clip)
    assert folded.joint_names == clip.joint_names[1:]
    assert folded.joint_names[0] == "Hips"
    np.testing.assert_allclose(folded.world()[0], clip.world()[0][:, 1:], atol=1e-12)
    assert max(folded.bone_length_variation().values(), default=0.0) < 1e-6
    assert np.ptp(folded.root_pos_m[:, 0:2], axis=0).max() > 1.0


@pytest.mark.shared
def test_a_root_that_is_the_hips_is_kept(shared_dir: Path) -> None:
    clip = load(shared_dir, "cmu_bvh/02_01.bvh")
    assert fold_extra_root(clip) is clip


def test_unrecognised_skeleton_has_no_tpose() -> None:
    quat = np.tile([1.0, 0, 0, 0], (4, 1, 1))
    clip = Clip("c", ["stick"], np.array([-1]), np.zeros((1, 3)), 30.0, np.zeros((4, 3)), quat)
    assert not in_tpose(clip).any()
    assert trim_tpose(clip) is clip
