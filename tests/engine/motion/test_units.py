"""Units by skeleton height, up axis by the pose, frame rates by rounding."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InputError
from engine.motion.bvh import read_bvh
from engine.motion.clip import Clip
from engine.motion.frame_rate import decimal_resolution, snap_fps
from engine.motion.units import UNITS_M, axis_matrix, normalise_units_and_axes, rotate_axes
from engine.rotation import quat_exp

FILES = {
    "lafan1_original/aiming1_subject1.bvh": ("y", "cm", 30.0),
    "bandai_namco/dataset-2_walk_normal_001.bvh": ("y", "cm", 30.0),
    "cmu_bvh/01_01.bvh": ("y", "cmu", 120.0),
    "cmu_bvh/08_02_from_fbx_blender.bvh": ("z", "cmu", 120.0),
    "fair_mocap/adult_walking.bvh": ("z", "inch", 120000 / 1001),
    "fair_mocap/HEAD_fair1_jumping.bvh": ("z", "inch", 120000 / 1001),
    "dialects/games105_walk60_metres_xyz.bvh": ("y", "m", 60.0),
    "dialects/bvhtools_test3_first120_24fps_metres_6ch.bvh": ("y", "m", 24.0),
    "dialects/mixamo_names_colon_crlf.bvh": ("y", "cm", 30.0),
    "dialects/soma_zero_frame0.bvh": ("y", "cm", 120.0),
}


def pole(height: float, up: int, n_frames: int = 3) -> Clip:
    """A raw clip of a root at 3/4 height and a bone up from it."""
    axis = np.eye(3)[up]
    quat = np.tile([1.0, 0, 0, 0], (n_frames, 2, 1))
    root = np.tile(0.75 * height * axis, (n_frames, 1))
    offsets = np.array([np.zeros(3), 0.25 * height * axis])
    return Clip("pole", ["a", "b"], np.array([-1, 0]), offsets, 30.0, root, quat, units="file", up="file")


@pytest.mark.shared
@pytest.mark.parametrize("name", FILES)
def test_unit_up_axis_and_rate_of_real_files(shared_dir: Path, name: str) -> None:
    up, unit, fps = FILES[name]
    raw = read_bvh(shared_dir / "motion" / name)
    clip = normalise_units_and_axes(raw)
    assert raw.fps == pytest.approx(fps, rel=1e-12)
    assert any(r.startswith(f"up axis {up} ") for r in clip.report)
    assert any(r.startswith(f"unit {unit} ") for r in clip.report)
    assert not clip.notes
    assert (clip.units, clip.up) == ("m", "z")
    assert 0.9 < np.ptp(clip.world()[0][..., 2], axis=1).max() < 2.3


@pytest.mark.parametrize(("height", "unit"), [(1.7, "m"), (170.0, "cm"), (67.0, "inch"), (30.0, "cmu"), (1700.0, "mm")])
def test_unit_follows_from_the_height_in_file_units(height: float, unit: str) -> None:
    clip = normalise_units_and_axes(pole(height, 1))
    assert clip.world()[0][0, 1, 2] == pytest.approx(height * UNITS_M[unit])


@pytest.mark.shared
def test_metres_and_centimetres_of_one_pose_agree(shared_dir: Path) -> None:
    folder = shared_dir / "cases/bvh"
    metres = normalise_units_and_axes(read_bvh(folder / "sem_metres.bvh"))
    centimetres = normalise_units_and_axes(read_bvh(folder / "ok_base.bvh"))
    np.testing.assert_allclose(metres.world()[0][0], centimetres.world()[0][0], atol=1e-9)


@pytest.mark.shared
@pytest.mark.parametrize(("unit", "height"), [("cm", "0.012"), (100.0, "120")])
def test_a_wrong_unit_gives_one_warning_that_names_the_height(
    shared_dir: Path, unit: str | float, height: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw = read_bvh(shared_dir / "cases/bvh/sem_metres.bvh")
    with caplog.at_level(logging.WARNING, "engine.motion"):
        clip = normalise_units_and_axes(raw, unit=unit)
    assert len(caplog.records) == 1
    assert height in caplog.records[0].getMessage()
    assert len(clip.notes) == 1


def test_a_height_that_fits_no_unit_is_left_alone_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clip = normalise_units_and_axes(pole(1e5, 1))
    assert len(caplog.records) == 1
    assert clip.root_pos_m[0, 2] == pytest.approx(0.75e5)


@pytest.mark.shared
def test_z_up_values_stay_until_an_axis_is_asked_for(shared_dir: Path) -> None:
    raw = read_bvh(shared_dir / "cases/bvh/sem_z_up.bvh")
    np.testing.assert_allclose(raw.world()[0][0, 1], [0, 0, 110])
    turned = rotate_axes(raw, axis_matrix("z", "y"))
    np.testing.assert_allclose(turned.world()[0][0, 1], [0, 110, 0], atol=1e-9)
    np.testing.assert_allclose(normalise_units_and_axes(raw, up="z").world()[0][0, 1], [0, 0, 1.1], atol=1e-9)


@pytest.mark.parametrize(("source", "target"), [("y", "z"), ("z", "y"), ("y", "y")])
def test_axis_swap_is_a_rotation_not_a_mirror(source: str, target: str) -> None:
    assert np.linalg.det(axis_matrix(source, target)) == pytest.approx(1.0)
    np.testing.assert_allclose(axis_matrix("z", "y") @ [1, 2, 3], [1, 3, -2])
    np.testing.assert_allclose(axis_matrix(source, target) @ axis_matrix(target, source), np.eye(3))


def test_turning_the_axes_turns_every_world_position() -> None:
    draw = np.random.default_rng(0)
    clip = pole(1.7, 1)
    clip.local_quat = quat_exp(draw.normal(size=(3, 2, 3)))
    clip.end_sites = {"b": np.array([0.1, 0.2, 0.3])}
    turned = rotate_axes(clip, axis_matrix("y", "z"))
    np.testing.assert_allclose(turned.world()[0], clip.world()[0] @ axis_matrix("y", "z").T, atol=1e-12)
    np.testing.assert_allclose(
        turned.world_end_sites()["b"], clip.world_end_sites()["b"] @ axis_matrix("y", "z").T, atol=1e-12
    )


@pytest.mark.parametrize("options", [{"up": "w"}, {"unit": "ell"}, {"unit": 0.0}, {"unit": float("nan")}])
def test_unknown_options_are_refused(options: dict) -> None:
    with pytest.raises(InputError, match="expected"):
        normalise_units_and_axes(pole(1.7, 1), **options)


@pytest.mark.parametrize(
    ("token", "fps"),
    [
        (".0083333", 120.0),
        ("0.008333", 120.0),
        ("0.00833", 120.0),
        ("0.008342", 120000 / 1001),
        ("0.033333", 30.0),
        ("0.0333", 30.0),
        ("0.033367", 30000 / 1001),
        ("0.0333667", 30000 / 1001),
        ("0.041667", 24.0),
        ("0.016666666666666666", 60.0),
        ("0.01", 100.0),
        ("1", 1.0),
        ("3.3333333e-2", 30.0),
    ],
)
def test_rounded_frame_time_stands_for_a_common_rate(token: str, fps: float) -> None:
    assert snap_fps(float(token), decimal_resolution(token)) == fps


@pytest.mark.parametrize("token", ["0.0345", "0.0123456", "7.5"])
def test_uncommon_frame_time_is_kept(token: str) -> None:
    assert snap_fps(float(token), decimal_resolution(token)) == 1.0 / float(token)
