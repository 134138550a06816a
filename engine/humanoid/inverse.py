"""Joint torques that a motion takes: inverse dynamics with the contact forces of its standing feet.

``M a + c = tau + J^T f``: MuJoCo gives the left side. Its six rows of the root, where nothing but contact acts, choose
the forces f at the corners of the standing soles, inside the friction pyramid and as even as possible; the joints' rows
then leave the torques. What the root lacks in flight, or beyond friction, stays undone: no torque can supply it.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from engine.skeleton import BODY_NAMES, FOOT_BODIES, SHAPES, SOLE_OFFSET

Array = NDArray[np.float64]
#: Of the pyramid's edges; the floor's is 1.
FRICTION = 0.9
_EDGES = np.array([[FRICTION, 0, 1], [-FRICTION, 0, 1], [0, FRICTION, 1], [0, -FRICTION, 1]])
_HALF_X, _HALF_Y = SHAPES[FOOT_BODIES[0]][1][:2]
_CORNERS = SOLE_OFFSET + np.array([[x, y, 0.0] for x in (-_HALF_X, _HALF_X) for y in (-_HALF_Y, _HALF_Y)])
#: Lever that makes a moment of the root comparable with a force [m].
_LEVER_M = 0.25
#: Of a force against what it leaves undone at the root: spreads the load over the corners.
_EVEN = 0.03


def joint_torques(
    model: mujoco.MjModel, qpos: Array, qvel: Array, qacc: Array, contact: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Torques of the joints and what no contact force could give the root.

    Args:
        model: The character without a floor.
        qpos: Generalised positions (P, 43). qvel: Velocities (P, 34). qacc: Their change a second (P, 34).
        contact: Class 0 none, 1 left, 2 right, 3 both feet stand (P,).

    Returns:
        Torques about the joints' axes [N m], (P, nv - 6), and the rest at the root (P, 6): forces in world axes [N],
        moments in the root's axes [N m].
    """
    flags = model.opt.disableflags
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONSTRAINT  # joint limits push nobody here
    data = mujoco.MjData(model)
    weight = np.array([1.0, 1.0, 1.0, *[1.0 / _LEVER_M] * 3])
    out, rest = np.zeros((len(qpos), model.nv - 6)), np.zeros((len(qpos), 6))
    for k, stands in enumerate(contact):
        data.qpos[:], data.qvel[:], data.qacc[:] = qpos[k], qvel[k], qacc[k]
        mujoco.mj_inverse(model, data)
        need = data.qfrc_inverse.copy()
        feet = [body for bit, body in zip((1, 2), FOOT_BODIES, strict=True) if stands & bit]
        if feet:
            share = np.concatenate([_edge_forces(model, data, BODY_NAMES[body]) for body in feet]).T
            system = np.vstack([weight[:, None] * share[:6], _EVEN * np.eye(share.shape[1])])
            force, _ = nnls(system, np.concatenate([weight * need[:6], np.zeros(share.shape[1])]))
            need -= share @ force
        out[k], rest[k] = need[6:], need[:6]
    model.opt.disableflags = flags
    return out, rest


def _edge_forces(model: mujoco.MjModel, data: mujoco.MjData, foot: str) -> Array:
    """Generalised forces of a unit along each edge of the friction pyramid at each corner of a sole, (16, nv)."""
    body = model.body(foot).id
    jacobian, rows = np.zeros((3, model.nv)), []
    for corner in _CORNERS:
        mujoco.mj_jac(model, data, jacobian, None, data.xpos[body] + data.xmat[body].reshape(3, 3) @ corner, body)
        rows.append(_EDGES @ jacobian)
    return np.concatenate(rows)
