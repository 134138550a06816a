"""Four physics substeps alone: the engine's kernel against the paper-faithful step, on states of the reference motion.

Every frame of the clip is one character of a batch: its state is the reference's, its target the reference's next
frame, its contacts the labels. So the times are means over the contact situations of the whole clip; each call starts
from the same states, with the QP's warm start of the call before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.faithful import FaithfulBatch
from engine.players.unified import controller_params
from engine.policy import Policy
from engine.rotation import matrix_to_6d, quat_log, quat_mul, quat_rotate, quat_to_matrix, yaw_matrix
from engine.srb.body import controller_row, pack_state
from engine.srb.step import SrbBatch
from engine.srb.terrain import Terrain

FAITHFUL_FRAMES = 20


class ReferenceSteps:
    """A batch whose characters stand on consecutive reference frames, with targets on the next ones."""

    def __init__(self, policy: Policy, library: Any, rows: np.ndarray) -> None:
        meta = policy.metadata
        srb, _ = controller_params(meta.controller, meta.method)
        inertia = np.asarray(meta.inertia_b).reshape(3, 3)
        self.batch = SrbBatch(np.tile(controller_row(srb, meta.mass_kg, inertia), (len(rows), 1)), Terrain.flat())
        contact = library.contact[rows]
        self.state = pack_state(
            library.com_pos_w[rows], library.srb_quat_w[rows], library.com_vel_w[rows], library.ang_vel_w[rows],
            library.foot_pos_w[rows], library.foot_quat_w[rows], inertia,
        )  # fmt: skip
        self.stance = np.stack([contact & 1, contact >> 1], axis=1)
        after = rows + 1
        back = library.srb_quat_w[rows] * [1, -1, -1, -1]
        angle = quat_log(quat_mul(back, library.srb_quat_w[after]))
        self.action = np.concatenate(
            [
                quat_rotate(back, library.com_vel_w[after]),
                quat_rotate(back, library.ang_vel_w[after]),
                quat_rotate(back, library.com_pos_w[after] - library.com_pos_w[rows]),
                angle,
            ],
            axis=1,
        )
        heading = np.swapaxes(yaw_matrix(quat_to_matrix(library.srb_quat_w[after])), -1, -2)[:, None]
        place = heading @ (library.foot_pos_w[after] - library.com_pos_w[after][:, None])[..., None]
        self.command = np.concatenate(
            [place[..., 0], matrix_to_6d(heading @ quat_to_matrix(library.foot_quat_w[after]))], axis=-1
        )
        self.contact = library.contact[after]

    def restore(self) -> None:
        """Back to the reference states; the QP keeps its warm start."""
        self.batch.state[:], self.batch.stance[:], self.batch.lift[:] = self.state, self.stance, 0
        self.batch.counters[:] = 0

    def step(self) -> None:
        self.batch.step(self.action, self.command, self.contact)


@pytest.mark.benchmark(group="substeps")
@pytest.mark.parametrize("runtime", ["engine", "faithful"])
def test_four_substeps(benchmark, library, params, policy_path, starts, method, runtime):
    clips, _ = starts(1, 10)
    first = int(library.start[clips[0]])
    count = int(library.period[clips[0]]) if runtime == "engine" else FAITHFUL_FRAMES
    steps = ReferenceSteps(Policy.load(policy_path), library, first + np.arange(count))
    if runtime == "faithful":
        steps.batch = FaithfulBatch(steps.batch)
    for _ in range(2):
        steps.restore()
        steps.step()
    rounds = params.runs if runtime == "faithful" else 20 * params.runs
    benchmark.pedantic(steps.step, setup=steps.restore, rounds=rounds)
    batch = steps.batch
    assert batch.counters[:, 0].sum() == 0, "a contact QP was not solved"
    wanted = library.com_pos_w[first + 1 + np.arange(count)]
    assert np.abs(batch.state[:, :3] - wanted).max() < 0.05, "the step left the reference it was told to follow"
    benchmark.extra_info.update(
        row=f"{runtime}, {method}'s controller",
        method=method,
        runtime=runtime,
        calls=count,
        ours=runtime == "engine",
        threads=1,
        contacts_mean=float((steps.stance.sum(axis=1) * int(batch.ctrl[0, 35])).mean()),
        newton_steps_mean=float(batch.counters[:, 1].sum() / max(1, batch.counters[:, 2].sum())),
        note="four substeps of one character, mean over a cycle of the clip",
    )
