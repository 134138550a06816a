"""A tiny motion library and a player that plays it back with known errors, so that every metric has an exact value."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from engine import skeleton
from engine.rotation import quat_from_axis_angle, quat_mul, quat_rotate

FRAMES = 640


class Poses(NamedTuple):
    """The fields of a player's poses that the measures read."""

    body_pos_w: np.ndarray
    body_quat_w: np.ndarray
    com_pos_w: np.ndarray
    srb_quat_w: np.ndarray
    contact: np.ndarray
    alive: np.ndarray
    ref_frame: np.ndarray
    body_proj_pos_w: np.ndarray


def make_library(
    kinds=("walk", "run", "jump"), splits=("train", "heldout"), frames=FRAMES, period=200, speed_m=0.04, bob_m=0.02
):
    """One clip a kind and split: the zero pose moving ahead ``speed_m`` a frame, bobbing, feet alternating."""
    clips = [(kind, split) for kind in kinds for split in splits]
    t = np.arange(frames)
    height = skeleton.THIGH_LENGTH + skeleton.SHANK_LENGTH + 0.05 - skeleton.OFFSETS[9, 2]
    rest_pos, rest_quat = skeleton.forward_kinematics(np.zeros(3), np.tile([1.0, 0, 0, 0], (15, 1)))
    root = np.stack([speed_m * t, 0.0 * t, height + bob_m * (1 + np.sin(2 * np.pi * t / 20))], axis=-1)
    body = np.tile(rest_pos + root[:, None], (len(clips), 1, 1))
    quat = np.tile(rest_quat, (len(clips) * frames, 1, 1))
    contact = np.tile(np.where(t // 10 % 2 == 0, 1, 2), len(clips))
    heel_toe = np.stack([contact == 1, contact == 2], axis=-1)[..., None] & np.ones(2, bool)
    return SimpleNamespace(
        names=[f"{kind}_{split}" for kind, split in clips],
        kind=[kind for kind, _ in clips],
        split=[split for _, split in clips],
        start=np.arange(len(clips)) * frames,
        length=np.full(len(clips), frames),
        period=np.full(len(clips), period),
        body_pos_w=body,
        body_quat_w=quat,
        com_pos_w=skeleton.com_pos_w(body, quat),
        srb_quat_w=quat[:, 0],
        contact=contact.astype(np.int64),
        heel_toe=heel_toe,
    )


class StandInPlayer:
    """Plays the reference back, moved, turned, shaken or cut off by known amounts.

    Args:
        library: Where the poses come from.
        n: Number of characters.
        offset_m: Constant shift of all bodies but the SRB (so a pose error in every frame), or of everything with
            ``move_srb``.
        yaw_rad: Turn about the vertical through the first frame's COM, SRB included.
        shake_m: Amplitude of a vertical saw +1, -1, +1, ... of every body.
        dies_at: Frame at which the characters die; the later half of them only, unless None.
        swap_feet: Report left contact as right and vice versa.
    """

    def __init__(
        self, library, n=4, offset_m=(0, 0, 0), move_srb=False, yaw_rad=0.0, shake_m=0.0, dies_at=None, swap_feet=False,
        proj_offset_m=(0, 0, 0), **options,
    ):  # fmt: skip
        self.library, self.n, self.options = library, n, options
        self.offset, self.move_srb, self.yaw, self.shake = np.array(offset_m, float), move_srb, yaw_rad, shake_m
        self.dies_at, self.swap_feet, self.proj_offset = dies_at, swap_feet, np.array(proj_offset_m, float)
        self.pushes: list[np.ndarray] = []

    def reset(self, clips, frames):
        self.at = self.library.start[clips] + frames
        self.t = 0
        self.origin = self.library.com_pos_w[self.at + 1] * [1, 1, 0]

    def step(self, push_force_w=None, push_torque_w=None):
        lib = self.library
        if push_force_w is not None:
            self.pushes.append(np.array(push_force_w))
        self.at = self.at + 1
        turn = quat_from_axis_angle(np.array([0, 0, 1.0]), np.full(self.n, self.yaw))
        body = self._moved(lib.body_pos_w[self.at], turn) + self.offset
        body[..., 2] += self.shake * (-1) ** self.t
        com = self._moved(lib.com_pos_w[self.at][:, None], turn)[:, 0] + self.offset * self.move_srb
        contact = lib.contact[self.at]
        alive = np.ones(self.n, bool)
        if self.dies_at is not None and self.t >= self.dies_at:
            alive[self.n // 2 :] = False
            body[~alive] = np.nan
        self.t += 1
        return Poses(
            body,
            quat_mul(turn[:, None], lib.body_quat_w[self.at]),
            com,
            quat_mul(turn, lib.srb_quat_w[self.at]),
            np.array([0, 2, 1, 3])[contact] if self.swap_feet else contact,
            alive,
            self.at.copy(),
            body - self.offset + self.proj_offset,
        )

    def _moved(self, pos, turn):
        origin = self.origin[:, None]
        return origin + quat_rotate(turn[:, None], pos - origin)
