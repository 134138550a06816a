"""What a motion file holds, in words: `inspect_motion` for the command line's ``inspect``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from engine.errors import InputError
from engine.motion.acclaim import CMU_FPS, parse_acclaim
from engine.motion.bvh import parse_bvh
from engine.motion.clip import Clip
from engine.motion.deepmimic import parse_deepmimic
from engine.motion.name_maps import find_roles
from engine.motion.reader import find_asf, motion_format
from engine.motion.trim import fold_extra_root, tpose_frames
from engine.motion.units import convert_units_and_axes

_FORMATS = {"bvh": "BVH", "amc": "Acclaim ASF/AMC", "deepmimic": "DeepMimic JSON"}
_SEAM_SHOWN_DEG = 5.0
_LENGTH_NOISE_M = 1e-6


def inspect_motion(path: str | Path, motion: str | Path | None = None) -> list[str]:
    """Describe a motion file.

    Args:
        path: BVH, AMC (its ASF beside it) or DeepMimic file, also gzipped; or an ASF file with ``motion``.
        motion: The AMC file where ``path`` is its skeleton.

    Returns:
        Lines without a trailing newline: format, joints, frames and rate, unit and up axis with the reasons, height,
        root path, T-pose frames at the ends, moving bone lengths, loop, then one ``warning:`` line if there is anything
        to warn of.

    Raises:
        InputError: As `engine.motion.reader.read_motion`.
    """
    skeleton, path = (None, Path(path)) if motion is None else (Path(path), Path(motion))
    kind = motion_format(path) if skeleton is None else "amc"
    raw = _parse(path, kind, skeleton)
    clip = convert_units_and_axes(raw)
    folded = fold_extra_root(clip)
    lines = [
        f"{path.name}: {_FORMATS[kind]} motion",
        *_describe_skeleton(raw),
        _describe_time(raw),
        *(f"decided: {reason}" for reason in folded.report),
        *_describe_path(folded),
        _describe_ends(folded),
        *_describe_bone_lengths(clip, {*clip.joint_names} - {*folded.joint_names}),
        *_describe_loop(folded),
    ]
    return lines + ([f"warning: {'; '.join(folded.notes)}"] if folded.notes else [])


def _parse(path: Path, kind: str, skeleton: Path | None) -> Clip:
    if kind == "bvh":
        return parse_bvh(path)
    if kind == "deepmimic":
        return parse_deepmimic(path)
    return parse_acclaim(skeleton or find_asf(path), path, CMU_FPS)


def _describe_skeleton(clip: Clip) -> list[str]:
    moving = len(clip.joint_pos_m)
    extra = f", {moving} with moving position channels" if moving else ""
    names = clip.joint_names
    shown = " ".join(names[:60]) + (f" ... and {len(names) - 60} more" if len(names) > 60 else "")
    lines = [f"joints: {len(names)}, end sites: {len(clip.end_sites)}{extra}", f"joint names: {shown}"]
    try:
        family, roles = find_roles(names[:500], str(clip.source))
    except InputError:
        return [*lines, "skeleton: not recognised by its joint names"]
    return [*lines, f"skeleton: recognised as {family} ({len(roles)} roles)"]


def _describe_time(clip: Clip) -> str:
    steps = np.diff(clip.times_s)
    written = f", frame time {clip.frame_time_s:.10g} s as written" if clip.frame_time_s else ""
    even = "" if clip.is_uniform else f", UNEVEN steps {steps.min():.4g} to {steps.max():.4g} s"
    return f"frames: {clip.n_frames} at {clip.fps:.6g} fps{written}{even}, duration {clip.duration_s:.4f} s"


def _describe_path(clip: Clip) -> list[str]:
    pos, _ = clip.world()
    travel = float(np.linalg.norm(np.diff(clip.root_pos_m[:, :2], axis=0), axis=1).sum())
    low, high = float(pos[..., 2].min()), float(pos[..., 2].max())
    root = clip.root_pos_m[:, 2]
    return [
        f"root {clip.joint_names[0]!r}: height {root.min():.3f} to {root.max():.3f} m, path {travel:.2f} m",
        f"lowest joint {low:.3f} m, highest joint {high:.3f} m over all frames",
    ]


def _describe_ends(clip: Clip) -> str:
    first, last = tpose_frames(clip)
    return (
        f"T-pose frames: {first} at the start ({first / clip.fps:.2f} s), {last} at the end ({last / clip.fps:.2f} s)"
    )


def _describe_bone_lengths(clip: Clip, roots: set[str]) -> list[str]:
    """Variation of bone lengths, without the way from an extra root to the hips, which is no bone."""
    children_of_root = {clip.joint_names[j] for j in np.flatnonzero(clip.parents == 0)} if roots else set()
    spread = {
        k: v for k, v in clip.bone_length_variation().items() if k not in children_of_root and v > _LENGTH_NOISE_M
    }
    if not spread:
        return ["bone lengths: constant"]
    name = max(spread, key=lambda k: spread[k])
    return [f"bone lengths: {len(spread)} vary, most {name!r} by {1000 * spread[name]:.3g} mm"]


def _describe_loop(clip: Clip) -> list[str]:
    if clip.loop == "none":
        return ["loop: none"]
    gap = np.rad2deg(clip.seam_gap_rad())
    worst = int(np.argmax(gap))
    travel = float(np.linalg.norm(clip.cycle_travel_m()))
    seam = "closes" if gap[worst] < _SEAM_SHOWN_DEG else "does NOT close"
    where = f"{clip.joint_names[worst]} is {gap[worst]:.1f} deg apart at the seam"
    return [f"loop: {clip.loop}, {seam}: {where}, travel {travel:.3f} m a cycle"]
