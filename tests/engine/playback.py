"""A stand-in for a library and a player: plays a synthetic walk through the player interface, without any physics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine import skeleton
from engine.rotation import quat_from_axis_angle, quat_rotate

Array = NDArray[np.float64]
FRAMES = 80


class PlaybackPoses(NamedTuple):
    body_pos_w: Array
    body_quat_w: Array
    com_pos_w: Array
    srb_quat_w: Array
    com_vel_w: Array
    foot_pos_w: Array
    foot_quat_w: Array
    contact: NDArray[np.int64]
    forces_w: Array
    force_points_w: Array
    alive: NDArray[np.bool_]
    ref_frame: NDArray[np.int64]
    counters: dict[str, int]


def walk_poses(frames: int = FRAMES, speed: float = 1.0, phase: float = 0.0) -> tuple[Array, Array]:
    """Body positions (T, 15, 3) and orientations (T, 15, 4): limbs swing while the root moves along x."""
    time = np.arange(frames) / 30.0
    swing = 0.5 * np.sin(2 * np.pi * time + phase)
    local = np.zeros((frames, 15, 4))
    local[..., 0] = 1.0
    pitch = np.array([0.0, 1.0, 0.0])
    for name, angle in (
        ("left_hip", swing), ("right_hip", -swing), ("left_shoulder", -swing), ("right_shoulder", swing),
        ("left_knee", 0.4 + 0.3 * swing), ("right_knee", 0.4 - 0.3 * swing), ("chest", 0.1 + 0 * swing),
    ):  # fmt: skip
        local[:, skeleton.BODY_NAMES.index(name)] = quat_from_axis_angle(pitch, angle)
    root = np.column_stack([speed * time, 0.1 * np.sin(time), 0.9 + 0.02 * np.cos(4 * np.pi * time)])
    return skeleton.forward_kinematics(root, local)


def playback_library() -> Any:
    """Two clips with the fields of a motion library that the player interface's users read."""
    parts = [walk_poses(), walk_poses(speed=2.0)]
    body_pos, body_quat = (np.concatenate([p[k] for p in parts]) for k in range(2))
    return SimpleNamespace(
        names=["walk", "run_fast"],
        kind=["walk", "run"],
        split=["train", "heldout"],
        licence=["MIT", "MIT"],
        start=np.array([0, FRAMES]),
        length=np.array([FRAMES, FRAMES]),
        period=np.array([30, 30]),
        body_pos_w=body_pos,
        body_quat_w=body_quat,
        srb_quat_w=body_quat[:, 0],
    )


class PlaybackPlayer:
    """Shows the reference, moved sideways by what the pushes would do to a free body; falls at a given step."""

    def __init__(self, library: Any, falls_at: int | None = None, **options: Any) -> None:
        self.library, self.falls_at, self.options = library, falls_at, options
        self.pushes: list[Array] = []
        self.resets: list[tuple[int, int]] = []

    def reset(self, clips: NDArray[np.int64], frames: NDArray[np.int64]) -> None:
        self.resets.append((int(clips[0]), int(frames[0])))
        self.frame = int(self.library.start[clips[0]] + frames[0])
        self.steps, self.shift_w, self.speed_w = 0, np.zeros(3), np.zeros(3)

    def step(self, push_force_w: Array | None = None, push_torque_w: Array | None = None) -> PlaybackPoses:
        force_w = np.zeros(3) if push_force_w is None else np.asarray(push_force_w)[0]
        self.pushes.append(force_w)
        self.speed_w = self.speed_w + force_w / 45.0 / 30.0
        self.shift_w = self.shift_w + self.speed_w / 30.0
        self.frame += 1
        self.steps += 1
        pos = self.library.body_pos_w[self.frame] + self.shift_w
        quat = self.library.body_quat_w[self.frame]
        feet = list(skeleton.FOOT_BODIES)
        foot_pos = pos[feet] + quat_rotate(quat[feet], skeleton.SOLE_OFFSET)
        weight = np.array([0.0, 0.0, 45.0 * 9.81])
        return PlaybackPoses(
            body_pos_w=pos[None],
            body_quat_w=quat[None],
            com_pos_w=skeleton.com_pos_w(pos, quat)[None],
            srb_quat_w=quat[None, 0],
            com_vel_w=self.speed_w[None],
            foot_pos_w=foot_pos[None],
            foot_quat_w=quat[None, feet],
            contact=np.array([1]),
            forces_w=np.stack([weight / 2, weight / 2, np.zeros(3)])[None],
            force_points_w=np.stack([foot_pos[0] - [0.05, 0, 0], foot_pos[0] + [0.05, 0, 0], np.zeros(3)])[None],
            alive=np.array([self.falls_at is None or self.steps < self.falls_at]),
            ref_frame=np.array([self.frame]),
            counters={},
        )
