"""Units and axes: how long a file's unit is, which way is up, and the clip in metres with z up.

BVH states neither. The unit is decided by the height of the skeleton (a person is 0.3 to 3 m), the up axis by the way
from feet to head. Both are reported in ``clip.report`` and can be given instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engine.errors import InputError
from engine.motion.clip import Array, Clip
from engine.motion.name_maps import find_roles
from engine.motion.text_file import log_notes
from engine.rotation import quat_align

UNITS_M = {"m": 1.0, "dm": 0.1, "cm": 0.01, "mm": 0.001, "inch": 0.0254, "cmu": 0.0254 / 0.45}
"""Metres per unit; 'cmu' is the unit of the CMU files, 1/0.45 inch = 5.644 cm."""
# Skeleton height in file units -> unit; the ranges do not overlap and cover 0.56-3 m each.
_HEIGHT_RANGES = (
    (0.3, 3.0, "m"),
    (10.0, 35.0, "cmu"),
    (35.0, 80.0, "inch"),
    (80.0, 300.0, "cm"),
    (500.0, 3000.0, "mm"),
)
MIN_HEIGHT_M, MAX_HEIGHT_M = 0.3, 3.0
UP_AXES = ("y", "z")
_MAX_NAMED_JOINTS = 500  # beyond it is no person, and comparing names would take long
_AMBIGUOUS = 1.5  # one axis must stand out by this factor


@dataclass(frozen=True)
class UnitGuess:
    """A unit [m per file unit], its name, the skeleton height it gives [m], and why it was taken."""

    metres: float
    name: str
    height_m: float
    reason: str


def axis_matrix(source_up: str, target_up: str) -> Array:
    """Rotation (3, 3) from axes with ``source_up`` ('y' or 'z') up to axes with ``target_up`` up; determinant +1.

    y to z: (x, y, z) -> (x, -z, y). z to y: (x, y, z) -> (x, z, -y). x stays, nothing is mirrored.
    """
    if source_up not in UP_AXES or target_up not in UP_AXES:
        raise InputError(f"unknown up axis (found {source_up} and {target_up}, expected {' or '.join(UP_AXES)})")
    if source_up == target_up:
        return np.eye(3)
    y_to_z = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
    return y_to_z if source_up == "y" else y_to_z.T


def rotate_axes(clip: Clip, matrix: Array) -> Clip:
    """The same motion in other world axes, ``p' = M p`` and ``R' = M R Mᵀ`` for every joint.

    Args:
        clip: Any clip.
        matrix: Rotation M (3, 3), determinant +1.
    """

    def turn(points: Array) -> Array:
        return points @ matrix.T

    quat = np.concatenate([clip.local_quat[..., :1], turn(clip.local_quat[..., 1:])], axis=-1)
    return replace(
        clip,
        offsets_m=turn(clip.offsets_m),
        root_pos_m=turn(clip.root_pos_m),
        local_quat=quat_align(quat),
        end_sites={k: turn(v) for k, v in clip.end_sites.items()},
        joint_pos_m={k: turn(v) for k, v in clip.joint_pos_m.items()},
    )


def scale_lengths(clip: Clip, factor: float) -> Clip:
    """The same motion with every length times ``factor``."""
    return replace(
        clip,
        offsets_m=clip.offsets_m * factor,
        root_pos_m=clip.root_pos_m * factor,
        end_sites={k: v * factor for k, v in clip.end_sites.items()},
        joint_pos_m={k: v * factor for k, v in clip.joint_pos_m.items()},
    )


def skeleton_height(clip: Clip, up: str) -> float:
    """Height of the skeleton in the clip's length unit.

    Where hips, head and ankles are known by name: the bones from head to ankle end to end, which no pose changes
    (crawling, zero poses with all bones along x). Otherwise: from the lower of lowest point and ground (0) to the
    highest point, 95th percentile over the frames.
    """
    roles = known_roles(clip)
    if roles is None:
        return _posed_height(clip, up)
    lengths = [float(np.mean(np.linalg.norm(clip.local_pos_m(j), axis=-1))) for j in range(len(clip.parents))]
    total = 0.0
    head = roles.get("head", roles["neck"])
    for joint, share in ((head, 1.0), (roles["left_ankle"], 0.5), (roles["right_ankle"], 0.5)):
        while joint not in (roles["hips"], 0, -1):
            total += share * lengths[joint]
            joint = int(clip.parents[joint])
    tip = clip.end_sites.get(clip.joint_names[head])
    return total + (float(np.linalg.norm(tip)) if tip is not None else 0.0)


def known_roles(clip: Clip) -> dict[str, int] | None:
    """Joint index by anatomical role (`engine.motion.name_maps`), None for a skeleton that is not recognised."""
    if len(clip.joint_names) > _MAX_NAMED_JOINTS:
        return None
    try:
        return find_roles(clip.joint_names, str(clip.source))[1]
    except InputError:
        return None


def _posed_height(clip: Clip, up: str) -> float:
    part = _some_frames(clip)
    axis = UP_AXES.index(up) + 1
    points = _posed_points(part)[..., axis]
    return float(np.percentile(points.max(axis=1) - np.minimum(points.min(axis=1), 0.0), 95))


def _some_frames(clip: Clip, count: int = 64) -> Clip:
    pick = np.unique(np.linspace(0, clip.n_frames - 1, count).astype(int))
    return replace(
        clip,
        root_pos_m=clip.root_pos_m[pick],
        local_quat=clip.local_quat[pick],
        times_s=clip.times_s[pick],
        joint_pos_m={k: v[pick] for k, v in clip.joint_pos_m.items()},
    )


def _posed_points(clip: Clip) -> Array:
    tips = clip.world_end_sites()
    return np.concatenate([clip.world()[0], *(t[:, None] for t in tips.values())], axis=1)


def guess_up(clip: Clip) -> tuple[str, str]:
    """The up axis ('y' or 'z') of a raw clip, and the reason in words.

    The axis along which head and feet are apart (recognised skeletons), or along which bones extend most, over 64
    frames of the clip. Where neither y nor z stands out (crawling, rolling) it is y, the custom of BVH.
    """
    part = _some_frames(clip)
    roles = known_roles(clip)
    pos, _ = part.world()
    if roles is not None:
        feet = 0.5 * (pos[:, roles["left_ankle"]] + pos[:, roles["right_ankle"]])
        extent = np.abs(np.mean(pos[:, roles.get("head", roles["neck"])] - feet, axis=0))
        what = "from ankles to head"
    else:
        points = _posed_points(part)
        extent = np.mean(np.abs(points - pos[:, :1]).max(axis=1), axis=0)
        what = "of the bones from the root"
    y, z = float(extent[1]), float(extent[2])
    where = f"mean extent {what} y {y:.3g}, z {z:.3g}"
    if max(y, z) < _AMBIGUOUS * min(y, z) or max(y, z) == 0.0:
        return "y", f"{where}: neither stands out, y as is the custom"
    return ("y" if y > z else "z"), where


def guess_unit(clip: Clip, up: str) -> UnitGuess:
    """The unit of a raw clip: the one its format states where that gives a plausible height, else by the height.

    A height in no range keeps metres; the caller warns.
    """
    height = skeleton_height(clip, up)
    hint = clip.unit_hint_m
    if hint is not None and MIN_HEIGHT_M <= height * hint <= MAX_HEIGHT_M:
        return UnitGuess(hint, f"{100 * hint:.4g} cm", height * hint, f"stated by the file, height {height:.4g} units")
    for low, high, name in _HEIGHT_RANGES:
        if low <= height < high:
            metres = UNITS_M[name]
            return UnitGuess(metres, name, height * metres, f"height {height:.4g} units is in {low:g} to {high:g}")
    return UnitGuess(1.0, "m", height, f"height {height:.4g} units fits no unit")


def convert_units_and_axes(clip: Clip, up: str | None = None, unit: str | float | None = None) -> Clip:
    """`normalise_units_and_axes` without the warning line."""
    if clip.units == "m" and up is None and unit is None:
        return clip
    if up is None:
        up, why = guess_up(clip) if clip.up == "file" else (clip.up, "known from the format")
    else:
        up, why = up.lower(), "given"
        axis_matrix(up, "z")  # names an unknown axis before it is used
    guess = _given_unit(clip, up, unit) if unit is not None else guess_unit(clip, up) if clip.units == "file" else None
    out = rotate_axes(clip, axis_matrix(up, "z"))
    report, notes = [*clip.report, f"up axis {up} ({why})"], list(clip.notes)
    if guess is not None:
        out = scale_lengths(out, guess.metres)
        report.append(f"unit {guess.name} ({guess.reason}); skeleton height {guess.height_m:.3g} m")
        if not MIN_HEIGHT_M <= guess.height_m <= MAX_HEIGHT_M:
            notes.append(
                f"skeleton height {guess.height_m:.3g} m with unit {guess.name} "
                f"(found {guess.height_m:.3g} m, expected {MIN_HEIGHT_M:g} to {MAX_HEIGHT_M:g} m): give the unit"
            )
    return replace(out, units="m", up="z", report=report, notes=notes)


def metres_per_unit(unit: str | float, source: object = "unit") -> float:
    """Metres per unit of a name in `UNITS_M` or a number.

    Raises:
        InputError: Unknown name, or no positive length.
    """
    if isinstance(unit, str) and unit not in UNITS_M:
        raise InputError(f"{source}: unknown unit (found {unit}, expected {', '.join(UNITS_M)})")
    metres = UNITS_M[unit] if isinstance(unit, str) else float(unit)
    if not (np.isfinite(metres) and metres > 0):
        raise InputError(f"{source}: unit is not a length (found {unit}, expected metres per file unit > 0)")
    return metres


def _given_unit(clip: Clip, up: str, unit: str | float) -> UnitGuess:
    metres = metres_per_unit(unit, clip.source)
    return UnitGuess(metres, str(unit), skeleton_height(clip, up) * metres, "given")


def normalise_units_and_axes(clip: Clip, up: str | None = None, unit: str | float | None = None) -> Clip:
    """The clip in metres with z up.

    Args:
        clip: A raw clip (``units == "file"``); a clip already in metres is returned as it is unless something is given.
        up: 'y' or 'z' to say which axis of the file is up; None decides by the pose (`guess_up`).
        unit: A key of `UNITS_M`, or metres per file unit; None decides by the skeleton height (`guess_unit`).

    Returns:
        A new clip; what was decided is in ``report``. A skeleton outside 0.3 to 3 m is one more note and one warning
        line.
    """
    out = convert_units_and_axes(clip, up, unit)
    log_notes(clip.source, out.notes[len(clip.notes) :])
    return out
