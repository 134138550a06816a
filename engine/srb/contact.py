"""Feet of the single rigid body: where they stand, when they move, and the points that carry force."""

from __future__ import annotations

import math

from numba import njit

from engine.srb.body import (
    CONE,
    CONE_YAW_GENERATORS,
    HALF_X,
    HALF_Y,
    POINTS,
    RECOVER_DISTANCE,
    RECOVER_FRAMES,
)
from engine.srb.frames import NJIT, cross_into, gram_schmidt_into, mat_mul_into, yaw_cos_sin
from engine.srb.terrain import ground_height, ground_normal_into

ALL_POINTS, TOE_POINTS, HEEL_POINTS = 0, 1, 2


@njit(**NJIT)
def _foot_command_w(target_pos, target_yaw_cos, target_yaw_sin, command, pos, rot, tmp, local):
    """World sole centre and rotation commanded in the forward-facing frame of the predicted target."""
    c, s = target_yaw_cos, target_yaw_sin
    pos[0] = target_pos[0] + c * command[0] - s * command[1]
    pos[1] = target_pos[1] + s * command[0] + c * command[1]
    pos[2] = target_pos[2] + command[2]
    gram_schmidt_into(local, command[3:9])
    tmp[0, 0], tmp[0, 1], tmp[0, 2] = c, -s, 0.0
    tmp[1, 0], tmp[1, 1], tmp[1, 2] = s, c, 0.0
    tmp[2, 0], tmp[2, 1], tmp[2, 2] = 0.0, 0.0, 1.0
    mat_mul_into(rot, tmp, local)


@njit(**NJIT)
def flat_foot_into(rot, normal):
    """Turn ``rot`` in place into the foot lying on the ground: z = ``normal``, heading kept."""
    k = rot[0, 0] * normal[0] + rot[1, 0] * normal[1] + rot[2, 0] * normal[2]
    x0, x1, x2 = rot[0, 0] - k * normal[0], rot[1, 0] - k * normal[1], rot[2, 0] - k * normal[2]
    n = math.sqrt(x0 * x0 + x1 * x1 + x2 * x2)
    if n < 1e-6:
        x0, x1, x2, n = normal[2], 0.0, -normal[0], math.sqrt(normal[2] ** 2 + normal[0] ** 2)
    rot[0, 0], rot[1, 0], rot[2, 0] = x0 / n, x1 / n, x2 / n
    rot[0, 2], rot[1, 2], rot[2, 2] = normal[0], normal[1], normal[2]
    cross_into(rot[:, 1], rot[:, 2], rot[:, 0])


@njit(**NJIT)
def update_feet(
    foot,
    rot,
    stance,
    lift,
    moved,
    contact_class,
    target_pos,
    target_rot,
    command,
    ctrl,
    shape,
    heights,
    normal,
    cmd_pos,
    cmd_rot,
    tmp,
    local,
):
    """Move, land or hold both feet for one control step.

    A foot that stays in contact is frozen; one that lands takes the commanded place flat on the ground; one in swing
    follows the command, never below the ground. Recovery: where both feet stand and one is farther than
    ``RECOVER_DISTANCE`` from its command, that foot is lifted for ``RECOVER_FRAMES`` steps.

    Args:
        foot: Sole centres, world [m], (2, 3), updated. rot: Foot rotations (2, 3, 3), updated.
        stance: Contact flags (2,) of the last step, updated. lift: Steps left of a recovery (2,), updated.
        moved: Out (2,): 0 frozen, 1 landed, 2 swinging.
        contact_class: Commanded class 0 none, 1 left, 2 right, 3 both.
        target_pos, target_rot: Predicted COM [m] and SRB rotation, world.
        command: Sole centre and 6-D rotation in the target's ff frame, (2, 9).
    """
    c, s = yaw_cos_sin(target_rot)
    want_left = contact_class == 1 or contact_class == 3
    want_right = contact_class == 2 or contact_class == 3
    far, far_distance = -1, ctrl[RECOVER_DISTANCE]
    both = want_left and want_right and stance[0] == 1 and stance[1] == 1 and lift[0] == 0 and lift[1] == 0
    for k in range(2):
        _foot_command_w(target_pos, c, s, command[k], cmd_pos[k], cmd_rot[k], tmp, local)
        if both and ctrl[RECOVER_FRAMES] > 0:
            d = math.sqrt((cmd_pos[k, 0] - foot[k, 0]) ** 2 + (cmd_pos[k, 1] - foot[k, 1]) ** 2)
            if d > far_distance:
                far, far_distance = k, d
    if far >= 0:
        lift[far] = int(ctrl[RECOVER_FRAMES])
    for k in range(2):
        want = want_left if k == 0 else want_right
        if lift[k] > 0:
            lift[k] -= 1
            want = False
        if want and stance[k] == 1:
            moved[k] = 0
            continue
        foot[k, 0], foot[k, 1] = cmd_pos[k, 0], cmd_pos[k, 1]
        ground = ground_height(shape, heights, foot[k, 0], foot[k, 1])
        rot[k] = cmd_rot[k]
        if want:
            foot[k, 2] = ground
            ground_normal_into(normal, shape, heights, foot[k, 0], foot[k, 1])
            flat_foot_into(rot[k], normal)
            stance[k] = 1
            moved[k] = 1
        else:
            foot[k, 2] = max(cmd_pos[k, 2], ground)
            stance[k] = 0
            moved[k] = 2


@njit(**NJIT)
def place_contacts(points, axes, foot_of, offsets, foot, rot, stance, subset, srb_rot, ctrl):
    """Contact points of the standing feet; returns their number.

    Args:
        points: Out, world [m], (10, 3). axes: Out, columns tangent, tangent, normal per point (10, 3, 3).
        foot_of: Out, foot index per point (10,). offsets: Out, point in the foot frame (10, 3).
        subset: Per foot `ALL_POINTS`, `TOE_POINTS` or `HEEL_POINTS` (2,).
    """
    n = 0
    hx, hy = ctrl[HALF_X], ctrl[HALF_Y]
    yaw_frame = ctrl[CONE] == CONE_YAW_GENERATORS
    c, s = yaw_cos_sin(srb_rot)
    for k in range(2):
        if stance[k] == 0:
            continue
        for corner in range(int(ctrl[POINTS])):
            x = hx if corner < 2 else -hx
            y = hy if corner % 2 == 0 else -hy
            if corner == 4:
                x, y = 0.0, 0.0
                if subset[k] != ALL_POINTS:
                    continue
            if (subset[k] == TOE_POINTS and x < 0) or (subset[k] == HEEL_POINTS and x > 0):
                continue
            offsets[n, 0], offsets[n, 1], offsets[n, 2] = x, y, 0.0
            foot_of[n] = k
            for i in range(3):
                points[n, i] = foot[k, i] + rot[k, i, 0] * x + rot[k, i, 1] * y
            if yaw_frame:
                axes[n] = 0.0
                axes[n, 0, 0], axes[n, 1, 0] = c, s
                axes[n, 0, 1], axes[n, 1, 1] = -s, c
                axes[n, 2, 2] = 1.0
            else:
                axes[n] = rot[k]
            n += 1
    return n
