r"""One character, one control step of MMIK (see `engine.ik.mmik` for the method), as Numba kernels without allocation.

`solve_character` reads top to bottom in the order of the method; the other functions are its steps.
"""

from __future__ import annotations

import math

from numba import njit

from engine.ik.feet import foot_target_into, heel_lift_into, remember_stance, spring
from engine.ik.kinematics import NJIT, bodies_from_world_into, quat_exp, quat_mul, quat_rotate
from engine.ik.limb import MIN_LEG_LENGTH, knee_flexion, leg_length, soft_length, solve_leg_into
from engine.ik.momentum import (
    angular_displacement_into,
    com_into,
    damped_least_squares_into,
    rotation_columns_into,
)
from engine.skeleton import N_BODIES, OFFSETS

_THIGHS = (12, 9)  # left, right
_LAST_UPPER = 8  # root, chest, neck and arms are bodies 0 to 8
_COM_PER_PELVIS = 0.82  # how far the COM goes with the pelvis where the feet stay (mean over directions)
_TURNS = ((0, 8, 0), (3, 5, 3), (6, 8, 6))  # first body, last body, pivot body


@njit(**NJIT)
def _usable(in_pos, in_quat, com, momentum, foot_pos, foot_quat):
    """True where every number that is read is finite and no rotation is zero."""
    total = 0.0
    for r in range(3):
        total += in_pos[0, r] + in_pos[11, r] + in_pos[14, r] + com[r] + momentum[r] + foot_pos[0, r] + foot_pos[1, r]
    shortest = math.inf
    for b in range(N_BODIES):
        n = 0.0
        for r in range(4):
            n += in_quat[b, r] * in_quat[b, r]
        total += n
        shortest = min(shortest, n)
    for k in range(2):
        for r in range(4):
            total += foot_quat[k, r]
    return math.isfinite(total) and shortest > 1e-18


@njit(**NJIT)
def _fall_back(i, pos, quat, state):
    """Repeat the last output; before there is one, stand at the origin."""
    for b in range(N_BODIES):
        for r in range(4):
            quat[b, r] = state.last_quat[i, b, r] if state.age[i] > 0 else (1.0 if r == 0 else 0.0)
        for r in range(3):
            pos[b, r] = state.last_pos[i, b, r] if state.age[i] > 0 else 0.0
    if state.age[i] == 0:
        bodies_from_world_into(pos, state.coms[i], quat, 0, N_BODIES - 1)
    state.counters[i, 4] += 1


@njit(**NJIT)
def _project(i, state, pos, quat, in_pos, in_quat):
    """Unit rotations, knees on their hinge, bones of the right length."""
    for b in range(N_BODIES):
        n = 0.0
        for r in range(4):
            n += in_quat[b, r] * in_quat[b, r]
        n = 1.0 / math.sqrt(n)
        for r in range(4):
            quat[b, r] = n * in_quat[b, r]
    for r in range(3):
        pos[0, r] = in_pos[0, r]
    for k in range(2):
        t = _THIGHS[k]
        tw, tx, ty, tz = quat[t, 0], quat[t, 1], quat[t, 2], quat[t, 3]
        flexion = knee_flexion(tw, tx, ty, tz, quat[t + 1, 0], quat[t + 1, 1], quat[t + 1, 2], quat[t + 1, 3])
        s = math.sin(0.5 * flexion)
        w, x, y, z = quat_mul(tw, tx, ty, tz, math.cos(0.5 * flexion), 0.0, s, 0.0)
        quat[t + 1, 0], quat[t + 1, 1], quat[t + 1, 2], quat[t + 1, 3] = w, x, y, z
        legs = state.predicted_legs[i, k]
        legs[0], legs[1], legs[2], legs[3] = tw, tx, ty, tz
        legs[4] = leg_length(flexion)
    bodies_from_world_into(pos, state.coms[i], quat, 0, N_BODIES - 1)


