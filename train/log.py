"""Training logs on resume: rows past the checkpoint are dropped, so that each step stands there once."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

from engine.atomic import write_atomic
from engine.errors import InputError

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


def truncate_log(path: str | os.PathLike[str], step_column: str, step: int) -> int:
    """Drop the rows of a log that are past a step, and a last row that was cut off in the writing.

    Rows that stay keep their bytes. The file is rewritten whole or not at all; without anything to drop it is left
    untouched.

    Args:
        path: Log with one row a line: ``.csv`` or ``.tsv`` with a header, or ``.jsonl``. An absent file is
            an empty log.
        step_column: Column (or key) that counts the steps.
        step: Last step that stays.

    Returns:
        Number of rows dropped.

    Raises:
        InputError: The log has no such column, or a row other than the last has no number there.
    """
    path = Path(path)
    separator = _SEPARATORS.get(path.suffix)
    if separator is None and path.suffix != ".jsonl":
        raise InputError.at(path, None, f"not a log (found '{path.suffix}', expected .csv, .tsv or .jsonl)")
    if not path.exists():
        return 0
    lines = path.read_bytes().splitlines(keepends=True)
    kept, rows = (lines[:1], lines[1:]) if separator else ([], lines)
    first_line = len(kept) + 1
    column = _column(path, kept, step_column, separator) if separator and lines else 0
    dropped = 0
    for index, row in enumerate(rows):
        if not row.strip():
            continue
        value = _step(row, step_column, column, separator)
        last = index == len(rows) - 1
        if value is None and not last:
            message = f"{step_column}: no number (found {row.strip()[:40]!r}, expected a step)"
            raise InputError.at(path, first_line + index, message)
        if value is None or value > step or (last and not row.endswith(b"\n")):
            dropped += 1
        else:
            kept.append(row)
    if dropped:
        write_atomic(path, b"".join(kept))
    return dropped


def _column(path: Path, header: list[bytes], step_column: str, separator: str) -> int:
    names = next(csv.reader([header[0].decode("utf-8-sig", errors="replace").rstrip("\r\n")], delimiter=separator), [])
    if step_column not in names:
        raise InputError.at(path, 1, f"no column '{step_column}' (found {', '.join(names)}, expected '{step_column}')")
    return names.index(step_column)


def _step(row: bytes, key: str, column: int, separator: str | None) -> float | None:
    text = row.decode("utf-8", errors="replace").rstrip("\r\n")
    try:
        if separator is None:
            return float(json.loads(text)[key])
        return float(next(csv.reader([text], delimiter=separator))[column])
    except (ValueError, IndexError, KeyError, TypeError):
        return None
