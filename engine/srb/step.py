"""One control step (1/30 s, four substeps) of the single rigid body under its contact-force QP, batched.

Per substep, while a foot stands: wanted acceleration by PD on the predicted target, contact forces by the QP
(`engine.srb.force_qp` states it, `engine.srb.qp` solves it), then semi-implicit Euler with angular momentum as state:

    a_lin = kp (p_T - p) + kd (v_T - v)                                   [m/s^2, world]
    a_ang = kp log(R^T R_T) + kd (R^T w_T - w_b)                          [rad/s^2, body]
    A f  ~  b,  rows W [ e/m ; I^-1 R^T (r x e) ],  b = W [ a_lin - g ; a_ang + I^-1 (w_b x I w_b) ]
    v += dt (g + F/m),  L += dt T,  p += dt v,  R <- R exp(dt I^-1 R^T L)

The target is frozen over the control step. Source: Kim et al. 2026 section 4; gains and frames from the srb notes in
docs/methods/unified.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from engine.srb.batch import run_rows
from engine.srb.body import (
    CONE,
    CONE_YAW_GENERATORS,
    CONTROLLER,
    EPS,
    FORCE_MAX,
    FRICTION,
    GRAVITY,
    INVERSE,
    KD_ANG,
    KD_LIN,
    KP_ANG,
    KP_LIN,
    MASS,
    MASS_SCALE,
    MAX_CONTACTS,
    STATE,
    W_ANG_XY,
    W_ANG_Z,
    W_LIN_XY,
    W_LIN_Z,
)
from engine.srb.contact import place_contacts, update_feet
from engine.srb.frames import (
    NJIT,
    cross_into,
    exp_into,
    log_into,
    mat_mul_into,
    mat_t_mul_into,
    mat_t_vec_into,
    mat_vec_into,
)
from engine.srb.qp import WORK_SIZE, solve_contact_qp, solve_generator_qp
from engine.srb.terrain import Terrain

SUBSTEPS = 4
TAPE = 24  # p 3, R 9, v 3, L 3 before the substep, then the QP's dual u (6)
_COLS = 4 * MAX_CONTACTS
_WORK = 800 + WORK_SIZE


@njit(**NJIT)
def decode_target(state, action, target):
    """Predicted target from the first 12 action numbers, given in the SRB frame.

    target (24): p_T 3, R_T 9 (row major), v_T world 3, w_T world 3, then exp(action[9:12]) is recomputed by the
    adjoint.
    """
    rot = state[3:12].reshape(3, 3)
    for i in range(3):
        target[i] = state[i] + rot[i, 0] * action[6] + rot[i, 1] * action[7] + rot[i, 2] * action[8]
        target[12 + i] = rot[i, 0] * action[0] + rot[i, 1] * action[1] + rot[i, 2] * action[2]
        target[15 + i] = rot[i, 0] * action[3] + rot[i, 1] * action[4] + rot[i, 2] * action[5]
    turn = target[18:27].reshape(3, 3)
    exp_into(turn, action[9:12])
    mat_mul_into(target[3:12].reshape(3, 3), rot, turn)


@njit(**NJIT)
def fill_force_qp(a, b, ctrl, pos, rot, vel, ang_mom, target, points, axes, n, work):
    """Rows of the force QP in the scaled acceleration metric: ``a`` (6, >= 3 n), ``b`` (6,). Returns nothing.

    ``work`` (48,) is scratch. Columns 3c..3c+2 belong to contact c: tangent, tangent, normal of ``axes[c]``.
    """
    mass = ctrl[MASS]
    inverse = ctrl[INVERSE : INVERSE + 9].reshape(3, 3)
    w_xy, w_z, u_xy, u_z = ctrl[W_LIN_XY], ctrl[W_LIN_Z], ctrl[W_ANG_XY], ctrl[W_ANG_Z]
    local = work[0:3]
    omega = work[3:6]
    momentum = work[6:9]
    err = work[9:12]
    gyro = work[12:15]
    rel = work[15:24].reshape(3, 3)
    mapped = work[24:33].reshape(3, 3)
    mat_t_vec_into(momentum, rot, ang_mom)
    mat_vec_into(omega, inverse, momentum)
    mat_t_mul_into(rel, rot, target[3:12].reshape(3, 3))
    log_into(err, rel)
    cross_into(local, omega, momentum)
    mat_vec_into(gyro, inverse, local)
    mat_t_vec_into(local, rot, target[15:18])
    for i in range(3):
        lin = ctrl[KP_LIN] * (target[i] - pos[i]) + ctrl[KD_LIN] * (target[12 + i] - vel[i])
        if i == 2:
            lin += GRAVITY
        ang = ctrl[KP_ANG] * err[i] + ctrl[KD_ANG] * (local[i] - omega[i]) + gyro[i]
        b[i] = (w_z if i == 2 else w_xy) * lin
        b[3 + i] = (u_z if i == 2 else u_xy) * ang
    # I^-1 R^T, so that the angular rows are one product per column
    for i in range(3):
        for j in range(3):
            mapped[i, j] = inverse[i, 0] * rot[j, 0] + inverse[i, 1] * rot[j, 1] + inverse[i, 2] * rot[j, 2]
    for c in range(n):
        rx, ry, rz = points[c, 0] - pos[0], points[c, 1] - pos[1], points[c, 2] - pos[2]
        for k in range(3):
            ex, ey, ez = axes[c, 0, k], axes[c, 1, k], axes[c, 2, k]
            col = 3 * c + k
            a[0, col] = w_xy * ex / mass
            a[1, col] = w_xy * ey / mass
            a[2, col] = w_z * ez / mass
            tx, ty, tz = ry * ez - rz * ey, rz * ex - rx * ez, rx * ey - ry * ex
            a[3, col] = u_xy * (mapped[0, 0] * tx + mapped[0, 1] * ty + mapped[0, 2] * tz)
            a[4, col] = u_xy * (mapped[1, 0] * tx + mapped[1, 1] * ty + mapped[1, 2] * tz)
            a[5, col] = u_z * (mapped[2, 0] * tx + mapped[2, 1] * ty + mapped[2, 2] * tz)


@njit(**NJIT)
def _to_generators(a, g, n, mu):
    """Columns of the paper's pyramid edges (+-mu, 0, 1), (0, +-mu, 1) from tangent-tangent-normal columns."""
    for c in range(n):
        for i in range(6):
            tx, ty, nz = a[i, 3 * c], a[i, 3 * c + 1], a[i, 3 * c + 2]
            g[i, 4 * c] = nz + mu * tx
            g[i, 4 * c + 1] = nz - mu * tx
            g[i, 4 * c + 2] = nz + mu * ty
            g[i, 4 * c + 3] = nz - mu * ty