@njit(**NJIT)
def _com_goal_into(goal, i, state, settings, com):
    """Where the COM shall be: the simulated one plus what remains of the past deviation."""
    e = state.com_excess[i]
    for r in range(3):
        left = 0.0
        if state.age[i] > 1:
            left, _ = spring(e[0, r], (e[0, r] - e[1, r]) / settings.dt, settings.com_rate, settings.dt)
        elif state.age[i] == 1:
            left, _ = spring(e[0, r], 0.0, settings.com_rate, settings.dt)
        goal[r] = com[r] + left


@njit(**NJIT)
def _hip(pos, quat, k):
    """World position of hip ``k`` from the root's transform."""
    t = _THIGHS[k]
    x, y, z = quat_rotate(quat[0, 0], quat[0, 1], quat[0, 2], quat[0, 3], OFFSETS[t, 0], OFFSETS[t, 1], OFFSETS[t, 2])
    return pos[0, 0] + x, pos[0, 1] + y, pos[0, 2] + z


@njit(**NJIT)
def _solve_legs(i, state, settings, pos, quat, contact):
    """Both legs towards their ankle targets; a swing leg keeps to its soft length, a stance leg to what is possible."""
    for k in range(2):
        t = _THIGHS[k]
        hx, hy, hz = _hip(pos, quat, k)
        target, legs = state.foot_pos[i, k], state.predicted_legs[i, k]
        d = math.sqrt((target[0] - hx) ** 2 + (target[1] - hy) ** 2 + (target[2] - hz) ** 2)
        if not contact[k]:
            d = soft_length(d, legs[4], settings.leg_start, settings.leg_limit)
        solve_leg_into(quat, t, hx, hy, hz, target[0], target[1], target[2], legs[0], legs[1], legs[2], legs[3], d)
        for r in range(4):
            quat[t + 2, r] = state.foot_quat[i, k, r]
    bodies_from_world_into(pos, state.coms[i], quat, 9, N_BODIES - 1)


@njit(**NJIT)
def _stance_targets(i, state, settings, pos, quat, contact):
    """Longest leg allowed for each stance foot here, and its target with the heel lifted as far as that asks for."""
    for k in range(2):
        target, rot = state.foot_pos[i, k], state.foot_quat[i, k]
        target[:] = state.base_pos[i, k]
        rot[:] = state.base_quat[i, k]
        if not contact[k]:
            continue
        hx, hy, hz = _hip(pos, quat, k)
        d = math.sqrt((target[0] - hx) ** 2 + (target[1] - hy) ** 2 + (target[2] - hz) ** 2)
        soft = soft_length(d, state.predicted_legs[i, k, 4], settings.leg_start, settings.leg_limit)
        state.reach[i, k] = max(soft, settings.leg_start)
        if state.flags[i, k, 1] and d > state.reach[i, k] + 1e-9:
            heel_lift_into(target, rot, hx, hy, hz, state.reach[i, k], settings.reach_lift_max)


@njit(**NJIT)
def _reach(i, state, settings, pos, quat, contact, shift):
    """Least pelvis shift (3,) that lets the stance legs reach, by projection on the ball of each hip in turn."""
    shift[0], shift[1], shift[2] = 0.0, 0.0, 0.0
    vectors, reach = state.vectors[i], state.reach[i]
    active = False
    for k in range(2):
        if not contact[k]:
            continue
        hx, hy, hz = _hip(pos, quat, k)
        v = vectors[4 + k]
        v[0], v[1], v[2] = hx - state.foot_pos[i, k, 0], hy - state.foot_pos[i, k, 1], hz - state.foot_pos[i, k, 2]
        d = math.sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2])
        active = active or d > reach[k] + 1e-7 or d < MIN_LEG_LENGTH
    if not active:
        return False
    for _ in range(30):
        moved = False
        for k in range(2):
            if not contact[k]:
                continue
            v = vectors[4 + k]
            limit = reach[k]
            x, y, z = v[0] + shift[0], v[1] + shift[1], v[2] + shift[2]
            d = math.sqrt(x * x + y * y + z * z)
            s = 0.0
            if d > limit * (1.0 + 1e-12):
                s = limit / d - 1.0
            elif d < MIN_LEG_LENGTH and d > 1e-9:
                s = MIN_LEG_LENGTH / d - 1.0
            if s != 0.0:
                moved = True
                shift[0] += s * x
                shift[1] += s * y
                shift[2] += s * z
        if not moved:
            break
    d = math.sqrt(shift[0] * shift[0] + shift[1] * shift[1] + shift[2] * shift[2])
    if d > settings.pelvis_shift_max:
        for r in range(3):
            shift[r] *= settings.pelvis_shift_max / d
    return True


