"""Many characters of the unified family on the training clips: starts, noise, pushes, ends of episodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.players.unified import PlayerOptions, SrbCharacters
from engine.rotation import exp_so3
from engine.srb.body import MASS_SCALE, STATE, SrbParams
from train.checkpoint import restore_arrays

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Disturbance:
    """What an episode meets, all drawn at random: start noise, pushes, friction, mass, a path to follow.

    Attributes:
        velocity_m_s: Start noise, uniform in +-this. rotation_rad: Start tilt about a random axis.
        push_rate: Chance of a push to begin in a frame. push_frames: How long it lasts. push_max_n: Largest force [N].
        friction: Smallest and largest factor on the controller's friction, one draw an episode.
        mass: Smallest and largest factor on the controller's mass and inertia, one draw an episode.
        calm_share: Share of episodes without pushes, on the controller's own friction and mass.
        path_share: Share of episodes that follow the world path of the clip.
    """

    velocity_m_s: float
    rotation_rad: float
    push_rate: float = 0.0
    push_frames: int = 1
    push_max_n: float = 0.0
    friction: tuple[float, float] = (1.0, 1.0)
    mass: tuple[float, float] = (1.0, 1.0)
    calm_share: float = 0.0
    path_share: float = 0.0


class SrbEnv:
    """``n`` characters that restart by themselves on clips of ``split``, motion kinds in equal parts.

    Attributes:
        characters: The engine's characters; their `observe` gives the policy's input.
        age: Frames since the start of the episode (n,).
    """

    def __init__(
        self,
        n: int,
        library: MotionLibrary,
        srb: SrbParams,
        mmik: MmikParams,
        body_frame: str,
        episode_frames: int,
        disturbance: Disturbance,
        rng: np.random.Generator,
        threads: int,
        refine: bool = True,
        split: str = "train",
    ) -> None:
        options = PlayerOptions(mmik=refine, threads=threads)
        self.characters = SrbCharacters(n, library, srb, mmik, library.mass_kg, library.inertia_b, body_frame, options)
        self.n, self.library, self.rng = n, library, rng
        self.episode_frames, self.disturbance = episode_frames, disturbance
        self.clips_of_kind = [
            np.array([i for i in range(len(library.names)) if library.kind[i] == kind and library.split[i] == split])
            for kind in sorted({k for k, s in zip(library.kind, library.split, strict=True) if s == split})
        ]
        if not self.clips_of_kind:
            raise InputError(f"library: no {split} clips (found splits {sorted(set(library.split))})")
        self.age = np.zeros(n, np.int64)
        self.kind = np.arange(n) % len(self.clips_of_kind)
        self.push_left = np.zeros(n, np.int64)
        self.push_w = np.zeros((n, 3))
        self.calm = np.zeros(n, bool)
        self.restart(np.arange(n))

    def restart(self, idx: NDArray[np.int64]) -> None:
        """Start new episodes of characters ``idx``: a random clip of the character's kind, a random frame, noise."""
        if len(idx) == 0:
            return
        rng, lib, d = self.rng, self.library, self.disturbance
        pick = rng.random(len(idx))
        clips = np.array(
            [
                group[int(u * len(group))]
                for u, group in zip(pick, (self.clips_of_kind[k] for k in self.kind[idx]), strict=True)
            ]
        )
        room = np.maximum(lib.length[clips] - self.episode_frames - 2, 1)
        frames = (rng.random(len(idx)) * room).astype(np.int64)
        self.characters.reset(idx, clips, frames)
        state = self.characters.batch.state
        state[idx, 12:15] += rng.uniform(-d.velocity_m_s, d.velocity_m_s, (len(idx), 3))
        axis = rng.normal(size=(len(idx), 3))
        axis /= np.linalg.norm(axis, axis=1, keepdims=True)
        turn = exp_so3(axis * rng.uniform(-d.rotation_rad, d.rotation_rad, (len(idx), 1)))
        rot = turn @ state[idx, 3:12].reshape(-1, 3, 3)
        state[idx, 3:12] = rot.reshape(-1, 9)
        self.calm[idx] = rng.random(len(idx)) < d.calm_share
        self.characters.follows_path[idx] = rng.random(len(idx)) < d.path_share
        friction, mass = rng.uniform(*d.friction, len(idx)), rng.uniform(*d.mass, len(idx))
        self.characters.batch.mu_scale[idx] = np.where(self.calm[idx], 1.0, friction)
        self.characters.batch.ctrl[idx, MASS_SCALE] = np.where(self.calm[idx], 1.0, mass)
        self.age[idx] = 0
        self.push_left[idx] = 0

    def pushes(self) -> Array:
        """External force of this frame (n, 3) [N], world, horizontal."""
        rng, d = self.rng, self.disturbance
        begin = (rng.random(self.n) < d.push_rate) & (self.push_left == 0) & ~self.calm
        angle, size = rng.uniform(-np.pi, np.pi, self.n), rng.uniform(0, d.push_max_n, self.n)
        self.push_w[begin] = np.stack([size * np.cos(angle), size * np.sin(angle), 0 * size], axis=1)[begin]
        self.push_left[begin] = d.push_frames
        force = np.where((self.push_left > 0)[:, None], self.push_w, 0.0)
        self.push_left = np.maximum(self.push_left - 1, 0)
        return force

    def ends(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """After a step: who fell, and who reached the end of the episode or of the clip."""
        self.age += 1
        chars = self.characters
        fell = ~chars.alive
        over = ~fell & ((self.age >= self.episode_frames) | (chars.frame >= chars.last - 1))
        return fell, over

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All that the next step depends on, for a checkpoint."""
        c, b = self.characters, self.characters.batch
        found: dict[str, NDArray[np.generic]] = {
            "state": b.state, "stance": b.stance, "lift": b.lift, "warm": b.warm, "mu_scale": b.mu_scale,
            "mass_scale": b.ctrl[:, MASS_SCALE], "calm": self.calm, "follows_path": c.follows_path,
            "frame": c.frame, "last": c.last, "body_pos_w": c.body_pos_w, "body_quat_w": c.body_quat_w,
            "alive": c.alive, "age": self.age, "push_left": self.push_left, "push_w": self.push_w,
        }  # fmt: skip
        if c.mmik is not None:
            found |= {f"mmik_{k}": v for k, v in c.mmik.arrays().items()}
        return found

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Put back what `arrays` gave."""
        restore_arrays(self.arrays(), arrays)


assert STATE == 42  # the columns that `restart` disturbs
