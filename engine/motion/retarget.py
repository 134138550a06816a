"""Any clip -> the 15-body character at the control rate.

The source's zero pose is not trusted (LaFAN1's and Bandai's bones lie along +X, CMU's form a T): per body a constant
rotation from the source joint's axes to the character's is found from what is constant in the source anatomy -- where
the hips, the neck and the knees lie, about which axis knees and elbows bend over the clip, and how the foot lies when
it is flat on the ground. Limbs then follow the source bone directions, knees and elbows as hinges with the rest of the
turn in the hip and shoulder, and the legs are bent so that the ankles are where the scaled source has them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.motion.clip import Clip
from engine.motion.legs import (
    LEGS,
    SOFT_REACH_M,
    bend_axis,
    clear_ground,
    foot_points,
    frame_along,
    place_ankles,
)
from engine.motion.mirror import mirrored_half
from engine.motion.name_maps import find_roles
from engine.motion.trim import tpose_frames
from engine.rotation import (
    quat_align,
    quat_from_axis_angle,
    quat_from_matrix,
    quat_mul,
    quat_to_matrix,
)
from engine.skeleton import BODY_NAMES, SHANK_LENGTH, SOLE_OFFSET, THIGH_LENGTH, forward_kinematics, local_from_world

Array = NDArray[np.float64]
#: Control rate [frames/s].
FPS = 30.0
#: Height of the ankle above a flat sole [m].
ANKLE_HEIGHT = -float(SOLE_OFFSET[2])
#: (shoulder, elbow, wrist) body indices, left arm first.
ARMS = ((6, 7, 8), (3, 4, 5))
SIDES = ("left", "right")
UP = np.array([0.0, 0.0, 1.0])


@dataclass
class CharacterMotion:
    """A motion of the 15-body character at `FPS`.

    Attributes:
        name: Name of the clip.
        root_pos_w: Pelvis positions, world [m] (T, 3).
        local_quat: Local rotations (w, x, y, z) (T, 15, 4).
        loop: ``none``, ``wrap`` (the last frame is the first of the next round) or ``mirror``.
        licence: Licence of the source.
        start_s: Time of the first frame in the source file [s], playing time.
        report: Quality of the retargeting, see `retarget`.
        fps: Frames a second.
    """

    name: str
    root_pos_w: Array
    local_quat: Array
    loop: str = "none"
    licence: str = ""
    start_s: float = 0.0
    report: dict[str, Any] = field(default_factory=dict)
    fps: float = FPS

    def __len__(self) -> int:
        return len(self.root_pos_w)


def retarget(clip: Clip, speed: float = 1.0) -> CharacterMotion:
    """Put a clip on the character.

    Args:
        clip: Source, Z up, metres.
        speed: Playing speed. A looped clip is fitted to a whole number of frames, so its speed is the nearest possible.

    Returns:
        Motion whose ``report`` holds ``family``, ``scale``, ``ground_offset_m`` (how far the scaled source was
        raised), ``joint_error_m`` (mean distance of knees, ankles, shoulders, elbows and wrists from the scaled
        source), ``ankle_error_m``, ``penetration_m`` (deepest foot point before it was raised), ``limit_violations``
        (share of frames with a knee or elbow bent backwards by more than 5 degrees), ``out_of_reach_m``, ``speed`` (the
        playing speed in fact) and ``cut_s`` (T-pose cut from the two ends).

        A looped clip of the character that was made as half a cycle and its mirror image comes back as that half, with
        ``loop`` mirror.

    Raises:
        InputError: Joint names of no known family, or a clip too short to have a velocity.
    """
    if len(clip.root_pos_m) < 3:
        raise InputError.at(clip.source, None, f"clip too short (found {len(clip.root_pos_m)} frames, expected 3)")
    own = list(clip.joint_names) == list(BODY_NAMES)
    half_s, ground = 0.0, 0.0
    if own:
        clip, ground = _stand_flat(clip)
        half = mirrored_half(clip.root_pos_m, clip.local_quat) if clip.loop == "wrap" else 0
        if half:  # made as half a cycle and its mirror image: the seam between the two is closed like that at the end
            half_s = float(clip.times_s[half] - clip.times_s[0])
            clip = replace(clip.cut(half, clip.n_frames), loop="mirror")
    sampled = _sample(clip, speed)
    count = sampled.n_frames - 1
    head, tail = tpose_frames(sampled)
    if sampled.n_frames - head - tail < 3:
        raise InputError.at(clip.source, None, f"nothing but a T-pose (found {sampled.n_frames} frames at 30 fps)")
    sampled = sampled.cut(head, sampled.n_frames - tail)
    motion = _adopt(sampled, ground) if own else _transfer(sampled)
    motion.start_s = half_s / speed + head / FPS
    motion.report["speed"] = clip.duration_s * FPS / count if clip.loop != "none" else speed
    motion.report["cut_s"] = (head + tail) / FPS
    return motion


def _sample(clip: Clip, speed: float) -> Clip:
    """The clip at `FPS` and another speed; times run from 0 in playing time. Rotations by slerp, positions linearly."""
    times = np.asarray(clip.times_s, np.float64) - clip.times_s[0]
    n = times[-1] * FPS / speed
    if clip.loop == "none":
        count = int(np.floor(n + 1e-6))
        at = np.arange(count + 1) * speed / FPS
    else:
        count = max(2, round(n))
        at = np.arange(count + 1) * times[-1] / count
    sampled = clip.sample(clip.times_s[0] + np.minimum(at, times[-1]))
    return replace(sampled, fps=FPS, times_s=np.arange(count + 1) / FPS)


def _stand_flat(clip: Clip) -> tuple[Clip, float]:
    """A clip of the character with its feet flat where they stand and on the ground, and how far it was raised."""
    root, local = np.array(clip.root_pos_m), np.array(clip.local_quat)
    pos, quat = forward_kinematics(root, local)
    heights = []
    for side, (_, _, ankle) in enumerate(LEGS):
        points = foot_points(pos, quat)
        flat = _flat_frames(points["heel"][:, side], points["toe"][:, side], clip.fps)
        tilt = _mean_local(quat_to_matrix(quat[flat, ankle]), np.tile(UP, (flat.sum(), 1)))
        ahead = _unit(np.array([1.0, 0.0, 0.0]) - tilt[0] * tilt)
        turn = quat_from_matrix(np.stack([ahead, np.cross(tilt, ahead), tilt], axis=-1))
        quat[:, ankle] = quat_mul(quat[:, ankle], turn)
        lowest = np.minimum(*(foot_points(pos, quat)[tip][:, side, 2] for tip in ("heel", "toe")))
        heights.append(np.median(lowest[flat]))
    offset = -float(np.mean(heights))
    root[:, 2] += offset
    return replace(clip, root_pos_m=root, local_quat=local_from_world(quat)), offset


def _adopt(clip: Clip, ground_offset: float) -> CharacterMotion:
    """A clip that already is of the character, its feet raised where they are under the ground."""
    root = np.array(clip.root_pos_m)
    local, depth = clear_ground(root, clip.local_quat)
    report = {
        "family": "deepmimic",
        "scale": 1.0,
        "ground_offset_m": ground_offset,
        "joint_error_m": 0.0,
        "ankle_error_m": 0.0,
        "penetration_m": depth,
        "limit_violations": 0.0,
        "out_of_reach_m": 0.0,
    }
    return CharacterMotion(clip.name, root, quat_align(local), clip.loop, clip.licence, report=report)


def _transfer(clip: Clip) -> CharacterMotion:
    family, joint = find_roles(list(clip.joint_names), str(clip.source))
    pos, quat = clip.world()
    p = {role: pos[:, j] for role, j in joint.items()}
    r = {role: quat_to_matrix(quat[:, j]) for role, j in joint.items()}
    legs = [(f"{s}_upleg", f"{s}_knee", f"{s}_ankle") for s in SIDES]
    length = np.mean([_mean_length(p[a], p[b]) + _mean_length(p[b], p[c]) for a, b, c in legs])
    if length < 1e-6:
        raise InputError.at(clip.source, None, "legs of no length (found 0 m from hip to ankle, expected a skeleton)")
    scale = (THIGH_LENGTH + SHANK_LENGTH) / float(length)
    p = {role: scale * x for role, x in p.items()}

    r_pelvis = r["hips"] @ _pelvis_axes(p, r)
    r_chest = r["chest"] @ _chest_axes(p, r, r_pelvis)
    r_head = _head_frames(r, r_chest)
    feet = [_foot_frames(p, r, side, r_pelvis, clip, joint, scale) for side in SIDES]
    r_feet = [foot[0] for foot in feet]
    ground = float(np.mean([foot[1] for foot in feet])) - ANKLE_HEIGHT
    for role in p:
        p[role] = p[role] - np.array([0.0, 0.0, ground])

    frames = np.empty((len(pos), 15, 3, 3))
    frames[:, 0], frames[:, 1], frames[:, 2] = r_pelvis, r_chest, r_head
    wrong_way = np.zeros((len(pos), 4), bool)
    for k, (side, (shoulder, elbow, wrist)) in enumerate(zip(SIDES, ARMS, strict=True)):
        upper, hinge, wrong_way[:, k] = _arm(p, r, side, r_chest)
        frames[:, shoulder] = upper
        frames[:, elbow] = frames[:, wrist] = upper @ quat_to_matrix(hinge)
    knee_axes = np.empty((len(pos), 2, 3))
    for k, (side, (hip, knee, ankle)) in enumerate(zip(SIDES, LEGS, strict=True)):
        thigh, shank = _direction(p, side, "upleg", "knee"), _direction(p, side, "knee", "ankle")
        y_source = _bend_axis_by_joint(r[f"{side}_upleg"], thigh, shank, r_pelvis[..., 1])
        wrong_way[:, 2 + k] = np.sum(np.cross(thigh, shank) * y_source, -1) < -np.sin(np.radians(5.0))
        knee_axes[:, k] = bend_axis(thigh, shank, y_source)
        frames[:, hip] = frame_along(thigh, knee_axes[:, k])
        frames[:, knee] = frame_along(shank, knee_axes[:, k])
        frames[:, ankle] = r_feet[k]
    root = 0.5 * (p["left_upleg"] + p["right_upleg"])
    local = local_from_world(quat_from_matrix(frames))
    ankles = np.stack([p["left_ankle"], p["right_ankle"]], axis=1)
    local, short = place_ankles(root, local, ankles, knee_axes, SOFT_REACH_M)
    local, depth = clear_ground(root, local)
    local = quat_align(local)
    joint_error, ankle_error = _position_errors(p, root, local)
    report = {
        "family": family,
        "scale": scale,
        "ground_offset_m": -ground,
        "joint_error_m": joint_error,
        "ankle_error_m": ankle_error,
        "penetration_m": depth,
        "limit_violations": float(wrong_way.any(axis=1).mean()),
        "out_of_reach_m": float(short.mean()),
    }
    return CharacterMotion(clip.name, root, local, clip.loop, clip.licence, report=report)


def _mean_length(a: Array, b: Array) -> float:
    return float(np.mean(np.linalg.norm(b - a, axis=-1)))


def _unit(v: Array) -> Array:
    return v / np.maximum(np.linalg.norm(v, axis=-1, keepdims=True), 1e-9)


def _direction(p: dict[str, Array], side: str, a: str, b: str) -> Array:
    return _unit(p[f"{side}_{b}"] - p[f"{side}_{a}"])


def _mean_local(r: Array, vector_w: Array) -> Array:
    """Mean direction (3,) of world vectors (T, 3) in a joint's own axes."""
    return _unit(np.mean(np.swapaxes(r, -1, -2) @ vector_w[..., None], axis=0)[:, 0])


