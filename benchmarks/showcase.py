"""A few seconds of each method for the report's pictures: poses and foot markers of one character and its reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.episodes import draw_episodes
from benchmarks.rollout import Array, markers_w
from engine import players
from engine.view import Take, strip


class Sample(NamedTuple):
    """One character for T frames beside its reference, world frame."""

    method: str
    motion: str
    clip: str
    body_pos_w: Array
    body_quat_w: Array
    ref_body_pos_w: Array
    ref_body_quat_w: Array

    @property
    def markers(self) -> tuple[Array, Array]:
        """Heel and toe tracks of the character and of the reference, each (T, 2, 2, 3)."""
        return markers_w(self.body_pos_w, self.body_quat_w), markers_w(self.ref_body_pos_w, self.ref_body_quat_w)

    def strip(self, count: int, renderer: str) -> np.ndarray:
        """Picture of ``count`` poses, the reference as a ghost."""
        take = Take(self.body_pos_w, self.body_quat_w)
        return strip(take, Take(self.ref_body_pos_w, self.ref_body_quat_w), count=count, renderer=renderer)


def sample_motion(
    policy: str, library: Any, method: str, motion: str, clip_set: str, frames: int, seed: int
) -> Sample | None:
    """Play one character with MMIK from a drawn start; None where the library has no such clip."""
    episodes = draw_episodes(library, motion, clip_set, 1, frames, seed)
    if episodes is None:
        return None
    player = players.load(policy, n=1, library=library, mmik=True)
    player.reset(episodes.clips, episodes.starts)
    poses = []
    for _ in range(frames):
        p = player.step()
        if not p.alive[0]:
            break
        poses.append((p.body_pos_w[0].copy(), p.body_quat_w[0].copy(), int(p.ref_frame[0])))
    if len(poses) < 2:
        return None
    pos, quat, ref = (np.array(x) for x in zip(*poses, strict=True))
    clip = library.names[int(episodes.clips[0])]
    return Sample(method, motion, clip, pos, quat, library.body_pos_w[ref], library.body_quat_w[ref])
