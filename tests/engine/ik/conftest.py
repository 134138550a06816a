"""Motions and settings for the IK tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from engine import rotation
from engine import skeleton as sk
from engine.ik.mmik import MMIK, MmikParams

FPS = 30.0


@dataclass
class Motion:
    """A rigid skeleton motion and the simulated state that agrees with it exactly."""

    body_pos: np.ndarray  # (T, 15, 3)
    body_quat: np.ndarray  # (T, 15, 4)
    com: np.ndarray  # (T, 3)
    foot_pos: np.ndarray  # (T, 2, 3)
    foot_quat: np.ndarray  # (T, 2, 4)
    momentum: np.ndarray  # (T, 3), means of neighbours equal the motion's own

    def __len__(self) -> int:
        return len(self.com)


def as_motion(root: np.ndarray, local: np.ndarray) -> Motion:
    """State of a motion given by root positions (T, 3) and local rotations (T, 15, 4)."""
    pos, quat = sk.forward_kinematics(root, local)
    feet = list(sk.FOOT_BODIES)
    soles = pos[:, feet] + rotation.quat_rotate(quat[:, feet], sk.SOLE_OFFSET)
    between = sk.momentum_w(pos[:-1], quat[:-1], pos[1:], quat[1:], 1.0 / FPS)[1]
    momentum = [between[0]]
    for value in between:
        momentum.append(2.0 * value - momentum[-1])
    return Motion(pos, quat, sk.com_pos_w(pos, quat), soles, quat[:, feet], np.array(momentum))


@pytest.fixture(scope="session")
def stride() -> Motion:
    """A smooth made-up walk in place of 60 frames: hips, knees, ankles, arms and trunk swing, bent knees."""
    t = np.arange(60) / FPS
    phase = 2.0 * np.pi * 0.9 * t
    angles = np.zeros((60, 15, 3))
    angles[:, 0] = np.stack([0.04 * np.sin(phase), 0.05 + 0.03 * np.cos(2 * phase), 0.1 * np.sin(phase)], -1)
    angles[:, 1] = np.stack([-0.04 * np.sin(phase), 0.05 * np.cos(phase), -0.15 * np.sin(phase)], -1)
    angles[:, 3, 1], angles[:, 6, 1] = 0.5 * np.sin(phase), -0.5 * np.sin(phase)
    angles[:, 4, 1], angles[:, 7, 1] = -0.6 - 0.2 * np.sin(phase), -0.6 + 0.2 * np.sin(phase)
    for thigh, sign in ((9, 1.0), (12, -1.0)):
        swing = sign * np.sin(phase)
        angles[:, thigh] = np.stack([0.03 * swing, -0.35 - 0.3 * swing, 0.05 * swing], -1)
        angles[:, thigh + 1, 1] = 0.7 + 0.3 * sign * np.cos(phase)
        angles[:, thigh + 2, 1] = -0.3 - 0.2 * sign * np.cos(phase)
    root = np.stack([0.05 * np.sin(phase), 0.02 * np.cos(phase), 0.83 + 0.01 * np.sin(2 * phase)], -1)
    return as_motion(root, rotation.quat_exp(angles))


@pytest.fixture(scope="session")
def walk(shared_dir: Path) -> Motion:
    """Two cycles of the DeepMimic walk on flat ground."""
    from engine.motion.deepmimic import read_deepmimic

    clip = read_deepmimic(shared_dir / "motion" / "deepmimic" / "humanoid3d_walk.txt")
    order = [clip.joint_names.index(name) for name in sk.BODY_NAMES]
    root, local = clip.root_pos_m[:-1], rotation.quat_normalise(clip.local_quat[:-1][:, order])
    step = clip.root_pos_m[-1] - clip.root_pos_m[0]
    step[2] = 0.0
    lowest = 0.009  # the clip's feet stand this far above its floor
    root = np.concatenate([root, root + step]) - [0.0, 0.0, lowest]
    return as_motion(root, np.concatenate([local, local]))


@pytest.fixture(scope="session")
def params() -> dict[str, float | int | bool]:
    """Settings with every part switched on."""
    return {
        "iterations": 3,
        "com_halflife_s": 0.03,
        "swing_follow": 1.0,
        "swing_halflife_s": 0.05,
        "landing_halflife_s": 0.03,
        "stance_roll": True,
        "roll_deadband_rad": 0.035,
        "heel_lift_max_rad": 1.0,
        "toe_lift_max_rad": 0.6,
        "reach_heel_lift_max_rad": 0.4,
        "knee_soft_start": 0.985,
        "knee_limit": 0.995,
        "pelvis_shift_max_m": 0.15,
        "momentum_gain": 0.1,
        "momentum_damping": 0.05,
        "momentum_trunk_weight": 0.3,
        "momentum_max_rad": 0.2,
    }


@pytest.fixture
def play(params: dict):
    """Run one character through a motion; keyword arguments replace parts of the simulated state."""

    def run(motion: Motion, contact: np.ndarray, changes: dict | None = None, **state: np.ndarray):
        solver = MMIK(1, MmikParams(**{**params, **(changes or {})}), FPS)
        pos, quat = np.empty((len(motion), 15, 3)), np.empty((len(motion), 15, 4))
        errors = np.empty((len(motion), 3))
        inputs: dict[str, np.ndarray] = {**vars(motion), **state}
        ground = state.get("ground", np.full((len(motion), 2), -1.0))
        nothing = np.zeros((1, 3))
        for t in range(len(motion)):
            s = slice(t, t + 1)
            solver.solve_into(
                pos[s], quat[s], inputs["body_pos"][s], inputs["body_quat"][s], inputs["com"][s],
                inputs["body_quat"][s, 0], nothing, inputs["momentum"][s], inputs["foot_pos"][s],
                inputs["foot_quat"][s], contact[s], ground[s],
            )  # fmt: skip
            errors[t, 0] = solver.com_error[0]
            errors[t, 1:] = solver.foot_error[0]
        return pos, quat, errors, {name: int(count[0]) for name, count in solver.counters.items()}

    return run
