"""Acclaim skeleton (ASF) and motion (AMC) files, strict as the BVH reader.

A bone turns about its START; the clip has one joint per bone there, named as the bone, and a tip (end site) per bone
without children. Bone directions and axes are given in the world's frame, so all joint frames are world-aligned in the
zero pose: with axis rotation C and channel rotation L a joint rotates by ``C L Cᵀ``. Angles compose as their order
string says, first letter first about fixed axes. Up axis y, by custom of the format; the unit is ``1 / length`` inches.
"""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np

from engine.errors import InputError
from engine.motion.asf import AcclaimSkeleton, read_asf
from engine.motion.clip import Array, Clip
from engine.motion.text_file import MAX_ABS, excerpt, log_notes, parse_float, parse_int, read_text
from engine.rotation import quat_align, quat_from_axis_angle, quat_inv, quat_mul

CMU_FPS = 120.0


def read_acclaim(asf_path: str | Path, amc_path: str | Path, fps: float = CMU_FPS) -> Clip:
    """Read a skeleton and its motion into a raw clip, y up.

    Args:
        asf_path: Skeleton file.
        amc_path: Motion file; it may be gzipped.
        fps: Frames per second, which the format does not state (CMU: 120).

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``.
    """
    clip = parse_acclaim(asf_path, amc_path, fps)
    log_notes(amc_path, clip.notes)
    return clip


def parse_acclaim(asf_path: str | Path, amc_path: str | Path, fps: float = CMU_FPS) -> Clip:
    """`read_acclaim` without the warning line."""
    skeleton = read_asf(asf_path)
    rows, degrees = _read_amc(Path(amc_path), skeleton)
    Clip.check_size(Path(amc_path), len(rows), len(skeleton.bones), rows.size)
    return _build(Path(amc_path), skeleton, rows, degrees, fps)


def _read_amc(path: Path, skeleton: AcclaimSkeleton) -> tuple[Array, bool]:
    """Rows (T, columns) in the order of the skeleton's bones and their channels, and whether angles are degrees."""
    start, columns = {}, 0
    for bone in skeleton.bones:
        start[bone.name] = (columns, len(bone.dof))
        columns += len(bone.dof)
    if not columns:
        raise InputError.at(path, None, "the skeleton has no channels (found 0 dof, expected at least 1)")
    needed = {b.name for b in skeleton.bones if b.dof}
    rows, row, degrees = array("d"), [0.0] * columns, skeleton.degrees
    seen: set[str] = set()
    frame, frame_line = None, 0
    for number, text in enumerate(read_text(path).split("\n"), 1):
        words = text.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0].startswith(":"):
            degrees = {":degrees": True, ":radians": False}.get(words[0].lower(), degrees)
        elif len(words) == 1 and words[0] not in start:
            if frame is not None:
                _close_frame(path, frame_line, frame, needed - seen)
                rows.extend(row)
            frame, frame_line = _frame_number(path, number, words[0], frame), number
            seen.clear()
        elif frame is None:
            raise InputError.at(path, number, f"not an AMC file (found {excerpt(text)!r}, expected a frame number)")
        else:
            _read_bone_line(path, number, words, start, seen, row)
    if frame is None:
        raise InputError.at(path, None, "no frames (found 0, expected at least 1)")
    _close_frame(path, frame_line, frame, needed - seen)
    rows.extend(row)
    return np.array(rows).reshape(-1, columns), degrees


def _frame_number(path: Path, line: int, word: str, previous: int | None) -> int:
    try:
        frame = parse_int(word)
    except ValueError as error:
        raise InputError.at(path, line, f"frame number: {error}") from None
    if previous is not None and frame != previous + 1:
        raise InputError.at(path, line, f"frames out of order (found {frame}, expected {previous + 1})")
    return frame


def _close_frame(path: Path, line: int, frame: int, missing: set[str]) -> None:
    if missing:
        names = ", ".join(sorted(missing)[:5]) + (" ..." if len(missing) > 5 else "")
        raise InputError.at(path, line, f"frame {frame} is incomplete (found no line for {names}, expected every bone)")