def _snap(direction: Array, limit_deg: float) -> Array:
    """The signed joint axis nearest to ``direction`` (3,), if within the limit; else ``direction`` itself."""
    k = int(np.argmax(np.abs(direction)))
    axis = np.zeros(3)
    axis[k] = np.sign(direction[k])
    return axis if direction @ axis > np.cos(np.radians(limit_deg)) else direction


def _axes(y: Array, z: Array, anatomical_deg: float, snap_deg: float) -> Array:
    """Rotation (3, 3) with the given up direction z, and y made orthogonal to it.

    Where y is one of the joint's own axes to ``anatomical_deg``, the joint's axes are anatomical, and z is the one
    nearest to ``z`` if that is within ``snap_deg``: a mean direction leans with the motion, an axis does not.
    """
    y_axis = _snap(y, anatomical_deg)
    if np.abs(y_axis).max() == 1.0:
        y, z = y_axis, _snap(z, snap_deg)
    y = _unit(y - (y @ z) * z)
    return np.stack([np.cross(y, z), y, z], axis=-1)


def _pelvis_axes(p: dict[str, Array], r: dict[str, Array]) -> Array:
    """Character axes in the source hips: y from hip to hip, z towards the neck."""
    middle = 0.5 * (p["left_upleg"] + p["right_upleg"])
    y = _mean_local(r["hips"], p["left_upleg"] - p["right_upleg"])
    return _axes(y, _mean_local(r["hips"], p["neck"] - middle), 5.0, 30.0)


