"""Play episodes with any player and keep what the measures need; no measure is computed here."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine import skeleton
from engine.rotation import quat_rotate

Array = NDArray[np.float64]
HEEL_TOE_OFFSETS = np.stack([skeleton.HEEL_OFFSET, skeleton.TOE_OFFSET])  # (2, 3) in the foot's own axes [m]
START_TOLERANCE_M = 0.5


class Recording(NamedTuple):
    """What a batch of episodes did, time first.

    Attributes:
        body_pos_w: Played body positions, composed on the full SRB [m], (T, n, 15, 3).
        body_proj_pos_w: The same pose composed on the yaw-only projected frame [m], (T, n, 15, 3).
        marker_pos_w: Heel and toe of the left, then the right foot [m], (T, n, 2, 2, 3).
        marker_contact: Which of them the simulation holds on the ground, (T, n, 2, 2).
        com_pos_w: Centre of mass of the SRB [m], (T, n, 3).
        srb_quat_w: Orientation of the SRB, (T, n, 4).
        alive: False from the frame at which the episode ended, (T, n).
        ref_frame: Row of the library that each pose should match, (T, n).
    """

    body_pos_w: Array
    body_proj_pos_w: Array
    marker_pos_w: Array
    marker_contact: NDArray[np.bool_]
    com_pos_w: Array
    srb_quat_w: Array
    alive: NDArray[np.bool_]
    ref_frame: NDArray[np.int64]


class Push(NamedTuple):
    """A horizontal force at the centre of mass, held over some frames of each episode.

    Attributes:
        force_n: Strength [N], (n,).
        direction_rad: World direction, (n,).
        first_frame: Frame at which it sets in, (n,).
        frames: How many frames it lasts.
    """

    force_n: Array
    direction_rad: Array
    first_frame: NDArray[np.int64]
    frames: int

    def force_w(self, frame: int) -> Array:
        """World force [N] on each character in ``frame``, (n, 3)."""
        on = (frame >= self.first_frame) & (frame < self.first_frame + self.frames)
        size = np.where(on, self.force_n, 0.0)
        return np.stack([size * np.cos(self.direction_rad), size * np.sin(self.direction_rad), 0.0 * size], axis=-1)


def markers_w(body_pos_w: Array, body_quat_w: Array) -> Array:
    """Heel and toe points [m] of bodies (..., 15, 3) and (..., 15, 4): (..., 2 feet, 2, 3), left foot first."""
    feet = list(skeleton.FOOT_BODIES)
    offsets = quat_rotate(body_quat_w[..., feet, None, :], HEEL_TOE_OFFSETS)
    return body_pos_w[..., feet, None, :] + offsets


def feet_of_class(contact: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Contact class (0 none, 1 left, 2 right, 3 both) to (..., 2) booleans, left foot first."""
    return np.stack([(contact & 1) > 0, (contact & 2) > 0], axis=-1)


def record_episodes(
    player: Any,
    library: Any,
    clips: NDArray[np.int64],
    starts: NDArray[np.int64],
    frames: int,
    push: Push | None = None,
) -> Recording:
    """Play one episode on each of the player's characters.

    Args:
        player: Anything with ``reset(clips, frames)`` and ``step(push_force_w=...) -> Poses``.
        library: Motion library that the player follows.
        clips: Clip index of each character, (n,).
        starts: Start frame within the clip, (n,).
        frames: Length of the episodes.
        push: Disturbance, or None.

    Raises:
        RuntimeError: The player did not start on its reference, so a world error would mean nothing.
    """
    n = len(clips)
    out = Recording(
        np.empty((frames, n, 15, 3)),
        np.empty((frames, n, 15, 3)),
        np.empty((frames, n, 2, 2, 3)),
        np.empty((frames, n, 2, 2), bool),
        np.empty((frames, n, 3)),
        np.empty((frames, n, 4)),
        np.empty((frames, n), bool),
        np.empty((frames, n), np.int64),
    )
    player.reset(clips, starts)
    for t in range(frames):
        poses = player.step(push_force_w=None if push is None else push.force_w(t))
        proj = getattr(poses, "body_proj_pos_w", None)
        held = getattr(poses, "heel_toe", None)
        out.body_pos_w[t] = poses.body_pos_w
        out.body_proj_pos_w[t] = poses.body_pos_w if proj is None else proj
        out.marker_pos_w[t] = markers_w(poses.body_pos_w, poses.body_quat_w)
        out.marker_contact[t] = feet_of_class(poses.contact)[..., None] if held is None else held
        out.com_pos_w[t] = poses.com_pos_w
        out.srb_quat_w[t] = poses.srb_quat_w
        out.alive[t] = poses.alive
        out.ref_frame[t] = poses.ref_frame
    np.logical_and.accumulate(out.alive, axis=0, out=out.alive)
    away = np.linalg.norm(out.com_pos_w[0, :, :2] - library.com_pos_w[out.ref_frame[0], :2], axis=-1)
    if np.any(away[out.alive[0]] > START_TOLERANCE_M):
        raise RuntimeError(f"the player starts {away.max():.2f} m beside its reference (expected the same place)")
    return out
