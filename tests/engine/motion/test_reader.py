"""Every file of the collection through `read_motion`; formats, skeletons and text files."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InputError
from engine.motion.reader import find_asf, motion_format, read_motion
from engine.motion.text_file import parse_float, parse_int, read_text
from tests.collection import NOT_HERE, shared_root


def real_files() -> list:
    root = shared_root()
    if root is None:
        return [pytest.param(None, marks=[pytest.mark.shared, pytest.mark.skip(reason=NOT_HERE)])]
    folder = root / "motion"
    found = [p for p in sorted(folder.rglob("*")) if p.name.endswith((".bvh", ".amc", ".amc.gz"))]
    found += sorted((folder / "deepmimic").glob("humanoid3d_*.txt"))
    return [pytest.param(p, id=str(p.relative_to(folder)), marks=pytest.mark.shared) for p in found]


@pytest.mark.parametrize("path", real_files())
def test_real_file_reads_as_a_person_of_plausible_size(path: Path) -> None:
    clip = read_motion(path, licence="test")
    pos, quat = clip.world()
    assert (clip.units, clip.up, clip.licence, clip.source) == ("m", "z", "test", path)
    assert np.isfinite(pos).all()
    np.testing.assert_allclose(np.linalg.norm(quat, axis=-1), 1.0, atol=1e-9)
    assert (clip.parents[1:] < np.arange(1, len(clip.parents))).all()
    assert clip.parents[0] == -1
    dots = np.sum(clip.local_quat[1:] * clip.local_quat[:-1], axis=-1)
    assert (dots >= -1e-9).all(), "hemispheres are aligned"
    height = np.ptp(pos[..., 2], axis=1)
    assert 0.3 < height.max() < 2.6
    if "aiming" in path.name:
        assert clip.n_frames == 7184


@pytest.mark.shared
def test_gzip_reads_as_the_file_inside(shared_dir: Path, tmp_path: Path) -> None:
    source = shared_dir / "cases/bvh/ok_base.bvh"
    packed = tmp_path / "ok_base.bvh.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    clip = read_motion(packed)
    assert clip.name == "ok_base"
    np.testing.assert_array_equal(clip.root_pos_m, read_motion(source).root_pos_m)


def test_damaged_gzip_is_one_line(tmp_path: Path) -> None:
    whole = gzip.compress(b"HIERARCHY\n" * 1000)
    for data in (whole[:-10], whole[:20], b"\x1f\x8b\x08" + bytes(50), whole[:15] + b"\xff\xff\xff" + whole[18:]):
        (tmp_path / "x.bvh.gz").write_bytes(data)
        with pytest.raises(InputError, match="gzip"):
            read_motion(tmp_path / "x.bvh.gz")


def test_gzip_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.bvh.gz").write_bytes(gzip.compress(bytes(70 * 2**20), 9))
    with pytest.raises(InputError, match="too large"):
        read_motion(tmp_path / "x.bvh.gz")


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.bvh", "", "bvh"),
        ("a.AMC", "", "amc"),
        ("a.json", "", "deepmimic"),
        ("a.txt.gz", "", "deepmimic"),
        ("a", "\nHIERARCHY\nROOT", "bvh"),
        ("a.motion", '{"Frames": []}', "deepmimic"),
        ("a.dat", ":FULLY-SPECIFIED\n", "amc"),
    ],
)
def test_format_by_ending_then_by_first_line(tmp_path: Path, name: str, text: str, kind: str) -> None:
    (tmp_path / name).write_text(text)
    assert motion_format(tmp_path / name) == kind


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.xyz", b"hello\n", "not a motion file"),
        ("a.asf", b":version", "expected its .amc"),
        ("a.bvh", b"", "empty"),
        ("a.bvh", b" \n\n", "empty"),
        ("a.bvh", b"\xff\xfeH\0", "UTF-16"),
        ("a.json", b"\xfe\xff\0{", "UTF-16"),
        ("a.bvh", b"\0" * 100, "HIERARCHY"),
        ("a.amc", b":DEGREES\n1\n", "skeleton not found"),
    ],
)
def test_what_is_no_motion_file_is_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words):
        read_motion(tmp_path / name)


@pytest.mark.parametrize("name", ["a.bvh", "a.amc", "a.json", "a"])
def test_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_motion(tmp_path / "nowhere" / name)
    (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"is a directory|no such file"):
        read_motion(tmp_path / name)


@pytest.mark.shared
def test_skeleton_is_found_by_the_subject_in_the_name(shared_dir: Path, tmp_path: Path) -> None:
    folder = shared_dir / "motion/cmu_asfamc"
    assert find_asf(folder / "11_01.amc").name == "11.asf"
    assert find_asf(folder / "01_01.amc.gz").name == "01.asf"
    shutil.copy(folder / "11_01.amc", tmp_path / "other.amc")
    shutil.copy(folder / "11.asf", tmp_path)
    assert find_asf(tmp_path / "other.amc").name == "11.asf"
    shutil.copy(folder / "01.asf", tmp_path)
    with pytest.raises(InputError, match=r"found 01\.asf, 11\.asf"):
        find_asf(tmp_path / "other.amc")


@pytest.mark.shared
def test_given_frame_rate_replaces_the_files(shared_dir: Path) -> None:
    clip = read_motion(shared_dir / "cases/bvh/ok_base.bvh", fps=100.0)
    assert (clip.fps, clip.duration_s) == (100.0, pytest.approx(0.02))
    for fps in (0.0, -1.0, float("nan")):
        with pytest.raises(InputError, match="frame rate"):
            read_motion(shared_dir / "cases/bvh/ok_base.bvh", fps=fps)


@pytest.mark.parametrize("token", ["nan", "-inf", "1e400", "1_0", "0x10", "1,5", "", "1e", "--1", "1e9", "\uff11"])
def test_only_plain_finite_numbers_are_numbers(token: str) -> None:
    with pytest.raises(ValueError, match="found"):
        parse_float(token)


@pytest.mark.parametrize(
    ("token", "value"), [("7.62852e-016", 7.62852e-16), ("+.5", 0.5), ("-3.", -3.0), ("1E2", 100.0)]
)
def test_plain_numbers_are_read_exactly(token: str, value: float) -> None:
    assert parse_float(token) == value


@pytest.mark.parametrize("token", ["3.0", "1e3", "9" * 5000, "", "1_0", "three"])
def test_only_plain_digits_are_whole_numbers(token: str) -> None:
    with pytest.raises(ValueError, match="found"):
        parse_int(token)


def test_line_ends_and_byte_order_mark_are_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n")
    assert read_text(path) == "a\nb\nc\n"