def _chest_axes(p: dict[str, Array], r: dict[str, Array], r_pelvis: Array) -> Array:
    """Character axes in the source chest: y from shoulder to shoulder, z towards the neck."""
    y = _mean_local(r["chest"], p["left_arm"] - p["right_arm"])
    up = p["neck"] - p["chest"]
    z = _mean_local(r["chest"], up if np.linalg.norm(up, axis=-1).min() > 1e-3 else r_pelvis[..., 2])
    return _axes(y, z, 10.0, 35.0)


def _head_frames(r: dict[str, Array], r_chest: Array) -> Array:
    """World frames (T, 3, 3) of the head: on average over the clip it looks where the chest does."""
    role = "head" if "head" in r else "neck"
    z = _mean_local(r[role], r_chest[..., 2])
    y = _mean_local(r[role], r_chest[..., 1])
    return r[role] @ _axes(y, z, 20.0, 35.0)


def _flat_frames(rear: Array, front: Array, fps: float) -> NDArray[np.bool_]:
    """Frames (T,) in which a foot with rear and front points (T, 3) lies flat on the ground.

    Those in which both points are slow (at most 0.4 m/s) and, of these, low; the lowest tenth where
    no point ever is slow.
    """
    total = rear[:, 2] + front[:, 2]
    speed = np.maximum(*(np.linalg.norm(np.gradient(x, 1.0 / fps, axis=0), axis=-1) for x in (rear, front)))
    slow = speed <= 0.4
    slow &= total <= np.quantile(total, 0.1) + 0.06
    if slow.sum() < 3:
        return total <= np.quantile(total, 0.1) + 1e-9
    return slow & (total <= np.median(total[slow]) + 0.02)


