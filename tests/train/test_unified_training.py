"""Whole trainings in miniature: they learn something, repeat to the byte, and resume as if never interrupted."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.train.small_runs import LIBRARY, REPO, WINDOWS, write_inputs
from train.__main__ import main
from train.networks import UnifiedNetwork, load_policy_module

METHODS = ("unified", "unified_paper")
# Kills itself after the third window's log row: past the checkpoint of the second, before that of the fourth.
KILLED = """
import os, signal, sys
import train.{method} as module
from train.__main__ import main

write = module.append_row

def write_and_die(path, row):
    write(path, row)
    if next(iter(row.values())) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

module.append_row = write_and_die
main(sys.argv[1:])
"""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def finished(inputs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One uninterrupted run of each method."""
    runs = {method: tmp_path_factory.mktemp(method) for method in METHODS}
    for method, out in runs.items():
        main(arguments(method, inputs, out))
    return runs


def arguments(method: str, inputs: tuple[Path, Path], out: Path) -> list[str]:
    params, tuned = inputs
    paths = ["--params", str(params), "--library", str(LIBRARY), "--tuned", str(tuned), "--out", str(out)]
    return ["--method", method, *paths]


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("policy.pt", "curve.csv")}


@pytest.mark.parametrize("method", METHODS)
def test_a_training_changes_the_weights_and_logs_finite_numbers(method: str, finished: dict[str, Path]) -> None:
    policy, info = load_policy_module(finished[method] / "policy.pt")
    (net_seed,) = np.random.SeedSequence(0).spawn(3)[2].generate_state(1)
    torch.manual_seed(int(net_seed))
    first = UnifiedNetwork(hidden=[8], latent=4, gate=4, experts=2, last_std=0.01)
    trained = dict(policy.network.named_parameters())
    for name, start in first.named_parameters():
        assert torch.isfinite(trained[name]).all(), name
        assert not torch.equal(trained[name], start), f"{name} did not change"
    assert info["method"] == method
    assert info["samples"] == 4 * 4 * WINDOWS
    with open(finished[method] / "curve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(next(iter(row.values()))) for row in rows] == list(range(1, WINDOWS + 1))
    assert all(np.isfinite(float(value)) for row in rows for value in row.values())
    assert all(f"survival_{kind}_s" in rows[0] for kind in ("walk", "run", "jump", "stand"))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bytes(
    method: str, inputs: tuple[Path, Path], finished: dict[str, Path], tmp_path: Path
) -> None:
    main(arguments(method, inputs, tmp_path))
    assert outputs(tmp_path) == outputs(finished[method])


def test_another_seed_gives_another_policy(
    inputs: tuple[Path, Path], finished: dict[str, Path], tmp_path: Path
) -> None:
    main([*arguments("unified", inputs, tmp_path), "--seed", "1"])
    assert outputs(tmp_path)["policy.pt"] != outputs(finished["unified"])["policy.pt"]


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_training_ends_as_if_never_interrupted(
    method: str, inputs: tuple[Path, Path], finished: dict[str, Path], tmp_path: Path
) -> None:
    wanted = arguments(method, inputs, tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(REPO)}
    program = [sys.executable, "-c", KILLED.format(method=method), *wanted]
    killed = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == ["ckpt_000000002.pt"]
    assert not (tmp_path / "policy.pt").exists()
    assert (tmp_path / "curve.csv").read_text().count("\n") == 4  # header and three windows; the third is repeated

    program = [sys.executable, "-m", "train", *wanted]
    resumed = subprocess.run(program, cwd=REPO, env=environment, capture_output=True, text=True)
    assert resumed.returncode == 0, resumed.stderr
    assert outputs(tmp_path) == outputs(finished[method])
    assert not (tmp_path / "checkpoints").exists()
