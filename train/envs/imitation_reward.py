"""DeepMimic's imitation reward in its two versions, and the reward of a goal direction.

``r = w^p r^p + w^v r^v + w^e r^e + w^r r^r + w^c r^c``, every term ``exp(-scale * error)`` in (0, 1]. A term of weight
0 is off. Errors (sums over joints j, the root among them, and end effectors e, hands and feet):

======== ============================================= ==========================================================
term     ``paper`` (Peng et al. 2018, eq. 5-9)         ``official`` (their program, SceneImitate)
======== ============================================= ==========================================================
pose     2 sum |q_ref - q|^2, angle of the difference  2 sum u_j |q_ref - q|^2, u_j sum to 1
velocity 0.1 sum |w_ref - w|^2                         0.1 sum u_j |w_ref - w|^2
end eff. 40 sum |p_ref - p|^2                          40 mean |p_ref - p|^2
root     none                                          5 (|dp|^2 + 0.1 angle^2 + 0.01 |dv|^2 + 0.001 |dw|^2)
com      10 |c_ref - c|^2, position                    10 * 0.1 |v_ref - v|^2, velocity of the centre of mass
======== ============================================= ==========================================================

End effectors are relative to the root's ground point, each in the heading frame of its own character.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.humanoid.kinematics import joint_slices
from engine.humanoid.observe import BALLS
from engine.humanoid.reference import PlacedReference, quat_yaw, turned
from engine.humanoid.simulation import BodyStates
from engine.skeleton import BODY_NAMES
from train.config import TermWeights

Array = NDArray[np.float64]
VERSIONS = ("paper", "official")
END_EFFECTORS = [BODY_NAMES.index(name) for name in ("right_wrist", "left_wrist", "right_ankle", "left_ankle")]
_DIFF_WEIGHT = {"root": 1.0, "chest": 0.5, "neck": 0.3, "hip": 0.5, "knee": 0.3, "ankle": 0.2, "shoulder": 0.3,
                "elbow": 0.2, "wrist": 0.0}  # fmt: skip
JOINT_WEIGHTS = np.array([_DIFF_WEIGHT[name.split("_")[-1]] for name in BODY_NAMES])
JOINT_WEIGHTS /= JOINT_WEIGHTS.sum()
"""``DiffWeight`` of the official character file over its sum of 4.8, a body."""
_QPOS = {
    1: slice(7, 11), 2: slice(11, 15), 3: slice(15, 19), 4: slice(19, 20), 6: slice(20, 24), 7: slice(24, 25),
    9: slice(25, 29), 10: slice(29, 30), 11: slice(30, 34), 12: slice(34, 38), 13: slice(38, 39), 14: slice(39, 43),
}  # fmt: skip
"""Where each body's joint stands in ``qpos``; `engine.humanoid.kinematics.joints_in_order` checks the model for it."""
GOAL_SCALE = 2.5


PAPER = TermWeights(0.65, 0.1, 0.15, 0.0, 0.1)
OFFICIAL = TermWeights(0.5, 0.05, 0.15, 0.2, 0.1)


