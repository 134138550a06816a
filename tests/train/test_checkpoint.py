"""Checkpoints: what is found, what is passed over, what is refused, and that a resumed run ends where it would have."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.errors import InputError
from train import checkpoint as module
from train.checkpoint import capture_rng, latest_checkpoint, restore_rng, save_checkpoint

DIMS = {"obs": 340, "action": 169}
PARAMS = {"seed": 0, "ppo": {"lr": 1e-4, "hidden": [64, 64]}}
EXPECTED = {"dims": DIMS, "params": PARAMS}


def payload(value: float = 0.0, **changes: Any) -> dict[str, Any]:
    return {
        "weights": {"w": torch.full((3, 2), value)},
        "optimiser": {"step": 1, "betas": (0.9, 0.999)},
        "normaliser": {"mean": np.full(4, value), "count": 10},
        "rng": capture_rng({"env": np.random.default_rng(0)}),
        "dims": DIMS,
        "params": PARAMS,
        **changes,
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refusal(folder: Path, expected: dict[str, Any] | None = None) -> str:
    with pytest.raises(InputError) as caught:
        latest_checkpoint(folder, EXPECTED if expected is None else expected)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_saved_is_read(tmp_path: Path) -> None:
    saved = payload(2.5, note="text", numbers=[np.float64(1.5), np.int64(3), True, None])
    path = save_checkpoint(tmp_path / "new" / "folder", 7, saved)
    found = latest_checkpoint(tmp_path / "new" / "folder", EXPECTED)
    assert found is not None
    assert (found.path, found.step) == (path, 7)
    assert torch.equal(found.payload["weights"]["w"], saved["weights"]["w"])
    assert isinstance(found.payload["normaliser"]["mean"], np.ndarray)
    np.testing.assert_array_equal(found.payload["normaliser"]["mean"], saved["normaliser"]["mean"])
    assert found.payload["optimiser"] == saved["optimiser"]
    assert found.payload["rng"]["numpy"] == saved["rng"]["numpy"]
    assert found.payload["numbers"] == [1.5, 3, True, None]


def test_nothing_there_means_a_fresh_start(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "absent", EXPECTED) is None
    assert latest_checkpoint(tmp_path, EXPECTED) is None
    (tmp_path / "notes.txt").write_text("no checkpoint")
    assert latest_checkpoint(tmp_path, EXPECTED) is None


def test_equal_payloads_give_equal_bytes_also_after_a_load(tmp_path: Path) -> None:
    first = save_checkpoint(tmp_path / "a", 3, payload(1.0)).read_bytes()
    assert save_checkpoint(tmp_path / "b", 3, payload(1.0)).read_bytes() == first
    found = latest_checkpoint(tmp_path / "a", EXPECTED)
    assert found is not None
    assert save_checkpoint(tmp_path / "c", 3, found.payload).read_bytes() == first
    assert save_checkpoint(tmp_path / "d", 3, payload(1.5)).read_bytes() != first


def test_steps_are_compared_as_numbers(tmp_path: Path) -> None:
    for step in (900, 1000):
        save_checkpoint(tmp_path, step, payload(step)).rename(tmp_path / f"ckpt_{step}.pt")
    assert names(tmp_path) == ["ckpt_1000.pt", "ckpt_900.pt"]
    found = latest_checkpoint(tmp_path, EXPECTED)
    assert found is not None
    assert found.step == 1000


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    for step in (5, 10, 900, 1000, 20000):
        save_checkpoint(tmp_path, step, payload(), keep=2)
    assert names(tmp_path) == ["ckpt_000001000.pt", "ckpt_000020000.pt"]
    save_checkpoint(tmp_path, 1500, payload(), keep=1)
    assert names(tmp_path) == ["ckpt_000001500.pt", "ckpt_000020000.pt"]


@pytest.mark.parametrize(
    "damage", ["empty", "cut", "cut at the end", "text", "zeros", "flipped bit", "folder", "pickle"]
)
def test_a_broken_newest_is_named_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    save_checkpoint(tmp_path, 900, payload(9.0))
    newest = save_checkpoint(tmp_path, 1000, payload(10.0))
    data = newest.read_bytes()
    middle = data.index(b"\x00\x00\x20\x41")
    broken = {
        "empty": b"",
        "cut": data[: len(data) // 2],
        "cut at the end": data[:-1],
        "text": b"not a checkpoint\n",
        "zeros": bytes(len(data)),
        "flipped bit": data[:middle] + b"\x01" + data[middle + 1 :],
        "pickle": pickle.dumps({"format_version": 1}),
        "folder": None,
    }[damage]
    newest.unlink()
    newest.mkdir() if broken is None else newest.write_bytes(broken)
    found = latest_checkpoint(tmp_path, EXPECTED)
    assert found is not None
    assert found.step == 900
    assert torch.equal(found.payload["weights"]["w"], torch.full((3, 2), 9.0))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {newest}: broken checkpoint passed over (")


def test_a_link_to_a_missing_file_is_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_checkpoint(tmp_path, 900, payload())
    (tmp_path / "ckpt_1000.pt").symlink_to(tmp_path / "gone.pt")
    found = latest_checkpoint(tmp_path, EXPECTED)
    assert found is not None
    assert found.step == 900
    assert "ckpt_1000.pt: broken checkpoint passed over (link to a missing file)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["text", "link"])
def test_a_dangling_pointer_is_named_and_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    save_checkpoint(tmp_path, 900, payload())
    pointer = tmp_path / "latest"
    pointer.symlink_to("ckpt_2000.pt") if kind == "link" else pointer.write_text("ckpt_2000.pt\n")
    found = latest_checkpoint(tmp_path, EXPECTED)
    assert found is not None
    assert found.step == 900
    assert "latest: points to a missing checkpoint, ignored (found 'ckpt_2000.pt')" in capsys.readouterr().err


def test_only_broken_ones_are_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    for step in (900, 1000):
        save_checkpoint(tmp_path, step, payload()).write_bytes(b"broken")
    text = refusal(tmp_path)
    assert "no usable checkpoint" in text
    assert "found 2 broken: ckpt_000001000.pt, ckpt_000000900.pt" in text
    assert len(names(tmp_path)) == 2


def test_left_over_temporary_files_are_ignored_and_removed(tmp_path: Path) -> None:
    (tmp_path / "ckpt_000002000.pt.tmp").write_bytes(b"half a checkpoint")
    assert latest_checkpoint(tmp_path, EXPECTED) is None
    save_checkpoint(tmp_path, 1000, payload())
    (tmp_path / "ckpt_000002000.pt.tmp").write_bytes(b"half a checkpoint")
    found = latest_checkpoint(tmp_path, EXPECTED)
    assert found is not None
    assert found.step == 1000
    assert names(tmp_path) == ["ckpt_000001000.pt"]


def test_other_dimensions_are_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, payload())
    text = refusal(tmp_path, {"dims": {**DIMS, "obs": 350}, "params": PARAMS})
    assert "made with other dims" in text
    assert "dims.obs: 340 in the checkpoint, 350 now" in text


def test_other_parameters_are_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, payload())
    changed = {"seed": 0, "ppo": {"lr": 2e-4, "hidden": [64, 32], "clip": 0.2}}
    text = refusal(tmp_path, {"dims": DIMS, "params": changed})
    assert "made with other params" in text
    for words in (
        "params.ppo.lr: 0.0001 in the checkpoint, 0.0002 now",
        "params.ppo.hidden[1]: 64 in the checkpoint, 32 now",
        "params.ppo.clip: nothing in the checkpoint, 0.2 now",
    ):
        assert words in text
    assert "seed" not in text


def test_a_newer_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMAT_VERSION", 2)
    save_checkpoint(tmp_path, 1, payload())
    monkeypatch.undo()
    text = refusal(tmp_path)
    assert "format_version: of a newer program, upgrade gaitforge (found 2, expected 1)" in text


@pytest.mark.parametrize("content", [{}, None])
def test_no_normaliser_inside_is_refused(tmp_path: Path, content: Any) -> None:
    save_checkpoint(tmp_path, 1, payload(normaliser=content))
    assert "normaliser: no normaliser inside" in refusal(tmp_path)


def test_a_payload_without_a_part_is_a_programming_error(tmp_path: Path) -> None:
    incomplete = payload()
    del incomplete["normaliser"]
    with pytest.raises(ValueError, match="lacks normaliser"):
        save_checkpoint(tmp_path, 1, incomplete)
    assert names(tmp_path) == []


def test_a_renamed_checkpoint_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, payload()).rename(tmp_path / "ckpt_5.pt")
    assert "file name and content differ (found 1, expected 5)" in refusal(tmp_path)


def test_code_in_a_checkpoint_is_not_run(tmp_path: Path) -> None:
    class Harmful:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "harmed"),)

    torch.save({"format_version": 1, "payload": Harmful()}, tmp_path / "ckpt_1.pt")
    assert "no usable checkpoint" in refusal(tmp_path)
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(("code", "words"), [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "quota")])
def test_a_full_disk_is_said_in_words_and_the_old_file_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    old = save_checkpoint(tmp_path, 1, payload(1.0), keep=1)
    before = old.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for step in (1, 2):
            with pytest.raises(InputError, match=rf"{words}.*kept \(found \d+ bytes free, expected \d+\)"):
                save_checkpoint(tmp_path, step, payload(2.0), keep=1)
    assert names(tmp_path) == [old.name]
    assert old.read_bytes() == before


def test_a_write_that_stops_half_way_leaves_the_old_file(tmp_path: Path, repo: Path) -> None:
    old = save_checkpoint(tmp_path, 1, payload(1.0))
    before = old.read_bytes()
    code = (
        "import resource, signal, sys\n"
        "from tests.train.test_checkpoint import payload, save_checkpoint\n"
        "from engine.errors import run_main\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "run_main(lambda argv: (save_checkpoint(argv[0], 1, payload(2.0)), 0)[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path)],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{old}: the file is too big: not written, what was there is kept")
    assert names(tmp_path) == [old.name]
    assert old.read_bytes() == before


def test_random_states_go_on_where_they_were() -> None:
    rng = np.random.default_rng(3)
    torch.manual_seed(3)
    rng.random(5)
    torch.rand(5)
    state = capture_rng({"a": rng})
    expected = rng.random(4), torch.rand(4)
    other = np.random.default_rng(99)
    restore_rng(state, {"a": other})
    np.testing.assert_array_equal(other.random(4), expected[0])
    assert torch.equal(torch.rand(4), expected[1])
    with pytest.raises(ValueError, match=r"\['a'\] in the checkpoint, \['b'\] here"):
        restore_rng(state, {"b": other})


def _run(repo: Path, folder: Path, *arguments: str) -> int:
    command = [sys.executable, "-m", "tests.train.tiny_training", str(folder), *arguments]
    return subprocess.run(command, cwd=repo, check=False, timeout=300).returncode


def test_a_killed_and_resumed_run_ends_like_one_that_was_not_killed(tmp_path: Path, repo: Path) -> None:
    assert _run(repo, tmp_path / "whole", "20") == 0
    assert _run(repo, tmp_path / "killed", "20", "8") == -signal.SIGKILL
    assert (tmp_path / "killed" / "log.csv").read_text().splitlines()[-1] == "9,0.1"
    assert _run(repo, tmp_path / "killed", "20", "17") == -signal.SIGKILL
    assert _run(repo, tmp_path / "killed", "20") == 0
    whole = {path.relative_to(tmp_path / "whole"): path.read_bytes() for path in (tmp_path / "whole").rglob("*.*")}
    killed = {path.relative_to(tmp_path / "killed"): path.read_bytes() for path in (tmp_path / "killed").rglob("*.*")}
    assert whole == killed
    assert len(whole) == 4
