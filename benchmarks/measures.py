"""Per-frame quantities behind the accuracy tables, in vectorised NumPy; ``accuracy.py`` turns them into metrics.

Each quantity comes as a sum over points of one frame together with its count, so that any window, episode or seed is
pooled exactly by adding. Lengths in cm. Only frames that are alive count: an episode that dies early contributes the
frames it lived, which is why survival stands beside every error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.rollout import Array, Recording, markers_w
from engine.rotation import quat_to_matrix, yaw_of

CM = 100.0
ROOT = 0
MANN_HEIGHT_CM = 2.5  # Zhang et al. 2018, mode-adaptive networks: height below which a foot is taken as planted
CHUNK = 64  # episodes at a time, so that the temporaries stay small
QUANTITIES = (
    "frames",
    "jpe_srb",
    "jpe_proj",
    "jpe_root",
    "jpe_world",
    "jerk",
    "jerk_reference",
    "jerk_frames",
    "skate",
    "skate_reference",
    "skate_steps",
    "skate_sim",
    "skate_sim_steps",
    "drift",
    "drift_points",
    "skate_mann",
    "mann_steps",
    "penetration",
    "contact_tp",
    "contact_fp",
    "contact_fn",
)


def frame_quantities(recording: Recording, library: Any) -> dict[str, Array]:
    """All quantities of ``QUANTITIES`` for each frame and episode, each (T, n)."""
    n = recording.alive.shape[1]
    parts = [
        _quantities(Recording._make(a[:, i : i + CHUNK] for a in recording), library)
        for i in range(0, max(n, 1), CHUNK)
    ]
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in QUANTITIES}


def window_sums(quantities: dict[str, Array], window_frames: int) -> dict[str, Array]:
    """Sum each quantity over consecutive windows of frames: (W, n), the last window may be shorter."""
    frames = quantities["frames"].shape[0]
    edges = np.arange(0, frames, window_frames)
    return {name: np.add.reduceat(values, edges, axis=0) for name, values in quantities.items()}


def _quantities(rec: Recording, library: Any) -> dict[str, Array]:
    alive, ref = rec.alive, rec.ref_frame
    keep = alive[..., None, None]
    ref_body = np.where(keep, library.body_pos_w[ref], 0.0)
    body = np.where(keep, rec.body_pos_w, 0.0)
    ref_marker = markers_w(library.body_pos_w[ref], library.body_quat_w[ref])
    marker = np.where(keep[..., None], rec.marker_pos_w, 0.0)
    follows = alive.copy()  # this frame and the one before it both count
    follows[0] = False
    follows[1:] &= alive[:-1] & (np.diff(ref, axis=0) == 1)

    out: dict[str, Any] = {"frames": alive.astype(np.float64)}
    sim_yaw, ref_yaw = yaw_of(quat_to_matrix(rec.srb_quat_w)), yaw_of(quat_to_matrix(library.srb_quat_w[ref]))
    ref_local = _in_projected(ref_body, library.com_pos_w[ref], ref_yaw)
    out["jpe_srb"] = _mean_distance(_in_projected(body, rec.com_pos_w, sim_yaw), ref_local)
    proj = np.where(keep, rec.body_proj_pos_w, 0.0)
    out["jpe_proj"] = _mean_distance(_in_projected(proj, rec.com_pos_w, sim_yaw), ref_local)
    out["jpe_root"] = _mean_distance(_without_root(body), _without_root(ref_body))
    out["jpe_world"] = _mean_distance(body, ref_body)

    both = follows.copy()  # four consecutive frames
    both[:3] = False
    both[3:] &= follows[2:-1] & follows[1:-2]
    out["jerk"], out["jerk_reference"] = _third_difference(body), _third_difference(ref_body)
    out["jerk_frames"] = both.astype(np.float64)

    label = library.heel_toe[ref] & keep
    held = rec.marker_contact & keep
    step = _horizontal_step(marker)
    out["skate"], out["skate_steps"] = _sum_where(step, label, follows)
    out["skate_reference"], _ = _sum_where(_horizontal_step(ref_marker), label, follows)
    out["skate_sim"], out["skate_sim_steps"] = _sum_where(step, held, follows)
    out["drift"], out["drift_points"] = _interval_drift(marker, label)
    height = np.clip(marker[..., 2] * CM, 0.0, MANN_HEIGHT_CM)
    planted = step * (2.0 - 2.0 ** (height / MANN_HEIGHT_CM))
    out["skate_mann"] = np.sum(planted * follows[..., None, None], axis=(2, 3))
    out["mann_steps"] = 4.0 * follows
    out["penetration"] = CM * np.mean(np.maximum(-marker[..., 2], 0.0), axis=(2, 3))

    sim_foot, ref_foot = held.any(axis=-1), label.any(axis=-1)
    out["contact_tp"] = np.sum(sim_foot & ref_foot, axis=-1).astype(np.float64)
    out["contact_fp"] = np.sum(sim_foot & ~ref_foot, axis=-1).astype(np.float64)
    out["contact_fn"] = np.sum(~sim_foot & ref_foot, axis=-1).astype(np.float64)
    for name in ("jpe_srb", "jpe_proj", "jpe_root", "jpe_world", "penetration"):
        out[name] = np.where(alive, out[name], 0.0)
    for name in ("jerk", "jerk_reference"):
        out[name] = np.where(both, out[name], 0.0)
    return out


def _in_projected(pos_w: Array, com_pos_w: Array, yaw: Array) -> Array:
    """Positions (T, n, 15, 3) in the projected SRB frame: yaw removed, origin on the ground under the COM."""
    x = pos_w[..., 0] - com_pos_w[..., None, 0]
    y = pos_w[..., 1] - com_pos_w[..., None, 1]
    c, s = np.cos(yaw)[..., None], np.sin(yaw)[..., None]
    return np.stack([c * x + s * y, c * y - s * x, pos_w[..., 2]], axis=-1)


def _without_root(pos_w: Array) -> Array:
    return np.delete(pos_w - pos_w[..., ROOT : ROOT + 1, :], ROOT, axis=-2)


def _mean_distance(a: Array, b: Array) -> Array:
    return CM * np.mean(np.linalg.norm(a - b, axis=-1), axis=-1)


def _third_difference(pos_w: Array) -> Array:
    """Mean over bodies of the third finite difference that ends at each frame [cm/frame^3], (T, n)."""
    out = np.zeros(pos_w.shape[:2])
    out[3:] = CM * np.mean(np.linalg.norm(np.diff(pos_w, n=3, axis=0), axis=-1), axis=-1)
    return out


def _horizontal_step(marker: Array) -> Array:
    """Horizontal way [cm] of each marker since the frame before, (T, n, 2, 2)."""
    out = np.zeros(marker.shape[:-1])
    out[1:] = CM * np.linalg.norm(np.diff(marker[..., :2], axis=0), axis=-1)
    return out


def _sum_where(step: Array, contact: NDArray[np.bool_], follows: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Sum and count of the steps whose marker was in contact before and after, each (T, n)."""
    on = contact.copy()
    on[1:] &= contact[:-1]
    on &= follows[..., None, None]
    return np.sum(step * on, axis=(2, 3)), np.sum(on, axis=(2, 3)).astype(np.float64)


def _interval_drift(marker: Array, contact: NDArray[np.bool_]) -> tuple[Array, Array]:
    """Horizontal distance [cm] of contact points to the mean place of their contact interval: sum and count (T, n)."""
    frames, n = contact.shape[:2]
    on = contact.reshape(frames, -1).T  # (markers of all episodes, time)
    begins = on.copy()
    begins[:, 1:] &= ~on[:, :-1]
    interval = np.cumsum(begins.ravel()).reshape(on.shape)[on]  # unique over markers: an interval starts in its own row
    place = marker[..., :2].reshape(frames, -1, 2).transpose(1, 0, 2)[on]
    count = np.maximum(np.bincount(interval, minlength=1), 1)
    mean = np.stack([np.bincount(interval, place[:, k], minlength=1) / count for k in range(2)], axis=-1)
    distance = np.zeros(on.shape)
    distance[on] = CM * np.linalg.norm(place - mean[interval], axis=-1)
    distance = distance.T.reshape(frames, n, 4)
    return distance.sum(axis=-1), contact.reshape(frames, n, 4).sum(axis=-1).astype(np.float64)
