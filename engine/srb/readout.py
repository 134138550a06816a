"""The state as the rest of the run-time wants it: positions, quaternions, flags, and whether the character stands."""

from __future__ import annotations

import math

from numba import njit, prange

from engine.srb.action import matrix_to_quat_into
from engine.srb.batch import run_rows
from engine.srb.frames import NJIT, yaw_cos_sin
from engine.srb.terrain import ground_height

# Termination of the paper (Kim et al. 2026, section 4.3): height error, least height, tilt of 65 degrees. Its greatest
# height of 1.2 m is left out: jumps of the reference reach 1.19 m, and one that follows to 2 cm would be a fall.
HEIGHT_ERROR_M, HEIGHT_MIN_M, TILT_COS = 0.2, 0.5, math.cos(math.radians(65.0))


@njit(**NJIT)
def _read_rows(
    w, workers, state, stance, frame, ref_height, limb_momentum, shape, heights, com, quat, vel, momentum, foot_pos,
    foot_quat, standing, contact_class, ground, alive,
):  # fmt: skip
    n = state.shape[0]
    for i in range(w * n // workers, (w + 1) * n // workers):
        rot = state[i, 3:12].reshape(3, 3)
        f = frame[i]
        c, s = yaw_cos_sin(rot)
        for k in range(3):
            com[i, k] = state[i, k]
            vel[i, k] = state[i, 12 + k]
        momentum[i, 0] = state[i, 15] + c * limb_momentum[f, 0] - s * limb_momentum[f, 1]
        momentum[i, 1] = state[i, 16] + s * limb_momentum[f, 0] + c * limb_momentum[f, 1]
        momentum[i, 2] = state[i, 17] + limb_momentum[f, 2]
        matrix_to_quat_into(quat[i], rot)
        for k in range(2):
            at = 18 + 12 * k
            for j in range(3):
                foot_pos[i, k, j] = state[i, at + j]
            matrix_to_quat_into(foot_quat[i, k], state[i, at + 3 : at + 12].reshape(3, 3))
            standing[i, k] = stance[i, k] == 1
            ground[i, k] = ground_height(shape, heights, state[i, at], state[i, at + 1])
        contact_class[i] = stance[i, 0] + 2 * stance[i, 1]
        h = state[i, 2] - ground_height(shape, heights, state[i, 0], state[i, 1])
        # written so that a state that is not a number counts as a fall
        stands = abs(h - ref_height[f]) <= HEIGHT_ERROR_M and h >= HEIGHT_MIN_M
        stands = stands and state[i, 11] >= TILT_COS
        for k in range(42):
            stands = stands and math.isfinite(state[i, k])
        alive[i] = alive[i] and stands


@njit(parallel=True, **NJIT)
def _read_parallel(
    workers, state, stance, frame, ref_height, limb_momentum, shape, heights, com, quat, vel, momentum, foot_pos,
    foot_quat, standing, contact_class, ground, alive,
):  # fmt: skip
    for w in prange(workers):
        _read_rows(
            w, workers, state, stance, frame, ref_height, limb_momentum, shape, heights, com, quat, vel, momentum,
            foot_pos, foot_quat, standing, contact_class, ground, alive,
        )  # fmt: skip


def read_state_into(workers, *arguments) -> None:
    """Split states (n, 42) into what MMIK, the viewer and the measures read; all outputs are written in place.

    Args:
        workers: Threads. arguments: state (n, 42), stance (n, 2), frame (n,) rows of the library, ref_height (F,) [m],
            limb_momentum (F, 3) added to the SRB's in its yaw frame [kg m^2/s], terrain shape and heights; then the
            outputs com (n, 3), quat (n, 4), vel (n, 3), momentum (n, 3), foot_pos (n, 2, 3), foot_quat (n, 2, 4),
            standing (n, 2) bool, contact_class (n,), ground (n, 2) height under each foot, alive (n,) and-ed with the
            paper's termination.
    """
    run_rows(_read_rows, _read_parallel, workers, (workers, *arguments))
