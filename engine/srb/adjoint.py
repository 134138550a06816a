r"""Adjoint of one control step: gradients through the contact-force QP's active set, in closed form.

For a scalar cost ``J`` of the new state, `step_vjp` turns ``dJ/d(new state)`` into ``dJ/d(old state)``,
``dJ/d(action)`` and ``dJ/d(foot command)``. The forces ``f = Proj(A^T u)`` with ``eps u + A f = b`` obey, with ``P``
the projection's Jacobian and ``H = eps I + A P A^T``,

    H du = db - dA f - A P dA^T u,      df = P (dA^T u + A^T du),

so for a gradient ``fbar`` on the forces, with ``q = P fbar`` and ``H l = A q``:

    bbar = l,    Abar = u q^T - l f^T - u (P A^T l)^T.

Gradients with respect to rotation matrices are ambient (3, 3) arrays; only their part along the rotation group means
anything. Contacts, landing and recovery are taken as they happened; the ground is taken as level at each landing.
Holds for the ``foot_pyramid`` cone. Verified by finite differences in tests/engine/srb/test_adjoint.py.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from engine.srb.adjoint_row import WORK, vjp_one
from engine.srb.batch import run_rows
from engine.srb.frames import NJIT
from engine.srb.step import StepRecord


@njit(**NJIT)
def _vjp_rows(
    w, state_new, stance, subset, action, command, ctrl, mu_scale, tape, dt, grad, g_action, g_command, ws, ids
):
    workers, n = ws.shape[0], grad.shape[0]
    for i in range(w * n // workers, (w + 1) * n // workers):
        vjp_one(state_new[i], stance[i], subset[i], action[i], command[i], ctrl[i], mu_scale[i], tape[i], dt,
                 grad[i], g_action[i], g_command[i], ws[w], ids[w])  # fmt: skip


@njit(parallel=True, **NJIT)
def _vjp_parallel(
    state_new, stance, subset, action, command, ctrl, mu_scale, tape, dt, grad, g_action, g_command, ws, ids
):
    for w in prange(ws.shape[0]):
        _vjp_rows(
            w, state_new, stance, subset, action, command, ctrl, mu_scale, tape, dt, grad, g_action, g_command, ws, ids
        )


def step_vjp(
    record: StepRecord,
    action: NDArray[np.float64],
    command: NDArray[np.float64],
    grad: NDArray[np.float64],
    dt: float = 1.0 / 120.0,
    threads: int = 1,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Vector-Jacobian product of `SrbBatch.step`.

    Args:
        record: What `SrbBatch.record` gave after the step.
        action: (n, 12) and command: (n, 2, 9) as given to the step.
        grad: dJ/d(new state) (n, 42).
        dt: Time of a substep, as the batch's.
        threads: Workers.

    Returns:
        dJ/d(old state) (n, 42), dJ/d(action) (n, 12), dJ/d(command) (n, 2, 9).
    """
    n = len(grad)
    workers = max(1, min(threads, n))
    out = np.array(grad, np.float64)
    g_action, g_command = np.zeros((n, 12)), np.zeros((n, 2, 9))
    arguments = (
        record.state, record.stance, record.subset, action, command, record.ctrl, record.mu_scale, record.tape, dt, out,
        g_action, g_command, np.zeros((workers, 2 * WORK)), np.zeros((workers, 16), np.int64),
    )  # fmt: skip
    run_rows(_vjp_rows, _vjp_parallel, workers, arguments)
    return out, g_action, g_command
