"""Play a policy on one clip: run the player, keep what the character did, and write it as video, BVH or glTF."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from engine.errors import InputError
from engine.rotation import quat_to_matrix, rot_z, yaw_of
from engine.srb.terrain import Terrain
from engine.view import GroundHeight, Take, overlay_reference, pick_renderer, render_frames, write_video

Array = NDArray[np.float64]

CONTROL_HZ = 30.0
PUSH_DURATION_S = 0.2
DIRECTIONS_DEG = {"forward": 0.0, "left": 90.0, "backward": 180.0, "right": 270.0}
OUTPUT_TYPES = (".mp4", ".gif", ".bvh", ".glb")
CONTACT_NAMES = ("none", "left", "right", "both")


class Push(NamedTuple):
    """A horizontal push on the centre of mass.

    Attributes:
        force_n: Size [N].
        direction_deg: Where it pushes to, counter-clockwise from the character's heading when it begins.
        time_s: When it begins.
        duration_s: How long it lasts.
    """

    force_n: float
    direction_deg: float
    time_s: float
    duration_s: float = PUSH_DURATION_S

    @classmethod
    def parse(cls, text: str) -> Push:
        """``FORCE,DIRECTION,TIME[,DURATION]`` as on the command line, direction in degrees or by name.

        Raises:
            InputError: It cannot be read.
        """
        parts = [p.strip() for p in text.split(",")]
        try:
            if len(parts) in (3, 4):
                direction = DIRECTIONS_DEG[parts[1]] if parts[1] in DIRECTIONS_DEG else float(parts[1])
                push = cls(float(parts[0]), direction, *(float(p) for p in parts[2:]))
                if all(map(math.isfinite, push)) and push.force_n >= 0 and push.time_s >= 0 and push.duration_s > 0:
                    return push
        except ValueError:
            pass
        expected = f"FORCE,DIRECTION,TIME in N, degrees or {'|'.join(DIRECTIONS_DEG)}, s; as 400,left,2.0"
        raise InputError(f"--push: cannot read it (found {text!r}, expected {expected})")


class Recording(NamedTuple):
    """One character's run.

    Attributes:
        take: What it did, for `engine.view`.
        reference: The clip at the matching frames where the clip has it, or None where no reference is known.
        fell_frame: Frame of the fall, None where it kept going to the end.
        joint_error_m: Mean distance of the 15 joints to the reference with root position and heading aligned.
        drift_m: Distance of the root to the reference at the end, start aligned.
    """

    take: Take
    reference: Take
    fell_frame: int | None
    joint_error_m: float
    drift_m: float


def find_clip(library: Any, name: str) -> int:
    """Index of the clip called ``name``, or of the only one whose name contains it.

    Raises:
        InputError: No clip, or more than one, fits; names the nearest.
    """
    names = list(library.names)
    if name in names:
        return names.index(name)
    inside = [n for n in names if name.lower() in n.lower()]
    if len(inside) == 1:
        return names.index(inside[0])
    if inside:
        raise InputError(f"--clip: more than one clip fits (found {name!r}, expected one of {', '.join(inside[:8])})")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:5]
    raise InputError(f"--clip: no such clip (found {name!r}, expected e.g. {', '.join(near)}; all: `engine clips`)")


def parse_terrain(text: str, seed: int) -> Terrain:
    """`Terrain.parse`, with the random heights of ``rough:CM`` drawn from ``seed``."""
    terrain = Terrain.parse(text)
    return Terrain.rough(float(text.partition(":")[2]) / 100, seed) if text.startswith("rough:") else terrain


def ground_of(terrain: Terrain) -> GroundHeight | None:
    """Ground height function for the pictures; None for flat ground, which is drawn as an endless plane."""
    return None if terrain.name == "flat" else terrain.height


def record(
    player: Any, library: Any, clip: int, start: int, frames: int, pushes: Sequence[Push] = (), progress: bool = False
) -> Recording:
    """Run a player of one character and keep its poses; ends early where it falls.

    Args:
        player: From `engine.players.load` with ``n=1``.
        library: The motion library the player was given.
        clip: Clip index.
        start: First frame within the clip.
        frames: Control steps to run.
        pushes: Pushes on the centre of mass.
        progress: Show a progress bar on stderr.
    """
    player.reset(np.array([clip]), np.array([start]))
    heading = float(yaw_of(quat_to_matrix(library.srb_quat_w[library.start[clip] + start])))
    forces = [_PushNow(push) for push in pushes]
    body_pos, body_quat, foot_pos, foot_force, push_rows, captions, ref_frames = [], [], [], [], [], [], []
    fell = None
    for t in tqdm(range(frames), desc="simulate", unit="frame", disable=None if progress else True):
        push_w = sum((p.force_w(t / CONTROL_HZ, heading) for p in forces), np.zeros(3))
        poses = player.step(push_force_w=push_w[None])
        if not bool(poses.alive[0]) or not np.isfinite(poses.body_pos_w[0]).all():
            fell = t
            break
        heading = float(yaw_of(quat_to_matrix(poses.srb_quat_w[0])))
        body_pos.append(poses.body_pos_w[0].copy())
        body_quat.append(poses.body_quat_w[0].copy())
        centres, sums = forces_by_foot(poses.force_points_w[0], poses.forces_w[0], poses.foot_pos_w[0])
        foot_pos.append(centres)
        foot_force.append(sums)
        push_rows.append(push_w)
        ref_frames.append(int(poses.ref_frame[0]))
        pushed = f"   push {np.linalg.norm(push_w):.0f} N" if np.any(push_w) else ""
        stance = CONTACT_NAMES[int(poses.contact[0])]
        captions.append(f"{library.names[clip]}   {(t + 1) / CONTROL_HZ:5.2f} s   stance {stance}{pushed}")
    if not body_pos:
        raise InputError(
            f"{library.names[clip]}: the character falls in the first frame (found 0 frames, expected 1 or more)"
        )
    take = Take(
        np.array(body_pos), np.array(body_quat), np.array(foot_pos), np.array(foot_force), np.array(push_rows), captions
    )
    reference = Take(library.body_pos_w[ref_frames], library.body_quat_w[ref_frames])
    return Recording(take, reference, fell, *_distances(take, reference))


class _PushNow:
    """A push whose direction is fixed in the world when it begins."""

    def __init__(self, push: Push) -> None:
        self.push = push
        self.direction_w: Array | None = None

    def force_w(self, now_s: float, heading: float) -> Array:
        begin, end = self.push.time_s, self.push.time_s + self.push.duration_s
        if not begin - 1e-9 <= now_s < end - 1e-9:
            return np.zeros(3)
        if self.direction_w is None:
            self.direction_w = rot_z(heading + math.radians(self.push.direction_deg))[:, 0]
        return self.push.force_n * self.direction_w


def forces_by_foot(force_points_w: Array, forces_w: Array, foot_pos_w: Array) -> tuple[Array, Array]:
    """Sum contact forces foot by foot.

    Args:
        force_points_w: Contact points in any order [m], shape (K, 3); those without a force do not matter.
        forces_w: Forces at them [N], shape (K, 3).
        foot_pos_w: Sole centres, left first [m], shape (2, 3).

    Returns:
        Centre of pressure of each foot [m] (its sole centre where it carries nothing) and its force [N], each (2, 3).
    """
    centres, sums = foot_pos_w.copy(), np.zeros((2, 3))
    sizes = np.linalg.norm(forces_w, axis=-1)
    nearest = np.linalg.norm(force_points_w[:, None] - foot_pos_w, axis=-1).argmin(axis=1)
    for foot in range(2):
        mine = (nearest == foot) & (sizes > 0)
        if mine.any():
            sums[foot] = forces_w[mine].sum(axis=0)
            centres[foot] = sizes[mine] @ force_points_w[mine] / sizes[mine].sum()
    return centres, sums


def _distances(take: Take, reference: Take) -> tuple[float, float]:
    posture = overlay_reference(reference, take).body_pos_w
    # Heights on a terrain are above the ground of each: compare with the roots' heights aligned as well.
    lifted = posture + (take.body_pos_w[:, :1] - posture[:, :1])
    path = overlay_reference(reference, take, every_frame=False).body_pos_w
    error = float(np.linalg.norm(take.body_pos_w - lifted, axis=-1).mean())
    return error, float(np.linalg.norm((take.body_pos_w - path)[-1, 0, :2]))


def write_outputs(
    outputs: Sequence[str | os.PathLike[str]],
    recording: Recording,
    *,
    ghost: str = "overlay",
    ground: GroundHeight | None = None,
    size: tuple[int, int] = (640, 480),
    renderer: str = "auto",
    progress: bool = False,
) -> list[str]:
    """Write a recording to each file by its extension; returns one line a file.

    Args:
        outputs: ``.mp4``, ``.gif``, ``.bvh`` or ``.glb`` files.
        recording: From `record`.
        ghost: ``overlay`` (reference moved onto the character in each frame), ``world`` (start aligned) or ``none``.
        ground: Ground height, see `ground_of`.
        size: Width and height of a video in pixels.
        renderer: See `engine.view.pick_renderer`.
        progress: Show a progress bar on stderr.
    """
    lines = []
    take = recording.take
    count = len(take.body_pos_w)
    for path in map(Path, outputs):
        kind = path.suffix.lower()
        detail = f"{count} frames, {count / CONTROL_HZ:.1f} s"
        if kind == ".bvh":
            from engine.export_bvh import write_bvh

            moved = write_bvh(path, take.body_pos_w, take.body_quat_w, CONTROL_HZ)
            if moved > 1e-4:
                detail += f"; bodies rejoined at the joints, by up to {1000 * moved:.1f} mm"
        elif kind == ".glb":
            from engine.export_gltf import write_glb

            write_glb(path, take.body_pos_w, take.body_quat_w, CONTROL_HZ, path.stem)
        else:
            reference = None
            if ghost != "none":
                reference = overlay_reference(recording.reference, take, ground, every_frame=ghost == "overlay")
            _, how = pick_renderer(renderer)
            frames = render_frames(take, reference, size=size, ground=ground, renderer=renderer)
            write_video(path, _with_progress(frames, count, progress), CONTROL_HZ)
            detail += f"; {how}"
        lines.append(f"wrote {path} ({detail})")
    return lines


def _with_progress(frames: Iterator[Any], count: int, progress: bool) -> Iterator[Any]:
    return iter(tqdm(frames, total=count, desc="draw", unit="frame", disable=None if progress else True))


def check_outputs(outputs: Sequence[str]) -> None:
    """Refuse an unknown file type before anything is simulated."""
    for path in outputs:
        kind = Path(path).suffix.lower()
        if kind not in OUTPUT_TYPES:
            expected = ", ".join(OUTPUT_TYPES)
            raise InputError.at(path, None, f"unknown file type (found {kind or 'no extension'}, expected {expected})")
