"""What the policy sees: s_SRB (35) and s_full (135) of the simulated character (Kim et al. 2026, eq. 2-5).

s_SRB = [h, R6 of Y^T R, Y^T v, Y^T w, left foot (ff position 3, rotation 6), right foot (9), contact one-hot 4];
s_full = 15 bodies x [position in the projected frame 3, rotation 6]. Heights are above the ground under each point, so
a policy trained on level ground reads slopes and steps as level ground.
"""

from __future__ import annotations

from numba import njit, prange

from engine.srb.batch import run_rows
from engine.srb.body import INVERSE
from engine.srb.frames import NJIT, mat_t_vec_into, mat_vec_into, yaw_cos_sin
from engine.srb.terrain import ground_height

SRB_SIZE, FULL_SIZE = 35, 135
OBS_SIZE = 2 * (SRB_SIZE + FULL_SIZE)


@njit(**NJIT)
def _write_6d(out, at, m, c, s):
    """First two columns of Z(-yaw) M at ``out[at:at + 6]``."""
    for j in range(2):
        out[at + 3 * j] = c * m[0, j] + s * m[1, j]
        out[at + 3 * j + 1] = -s * m[0, j] + c * m[1, j]
        out[at + 3 * j + 2] = m[2, j]


@njit(**NJIT)
def observe_srb_into(out, state, stance, ctrl, shape, heights, work):
    """s_SRB (35,) of one character into ``out``; ``work`` (6,) is scratch."""
    rot = state[3:12].reshape(3, 3)
    c, s = yaw_cos_sin(rot)
    h = state[2] - ground_height(shape, heights, state[0], state[1])
    out[0] = h
    _write_6d(out, 1, rot, c, s)
    out[7] = c * state[12] + s * state[13]
    out[8] = -s * state[12] + c * state[13]
    out[9] = state[14]
    local, omega = work[0:3], work[3:6]
    mat_t_vec_into(local, rot, state[15:18])
    mat_vec_into(omega, ctrl[INVERSE : INVERSE + 9].reshape(3, 3), local)
    mat_vec_into(local, rot, omega)
    out[10] = c * local[0] + s * local[1]
    out[11] = -s * local[0] + c * local[1]
    out[12] = local[2]
    for k in range(2):
        at, o = 18 + 12 * k, 13 + 9 * k
        dx, dy = state[at] - state[0], state[at + 1] - state[1]
        out[o] = c * dx + s * dy
        out[o + 1] = -s * dx + c * dy
        out[o + 2] = state[at + 2] - ground_height(shape, heights, state[at], state[at + 1]) - h
        _write_6d(out, o + 3, state[at + 3 : at + 12].reshape(3, 3), c, s)
    for k in range(4):
        out[31 + k] = 0.0
    out[31 + stance[0] + 2 * stance[1]] = 1.0


@njit(**NJIT)
def quat_columns(q, col):
    """First two columns of the matrix of ``q`` (w, x, y, z) into ``col`` (3, 2)."""
    w, x, y, z = q[0], q[1], q[2], q[3]
    col[0, 0] = 1 - 2 * (y * y + z * z)
    col[1, 0] = 2 * (x * y + w * z)
    col[2, 0] = 2 * (x * z - w * y)
    col[0, 1] = 2 * (x * y - w * z)
    col[1, 1] = 1 - 2 * (x * x + z * z)
    col[2, 1] = 2 * (y * z + w * x)


@njit(**NJIT)
def observe_full_into(out, body_pos_w, body_quat_w, state, shape, heights, col):
    """s_full (135,) of one character into ``out``; ``col`` (3, 2) is scratch."""
    c, s = yaw_cos_sin(state[3:12].reshape(3, 3))
    ground = ground_height(shape, heights, state[0], state[1])
    for i in range(15):
        dx, dy = body_pos_w[i, 0] - state[0], body_pos_w[i, 1] - state[1]
        o = 9 * i
        out[o] = c * dx + s * dy
        out[o + 1] = -s * dx + c * dy
        out[o + 2] = body_pos_w[i, 2] - ground
        quat_columns(body_quat_w[i], col)
        _write_6d(out, o + 3, col, c, s)


@njit(**NJIT)
def _observe_rows(w, obs, state, stance, body_pos_w, body_quat_w, ctrl, shape, heights, reference, frame, last, ws):
    workers, n = ws.shape[0], state.shape[0]
    row = ws[w]
    for i in range(w * n // workers, (w + 1) * n // workers):
        observe_srb_into(row[0:35], state[i], stance[i], ctrl[i], shape, heights, row[300:306])
        observe_full_into(
            row[35:170], body_pos_w[i], body_quat_w[i], state[i], shape, heights, row[306:312].reshape(3, 2)
        )
        ahead = min(frame[i] + 1, last[i])
        for k in range(170):
            obs[i, k] = row[k]
            obs[i, 170 + k] = reference[ahead, k]


@njit(parallel=True, **NJIT)
def _observe_parallel(obs, state, stance, body_pos_w, body_quat_w, ctrl, shape, heights, reference, frame, last, ws):
    for w in prange(ws.shape[0]):
        _observe_rows(w, obs, state, stance, body_pos_w, body_quat_w, ctrl, shape, heights, reference, frame, last, ws)


def observe_into(obs, state, stance, body_pos_w, body_quat_w, ctrl, shape, heights, reference, frame, last, ws) -> None:
    """The observation of a batch: [s_SRB, s_full] of the state, [s_SRB, s_full] of the next reference frame.

    Args:
        obs: (n, 340) float32, written. state: (n, 42). stance: (n, 2). body_pos_w: (n, 15, 3) [m].
        body_quat_w: (n, 15, 4). ctrl: (n, 37). reference: (F, 170) rows of the library. frame: (n,) row that the state
        stands on. last: (n,) last row of its clip. ws: (workers, 320) scratch; its length sets the threads.
    """
    arguments = (obs, state, stance, body_pos_w, body_quat_w, ctrl, shape, heights, reference, frame, last, ws)
    run_rows(_observe_rows, _observe_parallel, len(ws), arguments)
