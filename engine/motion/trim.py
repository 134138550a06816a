"""What surrounds the motion in a file: T-pose frames at its ends, an extra root above the hips."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from engine.motion.clip import Array, Clip
from engine.motion.units import known_roles

_ARM_LEVEL_DEG = 35.0  # upper arms and forearms at most this far from level
_LEG_PLUMB_DEG = 25.0  # hip to ankle at most this far from plumb
_ARMS_APART_DEG = 140.0  # shoulder to wrist of both sides at least this far apart
MIN_LEFT = 2  # never trimmed away entirely


def in_tpose(clip: Clip) -> NDArray[np.bool_]:
    """Frames (T,) in a T-pose: legs plumb, both arms straight, level and pointing apart.

    Needs a recognised skeleton with wrists, z up; all False otherwise.
    """
    roles = known_roles(clip)
    if roles is None or "left_wrist" not in roles or "right_wrist" not in roles:
        return np.zeros(clip.n_frames, bool)
    pos, _ = clip.world()

    def direction(start: str, end: str) -> Array:
        v = pos[:, roles[end]] - pos[:, roles[start]]
        return v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-9)

    ok = np.ones(clip.n_frames, bool)
    arms = []
    for side in ("left", "right"):
        for part in (("arm", "elbow"), ("elbow", "wrist")):
            level = direction(f"{side}_{part[0]}", f"{side}_{part[1]}")[:, 2]
            ok &= np.abs(level) < np.sin(np.deg2rad(_ARM_LEVEL_DEG))
        ok &= direction(f"{side}_upleg", f"{side}_ankle")[:, 2] < -np.cos(np.deg2rad(_LEG_PLUMB_DEG))
        arms.append(direction(f"{side}_arm", f"{side}_wrist"))
    return ok & (np.sum(arms[0] * arms[1], axis=1) < np.cos(np.deg2rad(_ARMS_APART_DEG)))


def tpose_frames(clip: Clip) -> tuple[int, int]:
    """Number of T-pose frames at the start and at the end of a clip (0, 0 where all of it is one)."""
    flags = in_tpose(clip)
    if flags.all():
        return 0, 0
    return int(np.argmin(flags)), int(np.argmin(flags[::-1]))


def trim_tpose(clip: Clip, ramp_s: float = 0.0) -> Clip:
    """The clip without the T-pose frames at its ends, and without ``ramp_s`` more beside each end that had some.

    Args:
        clip: Clip with z up.
        ramp_s: Time from the T-pose into the motion [s], cut too.
    """
    first, last = tpose_frames(clip)
    ramp = round(ramp_s * clip.fps)
    start = first + ramp if first else 0
    stop = clip.n_frames - (last + ramp if last else 0)
    if (start, stop) == (0, clip.n_frames) or stop - start < MIN_LEFT:
        return clip
    report = [*clip.report, f"T-pose cut: {start} frames at the start, {clip.n_frames - stop} at the end"]
    return replace(clip.cut(start, stop), report=report)


def fold_extra_root(clip: Clip) -> Clip:
    """Drop a root above the hips (Bandai Namco's joint_Root, often static): the hips become the root.

    It is one where its only child branches and has position channels that move, or is called hips or pelvis. The child
    takes its world position and rotation, so nothing moves in the world.
    """
    children, names = np.flatnonzero(clip.parents == 0), clip.joint_names
    if len(children) != 1 or names[0] in clip.end_sites:
        return clip
    child = names[children[0]]
    if np.count_nonzero(clip.parents == children[0]) < 2:
        return clip
    if child not in clip.joint_pos_m and not any(w in child.lower() for w in ("hips", "pelvis")):
        return clip
    pos, quat = _first_two(clip)
    local = clip.local_quat[:, 1:].copy()
    local[:, 0] = quat[:, 1]
    return replace(
        clip,
        joint_names=names[1:],
        parents=clip.parents[1:] - 1,
        offsets_m=clip.offsets_m[1:].copy(),
        root_pos_m=pos[:, 1],
        local_quat=local,
        joint_pos_m={k: v for k, v in clip.joint_pos_m.items() if k != names[1]},
        report=[*clip.report, f"extra root {names[0]!r} dropped, {names[1]!r} is the root"],
    )


def _first_two(clip: Clip) -> tuple[Array, Array]:
    """World position and rotation of joints 0 and 1 only."""
    return replace(
        clip,
        joint_names=clip.joint_names[:2],
        parents=clip.parents[:2],
        offsets_m=clip.offsets_m[:2],
        local_quat=clip.local_quat[:, :2],
        end_sites={},
    ).world()
