"""What the 169 numbers of an action mean: SRB target, foot commands, contact class, full body.

``a = [a_SRB 30, a_full 135, contact logits 4]`` (Kim et al. 2026, eq. 6-10). ``a_SRB[12:30]`` is a residual on the feet
of the predicted full body: command = foot(a_full) + r, in the forward-facing frame of the predicted target. ``a_full``
is given in the frame that the policy's metadata names:

* ``srb``: relative to the full rotation of the SRB, so the body tilts with the simulated SRB;
* ``proj``: relative to its yaw and the ground point under it (the paper's).
"""

from __future__ import annotations

import math

from numba import njit, prange

from engine.skeleton import LEFT_ANKLE, RIGHT_ANKLE, SOLE_OFFSET
from engine.srb.batch import run_rows
from engine.srb.frames import (
    NJIT,
    exp_into,
    gram_schmidt_into,
    mat_mul_into,
    yaw_cos_sin,
)
from engine.srb.terrain import ground_height

ACTION_SIZE = 169
BODY_FRAME_SRB, BODY_FRAME_PROJ = 0, 1
_SX, _SY, _SZ = float(SOLE_OFFSET[0]), float(SOLE_OFFSET[1]), float(SOLE_OFFSET[2])


@njit(**NJIT)
def _yaw_free_into(out, rot):
    """out = Y(R)^T R."""
    c, s = yaw_cos_sin(rot)
    for j in range(3):
        out[0, j] = c * rot[0, j] + s * rot[1, j]
        out[1, j] = -s * rot[0, j] + c * rot[1, j]
        out[2, j] = rot[2, j]


@njit(**NJIT)
def _decode_one(action, state, body_frame, height, act12, command, ws):
    """Target and foot commands of one character; returns the contact class (argmax of the logits)."""
    turn, target, tilt, rot6, foot = (
        ws[0:9].reshape(3, 3),
        ws[9:18].reshape(3, 3),
        ws[18:27].reshape(3, 3),
        ws[27:36].reshape(3, 3),
        ws[36:45].reshape(3, 3),
    )
    for k in range(12):
        act12[k] = action[k]
    exp_into(turn, act12[9:12])
    mat_mul_into(target, state[3:12].reshape(3, 3), turn)
    _yaw_free_into(tilt, target)
    rot = state[3:12].reshape(3, 3)
    rise = rot[2, 0] * act12[6] + rot[2, 1] * act12[7] + rot[2, 2] * act12[8]
    for k in range(2):
        o = 30 + 9 * (LEFT_ANKLE if k == 0 else RIGHT_ANKLE)
        r = 12 + 9 * k
        for j in range(6):
            ws[45 + j] = action[o + 3 + j]
        gram_schmidt_into(rot6, ws[45:51])
        px = action[o] + rot6[0, 0] * _SX + rot6[0, 1] * _SY + rot6[0, 2] * _SZ
        py = action[o + 1] + rot6[1, 0] * _SX + rot6[1, 1] * _SY + rot6[1, 2] * _SZ
        pz = action[o + 2] + rot6[2, 0] * _SX + rot6[2, 1] * _SY + rot6[2, 2] * _SZ
        if body_frame == BODY_FRAME_SRB:
            mat_mul_into(foot, tilt, rot6)
            px, py, pz = (
                tilt[0, 0] * px + tilt[0, 1] * py + tilt[0, 2] * pz,
                tilt[1, 0] * px + tilt[1, 1] * py + tilt[1, 2] * pz,
                tilt[2, 0] * px + tilt[2, 1] * py + tilt[2, 2] * pz,
            )
        else:
            foot[:] = rot6
            pz -= height + rise
        command[k, 0] = px + action[r]
        command[k, 1] = py + action[r + 1]
        command[k, 2] = pz + action[r + 2]
        for j in range(3):
            command[k, 3 + j] = foot[j, 0] + action[r + 3 + j]
            command[k, 6 + j] = foot[j, 1] + action[r + 6 + j]
    best = 0
    for k in range(1, 4):
        if action[165 + k] > action[165 + best]:
            best = k
    return best


