"""A player under the clock: warm-up, timed frames, and the check that the fast answer was a right one."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from benchmarks.rollout import feet_of_class
from engine import players, skeleton

BONE_TOLERANCE_M = 1e-6
MAX_ERROR_M = 0.5


class TimedPlay:
    """Plays frames of a crowd; clips that end are started again between two frames, outside the frame times."""

    def __init__(
        self,
        runtime: str,
        policy: str,
        library: Any,
        n: int,
        mmik: bool,
        threads: int,
        starts: Callable[[int, int], Any],
    ) -> None:
        """Load a player.

        Args:
            runtime: ``engine`` or ``faithful``.
            policy: Policy file.
            library: Motion library.
            n: Number of characters.
            mmik: With the post-process.
            threads: Numba threads.
            starts: ``starts(n, frames)`` gives clips and start frames from which so many frames can be played.
        """
        if runtime == "faithful":
            from benchmarks import faithful

            self.player = faithful.load(policy, n=n, library=library, mmik=mmik)
        else:
            self.player = players.load(policy, n=n, library=library, mmik=mmik, threads=threads)
        self.library, self.mmik = library, mmik
        self.episode_frames = int(library.length.min()) - 2
        self.clips, self.frames = (np.asarray(a, np.int64) for a in starts(n, self.episode_frames))
        self.times_ns: list[np.ndarray] = []
        self.feet: list[float] = []
        self.ended = 0
        self.poses: Any = None
        self._left = 0

    def start(self, warmup_frames: int) -> None:
        """Reset and play the frames that are not timed."""
        self._left = 0
        for _ in range(warmup_frames):
            self._frame()
        self.feet.clear()

    def run(self, frames: int) -> None:
        """Play the timed frames; each frame's own time is kept."""
        times = np.empty(frames, np.int64)
        for t in range(frames):
            if self._left == 0:
                self._reset()
            begin = perf_counter_ns()
            self.poses = self.player.step()
            times[t] = perf_counter_ns() - begin
            self._left -= 1
        self.times_ns.append(times)
        self._look()

    def check(self) -> None:
        """Assert that the poses at the end of the runs are those of living characters near their reference."""
        poses = self.poses
        assert np.isfinite(poses.body_pos_w).all(), "a pose is not finite"
        assert poses.alive.mean() >= 0.9, f"only {poses.alive.mean():.0%} of the characters were alive at the end"
        reference = self.library.body_pos_w[poses.ref_frame] - self.library.com_pos_w[poses.ref_frame][:, None]
        away = np.abs((poses.body_pos_w - poses.com_pos_w[:, None])[..., 2] - reference[..., 2]).mean(axis=-1)
        assert np.median(away) < MAX_ERROR_M, f"bodies are {np.median(away):.2f} m off their reference's height"
        if self.mmik:
            parents = np.array(skeleton.PARENTS[1:])
            bone = np.linalg.norm(poses.body_pos_w[:, 1:] - poses.body_pos_w[:, parents], axis=-1)
            worst = np.abs(bone - np.linalg.norm(skeleton.OFFSETS[1:], axis=-1)).max()
            assert worst < BONE_TOLERANCE_M, f"a bone changed its length by {worst:.1e} m"

    def quantile_ms(self, q: float) -> float:
        """Quantile of the time of a frame over all runs [ms]."""
        return float(np.quantile(np.concatenate(self.times_ns), q) / 1e6)

    def stance_feet_mean(self) -> float:
        """Feet on the ground at the end of the runs, mean over characters: how much contact work the frames held."""
        return float(np.mean(self.feet)) if self.feet else 0.0

    def _frame(self) -> None:
        if self._left == 0:
            self._reset()
        self.poses = self.player.step()
        self._left -= 1

    def _reset(self) -> None:
        self.player.reset(self.clips, self.frames)
        self._left = self.episode_frames

    def _look(self) -> None:
        self.feet.append(float(feet_of_class(np.asarray(self.poses.contact)).sum(axis=-1).mean()))
