"""BVH reader: the collection's cases, dialects, and faults of each kind with their line."""

from __future__ import annotations

import logging
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import InputError, run_main
from engine.inspect_file import inspect_motion
from engine.motion.bvh import read_bvh
from engine.motion.clip import Clip
from engine.motion.name_maps import plain_name
from tests.collection import cases
from tests.engine.motion.damage import assert_read_or_refused

BASE = """HIERARCHY
ROOT Hips
{
  OFFSET 0.0 90.0 0.0
  CHANNELS 6 Xposition Yposition Zposition Zrotation Yrotation Xrotation
  JOINT Spine
  {
    OFFSET 0.0 20.0 0.0
    CHANNELS 3 Zrotation Yrotation Xrotation
    End Site
    {
      OFFSET 0.0 10.0 0.0
    }
  }
}
MOTION
Frames: 3
Frame Time: 0.0333333
0.0 90.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0
1.0 90.0 2.0 90.0 0.0 0.0 0.0 0.0 0.0
2.0 91.0 4.0 0.0 90.0 0.0 0.0 0.0 45.0
"""
MEMORY_LIMIT = 100e6


@pytest.fixture
def read(tmp_path: Path):
    def read_text(text: str | bytes) -> Clip:
        path = tmp_path / "x.bvh"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_bvh(path)

    return read_text


def world_of(clip: Clip, frame: int) -> dict[str, np.ndarray]:
    pos, _ = clip.world()
    tips = clip.world_end_sites()
    return {n: pos[frame, j] for j, n in enumerate(clip.joint_names)} | {f"{n}/end": t[frame] for n, t in tips.items()}


