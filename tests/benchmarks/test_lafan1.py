"""The driver runs the pipeline's programs in order, goes on after an interruption and lets only numbers out."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import lafan1
from engine.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
POLICIES = {"no_network": "no_network", "unified-0": "unified/seed0", "unified-1": "unified/seed1"}


def test_plan_trains_before_it_exports_and_reports_last():
    steps = lafan1.plan(POLICIES, Path("w"))
    programs = [step.command[0] for step in steps]
    assert programs[:2] == ["engine.motion.fetch", "engine.motion.library"]
    assert programs[2:5] == ["train"] * 3
    assert programs[-1] == "benchmarks.report"
    assert programs.count("benchmarks.evaluate") == programs.count("export") == 3
    train = steps[4].command
    assert train[train.index("--method") + 1] == "unified"
    assert train[train.index("--seed") + 1] == "1"


def test_repositorys_files_give_a_plan(tmp_path):
    policies = lafan1.prepare(ROOT / "params.yaml", ROOT / "lafan1.yaml", tmp_path, tmp_path / "w")
    assert policies
    text = (tmp_path / "w" / "params.yaml").read_text()
    assert str(tmp_path) in text
    assert "walk1_subject5" in text


def test_missing_data_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file or folder"):
        lafan1.prepare(ROOT / "params.yaml", ROOT / "lafan1.yaml", tmp_path / "none", tmp_path / "w")


def test_interrupted_run_goes_on_and_only_numbers_leave(tmp_path, monkeypatch, capsys):
    work, ran = tmp_path / "w", []
    monkeypatch.setattr(lafan1, "prepare", lambda *_: POLICIES)

    def run(command, **_):
        program = command[2]
        ran.append(program)
        step = next(s for s in lafan1.plan(POLICIES, work) if s.command == command[2:])
        target = work / (step.result or "results/table2_accuracy.csv")
        if program == "export" and ran.count("export") == 1:
            return subprocess.CompletedProcess(command, 1)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("method\nunified\n")
        if program == "benchmarks.report":
            for name in ("summary.json", "report.html", "report.md"):
                (work / "results" / name).write_text('{\n "unified": 1\n}\n')
            (work / "results" / "table3_runtime.csv").write_text("row,fps\n")  # nothing was timed
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    arguments = ["--data", str(tmp_path), "--work", str(work), "--out", str(tmp_path / "out")]
    with pytest.raises(InputError, match="export: stopped with exit status 1"):
        lafan1.main(arguments)
    lafan1.main(arguments)
    assert ran.count("train") == 3
    assert ran.count("export") == 4
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["summary.json", "table2_accuracy.csv"]
    assert "passed over" in capsys.readouterr().out
