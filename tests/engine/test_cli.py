"""The command line: what it writes, what it prints, how it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import engine.__main__ as cli
from engine import play
from engine.errors import InputError, run_main
from engine.inspect_policy import inspect_policy
from engine.motion.bvh import read_bvh
from tests.engine.playback import FRAMES, PlaybackPlayer, playback_library
from tests.engine.policy_file import changed_metadata, in_other_body_order, policy_model

SMALL = ["--size", "96x64", "--renderer", "software"]


class _Stage:
    """The command line with the stand-in library and player in place of the real ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.library = playback_library()
        self.players: list[PlaybackPlayer] = []
        self.falls_at: int | None = None
        self.options: dict[str, Any] = {}

        def load(policy: str, n: int, library: Any, **options: Any) -> PlaybackPlayer:
            assert n == 1
            assert library is self.library
            self.options = options
            self.players.append(PlaybackPlayer(library, self.falls_at))
            return self.players[-1]

        monkeypatch.chdir(folder)
        monkeypatch.setattr(cli, "_load_library", lambda path: self.library)
        monkeypatch.setattr(cli, "_load_player", load)

    def run(self, *argv: str) -> int | None:
        return cli.main(list(argv))


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Stage:
    return _Stage(monkeypatch, tmp_path)


def test_play_writes_every_output_from_one_simulation(
    stage: _Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = [f"walk{kind}" for kind in (".mp4", ".gif", ".bvh", ".glb")]
    argv = ["play", "policy.onnx", "--clip", "walk", "--frames", "6", *SMALL]
    assert stage.run(*argv, *(a for o in outputs for a in ("--out", o))) == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(outputs)
    assert len(stage.players) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "kept going for 0.2 s; joints 0.00 cm from the reference" in lines[0]
    assert [line.split()[:2] for line in lines[1:]] == [["wrote", o] for o in outputs]
    assert "software drawing" in lines[1]
    assert read_bvh(tmp_path / "walk.bvh").n_frames == 6


def test_play_names_the_video_after_the_clip_unless_told(stage: _Stage, tmp_path: Path) -> None:
    stage.run("play", "p", "--clip", "fast", "--frames", "2", *SMALL)
    assert (tmp_path / "run_fast.mp4").is_file()


def test_play_passes_its_options_to_the_player(stage: _Stage) -> None:
    base = ["play", "p", "--clip", "walk", "--frames", "1", "--out", "a.bvh"]
    stage.run(*base)
    assert stage.options.pop("terrain").name == "flat"
    assert stage.options == {"mmik": True, "path_following": False}
    stage.run(*base, "--no-mmik", "--path-following", "--friction", "0.5", "--terrain", "slope:10", "--start", "7")
    assert stage.options.pop("terrain").name == "slope:10"
    assert stage.options == {"mmik": False, "path_following": True, "friction": 0.5}
    assert stage.players[-1].resets == [(0, 7)]


def test_rough_ground_follows_the_seed(stage: _Stage) -> None:
    heights = []
    for seed in ("1", "1", "2"):
        stage.run(
            "play", "p", "--clip", "walk", "--frames", "1", "--out", "a.bvh", "--terrain", "rough:4", "--seed", seed
        )
        heights.append(stage.options["terrain"].heights)
    assert np.array_equal(heights[0], heights[1])
    assert not np.array_equal(heights[0], heights[2])


def test_push_acts_for_its_time_in_its_direction(stage: _Stage) -> None:
    stage.run("play", "p", "--clip", "walk", "--frames", "30", "--push", "400,left,0.2", "--out", "a.bvh")
    forces = np.array(stage.players[-1].pushes)
    pushed = np.flatnonzero(np.linalg.norm(forces, axis=1))
    assert pushed.tolist() == list(range(6, 12))
    assert np.allclose(forces[pushed], [0.0, 400.0, 0.0])


def test_pushes_add_up(stage: _Stage) -> None:
    stage.run(
        "play", "p", "--clip", "walk", "--frames", "4", "--out", "a.bvh",
        "--push", "100,0,0", "--push", "50,right,0,0.05",
    )  # fmt: skip
    forces = np.array(stage.players[-1].pushes)
    assert np.allclose(forces[:2], [100.0, -50.0, 0.0])
    assert np.allclose(forces[2:], [100.0, 0.0, 0.0])


def test_a_fall_ends_the_take_and_is_said(stage: _Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage.falls_at = 16
    assert stage.run("play", "p", "--clip", "walk", "--frames", "60", "--out", "a.bvh") == 0
    assert "fell after 0.5 of 2.0 s" in capsys.readouterr().out
    assert read_bvh(tmp_path / "a.bvh").n_frames == 15


def test_a_fall_in_the_first_frame_writes_nothing(stage: _Stage, tmp_path: Path) -> None:
    stage.falls_at = 1
    with pytest.raises(InputError, match="falls in the first frame"):
        stage.run("play", "p", "--clip", "walk", "--out", "a.bvh")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--clip", "wlak"], r"--clip: no such clip \(found 'wlak', expected e\.g\. walk"),
        (["--clip", "a"], r"more than one clip fits \(found 'a', expected one of walk, run_fast\)"),
        (["--clip", "walk", "--out", "x.avi"], r"x\.avi: unknown file type \(found \.avi, expected \.mp4"),
        (["--clip", "walk", "--out", "x"], r"x: unknown file type \(found no extension"),
        (["--clip", "walk", "--push", "400,up,1"], r"--push: cannot read it \(found '400,up,1'"),
        (["--clip", "walk", "--push", "nan,0,1"], "--push: cannot read it"),
        (["--clip", "walk", "--push", "400,0"], "--push: cannot read it"),
        (["--clip", "walk", "--terrain", "moon"], "terrain: cannot read it"),
        (["--clip", "walk", "--friction", "0"], r"--friction: out of range \(found 0,"),
        (["--clip", "walk", "--frames", "0"], r"--frames: outside the clip \(found 0, expected 1 to 79 from frame 0\)"),
        (["--clip", "walk", "--frames", "200"], "--frames: outside the clip"),
        (["--clip", "walk", "--start", "80"], r"--start: outside the clip \(found 80, expected 0 to 78\)"),
        (["--clip", "walk", "--start", "-1"], "--start: outside the clip"),
        (["--clip", "walk", "--size", "99x64"], r"--size: cannot use it \(found '99x64'"),
        (["--clip", "walk", "--size", "huge"], "--size: cannot use it"),
    ],
)
def test_wrong_play_arguments_are_refused_before_anything_runs(
    stage: _Stage, tmp_path: Path, argv: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        stage.run("play", "p", *argv)
    assert not stage.players
    assert not list(tmp_path.iterdir())


def test_push_text_reads_names_degrees_and_duration() -> None:
    assert play.Push.parse("400,left,2") == (400.0, 90.0, 2.0, 0.2)
    assert play.Push.parse(" 250 , -45 , 0.5 , 1 ") == (250.0, -45.0, 0.5, 1.0)


def test_forces_are_summed_foot_by_foot_whatever_the_order_of_the_points() -> None:
    feet = np.array([[0.0, 0.1, 0.0], [0.3, -0.1, 0.0]])
    points = np.array([[0.35, -0.1, 0.0], [0.25, -0.1, 0.0], [0.0, 0.12, 0.0], [9.0, 9.0, 9.0]])
    forces = np.array([[0.0, 0.0, 300.0], [0.0, 0.0, 100.0], [0.0, 5.0, 40.0], [0.0, 0.0, 0.0]])
    centres, sums = play.forces_by_foot(points, forces, feet)
    assert np.allclose(sums, [[0.0, 5.0, 40.0], [0.0, 0.0, 400.0]])
    assert np.allclose(centres, [[0.0, 0.12, 0.0], [0.325, -0.1, 0.0]])
    centres, sums = play.forces_by_foot(points, 0 * forces, feet)
    assert np.array_equal(centres, feet)
    assert not sums.any()


def test_clips_lists_and_filters(stage: _Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.run("clips")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["clip", "kind", "split", "frames", "seconds", "period_s", "licence"]
    assert lines[1].split() == ["walk", "walk", "train", str(FRAMES), "2.7", "1.00", "MIT"]
    stage.run("clips", "--split", "heldout")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["clip", "run_fast"]
    with pytest.raises(InputError, match=r"no such clip \(found 0 of this kind and split, expected run, walk\)"):
        stage.run("clips", "--kind", "swim")


def test_missing_library_is_one_line_and_status_two(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["engine", "clips"])
    with pytest.raises(SystemExit) as exit_info:
        run_main(cli.main)
    assert exit_info.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("data/library.npz: no motion library (found no such file")
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", [[], ["play"], ["inspect"], ["clips"]])
def test_help_is_clear_and_shows_examples(command: list[str], repo: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "engine", *command, "--help"], cwd=repo, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert "usage: python -m engine" in done.stdout
    if command in (["play"], ["inspect"]):
        assert "examples:" in done.stdout
    assert not done.stderr


def test_inspect_shows_layout_metadata_and_parity(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(policy_model().SerializeToString())
    assert cli.main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: usable\n")
    for part in (
        "method unified", "control 30 Hz", "observation, 340 numbers", "action, 169 numbers", "contact_logits",
        "input obs float32 [batch, 340]", "data licence CC0", "k_p 120", "batch 64: largest difference",
    ):  # fmt: skip
        assert part in out


def test_inspect_says_when_bodies_are_in_another_order(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    names = [str(n) for n in np.roll(list(policy_names()), 3)]
    path.write_bytes(in_other_body_order(names).SerializeToString())
    report = inspect_policy(path)
    assert not report.problems
    assert "in another order, mapped by name" in report.text()


def policy_names() -> list[str]:
    from engine.skeleton import BODY_NAMES

    return list(BODY_NAMES)


def test_inspect_lists_every_problem_at_once_and_exits_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "policy.onnx"
    model = policy_model(changed_metadata({"control_hz": -1}))
    for tensor in model.graph.initializer:
        if tensor.name == "bias":
            tensor.CopyFrom(onnx.numpy_helper.from_array(np.full(169, np.nan, np.float32), "bias"))
    path.write_bytes(model.SerializeToString())
    monkeypatch.setattr(sys, "argv", ["engine", "inspect", str(path)])
    with pytest.raises(SystemExit) as exit_info:
        run_main(cli.main)
    assert exit_info.value.code == 2
    captured = capsys.readouterr()
    assert "refused, 2 problem(s)" in captured.out
    assert "bias: weights are not finite" in captured.out
    assert "control_hz" in captured.out
    assert captured.err.count("\n") == 1


def test_inspect_of_a_policy_without_metadata_still_shows_the_graph(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(policy_model(None).SerializeToString())
    report = inspect_policy(path)
    assert len(report.problems) == 1
    assert "metadata 'gaitforge' missing" in report.problems[0]
    assert "operators" in report.text()


def test_inspect_describes_a_motion_file(stage: _Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stage.run("play", "p", "--clip", "walk", "--frames", "40", "--out", "a.bvh")
    capsys.readouterr()
    assert stage.run("inspect", "a.bvh") == 0
    out = capsys.readouterr().out
    assert "BVH" in out
    assert "40" in out
    with pytest.raises(InputError, match=r"b\.bvh: no such file"):
        stage.run("inspect", "b.bvh")
    with pytest.raises(InputError, match="too many files"):
        stage.run("inspect", "a.bvh", "a.bvh", "a.bvh")