@njit(**NJIT)
def integrate_rigid_body(pos, rot, vel, ang_mom, force, torque, ctrl, dt, work):
    """Semi-implicit Euler about the COM, in place; ``force``, ``torque`` in world axes, gravity added here."""
    scale = ctrl[MASS_SCALE]
    mass = ctrl[MASS] * scale
    inverse = ctrl[INVERSE : INVERSE + 9].reshape(3, 3)
    for i in range(3):
        vel[i] += dt * force[i] / mass
        ang_mom[i] += dt * torque[i] / scale
    vel[2] -= dt * GRAVITY
    local = work[0:3]
    omega = work[3:6]
    turn = work[6:15].reshape(3, 3)
    new = work[15:24].reshape(3, 3)
    mat_t_vec_into(local, rot, ang_mom)
    mat_vec_into(omega, inverse, local)
    for i in range(3):
        pos[i] += dt * vel[i]
        omega[i] *= dt
    exp_into(turn, omega)
    mat_mul_into(new, rot, turn)
    rot[:] = new


@njit(**NJIT)
def _orthonormalise(rot):
    """One Newton step towards the nearest rotation: R <- R (3 I - R^T R) / 2; removes the drift of long runs."""
    c00 = rot[0, 0] ** 2 + rot[1, 0] ** 2 + rot[2, 0] ** 2
    c11 = rot[0, 1] ** 2 + rot[1, 1] ** 2 + rot[2, 1] ** 2
    c22 = rot[0, 2] ** 2 + rot[1, 2] ** 2 + rot[2, 2] ** 2
    c01 = rot[0, 0] * rot[0, 1] + rot[1, 0] * rot[1, 1] + rot[2, 0] * rot[2, 1]
    c02 = rot[0, 0] * rot[0, 2] + rot[1, 0] * rot[1, 2] + rot[2, 0] * rot[2, 2]
    c12 = rot[0, 1] * rot[0, 2] + rot[1, 1] * rot[1, 2] + rot[2, 1] * rot[2, 2]
    for i in range(3):
        x, y, z = rot[i, 0], rot[i, 1], rot[i, 2]
        rot[i, 0] = 0.5 * (x * (3.0 - c00) - y * c01 - z * c02)
        rot[i, 1] = 0.5 * (y * (3.0 - c11) - x * c01 - z * c12)
        rot[i, 2] = 0.5 * (z * (3.0 - c22) - x * c02 - y * c12)


