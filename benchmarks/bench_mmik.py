"""MMIK alone, and against mink on the same frames: a walking body whose feet and COM were moved by a few centimetres.

mink (a general differential-IK library on MuJoCo) gets the same task: both feet and the centre of mass, posture as the
prior, start from the predicted pose; as many iterations as bring the feet within a millimetre or the limit is reached.
It solves one frame at a time and knows neither momentum nor the frames before.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from engine import skeleton
from engine.ik.mmik import MMIK
from engine.players.unified import controller_params
from engine.policy import Policy
from engine.rotation import quat_rotate

SHIFT_M = 0.02
MINK_FRAMES = 40
MINK_ITERATIONS = 10
FOOT_TOLERANCE_M = 1e-3


class Task(NamedTuple):
    """Consecutive frames of a clip as the IK gets them; leading axis is time."""

    body_pos_w: np.ndarray
    body_quat_w: np.ndarray
    com_pos_w: np.ndarray
    srb_quat_w: np.ndarray
    com_vel_w: np.ndarray
    ang_momentum_w: np.ndarray
    foot_pos_w: np.ndarray
    foot_quat_w: np.ndarray
    contact: np.ndarray
    ground_z: np.ndarray


@pytest.fixture
def task(library: Any, starts: Any) -> Task:
    """One cycle of the clip, the simulated body two centimetres beside the predicted one, the feet where they were."""
    clips, _ = starts(1, 10)
    first = int(library.start[clips[0]])
    rows = first + np.arange(int(library.period[clips[0]]))
    t = np.arange(len(rows))
    wave = SHIFT_M * np.stack([np.sin(t / 5), np.cos(t / 7), 0.3 * np.sin(t / 4)], axis=1)
    pos, quat = library.body_pos_w, library.body_quat_w
    spin = skeleton.momentum_w(pos[rows], quat[rows], pos[rows + 1], quat[rows + 1], 1 / 30)[1]
    contact = library.contact[rows]
    return Task(
        library.body_pos_w[rows] + wave[:, None],
        library.body_quat_w[rows].copy(),
        library.com_pos_w[rows] + wave,
        library.srb_quat_w[rows].copy(),
        library.com_vel_w[rows].copy(),
        spin,
        library.foot_pos_w[rows].copy(),
        library.foot_quat_w[rows].copy(),
        np.stack([contact & 1, contact >> 1], axis=1) == 1,
        np.zeros((len(rows), 2)),
    )


@pytest.mark.benchmark(group="mmik")
def test_mmik(benchmark, params, policy_path, method, task):
    policy = Policy.load(policy_path)
    _, settings = controller_params(policy.metadata.controller, policy.metadata.method)
    ik = MMIK(1, settings)
    frames = [tuple(np.ascontiguousarray(a[t : t + 1]) for a in task) for t in range(len(task.com_pos_w))]
    out_pos, out_quat = np.zeros((1, 15, 3)), np.zeros((1, 15, 4))

    def cycle() -> None:
        ik.reset()
        for frame in frames:
            ik.solve_into(out_pos, out_quat, *frame)

    cycle()
    benchmark.pedantic(cycle, rounds=20 * params.runs, warmup_rounds=1)
    stance = task.contact[-1]
    assert not stance.any() or ik.foot_error[0][stance].max() < FOOT_TOLERANCE_M, "a stance foot was missed"
    bone = np.linalg.norm(out_pos[0, 1:] - out_pos[0, list(skeleton.PARENTS[1:])], axis=-1)
    np.testing.assert_allclose(bone, np.linalg.norm(skeleton.OFFSETS[1:], axis=-1), atol=1e-9)
    benchmark.extra_info.update(
        row=f"MMIK, {method}'s settings", method=method, calls=len(frames), ours=True, threads=1,
        note="a frame: feet, COM, momentum; one call from Python a frame",
    )  # fmt: skip


@pytest.mark.benchmark(group="mmik")
def test_mink(benchmark, params, task):
    mink = pytest.importorskip("mink")
    from engine.humanoid.model import load_humanoid, qpos_from_pose

    model = load_humanoid(floor=False)
    count = min(MINK_FRAMES, len(task.com_pos_w)) if params.runs > 1 else 5
    local = skeleton.local_from_world(task.body_quat_w[:count])
    start = qpos_from_pose(model, task.body_pos_w[:count, 0], local)
    configuration = mink.Configuration(model)
    feet = [mink.FrameTask(skeleton.BODY_NAMES[b], "body", 10.0, 1.0) for b in skeleton.FOOT_BODIES]
    com = mink.ComTask(1.0)
    posture = mink.PostureTask(model, 1e-3)
    ankle = task.foot_pos_w - quat_rotate(
        task.foot_quat_w, np.broadcast_to(skeleton.SOLE_OFFSET, task.foot_pos_w.shape)
    )
    iterations, errors = [], []

    def cycle() -> None:
        for t in range(count):
            configuration.update(start[t])
            posture.set_target(start[t])
            com.set_target(task.com_pos_w[t])
            for k, foot in enumerate(feet):
                foot.set_target(mink.SE3(np.concatenate([task.foot_quat_w[t, k], ankle[t, k]])))
            used, error = 0, np.inf
            while used < MINK_ITERATIONS and error > FOOT_TOLERANCE_M:
                velocity = mink.solve_ik(configuration, [*feet, com, posture], 1.0, solver="daqp", limits=[])
                configuration.integrate_inplace(velocity, 1.0)
                used += 1
                error = max(float(np.linalg.norm(f.compute_error(configuration)[:3])) for f in feet)
            iterations.append(used)
            errors.append(error)

    benchmark.pedantic(cycle, rounds=params.runs, warmup_rounds=1)
    assert np.median(errors) < 5 * FOOT_TOLERANCE_M, "mink did not reach the feet, so its time means nothing"
    benchmark.extra_info.update(
        row="mink (daqp, no limits)", calls=count, threads=1, iterations_mean=float(np.mean(iterations)),
        note=f"a frame: feet, COM, posture; {np.mean(iterations):.1f} iterations",
    )  # fmt: skip
