"""Which episodes a test plays: clip and start frame drawn from a seed that no method enters, so rows are paired."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.rollout import Push
from engine.errors import InputError

CLIP_SETS = ("train", "heldout")


class Episodes(NamedTuple):
    """A batch of episodes.

    Attributes:
        motion: Kind of motion of each, list of n names.
        clips: Clip index in the library, (n,).
        starts: Start frame within the clip, (n,).
    """

    motion: list[str]
    clips: NDArray[np.int64]
    starts: NDArray[np.int64]


def draw_episodes(
    library: Any, motion: str, clip_set: str, n: int, frames: int, seed: int | np.random.SeedSequence
) -> Episodes | None:
    """Draw ``n`` starts, uniform over all frames of the matching clips from which a whole episode fits.

    A clip is stored repeated end to end; starts come from its first repetition only.

    Returns:
        The episodes, or None where the library has no clip of this kind in this set.

    Raises:
        InputError: Clips match, and none is long enough.
    """
    chosen = [i for i, kind in enumerate(library.kind) if kind == motion and library.split[i] == clip_set]
    if not chosen:
        return None
    room = [max(0, min(int(library.period[i]), int(library.length[i]) - frames)) for i in chosen]
    total = sum(room)
    if total == 0:
        longest = max(int(library.length[i]) for i in chosen)
        raise InputError(
            f"library: no {clip_set} clip of kind {motion} holds an episode (found at most {longest} frames, "
            f"expected more than {frames})"
        )
    first = np.concatenate([[0], np.cumsum(room)])
    at = np.random.default_rng(seed).integers(0, total, n)
    which = np.searchsorted(first, at, side="right") - 1
    return Episodes([motion] * n, np.asarray(chosen, np.int64)[which], (at - first[which]).astype(np.int64))


def join_episodes(parts: list[Episodes]) -> Episodes:
    """One batch out of several."""
    motion = [name for part in parts for name in part.motion]
    return Episodes(motion, np.concatenate([p.clips for p in parts]), np.concatenate([p.starts for p in parts]))


def draw_push(
    n: int, force_n: float, frames: int, earliest: int, latest: int, seed: int | np.random.SeedSequence
) -> Push:
    """One push an episode: eight world directions in turn, onset uniform in [earliest, latest]."""
    onset = np.random.default_rng(seed).integers(earliest, latest + 1, n)
    return Push(
        np.full(n, float(force_n)), (np.arange(n) % 8 * (np.pi / 4)).astype(np.float64), onset.astype(np.int64), frames
    )


def identify(policy: str | Path) -> tuple[str, int]:
    """Method and seed of ``.../<method>/seed<k>/policy.onnx`` (seed 0 where the path names none)."""
    parts = Path(policy).parts
    for i in range(len(parts) - 2, 0, -1):
        match = re.fullmatch(r"seed(\d+)", parts[i])
        if match:
            return parts[i - 1], int(match[1])
    return (Path(policy).stem if len(parts) < 2 or Path(policy).stem != "policy" else parts[-2]), 0
