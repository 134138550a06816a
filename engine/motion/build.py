"""One clip of the library: a character motion closed, repeated, labelled, filtered and described by its features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.motion.config import DynamicFilterParams, MotionParams
from engine.motion.contacts import contact_class, label_contacts, labels_of_class, remove_false_flights
from engine.motion.dynamic_filter import filter_height, filter_path, filter_turn
from engine.motion.features import full_features, mean_inertia_b, srb_features, srb_motion
from engine.motion.legs import LEGS, SOFT_REACH_M, clear_ground, foot_points, place_ankles
from engine.motion.loops import Cycle, close_cycle, repair_jumps, unroll
from engine.motion.retarget import ANKLE_HEIGHT, FPS, CharacterMotion
from engine.rotation import quat_align, quat_from_axis_angle, quat_inv, quat_log, quat_mul, quat_to_matrix, yaw_of
from engine.skeleton import SHANK_LENGTH, THIGH_LENGTH, com_pos_w, forward_kinematics, momentum_w

Array = NDArray[np.float64]
#: Kinds of motion in which a flight of one or two frames is a labelling error.
GROUNDED_KINDS = ("walk", "turn", "aim", "stand")
#: A swing foot takes the filter's shift on over this many frames after lift-off and before touch-down.
SWING_RAMP_FRAMES = 4
#: A motion that the filter leaves alone to this is not touched [m].
NO_SHIFT_M = 1e-6


@dataclass(frozen=True)
class BuiltClip:
    """One clip; fields as in `engine.motion.library.MotionLibrary`, and ``report`` on how it was made."""

    name: str
    kind: str
    split: str
    licence: str
    period: int
    com_pos_w: Array
    srb_quat_w: Array
    com_vel_w: Array
    ang_vel_w: Array
    foot_pos_w: Array
    foot_quat_w: Array
    contact: NDArray[np.int64]
    heel_toe: NDArray[np.bool_]
    body_pos_w: Array
    body_quat_w: Array
    root_pos_w: Array
    local_quat: Array
    ref_srb: Array
    ref_full: Array
    report: dict[str, Any]


def build_clip(motion: CharacterMotion, kind: str, split: str, params: MotionParams) -> BuiltClip:
    """Run the steps that every clip goes through after retargeting."""
    cycle = close_cycle(motion, params.blend_s, params.jump_spread_s)
    quat, jumps = repair_jumps(cycle.root_pos_w, cycle.local_quat, params.jump_deg, params.jump_spread_s)
    cycle = Cycle(cycle.root_pos_w, quat, cycle.turn_rad, cycle.travel_m)
    root, local = unroll(cycle, params.min_frames)
    local, _ = clear_ground(root, local)

    points = foot_points(*forward_kinematics(root, local))
    travel = FPS * float(np.mean(np.linalg.norm(np.diff(root[:, :2], axis=0), axis=-1)))
    tips = np.stack([points["heel"], points["toe"]], axis=2)
    heel_toe = label_contacts(tips, FPS, params.contact, travel_m_s=travel)
    contact = contact_class(heel_toe)
    shortest = params.contact.max_false_flight_frames if kind in GROUNDED_KINDS else 0
    com_z = com_pos_w(*forward_kinematics(root, local))[:, 2]
    contact = remove_false_flights(contact, com_z, tips[..., 2].min(axis=(1, 2)), FPS, shortest, params.contact)
    if kind == "stand":
        contact = np.full_like(contact, 3)
    heel_toe = labels_of_class(heel_toe, contact)

    root, local, shift = apply_filter(root, local, contact, params.filter)
    local = quat_align(local)
    body_pos, body_quat = forward_kinematics(root, local)
    srb_quat = srb_orientation(body_pos, body_quat, contact, params.filter)
    srb = srb_motion(body_pos, body_quat, srb_quat, contact, FPS)
    turned = np.linalg.norm(quat_log(quat_mul(srb_quat, quat_inv(body_quat[:, 0]))), axis=-1)
    report = {
        **motion.report,
        "jumps_repaired": len(jumps),
        "largest_jump_deg": max((j[2] for j in jumps), default=0.0),
        "filter_shift_rms_m": float(np.sqrt(np.mean(shift[:, 2] ** 2))),
        "filter_shift_max_m": float(np.abs(shift[:, 2]).max()),
        "path_shift_rms_m": float(np.sqrt(np.mean(np.sum(shift[:, :2] ** 2, axis=1)))),
        "path_shift_max_m": float(np.linalg.norm(shift[:, :2], axis=1).max()),
        "srb_turn_rms_deg": float(np.degrees(np.sqrt(np.mean(turned**2)))),
        "srb_turn_max_deg": float(np.degrees(turned.max())),
    }
    return BuiltClip(
        name=motion.name,
        kind=kind,
        split=split,
        licence=motion.licence,
        period=len(cycle),
        contact=contact,
        heel_toe=heel_toe,
        body_pos_w=body_pos,
        body_quat_w=body_quat,
        root_pos_w=root,
        local_quat=local,
        ref_srb=srb_features(srb, contact),
        ref_full=full_features(srb.com_pos_w, srb.srb_quat_w, body_pos, body_quat),
        report=report,
        **srb._asdict(),
    )


def apply_filter(
    root_pos_w: Array, local_quat: Array, contact: NDArray[np.int64], params: DynamicFilterParams
) -> tuple[Array, Array, Array]:
    """Shift a motion so that its centre of mass follows `filter_height` and `filter_path`.

    The body and the feet in swing are shifted alike; feet in stance stay where they are and their legs bend. The
    root is corrected until the centre of mass is where the filter wants it.

    Returns:
        Root positions (F, 3), local rotations (F, 15, 4), shift of the centre of mass [m] (F, 3).
    """
    body_pos, body_quat = forward_kinematics(root_pos_w, local_quat)
    com = com_pos_w(body_pos, body_quat)
    stands = np.stack([(contact & bit) > 0 for bit in (1, 2)], axis=1)
    target = com.copy()
    target[:, 2] = filter_height(com[:, 2], contact == 0, FPS, params)
    soles = foot_points(body_pos, body_quat)["sole"][..., :2]
    yaw = yaw_of(quat_to_matrix(body_quat[:, [leg[2] for leg in LEGS]]))
    target[:, :2] = filter_path(com[:, :2], target[:, 2], soles, yaw, stands, FPS, params)
    shift = target - com
    if np.abs(shift).max() < NO_SHIFT_M:
        return root_pos_w, local_quat, shift
    ankles = body_pos[:, [leg[2] for leg in LEGS]].copy()
    for side in range(2):
        ankles[:, side] += shift * _swing_share(stands[:, side])[:, None]
    root, local = root_pos_w + shift, local_quat
    for _ in range(4):
        local, _ = place_ankles(root, local_quat, ankles, soft_m=SOFT_REACH_M)
        local, _ = clear_ground(root, local)
        root = root + target - com_pos_w(*forward_kinematics(root, local))
    local, _ = place_ankles(root, local_quat, ankles, soft_m=SOFT_REACH_M)
    local, _ = clear_ground(root, local)
    return root, local, shift


def srb_orientation(
    body_pos_w: Array, body_quat_w: Array, contact: NDArray[np.int64], params: DynamicFilterParams
) -> Array:
    """Orientation of the single rigid body (F, 4): the pelvis's through `filter_turn`."""
    pelvis = quat_align(body_quat_w[:, 0])
    _, momentum = momentum_w(body_pos_w[:-1], body_quat_w[:-1], body_pos_w[1:], body_quat_w[1:], 1.0 / FPS)
    inertia_b = mean_inertia_b(body_pos_w, body_quat_w, pelvis)
    return quat_align(filter_turn(pelvis, momentum, inertia_b, contact == 0, FPS, params))


