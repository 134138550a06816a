from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from engine.errors import InputError
from engine.motion.library import MotionLibrary, build_library, quality_report
from engine.motion.loops import cut
from engine.motion.reader import read_motion
from engine.motion.retarget import retarget
from engine.rotation import quat_to_matrix
from engine.skeleton import TOTAL_MASS, forward_kinematics
from tests.engine.motion.synthetic import FILTER, clip_params, params, walk_clip, write_deepmimic


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw") / "folder"
    folder.mkdir()
    write_deepmimic(folder / "walk.txt", walk_clip(seconds=1.0), "wrap")
    write_deepmimic(folder / "open_turn.txt", walk_clip(seconds=3.0, turn_rad_s=0.4), "none")
    (folder / "open_broken.txt").write_text('{"Loop": "none", "Frames": [[1, 2]]}', encoding="utf-8")
    (folder / "LICENCE.txt").write_text("made here\n", encoding="utf-8")
    return folder.parent


CLIPS = [
    clip_params("walk", "walk.txt", mirror=True),
    clip_params("walk@0.9", "walk.txt", speed=0.9, split="heldout"),
    clip_params("open", "open_t*.txt", to_s=2.0),
    clip_params("open_later", "open_t*.txt", from_s=2.0, split="heldout", kind="turn"),
]


@pytest.fixture(scope="module")
def built(raw: Path) -> tuple[MotionLibrary, pl.DataFrame]:
    return build_library(params(CLIPS), raw)


def test_clips_are_named_split_and_long_enough(built: tuple[MotionLibrary, pl.DataFrame]) -> None:
    library, report = built
    assert library.names == ["walk", "walk_mirror", "walk@0.9", "open", "open_later", "stand"]
    assert library.split == ["train", "train", "heldout", "train", "heldout", "train"]
    assert library.kind == ["walk", "walk", "walk", "walk", "turn", "stand"]
    assert library.licence[:2] == ["made here", "made here"]
    assert (library.length >= 100).all()
    assert (library.length % library.period == 0).all()
    assert library.period[0] == 30
    assert library.start[-1] + library.length[-1] == len(library.contact)
    assert report["clip"].to_list() == library.names
    assert library.mass_kg == TOTAL_MASS


def test_all_arrays_tell_the_same_story(built: tuple[MotionLibrary, pl.DataFrame]) -> None:
    library, _ = built
    pos, quat = forward_kinematics(library.root_pos_w, library.local_quat)
    np.testing.assert_allclose(library.body_pos_w, pos, atol=1e-12)
    np.testing.assert_allclose(np.abs(np.sum(library.body_quat_w * quat, -1)), 1.0, atol=1e-12)
    # the rigid body's orientation is filtered, but it stays near the pelvis's
    turned = 2 * np.arccos(np.abs(np.sum(library.srb_quat_w * quat[:, 0], -1)).clip(0, 1))
    assert 0 < turned.max() < 3 * FILTER.turn_rad
    np.testing.assert_array_equal(library.ref_srb[:, 0], library.com_pos_w[:, 2])
    np.testing.assert_array_equal(library.ref_srb[:, 31:].argmax(1), library.contact)
    foot = library.heel_toe.any(-1)
    np.testing.assert_array_equal(foot[:, 0] + 2 * foot[:, 1], library.contact)
    assert library.ref_full.shape == (len(library.contact), 135)
    np.testing.assert_allclose(library.inertia_b, library.inertia_b.T, atol=1e-12)
    assert (np.linalg.eigvalsh(library.inertia_b) > 0.3).all()


def test_repetitions_meet_without_a_jump(built: tuple[MotionLibrary, pl.DataFrame]) -> None:
    library, _ = built
    for name in ("walk", "walk@0.9", "open"):
        part = library.frames(name)
        acc = np.diff(library.com_pos_w[part], 2, axis=0) * 900
        period = int(library.period[library.names.index(name)])
        at_seams = np.abs(acc[period - 4 :: period]).max()
        assert at_seams < 12.0
        step = np.linalg.norm(np.diff(library.body_pos_w[part], axis=0), axis=-1)
        assert step.max() < 0.2


def test_standing_is_held_flat_and_at_rest(built: tuple[MotionLibrary, pl.DataFrame]) -> None:
    library, _ = built
    part = library.frames("stand")
    assert (library.contact[part] == 3).all()
    np.testing.assert_allclose(library.com_vel_w[part], 0.0, atol=1e-12)
    np.testing.assert_allclose(library.ang_vel_w[part], 0.0, atol=1e-12)
    np.testing.assert_allclose(library.foot_pos_w[part][..., 2], 0.0, atol=1e-9)
    np.testing.assert_allclose(library.foot_pos_w[part][:, 0, 0], library.foot_pos_w[part][:, 1, 0], atol=1e-12)
    np.testing.assert_allclose(quat_to_matrix(library.foot_quat_w[part])[..., 2, 2], 1.0, atol=1e-12)
    com = library.com_pos_w[part][0]
    assert 0.85 < com[2] < 0.95
    assert abs(com[0] - library.foot_pos_w[part][0, :, 0].mean()) < 0.09  # over the feet