def _read_bone_line(
    path: Path, line: int, words: list[str], start: dict[str, tuple[int, int]], seen: set[str], row: list[float]
) -> None:
    name, values = words[0], words[1:]
    if name not in start:
        raise InputError.at(
            path, line, f"bone not in the skeleton (found {excerpt(name)!r}, expected a bone of the ASF file)"
        )
    if name in seen:
        raise InputError.at(path, line, f"bone given twice in a frame (found {name!r} again, expected it once)")
    seen.add(name)
    column, count = start[name]
    if len(values) != count:
        raise InputError.at(
            path, line, f"{name!r} has the wrong number of values (found {len(values)}, expected {count})"
        )
    try:
        numbers = list(map(float, values))
        if not all(abs(v) <= MAX_ABS for v in numbers) or any("_" in w or not w.isascii() for w in values):
            numbers = [parse_float(w) for w in values]
    except ValueError:
        numbers = _explain(path, line, name, values)
    row[column : column + count] = numbers


def _explain(path: Path, line: int, name: str, values: list[str]) -> list[float]:
    try:
        return [parse_float(w) for w in values]
    except ValueError as error:
        raise InputError.at(path, line, f"{name!r}: {error}") from None


def _compose(order: list[str], angles_rad: Array) -> Array:
    """Quaternions (..., 4) of rotations about fixed axes, the first of ``order`` first; angles (..., len(order))."""
    quat = np.zeros((*angles_rad.shape[:-1], 4))
    quat[..., 0] = 1.0
    for i, axis in enumerate(order):
        quat = quat_mul(quat_from_axis_angle(np.eye(3)["xyz".index(axis)], angles_rad[..., i]), quat)
    return quat


def _build(path: Path, skeleton: AcclaimSkeleton, rows: Array, degrees: bool, fps: float) -> Clip:
    bones, n_frames = skeleton.bones, len(rows)
    offsets = np.zeros((len(bones), 3))
    quat = np.empty((n_frames, len(bones), 4))
    tracks: dict[str, Array] = {}
    root_pos = np.tile(skeleton.root_position, (n_frames, 1))
    column = 0
    for j, bone in enumerate(bones):
        values = rows[:, column : column + len(bone.dof)]
        column += len(bone.dof)
        turns = [i for i, d in enumerate(bone.dof) if d[0] == "r"]
        moves = [i for i, d in enumerate(bone.dof) if d[0] == "t"]
        angles = values[:, turns] if not degrees else np.deg2rad(values[:, turns])
        local = _compose([bone.dof[i][1] for i in turns], angles)
        axis = _compose(list(bone.axis_order), np.deg2rad(bone.axis))
        quat[:, j] = quat_mul(quat_mul(axis, local), quat_inv(axis))
        if j:
            parent = bones[bone.parent]
            offsets[j] = parent.direction * parent.length
        shift = np.zeros((n_frames, 3))
        for i in moves:
            shift[:, "xyz".index(bone.dof[i][1])] = values[:, i]
        if j == 0:
            root_pos = root_pos + shift
        elif moves:
            tracks[bone.name] = offsets[j] + shift
    has_child = {b.parent for b in bones}
    return Clip(
        name=path.name.removesuffix(".gz").removesuffix(".amc"),
        joint_names=[b.name for b in bones],
        parents=np.array([b.parent for b in bones], np.int64),
        offsets_m=offsets,
        fps=fps,
        root_pos_m=root_pos,
        local_quat=quat_align(quat),
        source=path,
        end_sites={b.name: b.direction * b.length for j, b in enumerate(bones) if j not in has_child and b.length > 0},
        joint_pos_m=tracks,
        units="file",
        up="y",
        unit_hint_m=skeleton.unit_m,
        report=[f"frame rate {fps:g} fps (the format states none)"],
    )