@njit(**NJIT)
def _decode_rows(w, act12, command, contact_class, action, state, body_frame, shape, heights, ws):
    workers, n = ws.shape[0], action.shape[0]
    for i in range(w * n // workers, (w + 1) * n // workers):
        height = state[i, 2] - ground_height(shape, heights, state[i, 0], state[i, 1])
        contact_class[i] = _decode_one(action[i], state[i], body_frame, height, act12[i], command[i], ws[w])


@njit(parallel=True, **NJIT)
def _decode_parallel(act12, command, contact_class, action, state, body_frame, shape, heights, ws):
    for w in prange(ws.shape[0]):
        _decode_rows(w, act12, command, contact_class, action, state, body_frame, shape, heights, ws)


def decode_action_into(act12, command, contact_class, action, state, body_frame, shape, heights, ws) -> None:
    """Decode a batch of actions.

    Args:
        act12: Out, target part of the action (n, 12). command: Out, foot commands (n, 2, 9), see `SrbBatch.step`.
        contact_class: Out (n,). action: (n, 169) float32 or float64. state: (n, 42) before the step.
        body_frame: `BODY_FRAME_SRB` or `BODY_FRAME_PROJ`. ws: (workers, 64) scratch; its length sets the threads.
    """
    arguments = (act12, command, contact_class, action, state, body_frame, shape, heights, ws)
    run_rows(_decode_rows, _decode_parallel, len(ws), arguments)


@njit(**NJIT)
def matrix_to_quat_into(q, m):
    """Unit quaternion (w, x, y, z) of a rotation matrix."""
    t = m[0, 0] + m[1, 1] + m[2, 2]
    if t > 0.0:
        s = 2.0 * math.sqrt(t + 1.0)
        q[0] = 0.25 * s
        q[1] = (m[2, 1] - m[1, 2]) / s
        q[2] = (m[0, 2] - m[2, 0]) / s
        q[3] = (m[1, 0] - m[0, 1]) / s
    elif m[0, 0] >= m[1, 1] and m[0, 0] >= m[2, 2]:
        s = 2.0 * math.sqrt(1.0 + m[0, 0] - m[1, 1] - m[2, 2])
        q[0] = (m[2, 1] - m[1, 2]) / s
        q[1] = 0.25 * s
        q[2] = (m[0, 1] + m[1, 0]) / s
        q[3] = (m[0, 2] + m[2, 0]) / s
    elif m[1, 1] >= m[2, 2]:
        s = 2.0 * math.sqrt(1.0 + m[1, 1] - m[0, 0] - m[2, 2])
        q[0] = (m[0, 2] - m[2, 0]) / s
        q[1] = (m[0, 1] + m[1, 0]) / s
        q[2] = 0.25 * s
        q[3] = (m[1, 2] + m[2, 1]) / s
    else:
        s = 2.0 * math.sqrt(1.0 + m[2, 2] - m[0, 0] - m[1, 1])
        q[0] = (m[1, 0] - m[0, 1]) / s
        q[1] = (m[0, 2] + m[2, 0]) / s
        q[2] = (m[1, 2] + m[2, 1]) / s
        q[3] = 0.25 * s


@njit(**NJIT)
def _compose_rows(w, body_pos_w, body_quat_w, body, state, body_frame, shape, heights, ws):
    workers, n = ws.shape[0], body.shape[0]
    base, local, world = ws[w, 0:9].reshape(3, 3), ws[w, 9:18].reshape(3, 3), ws[w, 18:27].reshape(3, 3)
    for i in range(w * n // workers, (w + 1) * n // workers):
        ox, oy, oz = state[i, 0], state[i, 1], state[i, 2]
        rot = state[i, 3:12].reshape(3, 3)
        if body_frame == BODY_FRAME_SRB:
            base[:] = rot
        else:
            c, s = yaw_cos_sin(rot)
            base[0, 0], base[0, 1], base[0, 2] = c, -s, 0.0
            base[1, 0], base[1, 1], base[1, 2] = s, c, 0.0
            base[2, 0], base[2, 1], base[2, 2] = 0.0, 0.0, 1.0
            oz = ground_height(shape, heights, ox, oy)
        for k in range(15):
            o = 9 * k
            x, y, z = body[i, o], body[i, o + 1], body[i, o + 2]
            body_pos_w[i, k, 0] = ox + base[0, 0] * x + base[0, 1] * y + base[0, 2] * z
            body_pos_w[i, k, 1] = oy + base[1, 0] * x + base[1, 1] * y + base[1, 2] * z
            body_pos_w[i, k, 2] = oz + base[2, 0] * x + base[2, 1] * y + base[2, 2] * z
            for j in range(6):
                ws[w, 27 + j] = body[i, o + 3 + j]
            gram_schmidt_into(local, ws[w, 27:33])
            mat_mul_into(world, base, local)
            matrix_to_quat_into(body_quat_w[i, k], world)


@njit(parallel=True, **NJIT)
def _compose_parallel(body_pos_w, body_quat_w, body, state, body_frame, shape, heights, ws):
    for w in prange(ws.shape[0]):
        _compose_rows(w, body_pos_w, body_quat_w, body, state, body_frame, shape, heights, ws)


def compose_body_into(body_pos_w, body_quat_w, body, state, body_frame, shape, heights, ws) -> None:
    """World pose of the 15 bodies: the predicted ``body`` (n, 135) placed on the simulated SRB.

    Args:
        body_pos_w: Out (n, 15, 3) [m]. body_quat_w: Out (n, 15, 4). body: (n, 135) [position 3, 6-D rotation] x 15.
        state: (n, 42) after the step. body_frame: as in `decode_action_into`. ws: (workers, 64) scratch.
    """
    arguments = (body_pos_w, body_quat_w, body, state, body_frame, shape, heights, ws)
    run_rows(_compose_rows, _compose_parallel, len(ws), arguments)
