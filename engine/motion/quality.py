"""How good a clip of the library is, in numbers a person can judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from engine.motion.legs import foot_points
from engine.motion.retarget import FPS

if TYPE_CHECKING:
    from engine.motion.build import BuiltClip

Array = NDArray[np.float64]
#: What only the making of a clip knows; empty in a report on a stored library.
MADE = (
    "family",
    "scale",
    "ground_offset_m",
    "joint_error_m",
    "ankle_error_m",
    "penetration_m",
    "limit_violations",
    "out_of_reach_m",
    "cut_s",
    "jumps_repaired",
    "largest_jump_deg",
    "filter_shift_rms_m",
    "filter_shift_max_m",
    "path_shift_rms_m",
    "path_shift_max_m",
    "srb_turn_rms_deg",
    "srb_turn_max_deg",
)


def clip_quality(clip: BuiltClip) -> dict[str, Any]:
    """One row of the report.

    ``slide_cm_frame``: mean horizontal step of heels and toes between two frames in which they stand.
    ``stance_sole_cm``, ``lowest_point_cm``: height of the lowest standing point (median) and of any foot point.
    ``flight_acc_m_s2``: mean vertical acceleration of the centre of mass inside flights; -9.81 is free fall.
    ``step_max_deg``: largest turn of a joint within one frame.
    """
    points = foot_points(clip.body_pos_w, clip.body_quat_w)
    tips = np.stack([points["heel"], points["toe"]], axis=2)
    stays = clip.heel_toe[1:] & clip.heel_toe[:-1]
    step = np.linalg.norm(np.diff(tips[..., :2], axis=0), axis=-1)
    lowest = tips[..., 2].min(axis=2)
    stands = clip.heel_toe.any(axis=-1)
    z = clip.com_pos_w[:, 2]
    acc = (z[2:] - 2 * z[1:-1] + z[:-2]) * FPS**2
    flight = clip.contact == 0
    inside = flight[1:-1] & flight[2:] & flight[:-2]
    dots = np.abs(np.sum(clip.local_quat[1:] * clip.local_quat[:-1], axis=-1)).clip(0, 1)
    travel = np.linalg.norm(np.diff(clip.com_pos_w[:, :2], axis=0), axis=-1)
    changes = int(np.sum(np.diff(clip.contact) != 0))
    row: dict[str, Any] = {
        "clip": clip.name,
        "kind": clip.kind,
        "split": clip.split,
        "file": clip.report.get("file", ""),
        "licence": clip.licence,
        "playing_speed": float(clip.report.get("speed", 1.0)),
        "frames": len(clip.contact),
        "period_frames": clip.period,
        "speed_m_s": float(travel.mean() * FPS),
        "com_height_m": float(z.mean()),
        "com_height_min_m": float(z.min()),
        "com_height_max_m": float(z.max()),
        "none": float(np.mean(clip.contact == 0)),
        "left": float(np.mean(clip.contact == 1)),
        "right": float(np.mean(clip.contact == 2)),
        "both": float(np.mean(clip.contact == 3)),
        "contact_changes_s": changes / (len(clip.contact) / FPS),
        "flight_acc_m_s2": float(acc[inside].mean()) if inside.any() else None,
        "slide_cm_frame": float(100 * step[stays].mean()) if stays.any() else None,
        "stance_sole_cm": float(100 * np.median(lowest[stands])) if stands.any() else None,
        "lowest_point_cm": float(100 * lowest.min()),
        "step_max_deg": float(np.degrees(2 * np.arccos(dots)).max()),
    }
    for name in MADE:
        row[name] = clip.report.get(name)
    row["error"] = ""
    return row