def test_saving_and_loading_gives_the_same_library_and_equal_bytes(
    built: tuple[MotionLibrary, pl.DataFrame], raw: Path, tmp_path: Path
) -> None:
    library, _ = built
    library.save(tmp_path / "a.npz")
    build_library(params(CLIPS), raw)[0].save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = MotionLibrary.load(tmp_path / "a.npz")
    assert loaded.names == library.names
    np.testing.assert_allclose(loaded.ref_full, library.ref_full, atol=1e-6)  # rotations are stored in float32
    np.testing.assert_allclose(loaded.ref_srb, library.ref_srb, atol=1e-5)
    np.testing.assert_array_equal(loaded.contact, library.contact)
    assert loaded.mass_kg == library.mass_kg
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut off"])
def test_a_broken_library_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "library.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a motion library") as error:
        MotionLibrary.load(path)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="no such file"):
        MotionLibrary.load(tmp_path / "none.npz")


def test_a_library_without_a_field_is_refused(built: tuple[MotionLibrary, pl.DataFrame], tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", format_version=2, names=np.array(["a"]))
    with pytest.raises(InputError, match="root_pos_w"):
        MotionLibrary.load(tmp_path / "old.npz")


def test_a_bad_file_among_several_is_listed_and_the_others_load(raw: Path) -> None:
    entries = [clip_params("all", "open_*.txt")]
    library, report = build_library(params(entries), raw)
    assert library.names == ["all_open_turn", "stand"]
    bad = report.filter(pl.col("error") != "")
    assert bad["clip"].to_list() == ["all_open_broken"]
    assert "open_broken.txt" in bad["error"][0]


def test_a_bad_file_on_its_own_is_an_error(raw: Path) -> None:
    with pytest.raises(InputError, match=r"open_broken\.txt"):
        build_library(params([clip_params("broken", "open_broken.txt")]), raw)


def test_a_missing_file_is_an_error_that_lists_what_is_there(raw: Path) -> None:
    with pytest.raises(InputError, match=r"walk\.txt") as error:
        build_library(params([clip_params("gone", "gone.txt")]), raw)
    assert "gone.txt" in str(error.value)


def test_a_name_used_twice_is_an_error(raw: Path) -> None:
    with pytest.raises(InputError, match="twice"):
        build_library(params([clip_params("walk", "walk.txt"), clip_params("walk", "walk.txt")]), raw)


def test_only_held_out_clips_are_an_error(raw: Path) -> None:
    entries = [clip_params("walk", "walk.txt", split="heldout")]
    with pytest.raises(InputError, match="train"):
        build_library(params(entries, standing=False), raw)


def test_the_report_on_a_stored_library_repeats_what_it_can_tell(built: tuple[MotionLibrary, pl.DataFrame]) -> None:
    library, report = built
    again = quality_report(library)
    for column in ("clip", "period_frames", "speed_m_s", "slide_cm_frame", "none", "left", "right", "both"):
        assert again[column].to_list() == report[column].to_list()


def test_the_two_parts_of_a_clip_share_no_frame(raw: Path) -> None:
    motion = retarget(read_motion(raw / "folder" / "open_turn.txt"))
    first, second = cut(motion, 0.0, 2.0), cut(motion, 2.0, 0.0)
    assert len(first) + len(second) == len(motion)
    np.testing.assert_array_equal(np.concatenate([first.root_pos_w, second.root_pos_w]), motion.root_pos_w)


def test_the_clips_of_deepmimic_walk_run_and_jump_as_they_should(shared_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to(shared_dir / "motion" / "deepmimic")
    entries = [
        clip_params("walk", "humanoid3d_walk.txt"),
        clip_params("run", "humanoid3d_run.txt", kind="run"),
        clip_params("jump", "humanoid3d_jump.txt", kind="jump"),
    ]
    library, report = build_library(params(entries, min_frames=200), tmp_path)
    rows = {row["clip"]: row for row in report.iter_rows(named=True)}
    assert rows["walk"]["period_frames"] == 38
    assert rows["run"]["period_frames"] == 24
    assert rows["jump"]["period_frames"] == 53
    assert rows["walk"]["speed_m_s"] == pytest.approx(0.978, abs=0.02)
    assert rows["run"]["speed_m_s"] == pytest.approx(3.56, abs=0.05)
    assert rows["walk"]["none"] == 0
    assert rows["walk"]["left"] == pytest.approx(rows["walk"]["right"], abs=0.02)
    assert rows["run"]["both"] == 0
    assert 0.3 < rows["run"]["none"] < 0.55
    assert rows["jump"]["flight_acc_m_s2"] == pytest.approx(-9.81, abs=0.1)
    assert rows["walk"]["step_max_deg"] < 15  # 28.5 degrees at the seam of the file
    for row in rows.values():
        assert row["lowest_point_cm"] > -0.01
        assert abs(row["stance_sole_cm"]) < 1.0
    # one stance after the other, for the whole clip
    walk = library.contact[library.frames("walk")]
    alone = walk[(walk == 1) | (walk == 2)]
    assert np.sum(np.diff(alone) != 0) == pytest.approx(2 * len(walk) / 38, abs=2)


def test_the_jumps_of_cmu_have_flights_in_free_fall(shared_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").symlink_to(shared_dir / "motion" / "cmu_asfamc")
    entries = [clip_params("jumps", "01_01.amc.gz", kind="jump", to_s=8.0)]
    _, report = build_library(params(entries, min_frames=200, standing=False), tmp_path)
    row = report.row(0, named=True)
    assert 0.1 < row["none"] < 0.4
    assert row["flight_acc_m_s2"] == pytest.approx(-9.81, abs=0.1)
    assert row["com_height_max_m"] > 1.1
    assert row["joint_error_m"] < 0.05