def _foot_frames(
    p: dict[str, Array],
    r: dict[str, Array],
    side: str,
    r_pelvis: Array,
    clip: Clip,
    joint: dict[str, int],
    scale: float,
) -> tuple[Array, float]:
    """World frames (T, 3, 3) of a foot, and the ankle's height [m] where it lies flat."""
    ankle, r_ankle = p[f"{side}_ankle"], r[f"{side}_ankle"]
    tip = p.get(f"{side}_toe")
    if tip is None or _mean_length(ankle, tip) < 0.02:
        end = clip.end_sites.get(clip.joint_names[joint[f"{side}_ankle"]])
        ahead = np.asarray(end, np.float64) * scale if end is not None and np.linalg.norm(end) > 1e-3 else None
        x = _mean_local(r_ankle, r_pelvis[..., 0]) if ahead is None else _unit(ahead)
        tip = ankle + 0.15 * (r_ankle @ x)
    flat = _flat_frames(ankle, tip, FPS)
    z = _mean_local(r_ankle[flat], np.tile(UP, (flat.sum(), 1)))
    x = _mean_local(r_ankle, tip - ankle)
    x = _unit(x - (x @ z) * z)
    return r_ankle @ np.stack([x, np.cross(z, x), z], axis=-1), float(np.median(ankle[flat, 2]))


def _bend_axis_by_joint(r_upper: Array, upper: Array, lower: Array, fallback: Array, sign: float = 1.0) -> Array:
    """World y axes (T, 3) of an upper bone: the joint's own axis about which the limb bends over the clip."""
    normal = sign * np.cross(upper, lower)
    axis = np.mean(np.swapaxes(r_upper, -1, -2) @ normal[..., None], axis=0)[:, 0]
    rest = np.mean(np.swapaxes(r_upper, -1, -2) @ fallback[..., None], axis=0)[:, 0]
    bone = _mean_local(r_upper, upper)
    axis = axis + 0.05 * rest
    axis = _unit(axis - (axis @ bone) * bone)
    return r_upper @ axis


def _arm(p: dict[str, Array], r: dict[str, Array], side: str, r_chest: Array) -> tuple[Array, Array, Array]:
    """Upper-arm frames (T, 3, 3), elbow hinge quaternions (T, 4), frames bent the wrong way."""
    upper = _direction(p, side, "arm", "elbow")
    wrist = p.get(f"{side}_wrist")
    lower = upper if wrist is None else _unit(wrist - p[f"{side}_elbow"])
    y_source = _bend_axis_by_joint(r[f"{side}_arm"], upper, lower, r_chest[..., 1], sign=-1.0)
    wrong_way = np.sum(np.cross(upper, lower) * y_source, -1) > np.sin(np.radians(5.0))
    y = -bend_axis(upper, lower, -y_source)
    frame = frame_along(upper, y)
    angle = np.arctan2(np.sum(lower * frame[..., 0], -1), -np.sum(lower * frame[..., 2], -1))
    hinge = quat_from_axis_angle(np.array([0.0, -1.0, 0.0]), np.maximum(angle, 0.0))
    return frame, hinge, wrong_way


def _position_errors(p: dict[str, Array], root: Array, local: Array) -> tuple[float, float]:
    """Mean distance [m] from the scaled source of the limb joints, and of the ankles alone."""
    body_pos, _ = forward_kinematics(root, local)
    errors: dict[str, Array] = {}
    for side, arm, leg in zip(SIDES, ARMS, LEGS, strict=True):
        parts = zip(("arm", "elbow", "wrist", "knee", "ankle"), (*arm, *leg[1:]), strict=True)
        for part, body in parts:
            if f"{side}_{part}" in p:
                errors[f"{side}_{part}"] = np.linalg.norm(body_pos[:, body] - p[f"{side}_{part}"], axis=-1)
    ankles = np.mean([errors[f"{side}_ankle"] for side in SIDES])
    return float(np.mean([e.mean() for e in errors.values()])), float(ankles)