@njit(**NJIT)
def _step_one(
    state, stance, lift, warm, action, command, contact_class, subset, ctrl, push_force, push_torque, shape, heights,
    dt, ws, ids, tape, forces, points_out, counters, mu_scale,
):  # fmt: skip
    """One control step of one character; see `StepKernel.step`."""
    target = ws[0:27]
    a = ws[27:207].reshape(6, 30)
    b = ws[207:213]
    f = ws[213 : 213 + _COLS]
    points = ws[253:283].reshape(10, 3)
    offsets = ws[283:313].reshape(10, 3)
    axes = ws[313:403].reshape(10, 3, 3)
    mu = ws[403:413]
    fmax = ws[413:423]
    scratch = ws[423:471]
    force = ws[471:474]
    torque = ws[474:477]
    normal = ws[477:480]
    cmd_pos = ws[480:486].reshape(2, 3)
    cmd_rot = ws[486:504].reshape(2, 3, 3)
    tmp = ws[504:513].reshape(3, 3)
    local = ws[513:522].reshape(3, 3)
    foot = ws[522:528].reshape(2, 3)
    foot_rot = ws[528:546].reshape(2, 3, 3)
    gen = ws[546 : 546 + 6 * _COLS].reshape(6, _COLS)
    qp_work = ws[800:_WORK]
    foot_of = ids[0:10]
    moved = ids[10:12]

    pos, rot, vel, ang_mom = state[0:3], state[3:12].reshape(3, 3), state[12:15], state[15:18]
    decode_target(state, action, target)
    for k in range(2):
        at = 18 + 12 * k
        foot[k] = state[at : at + 3]
        foot_rot[k] = state[at + 3 : at + 12].reshape(3, 3)
    update_feet(
        foot, foot_rot, stance, lift, moved, contact_class, target[0:3], target[3:12].reshape(3, 3), command, ctrl,
        shape, heights, normal, cmd_pos, cmd_rot, tmp, local,
    )  # fmt: skip
    for k in range(2):
        at = 18 + 12 * k
        state[at : at + 3] = foot[k]
        state[at + 3 : at + 12] = foot_rot[k].reshape(9)
    tape[SUBSTEPS, 0], tape[SUBSTEPS, 1] = moved[0], moved[1]

    forces[:] = 0.0
    for sub in range(SUBSTEPS):
        tape[sub, 0:18] = state[0:18]
        tape[sub, 18:24] = 0.0
        for i in range(3):
            force[i] = push_force[i]
            torque[i] = push_torque[i]
        n = place_contacts(points, axes, foot_of, offsets, foot, foot_rot, stance, subset, rot, ctrl)
        if n > 0:
            fill_force_qp(a, b, ctrl, pos, rot, vel, ang_mom, target, points, axes, n, scratch)
            for c in range(n):
                mu[c] = ctrl[FRICTION] * mu_scale
                fmax[c] = ctrl[FORCE_MAX]
            if ctrl[CONE] == CONE_YAW_GENERATORS:
                _to_generators(a, gen, n, ctrl[FRICTION] * mu_scale)
                status, iterations, _ = solve_generator_qp(gen, 4 * n, b, ctrl[EPS], warm, f, qp_work)
                for c in range(n):
                    l0, l1, l2, l3 = f[4 * c], f[4 * c + 1], f[4 * c + 2], f[4 * c + 3]
                    f[3 * c] = ctrl[FRICTION] * mu_scale * (l0 - l1)
                    f[3 * c + 1] = ctrl[FRICTION] * mu_scale * (l2 - l3)
                    f[3 * c + 2] = l0 + l1 + l2 + l3
            else:
                status, iterations, _ = solve_contact_qp(a, n, b, mu, fmax, ctrl[EPS], warm, f, qp_work)
            counters[1] += iterations
            counters[2] += 1
            tape[sub, 18:24] = warm
            if status != 0:
                counters[0] += 1
                warm[:] = 0.0
                finite = True
                for i in range(3 * n):
                    finite = finite and math.isfinite(f[i])
                if not finite:
                    f[: 3 * n] = 0.0
            for c in range(n):
                fx = axes[c, 0, 0] * f[3 * c] + axes[c, 0, 1] * f[3 * c + 1] + axes[c, 0, 2] * f[3 * c + 2]
                fy = axes[c, 1, 0] * f[3 * c] + axes[c, 1, 1] * f[3 * c + 1] + axes[c, 1, 2] * f[3 * c + 2]
                fz = axes[c, 2, 0] * f[3 * c] + axes[c, 2, 1] * f[3 * c + 1] + axes[c, 2, 2] * f[3 * c + 2]
                rx, ry, rz = points[c, 0] - pos[0], points[c, 1] - pos[1], points[c, 2] - pos[2]
                force[0] += fx
                force[1] += fy
                force[2] += fz
                torque[0] += ry * fz - rz * fy
                torque[1] += rz * fx - rx * fz
                torque[2] += rx * fy - ry * fx
                forces[c, 0] += fx / SUBSTEPS
                forces[c, 1] += fy / SUBSTEPS
                forces[c, 2] += fz / SUBSTEPS
                points_out[c] = points[c]
        integrate_rigid_body(pos, rot, vel, ang_mom, force, torque, ctrl, dt, scratch)
    _orthonormalise(rot)