@njit(**NJIT)
def _map_momentum(i, state, settings, pos, quat, target):
    """Turn trunk and arms by one damped least-squares step on the angular-momentum difference."""
    coms, vectors = state.coms[i], state.vectors[i]
    com, rhs = vectors[3], vectors[4]
    com_into(com, coms)
    angular_displacement_into(rhs, state.last_coms[i], state.last_quat[i], coms, quat)
    for r in range(3):
        mean = 0.5 * (target[r] + state.momentum[i, r])
        rhs[r] = settings.momentum_gain * (settings.dt * mean - rhs[r])
    jac, weight, step = state.jac[i], state.step[i, 0], state.step[i, 1]
    for g in range(3):
        first, last, pivot = _TURNS[g]
        rotation_columns_into(jac[0], jac[1], 3 * g, first, last, pos[pivot], com, coms, quat)
        for r in range(3):
            weight[3 * g + r] = settings.trunk_weight if g == 0 else 1.0
    damped_least_squares_into(step, jac[1], weight, rhs, settings.momentum_damping)
    clipped = False
    for g in range(3):
        x, y, z = step[3 * g], step[3 * g + 1], step[3 * g + 2]
        n = math.sqrt(x * x + y * y + z * z)
        if n > settings.momentum_max:
            clipped = True
            s = settings.momentum_max / n
            x, y, z = s * x, s * y, s * z
        ew, ex, ey, ez = quat_exp(x, y, z)
        first, last, _ = _TURNS[g]
        for b in range(first, last + 1):
            w, x, y, z = quat_mul(ew, ex, ey, ez, quat[b, 0], quat[b, 1], quat[b, 2], quat[b, 3])
            n = 1.0 / math.sqrt(w * w + x * x + y * y + z * z)
            quat[b, 0], quat[b, 1], quat[b, 2], quat[b, 3] = n * w, n * x, n * y, n * z
    bodies_from_world_into(pos, coms, quat, 0, _LAST_UPPER)
    if clipped:
        state.counters[i, 3] += 1


@njit(**NJIT)
def _shift_all(i, state, pos, x, y, z):
    """Translate the whole pose."""
    for b in range(N_BODIES):
        pos[b, 0] += x
        pos[b, 1] += y
        pos[b, 2] += z
        state.coms[i, b, 0] += x
        state.coms[i, b, 1] += y
        state.coms[i, b, 2] += z


