"""Where the development collection lies (motion files and small cases that are no part of the project).

``GAITFORGE_SHARED`` names it; without that, a folder ``shared`` beside the repository is used where there is one. Tests
that need it are skipped elsewhere. Naming a folder that is not there is an error, so that they cannot skip unnoticed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

NOT_HERE = "needs the shared collection (set GAITFORGE_SHARED)"


def shared_root() -> Path | None:
    """Return the collection's folder, or None where there is none."""
    named = os.environ.get("GAITFORGE_SHARED")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared"
    if (path / "cases").is_dir():
        return path.resolve()
    if named:
        raise pytest.UsageError(f"GAITFORGE_SHARED={named}: no such collection (expected a folder with cases/)")
    return None


def cases(folder: str) -> list[Any]:
    """Return ``(path, expectation)`` parameters, one for each entry of ``cases/<folder>/expected.json``."""
    root = shared_root()
    if root is None:
        return [pytest.param(None, None, id=folder, marks=[pytest.mark.shared, pytest.mark.skip(reason=NOT_HERE)])]
    place = root / "cases" / folder
    expected = json.loads((place / "expected.json").read_text(encoding="utf-8"))
    return [pytest.param(place / name, what, id=name, marks=pytest.mark.shared) for name, what in expected.items()]