@pytest.mark.parametrize(("path", "expected"), cases("bvh"))
def test_case_gives_what_is_expected(path: Path, expected: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    tracemalloc.start()
    try:
        if expected["verdict"] == "error":
            with pytest.raises(InputError) as caught:
                read_bvh(path)
        else:
            with caplog.at_level(logging.WARNING, "engine.motion"):
                clip = read_bvh(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEMORY_LIMIT
    if expected["verdict"] == "error":
        text = str(caught.value)
        assert "\n" not in text
        assert text.startswith(f"{path}:")
        if expected["line"] is not None:
            assert text.startswith(f"{path}:{expected['line']}: ")
        for word in expected["message"]:
            assert word in text.removeprefix(str(path))
        return
    assert len(caplog.records) == (expected["verdict"] == "parse+warn")
    assert clip.n_frames == expected["frames"]
    assert clip.fps == pytest.approx(expected["fps"], abs=1e-4)
    assert clip.frame_time_s == pytest.approx(expected["frame_time"], abs=1e-4)
    if "joints" in expected:
        assert clip.joint_names == expected["joints"]
    if "joints_count" in expected:
        assert len(clip.joint_names) == expected["joints_count"]
    if "canonical" in expected:
        assert [plain_name(n) for n in clip.joint_names] == [plain_name(n) for n in expected["canonical"]]
    for frame, joints in enumerate(expected.get("world", [expected.get("spot", {})])):
        found = world_of(clip, frame)
        if "world" in expected:
            assert set(found) == set(joints)
        for name, position in joints.items():
            np.testing.assert_allclose(found[name], position, atol=1e-4)


@pytest.mark.parametrize(("path", "expected"), [c for c in cases("bvh") if c.id.startswith(("err", "bvh"))])
def test_command_line_error_is_one_line_and_status_2(
    path: Path, expected: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["inspect", str(path)])
    with pytest.raises(SystemExit) as exit_:
        run_main(lambda argv: print(*inspect_motion(argv[0]), sep="\n"))
    out, err = capsys.readouterr()
    assert exit_.value.code == 2
    assert out == ""
    assert err.count("\n") == 1


def test_more_rows_than_the_header_says_are_used_with_one_warning(read, caplog: pytest.LogCaptureFixture) -> None:
    clip = read(BASE.replace("Frames: 3", "Frames: 2"))
    assert clip.n_frames == 3
    assert len(caplog.records) == len(clip.notes) == 1
    assert "2" in clip.notes[0]
    assert "3" in clip.notes[0]
    assert "\n" not in caplog.text.strip()


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("ROOT Hips\n", "ROOT\n", 2, ["ROOT", "name"]),
        ("  {\n    OFFSET 0.0 20", "    OFFSET 0.0 20", 7, ["{"]),
        ("}\nMOTION", "MOTION", 15, ["brace", "Hips"]),
        ("    OFFSET 0.0 20.0 0.0\n", "", 13, ["Spine", "OFFSET"]),
        ("    CHANNELS 3 Zrotation Yrotation Xrotation\n", "", 13, ["Spine", "CHANNELS"]),
        ("CHANNELS 3 Z", "CHANNELS 1000000000 Z", 9, ["1000000000", "3"]),
        ("CHANNELS 3 Z", "CHANNELS three Z", 9, ["three"]),
        ("OFFSET 0.0 20.0 0.0", "OFFSET 0.0 20.0", 8, ["Spine", "2", "3"]),
        ("OFFSET 0.0 20.0 0.0", "OFFSET 0.0 2O.0 0.0", 8, ["2O.0"]),
        ("  JOINT Spine", "  BONE Spine", 6, ["BONE"]),
        ("MOTION\n", "", 16, ["Frames", "MOTION"]),
        ("Frames: 3", "Frames: three", 17, ["three"]),
        ("Frames: 3", "Frames: 3.5", 17, ["3.5"]),
        ("Frames: 3\n", "", 18, ["Frames"]),
        ("Frame Time: 0.0333333\n", "", 18, ["Frame Time"]),
        ("Frame Time: 0.0333333", "Frame Time: 1e-300", 18, ["1e-300"]),
        ("Frame Time: 0.0333333", "Frame Time: nan", 18, ["nan"]),
        ("2.0 91.0", "1_0 91.0", 21, ["1_0", "Xposition"]),
        ("2.0 91.0", "\uff12 91.0", 21, ["column 1"]),
        ("2.0 91.0", "1e8 91.0", 21, ["1e8", "range"]),
        ("45.0", "nan", 21, ["nan", "Spine", "Xrotation"]),
        ("45.0\n", "45.0\nHIERARCHY\n", 22, ["HIERARCHY"]),
    ],
)
def test_fault_names_its_line_and_what_was_found(read, old: str, new: str, line: int, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read(BASE.replace(old, new, 1))
    assert f"x.bvh:{line}: " in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_file_cut_off_anywhere_is_an_error_or_reads_whole_rows(read) -> None:
    for size in range(len(BASE)):
        clip = assert_read_or_refused(lambda size=size: read(BASE[:size]))
        if clip is not None:  # only the last digits of the last number may be missing
            assert clip.n_frames == 3
            assert size > len(BASE) - 6


def test_damaged_files_never_give_anything_but_an_input_error(read) -> None:
    draw = random.Random(0)
    junk = ["{", "}", "nan", "1e400", "ROOT", "JOINT", "End Site", "", "\0", "-", "1_0", "9" * 5000, "MOTION", "\x85"]
    for _ in range(400):
        words: list[str] = [*BASE.split(" ")]
        for _ in range(draw.randrange(1, 3)):
            words[draw.randrange(len(words))] = draw.choice(junk)
        assert_read_or_refused(lambda words=words: read(" ".join(words)))


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("\n{", " {").replace("Spine\n  {", "Spine {"),
        BASE.replace("    ", "\t\t")
        .replace("Frames: 3", "Frames:\t3")
        .replace("ROOT", "Root")
        .replace("CHANNELS", "channels"),
        BASE.replace("0.0 90.0 0.0 0.0", "0 +9.0E1 -0 .0").replace("\n", "  \n"),
        BASE.replace("OFFSET 0.0 20.0 0.0", "OFFSET 0.0 20.0 0.0 90.0 0.2 90.0"),
        BASE.replace("Xrotation\n", "Xrotation \r\n"),
        BASE.replace("Frames: 3\nFrame Time: 0.0333333", "Frame Time: 0.0333333\nFrames: 3"),
    ],
)
def test_layout_does_not_change_the_motion(read, text: str) -> None:
    wanted, found = read(BASE), read(text)
    assert found.joint_names == wanted.joint_names
    np.testing.assert_allclose(found.world()[0], wanted.world()[0], atol=1e-12)


