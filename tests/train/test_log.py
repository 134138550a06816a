"""Log rows past the checkpoint are dropped on resume; the others keep their bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import InputError
from train.checkpoint import truncate_log


@pytest.mark.parametrize(
    ("name", "rows", "kept", "dropped"),
    [
        ("log.csv", "step,loss\n900,1\n1000,2\n1100,3\n", "step,loss\n900,1\n1000,2\n", 1),
        ("log.csv", 'name,step\n"a,b",5\n"c",2000\n', 'name,step\n"a,b",5\n', 1),
        ("log.csv", "step,loss\r\n1,1\r\n2000,2\r\n", "step,loss\r\n1,1\r\n", 1),
        ("log.csv", "step,loss\n1,1\n1000,2.", "step,loss\n1,1\n", 1),
        ("log.csv", "step,loss\n1,1\n12", "step,loss\n1,1\n", 1),
        ("log.csv", "step,loss\n1,1\n\n", "step,loss\n1,1\n\n", 0),
        ("log.csv", "step,loss\n", "step,loss\n", 0),
        ("log.csv", "", "", 0),
        ("loss.tsv", "timestamp\tstep\tloss\nt\t1000\t0\nt\t1001\t0\n", "timestamp\tstep\tloss\nt\t1000\t0\n", 1),
        ("log.jsonl", '{"step": 1}\n{"step": 1001}\n{"st', '{"step": 1}\n', 2),
    ],
)
def test_rows_past_the_step_are_dropped(tmp_path: Path, name: str, rows: str, kept: str, dropped: int) -> None:
    path = tmp_path / name
    path.write_bytes(rows.encode())
    assert truncate_log(path, "step", 1000) == dropped
    assert path.read_bytes() == kept.encode()
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_an_absent_log_is_an_empty_one(tmp_path: Path) -> None:
    assert truncate_log(tmp_path / "log.csv", "step", 5) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "rows", "words"),
    [
        ("log.csv", "time,loss\n1,2\n", r"log.csv:1: no column 'step' \(found time, loss, expected 'step'\)"),
        ("log.csv", "step,loss\nx,2\n3,4\n", r"log.csv:2: step: no number \(found b'x,2', expected a step\)"),
        ("log.txt", "step\n", r"log.txt: not a log \(found '.txt', expected .csv, .tsv or .jsonl\)"),
    ],
)
def test_a_log_that_cannot_be_read_is_named_and_left_alone(tmp_path: Path, name: str, rows: str, words: str) -> None:
    path = tmp_path / name
    path.write_text(rows)
    with pytest.raises(InputError, match=words):
        truncate_log(path, "step", 1)
    assert path.read_text() == rows
