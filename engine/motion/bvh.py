"""BVH files: a strict reader that is free about layout and names the line of every fault.

``HIERARCHY`` is read statement by statement without recursion, ``MOTION`` row by row without trusting its header. A
position channel REPLACES that component of the joint's OFFSET (the root's too). Rotation channels apply left to right,
in degrees, in each joint's own order.
"""

from __future__ import annotations

import re
from array import array
from pathlib import Path

import numpy as np

from engine.errors import InputError
from engine.motion.bvh_hierarchy import CHANNELS, BvhHierarchy, parse_hierarchy
from engine.motion.clip import Array, Clip
from engine.motion.frame_rate import MAX_FRAME_TIME_S, MIN_FRAME_TIME_S, decimal_resolution, snap_fps
from engine.motion.text_file import MAX_ABS, excerpt, log_notes, parse_float, parse_int, read_text
from engine.rotation import quat_align, quat_from_axis_angle, quat_mul

_FRAMES = re.compile(r"frames\s*:?\s*(.*)", re.IGNORECASE)
_FRAME_TIME = re.compile(r"frame\s*time\s*:?\s*(.*)", re.IGNORECASE)


def read_bvh(path: str | Path) -> Clip:
    """Read a BVH file into a raw clip: its own units and axes, nothing rescaled or turned.

    What is odd but usable (more rows than ``Frames:`` says) is in ``clip.notes`` and one warning line of the logger
    ``engine.motion``.

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``.
    """
    clip = parse_bvh(path)
    log_notes(path, clip.notes)
    return clip


def parse_bvh(path: str | Path) -> Clip:
    """`read_bvh` without the warning line."""
    path = Path(path)
    lines = read_text(path).split("\n")
    tree = parse_hierarchy(path, lines)
    rows, frame_time_s, fps = _parse_motion(path, lines, tree)
    return _build(path, tree, rows, frame_time_s, fps)


def _parse_motion(path: Path, lines: list[str], tree: BvhHierarchy) -> tuple[Array, float, float]:
    n_frames, frames_line, frame_time_s, fps = None, 0, None, 0.0
    at = tree.end
    while at < len(lines) and (n_frames is None or frame_time_s is None):
        text = lines[at].strip()
        at += 1
        if not text:
            continue
        if frame_time_s is None and (match := _FRAME_TIME.fullmatch(text)):
            frame_time_s, fps = _read_frame_time(path, at, match[1])
        elif n_frames is None and (match := _FRAMES.fullmatch(text)):
            n_frames, frames_line = _read_frame_count(path, at, match[1]), at
        else:
            expected = "Frames:" if n_frames is None else "Frame Time:"
            raise InputError.at(path, at, f"MOTION header is incomplete (found {excerpt(text)!r}, expected {expected})")
    if n_frames is None or frame_time_s is None:
        expected = "Frames:" if n_frames is None else "Frame Time:"
        raise InputError.at(
            path, max(i for i, t in enumerate(lines) if t.strip()) + 1,
            f"MOTION header is incomplete (found the end of the file, expected {expected})",
        )  # fmt: skip
    rows = _read_rows(path, lines, at, tree)
    if len(rows) < n_frames or not len(rows):
        raise InputError.at(
            path, frames_line, f"rows are missing: the file is cut off or Frames is wrong "
            f"(found {len(rows)} rows, expected {max(n_frames, 1)})",
        )  # fmt: skip
    if len(rows) > n_frames:
        tree.notes.append(
            f"line {frames_line}: Frames says {n_frames} but {len(rows)} rows follow, all {len(rows)} are used"
        )
    return rows, frame_time_s, fps


def _read_frame_count(path: Path, line: int, token: str) -> int:
    try:
        count = parse_int(token)
    except ValueError as error:
        raise InputError.at(path, line, f"Frames: {error}") from None
    if count < 0:
        raise InputError.at(path, line, f"Frames is negative (found {count}, expected at least 1)")
    return count


