"""Real references through the measures give the numbers that were measured independently on the same clips."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.measures import frame_quantities
from benchmarks.rollout import record_episodes
from engine import skeleton
from engine.motion.reader import read_motion
from engine.motion.retarget import retarget
from tests.benchmarks.stand_in import StandInPlayer

# Jerk [cm/frame^3] of the first three quarters and of the rest of each clip, measured with another skeleton mapping.
JERK = {
    "lafan1_reconstructed/walk1_subject5_g1recon_f877-3577.bvh": (0.64, 0.61),
    "lafan1_reconstructed/run1_subject5_g1recon_f186-2886.bvh": (1.34, 1.06),
    "lafan1_reconstructed/jumps1_subject1_g1recon_f161-2861.bvh": (0.91, 0.73),
}


@pytest.mark.parametrize("name", JERK)
def test_jerk_of_a_real_clip(shared_dir, name):
    motion = retarget(read_motion(shared_dir / "motion" / name))
    body, quat = skeleton.forward_kinematics(motion.root_pos_w, motion.local_quat)
    frames = len(body)
    library = SimpleNamespace(
        start=np.array([0]), body_pos_w=body, body_quat_w=quat, com_pos_w=skeleton.com_pos_w(body, quat),
        srb_quat_w=quat[:, 0], contact=np.zeros(frames, np.int64), heel_toe=np.zeros((frames, 2, 2), bool),
    )  # fmt: skip
    player = StandInPlayer(library, 1)
    recording = record_episodes(player, library, np.array([0]), np.array([0]), frames - 2)
    quantities = frame_quantities(recording, library)
    jerk, split = quantities["jerk"][3:, 0], 3 * frames // 4
    assert (jerk[:split].mean(), jerk[split:].mean()) == pytest.approx(JERK[name], rel=0.1)
    np.testing.assert_allclose(quantities["jerk"], quantities["jerk_reference"], atol=1e-9)
    assert quantities["skate_steps"].sum() == 0
