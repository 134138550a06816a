"""A motion clip: a skeleton and its pose over time, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.rotation import quat_align, quat_from_matrix, quat_rotate, quat_slerp, quat_to_matrix

Array = NDArray[np.float64]
LOOP_MODES = ("none", "wrap", "mirror")
MAX_FRAMES = 2_000_000  # a resample beyond this is a wrong frame time, not a motion
_POSES_PER_VALUE, _POSES_FREE = 4, 100_000


@dataclass
class Clip:
    """One motion. Joints are listed parents first; joint 0 is the root.

    `read_bvh` and `read_acclaim` return a *raw* clip (``units == "file"``: lengths and axes as the file has them; the
    suffix ``_m`` then reads "file units"). `engine.motion.units.normalise_units_and_axes`, `read_motion` and
    `read_deepmimic` return metres with z up.

    Attributes:
        name: Clip name (file name without extension).
        joint_names: J unique names, as in the file.
        parents: Parent index of each joint, -1 for the root, shape (J,) int64.
        offsets_m: Joint origin in its parent's frame [m], shape (J, 3); row 0 is kept as written and never added.
        fps: Frames per second; a written frame time within its rounding of a common rate is snapped to that rate.
        root_pos_m: World position of joint 0 [m], shape (T, 3).
        local_quat: Joint rotation in the parent's frame (w, x, y, z), shape (T, J, 4); row 0 is in the world.
        loop: 'none', 'wrap' (root travel accumulates) or 'mirror' (every other cycle is mirrored).
        times_s: Time of each frame [s], from 0, shape (T,); ``i / fps`` where not given.
        source: File the clip was read from.
        licence: Licence of the data, empty where unknown.
        notes: Warnings about the data, one sentence each.
        end_sites: Bone tips by joint name, in that joint's frame [m], each (3,).
        joint_pos_m: Moving joint origins by joint name, in the parent's frame [m], each (T, 3): they replace the
            offset. Only joints whose position channels change over time (never joint 0).
        frame_time_s: Frame time exactly as written [s] (0 where the format has none).
        units: 'm' or 'file'.
        up: 'z' or 'y'; 'file' for a raw clip whose up axis has not been decided.
        unit_hint_m: Metres per file unit where the format states it, else None.
        report: How units, axes and frame rate were decided, one sentence each.
    """

    name: str
    joint_names: list[str]
    parents: NDArray[np.int64]
    offsets_m: Array
    fps: float
    root_pos_m: Array
    local_quat: Array
    loop: str = "none"
    times_s: Array = field(default_factory=lambda: np.zeros(0))
    source: Path = Path()
    licence: str = ""
    notes: list[str] = field(default_factory=list)
    end_sites: dict[str, Array] = field(default_factory=dict)
    joint_pos_m: dict[str, Array] = field(default_factory=dict)
    frame_time_s: float = 0.0
    units: str = "m"
    up: str = "z"
    unit_hint_m: float | None = None
    report: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.times_s) != self.n_frames:
            self.times_s = np.arange(self.n_frames) / self.fps

    @staticmethod
    def check_size(path: Path, n_frames: int, n_joints: int, n_values: int) -> None:
        """Refuse a file whose poses would need far more memory than its numbers, before they are allocated.

        Joints without channels cost a file nothing but each pose something: a small file can ask for terabytes.
        """
        limit = _POSES_FREE + _POSES_PER_VALUE * n_values
        if n_frames * n_joints > limit:
            raise InputError.at(
                path,
                None,
                f"too many joints without channels (found {n_frames} frames x {n_joints} joints, expected <= {limit})",
            )

    @property
    def n_frames(self) -> int:
        """Number of frames T."""
        return len(self.root_pos_m)

    @property
    def duration_s(self) -> float:
        """Time from the first frame to the last [s]."""
        return float(self.times_s[-1] - self.times_s[0])

    @property
    def is_uniform(self) -> bool:
        """Whether all frames are equally far apart in time (to 1e-4 of a frame)."""
        steps = np.diff(self.times_s)
        return len(steps) < 2 or bool(np.ptp(steps) <= 1e-4 * steps.mean())

    def index(self, joint: str) -> int:
        """Index of a joint by its full name."""
        return self.joint_names.index(joint)

    def local_pos_m(self, joint: int) -> Array:
        """Origin of a joint in its parent's frame [m], shape (T, 3) or (3,) where it does not move."""
        name = self.joint_names[joint]
        return self.joint_pos_m[name] if name in self.joint_pos_m else self.offsets_m[joint]

    def world(self) -> tuple[Array, Array]:
        """Forward kinematics: world joint origins (T, J, 3) [m] and rotations (T, J, 4)."""
        local = quat_to_matrix(self.local_quat)
        world = np.empty_like(local)
        pos = np.empty((self.n_frames, len(self.parents), 3))
        pos[:, 0], world[:, 0] = self.root_pos_m, local[:, 0]
        for j in range(1, len(self.parents)):
            p = self.parents[j]
            np.matmul(world[:, p], local[:, j], out=world[:, j])
            pos[:, j] = pos[:, p] + (world[:, p] @ self.local_pos_m(j)[..., None])[..., 0]
        return pos, quat_align(quat_from_matrix(world))

    def world_end_sites(self) -> dict[str, Array]:
        """World positions [m] of the bone tips, each (T, 3), by joint name."""
        pos, quat = self.world()
        at = {name: j for j, name in enumerate(self.joint_names)}
        return {
            name: pos[:, at[name]] + quat_rotate(quat[:, at[name]], np.broadcast_to(tip, (self.n_frames, 3)))
            for name, tip in self.end_sites.items()
        }

    def cut(self, start: int, stop: int) -> Clip:
        """Frames ``start`` to ``stop - 1`` as a clip of its own; its time begins at 0."""
        part = slice(start, stop)
        return replace(
            self,
            root_pos_m=self.root_pos_m[part],
            local_quat=self.local_quat[part],
            times_s=self.times_s[part] - self.times_s[part][0],
            joint_pos_m={k: v[part] for k, v in self.joint_pos_m.items()},
        )

    def sample(self, times_s: Array) -> Clip:
        """Poses at given times [s]: positions linear, rotations by slerp the short way round; the ends are held.

        The result has ``times_s`` as its times. Euler angles are never interpolated.
        """
        t = np.clip(np.asarray(times_s, np.float64), self.times_s[0], self.times_s[-1])
        low = np.clip(np.searchsorted(self.times_s, t, side="right") - 1, 0, max(self.n_frames - 2, 0))
        high = np.minimum(low + 1, self.n_frames - 1)
        span = self.times_s[high] - self.times_s[low]
        w = np.where(span > 0, (t - self.times_s[low]) / np.where(span > 0, span, 1.0), 0.0)

        def blend(track: Array) -> Array:
            return track[low] + w[:, None] * (track[high] - track[low])

        quat = quat_align(quat_slerp(self.local_quat[low], self.local_quat[high], w[:, None]))
        return replace(
            self,
            root_pos_m=blend(self.root_pos_m),
            local_quat=quat,
            times_s=np.array(times_s, np.float64),
            joint_pos_m={k: blend(v) for k, v in self.joint_pos_m.items()},
        )

    def resample(self, fps: float) -> Clip:
        """The same motion at ``fps`` frames per second, from time 0 to the last whole frame within the clip.

        Evenly spaced frames are taken at ``i / self.fps``, so that rounding in written frame times loses none; a clip
        already at that rate (to 1e-4) keeps its frames as they are.
        """
        if not (np.isfinite(fps) and fps > 0):
            raise InputError.at(self.source, None, f"frame rate is not positive (found {fps:g} fps, expected > 0)")
        clip = replace(self, times_s=np.arange(self.n_frames) / self.fps) if self.is_uniform else self
        if self.is_uniform and abs(self.fps / fps - 1.0) < 1e-4:
            return replace(clip, fps=fps, times_s=np.arange(self.n_frames) / fps, frame_time_s=1.0 / fps)
        n = int(np.floor(clip.duration_s * fps + 1e-6)) + 1
        if n > MAX_FRAMES:
            raise InputError.at(
                self.source,
                None,
                f"{self.duration_s:g} s at {fps:g} fps is too long (found {n}, expected <= {MAX_FRAMES})",
            )
        return replace(clip.sample(np.arange(n) / fps), fps=fps, frame_time_s=1.0 / fps)

    def bone_length_variation(self) -> dict[str, float]:
        """Largest minus smallest length [m] of each bone with a moving origin, by joint name."""
        return {k: float(np.ptp(np.linalg.norm(v, axis=1))) for k, v in self.joint_pos_m.items()}

    def cycle_travel_m(self) -> Array:
        """Horizontal root travel [m] of one cycle, (3,), z 0: what every repetition of a 'wrap' clip adds."""
        return (self.root_pos_m[-1] - self.root_pos_m[0]) * np.array([1.0, 1.0, 0.0])

    def sample_cycles(self, times_s: Array) -> Clip:
        """Poses at any times [s], repeating a 'wrap' clip with its root travel accumulated.

        Time past the end of a clip that does not loop holds the last pose. One cycle lasts ``duration_s``: the last
        frame and the first are the same instant, as in DeepMimic; where they differ the seam is a jump, to be blended
        by the caller (`seam_gap_rad`).
        """
        t = np.asarray(times_s, np.float64)
        if self.loop != "wrap" or self.duration_s <= 0:
            return self.sample(t)
        cycle = np.floor(t / self.duration_s)
        out = self.sample(t - cycle * self.duration_s)
        return replace(out, root_pos_m=out.root_pos_m + cycle[:, None] * self.cycle_travel_m(), times_s=t)

    def seam_gap_rad(self) -> Array:
        """Angle [rad] of each joint between the last frame and the first, (J,); the root counts tilt and heading."""
        dot = np.abs(np.sum(self.local_quat[0] * self.local_quat[-1], axis=-1))
        return 2.0 * np.arccos(np.clip(dot, 0.0, 1.0))