@njit(**NJIT)
def solve_character(
    i, pos, quat, state, feet, settings, in_pos, in_quat, com, momentum, foot_pos, foot_quat, contact, ground
):
    """One character, one control step; arguments as in `MMIK.solve_into`, without the character axis.

    Args:
        i: Row of this character in ``state`` and ``feet``.
        pos: Body positions, world frame [m], shape (15, 3); written.
        quat: Body rotations, shape (15, 4); written.
        state: `State`.
        feet: `engine.ik.feet.FootState`.
        settings: `Settings`.
        in_pos: Predicted body positions, world frame [m], shape (15, 3).
        in_quat: Predicted body rotations, shape (15, 4).
        com: Simulated centre of mass, world frame [m], shape (3,).
        momentum: Target angular momentum about the centre of mass, world axes [kg m^2/s], shape (3,).
        foot_pos: Simulated sole centres, left and right, world frame [m], shape (2, 3).
        foot_quat: Simulated foot rotations, shape (2, 4).
        contact: Simulated stance of the left and right foot, shape (2,).
        ground: Ground height under each foot [m], shape (2,).
    """
    dt = settings.dt
    first = state.age[i] == 0
    state.counters[i, 0] += 1
    if not _usable(in_pos, in_quat, com, momentum, foot_pos, foot_quat):
        _fall_back(i, pos, quat, state)
        return
    _project(i, state, pos, quat, in_pos, in_quat)
    coms, goal, now, shift = state.coms[i], state.vectors[i, 0], state.vectors[i, 1], state.vectors[i, 2]
    com_into(now, coms)
    _com_goal_into(goal, i, state, settings, com)
    for r in range(3):
        shift[r] = goal[r] - now[r]
    for k in range(2):
        t = _THIGHS[k]
        state.predicted_feet[i, k] = quat[t + 2]
        state.flags[i, k, 0], state.flags[i, k, 1] = foot_target_into(
            state.base_pos[i, k], state.base_quat[i, k], i, k, feet, settings, first, dt,
            in_pos[t + 2], quat[t + 2], foot_pos[k], foot_quat[k], contact[k], ground[k],
        )  # fmt: skip
    _shift_all(i, state, pos, shift[0], shift[1], shift[2])
    _stance_targets(i, state, settings, pos, quat, contact)
    _solve_legs(i, state, settings, pos, quat, contact)
    if settings.momentum_gain > 0.0 and not first:
        _map_momentum(i, state, settings, pos, quat, momentum)
    reached = True
    for _ in range(settings.iterations):
        com_into(now, coms)
        for r in range(3):
            shift[r] = (goal[r] - now[r]) / _COM_PER_PELVIS
        _shift_all(i, state, pos, shift[0], shift[1], shift[2])
        _stance_targets(i, state, settings, pos, quat, contact)
        reached = not _reach(i, state, settings, pos, quat, contact, shift)
        if not reached:
            _shift_all(i, state, pos, shift[0], shift[1], shift[2])
        _solve_legs(i, state, settings, pos, quat, contact)
    if not reached:
        state.counters[i, 1] += 1
    excess = state.com_excess[i]
    for r in range(3):  # the deviation that was meant, free of what the iterations left
        excess[1, r] = excess[0, r]
        excess[0, r] = goal[r] - com[r] + (0.0 if reached else _COM_PER_PELVIS * shift[r])
    for k in range(2):
        if contact[k]:
            remember_stance(
                i, k, feet, first or state.flags[i, k, 0], dt, state.foot_pos[i, k], state.foot_quat[i, k],
                in_pos[_THIGHS[k] + 2], state.predicted_feet[i, k],
            )  # fmt: skip
    _finish(i, state, pos, quat, com, momentum, contact)


@njit(**NJIT)
def _finish(i, state, pos, quat, com, momentum, contact):
    """Record what the result proves (COM and foot errors) and what the next frame needs."""
    now = state.vectors[i, 1]
    com_into(now, state.coms[i])
    e = 0.0
    for r in range(3):
        e += (now[r] - com[r]) ** 2
    state.com_error[i] = math.sqrt(e)
    missed = False
    for k in range(2):
        e = 0.0
        for r in range(3):
            e += (pos[_THIGHS[k] + 2, r] - state.foot_pos[i, k, r]) ** 2
        state.foot_error[i, k] = math.sqrt(e)
        missed = missed or (contact[k] and state.foot_error[i, k] > 1e-6)
    if missed:
        state.counters[i, 2] += 1
    for b in range(N_BODIES):
        for r in range(3):
            state.last_pos[i, b, r] = pos[b, r]
            state.last_coms[i, b, r] = state.coms[i, b, r]
        for r in range(4):
            state.last_quat[i, b, r] = quat[b, r]
    for r in range(3):
        state.momentum[i, r] = momentum[r]
    state.age[i] += 1
