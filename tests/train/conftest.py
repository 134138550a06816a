"""Fixtures of the training tests."""

from __future__ import annotations

import pytest

from engine.motion.library import MotionLibrary
from tests.train.small_runs import LIBRARY


@pytest.fixture(scope="session")
def library() -> MotionLibrary:
    """The repository's motion library."""
    return MotionLibrary.load(LIBRARY)