def _swing_share(stands: NDArray[np.bool_]) -> Array:
    """0 in stance, rising to 1 in swing over `SWING_RAMP_FRAMES` from either end (F,)."""
    n = len(stands)
    frame = np.arange(n)
    last = np.maximum.accumulate(np.where(stands, frame, -n))
    following = np.minimum.accumulate(np.where(stands, frame, 2 * n)[::-1])[::-1]
    return np.clip(np.minimum(frame - last, following - frame) / SWING_RAMP_FRAMES, 0.0, 1.0)


def standing_motion(params: MotionParams) -> CharacterMotion:
    """A held standing pose: feet flat side by side under the hips, knees slightly bent, arms hanging."""
    knee = np.radians(params.standing_knee_deg)
    # the hip angle that keeps the ankle under the hip when the knee is bent
    hip = np.arctan2(SHANK_LENGTH * np.sin(knee), THIGH_LENGTH + SHANK_LENGTH * np.cos(knee))
    height = THIGH_LENGTH * np.cos(hip) + SHANK_LENGTH * np.cos(knee - hip)
    local = np.zeros((15, 4))
    local[:, 0] = 1.0
    axis = np.array([0.0, -1.0, 0.0])
    for hip_body, knee_body, ankle_body in LEGS:
        local[hip_body] = quat_from_axis_angle(axis, hip)
        local[knee_body] = quat_from_axis_angle(axis, -knee)
        local[ankle_body] = quat_from_axis_angle(axis, knee - hip)
    n = params.min_frames + 1  # the last frame is the first of the next round
    root = np.tile([0.0, 0.0, ANKLE_HEIGHT + height], (n, 1))
    pose = np.tile(local, (n, 1, 1))
    return CharacterMotion("stand", root, pose, loop="wrap", licence="own", report={"family": "standing"})