@njit(**NJIT)
def _step_rows(
    w, state, stance, lift, warm, action, command, contact_class, subset, ctrl, push_force, push_torque, shape, heights,
    dt, ws, ids, tape, forces, points, counters, mu_scale,
):  # fmt: skip
    """The share of worker ``w``."""
    workers, n = ws.shape[0], state.shape[0]
    for i in range(w * n // workers, (w + 1) * n // workers):
        _step_one(
            state[i], stance[i], lift[i], warm[i], action[i], command[i], contact_class[i], subset[i], ctrl[i],
            push_force[i], push_torque[i], shape, heights, dt, ws[w], ids[w], tape[i], forces[i], points[i],
            counters[i], mu_scale[i],
        )  # fmt: skip


@njit(parallel=True, **NJIT)
def _step_parallel(
    state, stance, lift, warm, action, command, contact_class, subset, ctrl, push_force, push_torque, shape, heights,
    dt, ws, ids, tape, forces, points, counters, mu_scale,
):  # fmt: skip
    for w in prange(ws.shape[0]):
        _step_rows(
            w, state, stance, lift, warm, action, command, contact_class, subset, ctrl, push_force, push_torque, shape,
            heights, dt, ws, ids, tape, forces, points, counters, mu_scale,
        )  # fmt: skip


class StepRecord(NamedTuple):
    """One step of a batch as its adjoint reads it; a later step or a new episode changes the batch, not the record.

    Attributes:
        state: After the step (n, 42). stance: After the step (n, 2). subset: Contact points in use (n, 2).
        tape: (n, 5, 24). ctrl: Controller rows (n, 37). mu_scale: Factor on the friction (n,).
    """

    state: NDArray[np.float64]
    stance: NDArray[np.int64]
    subset: NDArray[np.int64]
    tape: NDArray[np.float64]
    ctrl: NDArray[np.float64]
    mu_scale: NDArray[np.float64]


@dataclass
class SrbBatch:
    """State and workspace of ``n`` single rigid bodies that step together.

    Attributes:
        state: (n, 42), see `engine.srb.body`. stance: (n, 2) 1 where a foot stands. lift: (n, 2) recovery steps left.
        warm: (n, 6) dual start of the QP. ctrl: (n, 37) controller rows. mu_scale: (n,) factor on the friction.
        forces: (n, 10, 3) contact forces of the last step, mean over substeps, world [N]; points: where, world [m].
        tape: (n, 5, 24) what the adjoint needs: the four substeps' states and QP duals, and how the feet moved.
        counters: (n, 3) failed solves, Newton iterations, solves since reset.
    """

    ctrl: NDArray[np.float64]
    terrain: Terrain
    threads: int = 1
    dt: float = 1.0 / 120.0

    def __post_init__(self) -> None:
        n = len(self.ctrl)
        if self.ctrl.shape != (n, CONTROLLER):
            raise ValueError(f"ctrl has shape {self.ctrl.shape}, expected (n, {CONTROLLER})")
        self.state = np.zeros((n, STATE))
        self.stance = np.zeros((n, 2), np.int64)
        self.lift = np.zeros((n, 2), np.int64)
        self.warm = np.zeros((n, 6))
        self.subset = np.zeros((n, 2), np.int64)
        self.mu_scale = np.ones(n)
        self.forces = np.zeros((n, MAX_CONTACTS, 3))
        self.points = np.zeros((n, MAX_CONTACTS, 3))
        self.tape = np.zeros((n, SUBSTEPS + 1, TAPE))
        self.counters = np.zeros((n, 3), np.int64)
        self.no_push = np.zeros((n, 3))
        workers = max(1, min(self.threads, n))
        self._ws = np.zeros((workers, _WORK))
        self._ids = np.zeros((workers, 16), np.int64)

    def step(
        self,
        action: NDArray[np.float64],
        command: NDArray[np.float64],
        contact_class: NDArray[np.int64],
        push_force_w: NDArray[np.float64] | None = None,
        push_torque_w: NDArray[np.float64] | None = None,
    ) -> None:
        """Advance all characters by one control step, in place.

        Args:
            action: (n, 12) target velocity 3, angular velocity 3, COM displacement 3, rotation vector 3, SRB frame.
            command: (n, 2, 9) foot commands: sole centre and 6-D rotation in the predicted target's ff frame.
            contact_class: (n,) 0 none, 1 left, 2 right, 3 both.
            push_force_w: (n, 3) external force at the COM [N], world; None for none.
            push_torque_w: (n, 3) external torque [N m], world; None for none.
        """
        arguments = (
            self.state, self.stance, self.lift, self.warm, action, command, contact_class, self.subset, self.ctrl,
            self.no_push if push_force_w is None else push_force_w,
            self.no_push if push_torque_w is None else push_torque_w,
            self.terrain.shape_params, self.terrain.heights, self.dt, self._ws, self._ids, self.tape, self.forces,
            self.points, self.counters, self.mu_scale,
        )  # fmt: skip
        run_rows(_step_rows, _step_parallel, len(self._ws), arguments)

    def record(self) -> StepRecord:
        """Copies of what the adjoint of the step just done needs."""
        return StepRecord(
            self.state.copy(), self.stance.copy(), self.subset.copy(), self.tape.copy(), self.ctrl.copy(),
            self.mu_scale.copy(),
        )  # fmt: skip
