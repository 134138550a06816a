"""Which heel and which toe stands on the ground, by speed in m/s and height in m, whatever the frame rate or unit.

Contact classes: 0 none, 1 left, 2 right, 3 both feet. Feet are ordered left, right; points heel, toe.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.motion.config import ContactParams

Array = NDArray[np.float64]
#: Time over which a speed is taken, before and after a frame [s]: one frame at 30 fps.
SPEED_STEP_S = 1.0 / 30.0


def label_contacts(
    point_pos_w: Array, fps: float, params: ContactParams, unit_m: float = 1.0, travel_m_s: float = 0.0
) -> NDArray[np.bool_]:
    """Label points that stand on the ground.

    The speed at a time is the smaller of those over the 1/30 s before and after it: a foot stands from the moment it
    stops to the moment it starts to move. The filter looks at times ``filter_s / 3`` apart, so the same motion has the
    same labels at 30 and 120 frames a second.

    Args:
        point_pos_w: Points over time, z up from the ground, in units of ``unit_m`` (T, ..., 3).
        fps: Frames a second.
        params: Limits.
        unit_m: Metres a unit.
        travel_m_s: Speed at which the character travels [m/s]; where ``speed_share`` of it is more than the speed limit
            it takes its place, since standing feet slide in proportion in fast clips.

    Returns:
        Labels (T, ...): whether speed and height are under the limits, majority of three samples.
    """
    pos = np.asarray(point_pos_w, np.float64) * unit_m
    n = len(pos)
    frame = np.arange(n)
    step = SPEED_STEP_S * fps
    forward = np.linalg.norm(_at(pos, frame + step) - pos, axis=-1) / SPEED_STEP_S
    backward = np.linalg.norm(pos - _at(pos, frame - step), axis=-1) / SPEED_STEP_S
    first, last = frame < step - 1e-9, frame > n - 1 - step + 1e-9
    forward[last & ~first] = np.inf  # only the side that lies inside the motion counts
    backward[first & ~last] = np.inf
    speed = np.minimum(forward, backward)
    raw = (speed < max(params.speed_m_s, params.speed_share * travel_m_s)) & (pos[..., 2] < params.height_m)
    if params.filter_s == 0:
        return raw
    step = max(1, round(params.filter_s / 3.0 * fps))
    before, after = raw[np.maximum(frame - step, 0)], raw[np.minimum(frame + step, n - 1)]
    return before.astype(int) + raw + after >= 2


def _at(values: Array, frame: NDArray[np.floating]) -> Array:
    """Values (T, ...) at fractional frames, linear, held at the ends."""
    frame = np.clip(frame, 0, len(values) - 1)
    low = np.minimum(np.floor(frame + 1e-9).astype(int), max(0, len(values) - 2))
    w = (frame - low).reshape((-1,) + (1,) * (values.ndim - 1))
    return (1 - w) * values[low] + w * values[np.minimum(low + 1, len(values) - 1)]


def contact_class(heel_toe: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Classes (T,) from labels (T, 2, 2) [foot, heel or toe]: a foot stands where its heel or its toe does."""
    foot = heel_toe.any(axis=-1)
    return foot[:, 0].astype(np.int64) + 2 * foot[:, 1].astype(np.int64)


def remove_false_flights(
    contact: NDArray[np.int64], com_z: Array, lowest_z: Array, fps: float, max_frames: int, params: ContactParams
) -> NDArray[np.int64]:
    """Give flights that are none the stance class before them.

    A flight is none if it is at most ``max_frames`` long (labels flicker between the feet of a walk), if no frame has
    all foot points above half the height limit (feet that shuffle or slide), or if the centre of mass does not fall.

    Args:
        contact: Classes (T,).
        com_z: Height of the centre of mass [m] (T,).
        lowest_z: Height of the lowest foot point [m] (T,).
        fps: Frames a second.
        max_frames: Longest flight that is removed whatever else; 0 removes none by its length.
        params: Limits; `min_fall_m_s2` is the smallest mean downward acceleration of a true flight.

    Returns:
        Classes (T,); a flight at the very start takes the class after it, and one that is all of the motion stays.
    """
    out = contact.copy()
    acc = np.zeros(len(com_z))
    acc[1:-1] = (com_z[2:] - 2 * com_z[1:-1] + com_z[:-2]) * fps**2
    edges = np.flatnonzero(np.diff(np.concatenate([[0], contact == 0, [0]])))
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        part = slice(start, stop)
        true = stop - start > max_frames and lowest_z[part].max() >= 0.5 * params.height_m
        true = true and -acc[part].mean() >= params.min_fall_m_s2
        if true or stop - start == len(out):
            continue
        out[part] = out[start - 1] if start > 0 else out[stop]
    return out


def labels_of_class(heel_toe: NDArray[np.bool_], contact: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Labels that agree with the classes: a foot set standing by `remove_false_flights` stands on its toe."""
    out = heel_toe.copy()
    for side, bit in ((0, 1), (1, 2)):
        stands = (contact & bit) > 0
        out[~stands, side] = False
        out[stands & ~out[:, side].any(axis=-1), side, 1] = True
    return out


def label_agreement(found: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> dict[str, float]:
    """Precision, recall and F1 of labels of one shape against others."""
    hit = float(np.sum(found & wanted))
    precision = hit / max(1.0, float(found.sum()))
    recall = hit / max(1.0, float(wanted.sum()))
    return {
        "precision": precision,
        "recall": recall,
        "f1": 2 * precision * recall / max(1e-12, precision + recall),
    }
