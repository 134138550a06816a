"""The MuJoCo model of the character (``engine/assets/humanoid.xml``) and its poses.

MuJoCo keeps joints depth first in its own order; everything here maps by NAME, so callers use the order of
`engine.skeleton.BODY_NAMES`. The joint of a body carries the body's name.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine import rotation
from engine.skeleton import BODY_NAMES, FOOT_BODIES, HINGE_AXIS, JOINT_TYPES

Array = NDArray[np.float64]
CORNERS = 4
"""Contacts of a sole with the floor, at most: its corners."""
CONTACT_WIDTH = 13
"""Numbers a contact: found, force (3, contact frame) [N], position (3) [m], normal (3) into the floor, tangent (3)."""
_FIELDS = ("mjCONDATA_FOUND", "mjCONDATA_FORCE", "mjCONDATA_POS", "mjCONDATA_NORMAL", "mjCONDATA_TANGENT")


def humanoid_path() -> Path:
    """Path of the project's own MJCF file."""
    return Path(__file__).parent.parent / "assets" / "humanoid.xml"


def load_humanoid(floor: bool = True) -> mujoco.MjModel:
    """Compile the character: nq 43, nv 34, nu 28, 45 kg; without the ground plane where ``floor`` is False.

    With the floor its sensors are the contacts of the soles, left foot first: `CORNERS` a foot, `CONTACT_WIDTH` numbers
    each, zeros where there are fewer.
    """
    spec = mujoco.MjSpec.from_file(str(humanoid_path()))
    if not floor:
        spec.delete(spec.geom("floor"))
        return spec.compile()
    wanted = sum(1 << int(getattr(mujoco.mjtConDataField, name)) for name in _FIELDS)
    for body in FOOT_BODIES:
        sensor = spec.add_sensor(
            name=f"{BODY_NAMES[body]}_contacts", type=mujoco.mjtSensor.mjSENS_CONTACT,
            objtype=mujoco.mjtObj.mjOBJ_GEOM, objname=BODY_NAMES[body],
            reftype=mujoco.mjtObj.mjOBJ_GEOM, refname="floor",
        )  # fmt: skip
        sensor.intprm[:3] = (wanted, 0, CORNERS)  # fields, all contacts rather than a summary, how many
    return spec.compile()


def model_digest(model: mujoco.MjModel) -> str:
    """Digest of what moves the character: masses, inertia, joints, shapes, servos; 16 hex digits."""
    parts = [model.body_mass, model.body_inertia, model.body_pos, model.body_ipos, model.body_iquat, model.jnt_axis,
             model.jnt_range, model.geom_size, model.geom_pos, model.geom_friction, model.dof_armature,
             model.actuator_gainprm, model.actuator_biasprm, model.actuator_forcerange,
             model.actuator_gear]  # fmt: skip
    text = "\n".join(" ".join(f"{value:.9g}" for value in part.ravel()) for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def qpos_from_pose(model: mujoco.MjModel, root_pos_w: ArrayLike, local_quat: ArrayLike) -> Array:
    """Generalised positions of poses.

    A hinge takes the part of its body's rotation that turns about the hinge axis (swing-twist), a weld takes nothing.

    Args:
        model: The compiled character.
        root_pos_w: Position of the root joint, world frame [m], shape (..., 3).
        local_quat: Rotations to the parent (entry 0: root to world), shape (..., 15, 4).

    Returns:
        MuJoCo ``qpos``, shape (..., 43).
    """
    local = rotation.quat_normalise(local_quat)
    qpos = np.empty((*local.shape[:-2], model.nq))
    for body, (name, kind) in enumerate(zip(BODY_NAMES, JOINT_TYPES, strict=True)):
        if kind == "fixed":
            continue
        start = model.joint(name).qposadr[0]
        if kind == "free":
            qpos[..., start : start + 3] = root_pos_w
            qpos[..., start + 3 : start + 7] = local[..., body, :]
        elif kind == "ball":
            qpos[..., start : start + 4] = local[..., body, :]
        else:
            angle = 2.0 * np.arctan2(local[..., body, 1:] @ HINGE_AXIS, local[..., body, 0])
            qpos[..., start] = angle - 2.0 * np.pi * np.round(angle / (2.0 * np.pi))
    return qpos


def pose_from_qpos(model: mujoco.MjModel, qpos: ArrayLike) -> tuple[Array, Array]:
    """Root position (..., 3) [m] and local rotations (..., 15, 4) of generalised positions (..., 43)."""
    qpos = np.asarray(qpos, np.float64)
    local = np.zeros((*qpos.shape[:-1], len(BODY_NAMES), 4))
    local[..., 0] = 1.0
    for body, (name, kind) in enumerate(zip(BODY_NAMES, JOINT_TYPES, strict=True)):
        if kind == "fixed":
            continue
        start = model.joint(name).qposadr[0]
        if kind == "hinge":
            local[..., body, :] = rotation.quat_from_axis_angle(HINGE_AXIS, qpos[..., start])
        else:
            start += 3 * (kind == "free")
            local[..., body, :] = qpos[..., start : start + 4]
    root = model.joint("root").qposadr[0]
    return qpos[..., root : root + 3].copy(), local


def set_pose(model: mujoco.MjModel, data: mujoco.MjData, root_pos_w: ArrayLike, local_quat: ArrayLike) -> None:
    """Put one pose (root position (3,) [m], local rotations (15, 4)) into ``data`` at rest and run ``mj_forward``."""
    data.qpos[:] = qpos_from_pose(model, root_pos_w, local_quat)
    data.qvel[:] = 0.0
    mujoco.mj_forward(model, data)
