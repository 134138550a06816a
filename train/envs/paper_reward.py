"""Reward of the paper (Kim et al. 2026, eq. 11-17, Table 1): survival minus weighted tracking errors."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.motion.library import MotionLibrary
from engine.players.unified import SrbCharacters
from engine.rotation import quat_to_matrix, yaw_matrix
from train.config import PaperReward

Array = NDArray[np.float64]
LAGS = (1, 5, 15)
WRONG_CLASS = 10.0


class RewardHistory:
    """The last 15 positions and rotations of each character, for the relative terms."""

    def __init__(self, characters: SrbCharacters) -> None:
        self.characters = characters
        n = characters.n
        self.pos = np.zeros((max(LAGS) + 1, n, 3))
        self.rot = np.zeros((max(LAGS) + 1, n, 3, 3))
        self.length = np.zeros(n, np.int64)

    def begin(self, idx: NDArray[np.int64]) -> None:
        """Forget the past of characters ``idx``; their present state becomes the first entry."""
        state = self.characters.batch.state
        self.pos[0, idx], self.rot[0, idx] = state[idx, :3], state[idx, 3:12].reshape(-1, 3, 3)
        self.length[idx] = 0

    def push(self) -> None:
        """Record the state after a step."""
        self.pos, self.rot = np.roll(self.pos, 1, axis=0), np.roll(self.rot, 1, axis=0)
        state = self.characters.batch.state
        self.pos[0], self.rot[0] = state[:, :3], state[:, 3:12].reshape(-1, 3, 3)
        self.length += 1


def _six(m: Array) -> Array:
    return np.concatenate([m[..., :, 0], m[..., :, 1]], axis=-1)


def _into(yaw: Array, v: Array) -> Array:
    return np.einsum("nij,ni->nj", yaw, v)


def pose_error(history: RewardHistory, library: MotionLibrary, w: PaperReward) -> Array:
    """r_p = w_p1 dp + w_p2 dR + w_p3 p + w_p4 R, (n,) (eq. 14).

    dp and dR compare the motion over the last 1, 5 and 15 steps, each in its own yaw frame at the earlier time; p and R
    compare height and tilt, each in its own projected frame (the ancestor's code; the text says global, which no part
    of the observation could correct).
    """
    chars = history.characters
    frame = chars.frame
    ref_rot = quat_to_matrix(library.srb_quat_w[frame])
    relative, turn = np.zeros(chars.n), np.zeros(chars.n)
    for lag in LAGS:
        known = history.length >= lag
        past = np.maximum(frame - lag, 0)
        past_rot = quat_to_matrix(library.srb_quat_w[past])
        y_sim, y_ref = yaw_matrix(history.rot[lag]), yaw_matrix(past_rot)
        d = _into(y_sim, history.pos[0] - history.pos[lag]) - _into(
            y_ref, library.com_pos_w[frame] - library.com_pos_w[past]
        )
        relative += np.where(known, np.linalg.norm(d, axis=1), 0.0)
        a, b = (history.rot[lag], past_rot) if lag == max(LAGS) else (y_sim, y_ref)
        r = _six(np.swapaxes(a, -1, -2) @ history.rot[0]) - _six(np.swapaxes(b, -1, -2) @ ref_rot)
        turn += np.where(known, np.abs(r).sum(axis=1), 0.0)
    height = np.abs(history.pos[0, :, 2] - library.com_pos_w[frame, 2])
    own = _six(np.swapaxes(yaw_matrix(history.rot[0]), -1, -2) @ history.rot[0])
    wanted = _six(np.swapaxes(yaw_matrix(ref_rot), -1, -2) @ ref_rot)
    return w.w_p1 * relative + w.w_p2 * turn + w.w_p3 * height + w.w_p4 * np.abs(own - wanted).sum(axis=1)


def foot_error(srb: Array, ref: NDArray[np.floating], w: PaperReward) -> Array:
    """r_e (n,) (eq. 15) from s_SRB and its reference (n, 35): weighted squared distance plus L1 of the 6-D rotation."""
    total = np.zeros(len(srb))
    contact = srb[:, 31:35].argmax(axis=1)
    for k, bit in enumerate((1, 2)):
        o = 13 + 9 * k
        alpha = np.where((contact & bit) > 0, w.stance_alpha, w.swing_alpha)
        total += alpha * ((srb[:, o : o + 3] - ref[:, o : o + 3]) ** 2).sum(axis=1)
        total += np.abs(srb[:, o + 3 : o + 9] - ref[:, o + 3 : o + 9]).sum(axis=1)
    return total


def body_error(body: Array, ref_full: NDArray[np.floating]) -> Array:
    """r_f (n,) (eq. 17): over the 15 bodies, distance of position plus distance of the 6-D rotation."""
    d = (body - ref_full).reshape(-1, 15, 9)
    return (np.linalg.norm(d[..., :3], axis=-1) + np.linalg.norm(d[..., 3:], axis=-1)).sum(axis=1)


def paper_reward(
    history: RewardHistory, srb: Array, body: Array, contact_class: NDArray[np.int64], w: PaperReward
) -> Array:
    """r = w_s - w_m (w_p r_p + w_e r_e + w_ct r_c + w_f r_f), (n,), after a step.

    Args:
        history: States so far, this step included. srb: s_SRB after the step (n, 35).
        body: Predicted full body in the projected frame (n, 135). contact_class: Predicted class (n,).
    """
    chars, library = history.characters, history.characters.library
    ref = chars.ref_rows[chars.frame]
    wrong = np.where(contact_class == library.contact[chars.frame], 0.0, WRONG_CLASS)
    penalty = w.w_p * pose_error(history, library, w) + w.w_ct * wrong + w.w_f * body_error(body, ref[:, 35:])
    if w.w_e > 0:
        penalty = penalty + w.w_e * foot_error(srb, ref[:, :35], w)
    return w.w_s - w.w_m * penalty
