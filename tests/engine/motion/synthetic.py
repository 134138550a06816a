"""Small synthetic motions and parameters for the tests of the motion library."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from engine.motion.clip import Clip
from engine.motion.config import ClipParams, ContactParams, DynamicFilterParams, MotionParams
from engine.motion.legs import place_ankles
from engine.rotation import quat_exp, quat_from_axis_angle, quat_mul, quat_rotate
from engine.skeleton import BODY_NAMES, OFFSETS, PARENTS

Array = NDArray[np.float64]
UP = np.array([0.0, 0.0, 1.0])
CONTACT = ContactParams(
    speed_m_s=0.333, speed_share=0.2, height_m=0.0333, filter_s=0.1, max_false_flight_frames=3, min_fall_m_s2=3.0
)
FILTER = DynamicFilterParams(
    height_m=0.04, stance_m_s2=4.0, flight_m_s2=0.15, path_m=0.02, path_stance_m_s2=0.3, support_length_m=0.1,
    support_width_m=0.04, turn_rad=0.15, turn_stance_rad_s2=6.0, turn_flight_rad_s2=0.3,
)  # fmt: skip


def params(clips: list[ClipParams] | None = None, min_frames: int = 100, standing: bool = True) -> MotionParams:
    """Parameters of a small library."""
    return MotionParams(
        min_frames=min_frames,
        blend_s=0.4,
        jump_spread_s=0.2,
        jump_deg=5.0,
        standing=standing,
        standing_knee_deg=10.0,
        contact=CONTACT,
        filter=FILTER,
        clips=clips or [],
    )


def clip_params(name: str, file: str, **changes: object) -> ClipParams:
    """One clip entry from the folder source."""
    values: dict = {
        "name": name,
        "source": "folder",
        "file": file,
        "kind": "walk",
        "split": "train",
        "from_s": 0.0,
        "to_s": 0.0,
        "speed": 1.0,
        "mirror": False,
    }
    return ClipParams(**{**values, **changes})


def walk(seconds: float = 2.0, fps: float = 30.0, speed: float = 1.0, turn_rad_s: float = 0.0) -> tuple[Array, Array]:
    """A walk of the character: root positions (T, 3) [m] and local rotations (T, 15, 4), one second a stride.

    Feet stand still on the ground for half the stride each, and swing 12 cm high.
    """
    t = np.arange(round(seconds * fps) + 1) / fps
    heading = turn_rad_s * t
    root = np.stack([speed * t, 0.0 * t, 0.81 + 0.01 * np.cos(4 * np.pi * t)], axis=-1)
    local = np.zeros((len(t), 15, 4))
    local[..., 0] = 1.0
    local[:, 0] = quat_from_axis_angle(UP, heading)
    arm = 0.3 * np.sin(2 * np.pi * t)
    local[:, 3] = quat_exp(np.stack([0 * t, arm, 0 * t], -1))
    local[:, 6] = quat_exp(np.stack([0 * t, -arm, 0 * t], -1))
    ankles = np.empty((len(t), 2, 3))
    for side, phase in ((0, 0.0), (1, 0.5)):
        cycle = t + phase
        part = cycle - np.floor(cycle)
        swing = np.clip((part - 0.5) / 0.5, 0.0, 1.0)
        smooth = swing**2 * (3 - 2 * swing)
        ankles[:, side, 0] = speed * (np.floor(cycle) - phase + 0.25 + smooth)
        ankles[:, side, 1] = 0.085 if side == 0 else -0.085
        ankles[:, side, 2] = 0.05 + 0.12 * np.sin(np.pi * swing) ** 2
    local, _ = place_ankles(root, local, ankles)
    return root, local


def walk_clip(loop: str = "none", **options: float) -> Clip:
    """`walk` as a clip of the character."""
    root, local = walk(**options)
    fps = options.get("fps", 30.0)
    return Clip(
        "walk", list(BODY_NAMES), PARENTS.copy(), OFFSETS.copy(), fps, root, local, loop, source=Path("walk.txt")
    )


def renamed_clip(scale: float = 1.0, twist: bool = False) -> Clip:
    """The walk on a skeleton with LaFAN1's names, of another size; with ``twist`` every joint has axes of its own.

    Joint axes are changed by constant rotations C_j, ``local' = C_parent^T local C_j``, which moves no joint.
    """
    root, local = walk()
    names = {
        "root": "Hips", "chest": "Spine2", "neck": "Neck",
        "right_shoulder": "RightArm", "right_elbow": "RightForeArm", "right_wrist": "RightHand",
        "left_shoulder": "LeftArm", "left_elbow": "LeftForeArm", "left_wrist": "LeftHand",
        "right_hip": "RightUpLeg", "right_knee": "RightLeg", "right_ankle": "RightFoot",
        "left_hip": "LeftUpLeg", "left_knee": "LeftLeg", "left_ankle": "LeftFoot",
    }  # fmt: skip
    joint_names = [names[b] for b in BODY_NAMES] + ["RightToe", "LeftToe"]
    parents = np.concatenate([PARENTS, [11, 14]])
    offsets = np.concatenate([OFFSETS, [[0.125, 0.0, -0.05]] * 2])
    quat = np.concatenate([local, np.tile([1.0, 0, 0, 0], (len(root), 2, 1))], axis=1)
    # arms and knees bend a little, or their hinge axes could not be told
    quat[:, 4] = quat[:, 7] = quat_from_axis_angle(np.array([0.0, -1.0, 0.0]), 0.4)
    if twist:
        rng = np.random.default_rng(3)
        axes = quat_exp(rng.normal(size=(len(parents), 3)))
        inverse = axes * np.array([1.0, -1.0, -1.0, -1.0])
        for j, p in enumerate(parents):
            quat[:, j] = quat_mul(quat[:, j], axes[j])
            if p >= 0:
                quat[:, j] = quat_mul(inverse[p], quat[:, j])
        offsets = np.stack([quat_rotate(inverse[p], o) if p >= 0 else o for o, p in zip(offsets, parents, strict=True)])
    return Clip("walk", joint_names, parents, scale * offsets, 30.0, scale * root, quat, source=Path("walk.bvh"))


def write_deepmimic(path: Path, clip: Clip, loop: str) -> None:
    """Write a clip of the character as DeepMimic JSON (y up)."""

    def vector(v: Array) -> Array:
        return np.stack([v[..., 0], v[..., 2], -v[..., 1]], axis=-1)

    def quat(q: Array) -> Array:
        return np.concatenate([q[..., :1], vector(q[..., 1:])], axis=-1)

    def hinge(q: Array) -> Array:
        return 2 * np.arctan2(-q[:, 2], q[:, 0])[:, None]

    columns = [np.full((clip.n_frames, 1), 1 / clip.fps), vector(clip.root_pos_m), quat(clip.local_quat[:, 0])]
    order = ((1, 4), (2, 4), (9, 4), (10, 1), (11, 4), (3, 4), (4, 1), (12, 4), (13, 1), (14, 4), (6, 4), (7, 1))
    for body, size in order:
        columns.append(quat(clip.local_quat[:, body]) if size == 4 else hinge(clip.local_quat[:, body]))
    frames = np.concatenate(columns, axis=1)
    path.write_text(json.dumps({"Loop": loop, "Frames": frames.tolist()}), encoding="utf-8")
