"""DeepMimic reader: the collection's cases, our bodies and axes, loops."""

from __future__ import annotations

import json
import logging
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import InputError, run_main
from engine.inspect_file import inspect_motion
from engine.motion.deepmimic import FRAME_WIDTH, read_deepmimic
from engine.motion.reader import read_motion
from engine.rotation import quat_log, quat_to_matrix, yaw_of
from engine.skeleton import BODY_NAMES, HINGE_AXIS
from tests.collection import cases
from tests.engine.motion.damage import assert_read_or_refused

IDENTITY = [1.0, 0.0, 0.0, 0.0]
REST = [0.1, 0.0, 0.9, 0.0, *IDENTITY * 4, 0.0, *IDENTITY * 2, 0.0, *IDENTITY, 0.0, *IDENTITY * 2, 0.0]


def write(path: Path, frames: list[list[Any]], **keys: Any) -> Path:
    path.write_text(json.dumps({**keys, "Frames": frames}))
    return path


def hinge_angle(clip, body: str) -> np.ndarray:
    q = clip.local_quat[:, clip.index(body)]
    return 2.0 * np.arctan2(q[:, 1:] @ HINGE_AXIS, q[:, 0])


@pytest.mark.parametrize(("path", "expected"), cases("deepmimic"))
def test_case_gives_what_is_expected(path: Path, expected: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    tracemalloc.start()
    try:
        if expected["verdict"] == "error":
            with pytest.raises(InputError) as caught:
                read_deepmimic(path)
        else:
            with caplog.at_level(logging.WARNING, "engine.motion"):
                clip = read_deepmimic(path)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 100e6
    if expected["verdict"] == "error":
        text = str(caught.value)
        assert "\n" not in text
        assert text.startswith(f"{path}:")
        assert text.removeprefix(f"{path}:").partition(":")[0].isdecimal(), "the line is named"
        for word in expected["message"]:
            assert word in text.removeprefix(str(path))
        return
    assert len(caplog.records) == (expected["verdict"] == "parse+warn")
    assert clip.n_frames == expected["frames"]
    assert clip.duration_s == pytest.approx(expected["duration"], abs=1e-9)
    assert clip.loop == expected["loop"]
    if "times" in expected:
        np.testing.assert_allclose(clip.times_s, expected["times"], atol=1e-9)
    if "root_yaw_deg" in expected:
        yaw = np.rad2deg(yaw_of(quat_to_matrix(clip.local_quat[:, 0])))
        np.testing.assert_allclose(yaw, expected["root_yaw_deg"], atol=1e-4)
    if "right_knee" in expected:
        np.testing.assert_allclose(hinge_angle(clip, "right_knee"), expected["right_knee"], atol=1e-9)


@pytest.mark.parametrize(("path", "expected"), [c for c in cases("deepmimic") if c.id.startswith(("err", "deepmimic"))])
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


@pytest.mark.shared
def test_stored_sign_of_a_quaternion_does_not_spin_the_body(shared_dir: Path) -> None:
    clip = read_deepmimic(shared_dir / "cases/deepmimic/sem_quat_sign_flip.json")
    half = clip.sample(np.array([0.05, 0.15]))
    np.testing.assert_allclose(np.rad2deg(yaw_of(quat_to_matrix(half.local_quat[:, 0]))), [5, 15], atol=1e-4)
    fine = clip.sample(np.linspace(0.0, 0.2, 21))
    rate = np.linalg.norm(quat_log(_relative(fine.local_quat[:, 0])), axis=1) / 0.01
    np.testing.assert_allclose(np.rad2deg(rate), 100.0, atol=1e-3)


def _relative(quat: np.ndarray) -> np.ndarray:
    from engine.rotation import quat_inv, quat_mul

    return quat_mul(quat_inv(quat[:-1]), quat[1:])


@pytest.mark.shared
def test_time_past_the_end_holds_the_last_pose_of_a_clip_without_loop(shared_dir: Path) -> None:
    clip = read_deepmimic(shared_dir / "cases/deepmimic/ok_none.json")
    late = clip.sample_cycles(np.array([0.2, 0.5, 9.0]))
    np.testing.assert_allclose(late.root_pos_m, np.tile(clip.root_pos_m[-1], (3, 1)))
    np.testing.assert_allclose(late.local_quat, np.tile(clip.local_quat[-1], (3, 1, 1)))


@pytest.mark.shared
def test_wrap_accumulates_root_travel_on_the_ground_only(shared_dir: Path) -> None:
    clip = read_deepmimic(shared_dir / "motion/deepmimic/humanoid3d_walk.txt")
    assert (clip.n_frames, clip.loop, clip.fps) == (39, "wrap", 30.0)
    assert clip.duration_s == pytest.approx(1.2666, abs=1e-4)
    travel = clip.cycle_travel_m()
    assert travel[2] == 0.0
    again = clip.sample_cycles(np.array([0.3, 0.3 + 2 * clip.duration_s]))
    np.testing.assert_allclose(again.root_pos_m[1] - again.root_pos_m[0], 2 * travel, atol=1e-9)
    assert np.rad2deg(clip.seam_gap_rad()).max() == pytest.approx(28.5, abs=0.5)
    assert clip.joint_names[int(np.argmax(clip.seam_gap_rad()))] == "right_shoulder"


def test_axes_are_ours_and_bodies_in_our_order(tmp_path: Path) -> None:
    frame = list(REST)
    frame[1:4] = [1.0, 0.9, 2.0]  # forward 1, up 0.9, right 2
    clip = read_deepmimic(write(tmp_path / "x.json", [frame, frame]))
    assert clip.joint_names == list(BODY_NAMES)
    np.testing.assert_allclose(clip.root_pos_m[0], [1.0, -2.0, 0.9])
    pos, _ = clip.world()
    assert pos[0, clip.index("left_hip"), 1] > pos[0, 0, 1] > pos[0, clip.index("right_hip"), 1]


def test_bent_knee_brings_the_foot_back_and_bent_elbow_the_hand_forward(tmp_path: Path) -> None:
    frame = list(REST)
    frame[20], frame[29] = -1.0, 1.0
    clip = read_deepmimic(write(tmp_path / "x.json", [frame]))
    pos, _ = clip.world()
    assert pos[0, clip.index("right_ankle"), 0] < -0.3
    assert pos[0, clip.index("right_wrist"), 0] > 0.1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", ["list", "object"]),
        ("3", ["number", "object"]),
        ("{}", ["Frames"]),
        ('{"frames": []}', ["frames", "Frames"]),
        ('{"Frames": null}', ["null", "list"]),
        ('{"Frames": [1]}', ["frame 0", "list"]),
        ('{"Frames": [[]]}', ["frame 0", "44"]),
        ('{"Frames": [], "Frames": []}', ["Frames", "twice"]),
        ('{"Loop": null, "Frames": []}', ["Loop", "null"]),
        ('{"Loop": "Wrap", "Frames": []}', ["Loop", "Wrap", "wrap"]),
        ("[" * 100_000, ["nested"]),
        ("<html>", ["line 1"]),
    ],
)
def test_wrong_structure_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_deepmimic(path)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        (0, 0.0, ["duration"]),
        (0, 1e9, ["duration"]),
        (2, True, ["root position", "true"]),
        (2, None, ["root position", "null"]),
        (20, 10**400, ["right_knee"]),
        (20, 1e30, ["right_knee", "range"]),
        (20, float("nan"), ["right_knee", "nan"]),
        (43, [1], ["left_elbow"]),
        (21, 0.4, ["right_ankle", "norm 0.4"]),
    ],
)
def test_wrong_number_is_named_by_frame_body_and_line(
    tmp_path: Path, column: int, value: Any, words: list[str]
) -> None:
    bad = list(REST)
    bad[column] = value
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"Frames": [REST, bad, REST]}, indent=0))
    with pytest.raises(InputError) as caught:
        read_deepmimic(path)
    text = str(caught.value)
    begin = 3 + (FRAME_WIDTH + 2)  # "{", "Frames", then 46 lines a frame
    assert text.startswith(f"{path}:{begin + 1 + column}: frame 1: ")
    for word in words:
        assert word in text


def test_damaged_files_never_give_anything_but_an_input_error(tmp_path: Path) -> None:
    draw = random.Random(1)
    whole = json.dumps({"Loop": "wrap", "Frames": [REST] * 3}, indent=0)
    path = tmp_path / "x.json"
    for _ in range(300):
        at = draw.randrange(len(whole))
        text = draw.choice([whole[:at], whole[:at] + draw.choice('[]{},"0-e\0') + whole[at + 1 :]])
        path.write_text(text)
        assert_read_or_refused(lambda: read_deepmimic(path))


def test_one_frame_whose_duration_is_zero_is_a_pose(tmp_path: Path) -> None:
    clip = read_deepmimic(write(tmp_path / "x.json", [[0.0, *REST[1:]]]))
    assert (clip.n_frames, clip.duration_s) == (1, 0.0)
    assert clip.resample(60.0).n_frames == 1


def test_a_given_unit_rescales_the_root_path_and_silences_the_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = [0.1, 0.0, 90.0, 0.0, *REST[4:]]
    clip = read_motion(write(tmp_path / "x.json", [frame, frame]), unit="cm")
    np.testing.assert_allclose(clip.root_pos_m[:, 2], 0.9)
    assert not caplog.records
