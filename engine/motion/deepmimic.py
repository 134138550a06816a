"""DeepMimic motion files (JSON): the 15-body character's own format, read into our bodies, order and axes.

A frame is 44 numbers: its duration [s], root position [m], then rotations (w, x, y, z) of root, chest, neck, right hip,
knee, ankle, shoulder, elbow, left hip, knee, ankle, shoulder, elbow; knees and elbows are one angle [rad]. Axes there:
x forward, y up, z right, so (x, y, z) becomes (x, -z, y) and hinges turn about (0, -1, 0). The duration of the last
frame has no next frame and is not used. Wrists have no rotation of their own.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import InputError
from engine.motion.clip import LOOP_MODES, Array, Clip
from engine.motion.frame_rate import MAX_FRAME_TIME_S, MIN_FRAME_TIME_S, snap_fps
from engine.motion.text_file import MAX_ABS, excerpt, log_notes, read_text
from engine.rotation import quat_align, quat_from_axis_angle
from engine.skeleton import BODY_NAMES, HINGE_AXIS, JOINT_TYPES, OFFSETS, PARENTS

ROTATION_ORDER = (
    "root", "chest", "neck",
    "right_hip", "right_knee", "right_ankle", "right_shoulder", "right_elbow",
    "left_hip", "left_knee", "left_ankle", "left_shoulder", "left_elbow",
)  # fmt: skip
"""Bodies in the order of the file."""
NORM_WARN, NORM_ERROR = 1e-3, 0.5  # distance of a quaternion norm from 1; a published clip (kick) reaches 0.42
MAX_ROOT_HEIGHT_M = 3.0  # a root whose usual height is beyond this is not in metres
DEFAULT_FPS = 30.0  # of a clip of one frame whose duration is 0


def _layout() -> list[tuple[str, int, int]]:
    """(body, first column, width) of every rotation."""
    out, column = [], 4
    for body in ROTATION_ORDER:
        width = 1 if JOINT_TYPES[BODY_NAMES.index(body)] == "hinge" else 4
        out.append((body, column, width))
        column += width
    return out


LAYOUT = _layout()
FRAME_WIDTH = LAYOUT[-1][1] + LAYOUT[-1][2]
_COLUMN_NAMES = ["duration", *["root position"] * 3, *(body for body, _, width in LAYOUT for _ in range(width))]


def read_deepmimic(path: str | Path) -> Clip:
    """Read a DeepMimic clip: our 15 bodies in our order, metres, z up, x forward.

    Odd but usable data (quaternions off unit norm, a root too high for metres) is in ``clip.notes`` and one
    warning line of the logger ``engine.motion``. Frame times are the running sum of the durations.

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``; frames count from 0.
    """
    clip = parse_deepmimic(path)
    log_notes(path, clip.notes)
    return clip


def parse_deepmimic(path: str | Path) -> Clip:
    """`read_deepmimic` without the warning line."""
    path = Path(path)
    text = read_text(path)
    data = _load(path, text)
    loop = data.get("Loop", "none")
    if not isinstance(loop, str) or loop not in LOOP_MODES:
        raise InputError.at(
            path,
            _key_line(text, "Loop"),
            f"Loop is wrong (found {excerpt(json.dumps(loop))}, expected none, wrap or mirror)",
        )
    frames = _check_frames(path, text, data)
    notes: list[str] = []
    quat = _rotations(path, text, frames, notes)
    times = np.concatenate([[0.0], np.cumsum(_durations(path, text, frames)[:-1])])
    return Clip(
        name=path.name.removesuffix(".gz").removesuffix(path.suffix).removeprefix("humanoid3d_") or path.stem,
        joint_names=list(BODY_NAMES),
        parents=np.array(PARENTS, np.int64),
        offsets_m=np.array(OFFSETS),
        fps=_rate(frames, times),
        root_pos_m=_z_up(frames[:, 1:4], notes),
        local_quat=quat,
        loop=loop,
        times_s=times,
        source=path,
        notes=notes,
        frame_time_s=float(frames[0, 0]),
        report=["unit m, up axis y turned to z (known from the format)"],
    )


def _load(path: Path, text: str) -> dict[str, Any]:
    try:
        data = json.loads(text, object_pairs_hook=_unique, parse_int=_whole)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise InputError.at(
            path, error.lineno, f"not valid JSON at {where}: {error.msg.lower()} (expected a DeepMimic clip)"
        ) from None
    except RecursionError:
        raise InputError.at(path, None, "brackets nested too deeply (found hundreds of levels, expected 3)") from None
    except ValueError as error:  # a key twice
        raise InputError.at(path, None, f"not a DeepMimic clip: {error}") from None
    if not isinstance(data, dict):
        raise InputError.at(path, 1, f"not a DeepMimic clip (found {_kind(data)}, expected an object with Frames)")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))
        raise ValueError(f"key given twice (found {excerpt(twice)!r} again, expected it once)")
    return data


def _whole(digits: str) -> int | float:
    """A JSON whole number; one too long to be sensible becomes a float (perhaps inf), checked like any other."""
    return int(digits) if len(digits) < 18 else float(digits)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _check_frames(path: Path, text: str, data: dict[str, Any]) -> Array:
    """Frames as numbers (T, 44), all finite; the first fault is named by frame and body."""
    if "Frames" not in data:
        found = ", ".join(excerpt(k, 20) for k in list(data)[:5]) or "no key"
        raise InputError.at(path, None, f"Frames is missing (found {found}, expected Frames)")
    frames = data["Frames"]
    if not isinstance(frames, list):
        raise InputError.at(
            path, _key_line(text, "Frames"), f"Frames is no list (found {_kind(frames)}, expected a list of lists)"
        )
    if not frames:
        raise InputError.at(path, _key_line(text, "Frames"), "Frames is empty (found 0 frames, expected at least 1)")
    for i, frame in enumerate(frames):
        if not isinstance(frame, list):
            raise _frame_error(
                path, text, i, f"not a list (found {_kind(frame)}, expected a list of {FRAME_WIDTH} numbers)"
            )
        if len(frame) != FRAME_WIDTH:
            raise _frame_error(path, text, i, f"wrong length (found {len(frame)} numbers, expected {FRAME_WIDTH})")
        for column, value in enumerate(frame):
            if type(value) is not float and type(value) is not int:
                where = f"{_COLUMN_NAMES[column]} (number {column + 1})"
                raise _frame_error(
                    path,
                    text,
                    i,
                    f"{where} is no number (found {excerpt(json.dumps(value))}, expected a number)",
                    column,
                )
            if not -MAX_ABS <= value <= MAX_ABS:
                kind = "out of range" if math.isfinite(value) else "not finite"
                where, shown = f"{_COLUMN_NAMES[column]} (number {column + 1})", f"{value:g}"
                raise _frame_error(
                    path, text, i, f"{where} is {kind} (found {shown}, expected at most {MAX_ABS:g})", column
                )
    return np.array(frames, np.float64)


def _durations(path: Path, text: str, frames: Array) -> Array:
    for i, value in enumerate(frames[:, 0]):
        last = i == len(frames) - 1
        if value < 0 or value > MAX_FRAME_TIME_S or (not last and value < MIN_FRAME_TIME_S):
            limits = f"{0 if last else MIN_FRAME_TIME_S:g} to {MAX_FRAME_TIME_S:g} s"
            raise _frame_error(path, text, i, f"duration out of range (found {value:g}, expected {limits})", 0)
    return frames[:, 0]


def _rate(frames: Array, times: Array) -> float:
    """Frames per second: snapped to a common rate; the mean rate where durations vary."""
    step = times[-1] / (len(times) - 1) if len(times) > 1 else float(frames[0, 0]) or 1.0 / DEFAULT_FPS
    return snap_fps(max(step, MIN_FRAME_TIME_S), resolution_s=0.0)


def _z_up(vectors: Array, notes: list[str] | None = None) -> Array:
    out = np.stack([vectors[..., 0], -vectors[..., 2], vectors[..., 1]], axis=-1)
    height = float(np.median(out[..., 2]))
    if notes is not None and abs(height) > MAX_ROOT_HEIGHT_M:
        notes.append(
            f"root height {height:g} m "
            f"(found {height:g}, expected below {MAX_ROOT_HEIGHT_M:g}): the format is metres, nothing is "
            "rescaled; give unit cm if it is centimetres"
        )
    return out


def _rotations(path: Path, text: str, frames: Array, notes: list[str]) -> Array:
    """Local rotations (T, 15, 4), normalised, hemispheres aligned over time."""
    quat = np.zeros((len(frames), len(BODY_NAMES), 4))
    quat[..., 0] = 1.0
    worst, place = 0.0, ""
    for body, column, width in LAYOUT:
        j = BODY_NAMES.index(body)
        if width == 1:
            quat[:, j] = quat_from_axis_angle(HINGE_AXIS, frames[:, column])
            continue
        q = frames[:, column : column + 4]
        norm = np.linalg.norm(q, axis=1)
        off = np.abs(norm - 1.0)
        i = int(np.argmax(off))
        if off[i] > NORM_ERROR + 1e-9:
            i = int(np.flatnonzero(off > NORM_ERROR + 1e-9)[0])
            raise _frame_error(
                path,
                text,
                i,
                f"{body} is no rotation (found quaternion norm {norm[i]:.4g}, expected 1 +- {NORM_ERROR:g})",
                column,
            )
        if off[i] > max(worst, NORM_WARN):
            worst, place = float(off[i]), f"frame {i}, {body}: norm {norm[i]:.4g}"
        q = q / norm[:, None]
        quat[:, j] = np.concatenate([q[:, :1], _z_up(q[:, 1:])], axis=1)
    if place:
        notes.append(f"quaternions renormalised (worst {place}, expected 1 +- {NORM_WARN:g})")
    return quat_align(quat)


def _frame_error(path: Path, text: str, frame: int, message: str, column: int | None = None) -> InputError:
    return InputError.at(path, _frame_line(text, frame, column), f"frame {frame}: {message}")


def _key_line(text: str, key: str) -> int | None:
    at = text.find(json.dumps(key))
    return text.count("\n", 0, at) + 1 if at >= 0 else None


def _frame_line(text: str, frame: int, column: int | None = None) -> int | None:
    """Line on which element ``frame`` of the Frames list begins, or number ``column`` of that frame."""
    at = text.find('"Frames"')
    at = _element(text, text.find("[", at) + 1, frame) if at >= 0 else None
    if at is not None and column is not None and text[at] == "[":
        at = _element(text, at + 1, column)
    return None if at is None else text.count("\n", 0, at) + 1


def _element(text: str, at: int, index: int) -> int | None:
    """Position at which element ``index`` begins in the JSON list whose first element begins at or after ``at``."""
    decoder = json.JSONDecoder()
    for i in range(index + 1):
        while at < len(text) and text[at] in " \t\n,":
            at += 1
        if i == index:
            return at if at < len(text) else None
        try:
            at = decoder.raw_decode(text, at)[1]
        except ValueError:
            return None
    return None