def test_names_may_hold_blanks_and_latin_1_letters(read) -> None:
    text = BASE.replace("JOINT Spine", "JOINT Rücken Wirbel 1").encode("latin-1")
    assert read(text).joint_names == ["Hips", "Rücken Wirbel 1"]


def test_position_channels_replace_the_offset_of_any_joint(read) -> None:
    text = BASE.replace(
        "CHANNELS 3 Zrotation Yrotation Xrotation",
        "CHANNELS 6 Zrotation Yrotation Xrotation Xposition Zposition Yposition",
    )
    rows = ["0 90 0 0 0 0 0 0 0 1 2 3", "0 90 0 0 0 0 0 0 0 1 2 5", "0 90 0 0 0 0 0 0 0 1 2 3"]
    clip = read(text[: text.index("0.0 90.0 0.0 0.0 0.0")] + "\n".join(rows))
    np.testing.assert_allclose(clip.world()[0][:, 1], [[1, 93, 2], [1, 95, 2], [1, 93, 2]])
    assert clip.bone_length_variation()["Spine"] == pytest.approx(np.sqrt(30) - np.sqrt(14))


def test_a_position_channel_that_is_missing_keeps_its_offset(read) -> None:
    clip = read(
        BASE.replace("CHANNELS 6 Xposition Yposition Zposition", "CHANNELS 4 Yposition")
        .replace("0.0 90.0 0.0 0.0", "91.0 0.0", 1)
        .replace("1.0 90.0 2.0", "92.0")
        .replace("2.0 91.0 4.0", "93.0")
        .replace("OFFSET 0.0 90.0 0.0", "OFFSET 5.0 90.0 7.0")
    )
    np.testing.assert_allclose(clip.root_pos_m, [[5, 91, 7], [5, 92, 7], [5, 93, 7]])


def test_rotation_channels_apply_left_to_right_in_the_order_of_each_joint(read) -> None:
    text = BASE.replace("CHANNELS 3 Zrotation Yrotation Xrotation", "CHANNELS 2 Xrotation Zrotation")
    rows = "0 0 0 30 0 0 90 90\n0 0 0 0 0 0 0 0\n0 0 0 0 0 0 0 0\n"
    clip = read(text[: text.index("0.0 90.0 0.0 0.0 0.0")] + rows)
    rz, x90 = np.deg2rad(30), np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0.0]])
    root = np.array([[np.cos(rz), -np.sin(rz), 0], [np.sin(rz), np.cos(rz), 0], [0, 0, 1]])
    z90 = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1.0]])
    tip = root @ np.array([0, 20.0, 0]) + root @ x90 @ z90 @ np.array([0, 10.0, 0])
    np.testing.assert_allclose(clip.world_end_sites()["Spine"][0], tip, atol=1e-9)


def test_small_file_that_asks_for_much_memory_is_refused(read) -> None:
    joints = "".join(f"JOINT J{i}\n{{\nOFFSET 0 1 0\nCHANNELS 0\n}}\n" for i in range(2000))
    text = (
        "HIERARCHY\nROOT R\n{\nOFFSET 0 0 0\nCHANNELS 1 Xrotation\n"
        + joints
        + "}\nMOTION\nFrames: 1\nFrame Time: 0.1\n"
    )
    with pytest.raises(InputError, match="too many joints without channels"):
        read(text + "0\n" * 20000)