def _read_frame_time(path: Path, line: int, token: str) -> tuple[float, float]:
    try:
        value = parse_float(token)
    except ValueError as error:
        raise InputError.at(path, line, f"Frame Time: {error}") from None
    if not MIN_FRAME_TIME_S <= value <= MAX_FRAME_TIME_S:
        limits = f"{MIN_FRAME_TIME_S:g} to {MAX_FRAME_TIME_S:g} s"
        raise InputError.at(path, line, f"Frame Time out of range (found {excerpt(token)}, expected {limits})")
    return value, snap_fps(value, decimal_resolution(token))


def _read_rows(path: Path, lines: list[str], start: int, tree: BvhHierarchy) -> Array:
    columns = [(j.name, c) for j in tree.joints for c in j.channels or []]
    n = len(columns)
    if n == 0:
        raise InputError.at(path, tree.joints[0].line, "no joint has channels (found 0 columns, expected at least 1)")
    values = array("d")
    for number in range(start, len(lines)):
        words = lines[number].split()
        if not words:
            continue
        if len(words) != n:
            _check_row(path, number + 1, words, columns)
            raise InputError.at(path, number + 1, f"row has the wrong length (found {len(words)} values, expected {n})")
        try:
            values.extend(map(float, words))
        except ValueError:
            _check_row(path, number + 1, words, columns)
            raise
        if "_" in lines[number] or not lines[number].isascii():  # float() accepts these, the format does not
            _check_row(path, number + 1, words, columns)
    rows = np.array(values).reshape(-1, n)
    bad = np.flatnonzero(~(np.abs(rows) <= MAX_ABS).all(axis=1))
    if len(bad):
        filled = [i for i in range(start, len(lines)) if lines[i].strip()]
        number = filled[bad[0]]
        _check_row(path, number + 1, lines[number].split(), columns)
    return rows


def _check_row(path: Path, line: int, words: list[str], columns: list[tuple[str, str]]) -> None:
    """Raise for the first value of a row that is not a good number, naming its joint and channel."""
    for i, word in enumerate(words):
        try:
            parse_float(word)
        except ValueError as error:
            where = f"{columns[i][0]} {columns[i][1]}" if i < len(columns) else "beyond the last channel"
            raise InputError.at(path, line, f"column {i + 1} ({where}): {error}") from None


def _build(path: Path, tree: BvhHierarchy, rows: Array, frame_time_s: float, fps: float) -> Clip:
    n_frames, joints = len(rows), tree.joints
    Clip.check_size(path, n_frames, len(joints), rows.size)
    offsets = np.array([j.offset for j in joints], np.float64)
    quat = np.zeros((n_frames, len(joints), 4))
    quat[..., 0] = 1.0
    tracks: dict[str, Array] = {}
    root_pos = np.tile(offsets[0], (n_frames, 1))
    column = 0
    for j, joint in enumerate(joints):
        track = None
        for name in joint.channels or []:
            kind, axis = CHANNELS[name.lower()]
            values = rows[:, column]
            column += 1
            if kind == "rotation":
                quat[:, j] = quat_mul(quat[:, j], quat_from_axis_angle(np.eye(3)[axis], np.deg2rad(values)))
            else:
                track = np.tile(offsets[j], (n_frames, 1)) if track is None else track
                track[:, axis] = values
        if track is None:
            continue
        if j == 0:
            root_pos = track
        elif np.ptp(track, axis=0).max() == 0.0:
            offsets[j] = track[0]
        else:
            tracks[joint.name] = track
    return Clip(
        name=path.name.removesuffix(".gz").removesuffix(".bvh"),
        joint_names=[j.name for j in joints],
        parents=np.array([j.parent for j in joints], np.int64),
        offsets_m=offsets,
        fps=fps,
        root_pos_m=root_pos,
        local_quat=quat_align(quat),
        source=path,
        notes=tree.notes,
        end_sites={j.name: np.array(j.tip) for j in joints if j.tip is not None},
        joint_pos_m=tracks,
        frame_time_s=frame_time_s,
        units="file",
        up="file",
    )