def imitation_terms(
    version: str, qpos: Array, qvel: Array, bodies: BodyStates, ref: PlacedReference, sharpness: float = 1.0
) -> dict[str, Array]:
    """Every term of one version by its weight's name, each (n,) in (0, 1].

    Args:
        version: ``paper`` or ``official``.
        qpos: Generalised positions (n, 43). qvel: Velocities (n, 34). bodies: World states of the same.
        ref: The reference at the same instant.
        sharpness: Factor of all errors but the end effectors'; 1 is the published reward.
    """
    if version not in VERSIONS:
        raise InputError(f"reward.version (found {version}, expected paper or official)")
    official = version == "official"
    angle2, spin2 = joint_errors(qpos, qvel, bodies, ref)
    weight = JOINT_WEIGHTS if official else np.ones(len(BODY_NAMES))
    sim_root, ref_root = bodies.body_pos_w[:, 0], ref.body_pos_w[:, 0]
    yaw = quat_yaw(bodies.body_quat_w[:, 0])
    ends = [
        turned(-heading[:, None], pos[:, END_EFFECTORS] - (root * np.array([1.0, 1.0, 0.0]))[:, None])
        for heading, pos, root in ((yaw, bodies.body_pos_w, sim_root), (ref.yaw_rad, ref.body_pos_w, ref_root))
    ]
    end2 = _square(ends[0] - ends[1])
    terms = {
        "w_p": np.exp(-2.0 * sharpness * angle2 @ weight),
        "w_v": np.exp(-0.1 * sharpness * spin2 @ weight),
        "w_e": np.exp(-40.0 * (end2.mean(axis=1) if official else end2.sum(axis=1))),
    }
    if official:
        root2 = _square(ref_root - sim_root) + 0.1 * angle2[:, 0]
        root2 += 0.01 * _square(ref.qvel[:, :3] - qvel[:, :3]) + 0.001 * spin2[:, 0]
        terms["w_r"] = np.exp(-5.0 * sharpness * root2)
        terms["w_c"] = np.exp(-10.0 * 0.1 * sharpness * _square(ref.com_vel_w - bodies.com_vel_w))
    else:
        terms["w_r"] = np.zeros(len(qpos))
        terms["w_c"] = np.exp(-10.0 * sharpness * _square(ref.com_pos_w - bodies.com_pos_w))
    return terms


def imitation_reward(
    version: str, weights: TermWeights, qpos: Array, qvel: Array, bodies: BodyStates, ref: PlacedReference,
    sharpness: float = 1.0,
) -> Array:  # fmt: skip
    """The weighted sum of `imitation_terms`, (n,); a perfect imitation earns the sum of the weights."""
    terms = imitation_terms(version, qpos, qvel, bodies, ref, sharpness)
    return sum((getattr(weights, name) * value for name, value in terms.items()), np.zeros(len(qpos)))


def joint_errors(qpos: Array, qvel: Array, bodies: BodyStates, ref: PlacedReference) -> tuple[Array, Array]:
    """Squared angle [rad^2] and squared difference of angular velocity [rad^2/s^2] of every joint, (n, 15) each.

    The root's are those of its world rotation, a joint's those to its parent; welds have none.
    """
    angle2, spin2 = np.zeros((len(qpos), len(BODY_NAMES))), np.zeros((len(qpos), len(BODY_NAMES)))
    angle2[:, 0] = _angle2(bodies.body_quat_w[:, 0], ref.qpos[:, 3:7])
    spin2[:, 0] = _square(bodies.body_spin_w[:, 0] - ref.root_spin_w)
    for body, place in joint_slices():
        at = _QPOS[body]
        if body in BALLS:
            angle2[:, body] = _angle2(qpos[:, at], ref.qpos[:, at])
        else:
            angle2[:, body] = (qpos[:, at.start] - ref.qpos[:, at.start]) ** 2
        spin2[:, body] = _square(qvel[:, 6:][:, place] - ref.qvel[:, 6:][:, place])
    return angle2, spin2


def goal_reward(com_vel_w: Array, goal_yaw_rad: Array, speed_m_s: float) -> Array:
    """``exp(-2.5 max(0, v - v_com . d)^2)`` (n,): DeepMimic's target heading; faster than ``v`` costs nothing."""
    along = com_vel_w[:, 0] * np.cos(goal_yaw_rad) + com_vel_w[:, 1] * np.sin(goal_yaw_rad)
    return np.exp(-GOAL_SCALE * np.maximum(0.0, speed_m_s - along) ** 2)


def _square(v: Array) -> Array:
    return np.einsum("...i,...i->...", v, v)


def _angle2(a: Array, b: Array) -> Array:
    """Squared angle between rotations (n, 4), by the chord: exact also near zero."""
    norm = np.sqrt(_square(a) * _square(b))
    dot = np.abs(np.einsum("ni,ni->n", a, b)) / norm
    return (2.0 * np.arctan2(np.sqrt(np.maximum(1.0 - dot * dot, 0.0)), dot)) ** 2
