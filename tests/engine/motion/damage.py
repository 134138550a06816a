"""What may become of a damaged motion file: a finite clip, or one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.errors import InputError
from engine.motion.clip import Clip

LONGEST_LINE = 1000


def assert_read_or_refused(read: Callable[[], Clip]) -> Clip | None:
    """Read; the clip if it is sound, None if it was refused in one line. Anything else fails the test."""
    try:
        clip = read()
    except InputError as error:
        text = str(error)
    else:
        assert np.isfinite(clip.world()[0]).all()
        return clip
    assert "\n" not in text
    assert len(text) < LONGEST_LINE
    return None
