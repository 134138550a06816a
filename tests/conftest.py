"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import pytest

from tests.collection import NOT_HERE, shared_root

REPO = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_dir" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The development collection; skips where there is none."""
    root = shared_root()
    if root is None:
        pytest.skip(NOT_HERE)
    return root


@pytest.fixture(scope="session")
def repo() -> Path:
    """The repository's root."""
    return REPO
