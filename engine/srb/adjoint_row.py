"""The adjoint of one character's control step; `engine.srb.adjoint` states what it computes."""

from __future__ import annotations

import numpy as np
from numba import njit

from engine.srb.body import (
    EPS,
    FORCE_MAX,
    FRICTION,
    INVERSE,
    KD_ANG,
    KD_LIN,
    KP_ANG,
    KP_LIN,
    MASS,
    MASS_SCALE,
    W_ANG_XY,
    W_ANG_Z,
    W_LIN_XY,
    W_LIN_Z,
)
from engine.srb.contact import place_contacts
from engine.srb.frames import (
    NJIT,
    cross_into,
    exp_into,
    gram_schmidt_into,
    gram_schmidt_vjp_into,
    log_into,
    mat_mul_into,
    mat_mul_t_into,
    mat_t_mul_into,
    mat_t_vec_into,
    mat_vec_into,
    right_jacobian_inv_t_into,
    right_jacobian_t_into,
    yaw_cos_sin,
)
from engine.srb.qp import dual_hessian_into, project_pyramid, projection_jacobians_into
from engine.srb.step import SUBSTEPS, decode_target, fill_force_qp

WORK = 900


@njit(**NJIT)
def _solve_spd6(h, x):
    """Solve h x = rhs in place by Cholesky; ``h`` (6, 6) is overwritten, ``x`` (6,) holds the right-hand side."""
    for j in range(6):
        d = h[j, j]
        for k in range(j):
            d -= h[j, k] * h[j, k]
        d = np.sqrt(d)
        h[j, j] = d
        for i in range(j + 1, 6):
            s = h[i, j]
            for k in range(j):
                s -= h[i, k] * h[j, k]
            h[i, j] = s / d
    for i in range(6):
        s = x[i]
        for k in range(i):
            s -= h[i, k] * x[k]
        x[i] = s / h[i, i]
    for i in range(5, -1, -1):
        s = x[i]
        for k in range(i + 1, 6):
            s -= h[k, i] * x[k]
        x[i] = s / h[i, i]


@njit(**NJIT)
def _outer_add(m, a, b):
    for i in range(3):
        for j in range(3):
            m[i, j] += a[i] * b[j]


@njit(**NJIT)
def _integrate_vjp(rot, ang_mom_new, ctrl, dt, g_pos, g_rot, g_vel, g_mom, g_force, g_torque, ws):
    """Back through semi-implicit Euler: gradients on the new state in, on the old state and the net wrench out."""
    inverse = ctrl[INVERSE : INVERSE + 9].reshape(3, 3)
    local, phi, vee, g_phi, g_local, t3 = ws[0:3], ws[3:6], ws[6:9], ws[9:12], ws[12:15], ws[15:18]
    turn, g_turn, m = ws[18:27].reshape(3, 3), ws[27:36].reshape(3, 3), ws[36:45].reshape(3, 3)
    for i in range(3):
        g_vel[i] += dt * g_pos[i]
    mat_t_vec_into(local, rot, ang_mom_new)
    mat_vec_into(phi, inverse, local)
    for i in range(3):
        phi[i] *= dt
    exp_into(turn, phi)
    mat_t_mul_into(g_turn, rot, g_rot)
    mat_t_mul_into(m, turn, g_turn)
    vee[0], vee[1], vee[2] = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    mat_mul_t_into(m, g_rot, turn)
    g_rot[:] = m
    right_jacobian_t_into(g_phi, phi, vee)
    for i in range(3):
        g_phi[i] *= dt
    mat_t_vec_into(g_local, inverse, g_phi)
    mat_vec_into(t3, rot, g_local)
    _outer_add(g_rot, ang_mom_new, g_local)
    for i in range(3):
        g_mom[i] += t3[i]
        g_force[i] = dt / (ctrl[MASS] * ctrl[MASS_SCALE]) * g_vel[i]
        g_torque[i] = dt / ctrl[MASS_SCALE] * g_mom[i]


@njit(**NJIT)
def _qp_rows_vjp(g_a, g_b, ctrl, pos, rot, vel, ang_mom, target, points, axes, n, g_pos, g_rot, g_vel, g_mom, g_target,
                 g_points, g_axes, ws):  # fmt: skip
    """Back through `fill_force_qp`; accumulates into the gradients given."""
    mass = ctrl[MASS]
    inverse = ctrl[INVERSE : INVERSE + 9].reshape(3, 3)
    momentum, omega, err, t3, u3 = ws[0:3], ws[3:6], ws[6:9], ws[9:12], ws[12:15]
    g_lin, g_ang, g_omega, g_err, g_momentum = ws[15:18], ws[18:21], ws[21:24], ws[24:27], ws[27:30]
    rel, m, g_rel = ws[30:39].reshape(3, 3), ws[39:48].reshape(3, 3), ws[48:57].reshape(3, 3)
    arm, gt, gs, e = ws[57:60], ws[60:63], ws[63:66], ws[66:69]
    target_rot, g_target_rot = target[3:12].reshape(3, 3), g_target[3:12].reshape(3, 3)

    mat_t_vec_into(momentum, rot, ang_mom)
    mat_vec_into(omega, inverse, momentum)
    mat_t_mul_into(rel, rot, target_rot)
    log_into(err, rel)
    g_lin[0], g_lin[1], g_lin[2] = ctrl[W_LIN_XY] * g_b[0], ctrl[W_LIN_XY] * g_b[1], ctrl[W_LIN_Z] * g_b[2]
    g_ang[0], g_ang[1], g_ang[2] = ctrl[W_ANG_XY] * g_b[3], ctrl[W_ANG_XY] * g_b[4], ctrl[W_ANG_Z] * g_b[5]
    for i in range(3):
        g_target[i] += ctrl[KP_LIN] * g_lin[i]
        g_pos[i] -= ctrl[KP_LIN] * g_lin[i]
        g_target[12 + i] += ctrl[KD_LIN] * g_lin[i]
        g_vel[i] -= ctrl[KD_LIN] * g_lin[i]
        g_err[i] = ctrl[KP_ANG] * g_ang[i]
        t3[i] = ctrl[KD_ANG] * g_ang[i]
        g_omega[i] = -t3[i]
    # R^T w_T
    _outer_add(g_rot, target[15:18], t3)
    mat_vec_into(u3, rot, t3)
    for i in range(3):
        g_target[15 + i] += u3[i]
    # gyroscopic term I^-1 (w x I w), I w = momentum (both depend on R^T L)
    mat_t_vec_into(t3, inverse, g_ang)
    cross_into(u3, momentum, t3)
    for i in range(3):
        g_omega[i] += u3[i]
    cross_into(g_momentum, t3, omega)
    # log(R^T R_T)
    right_jacobian_inv_t_into(t3, err, g_err)
    for i in range(3):
        x, y, z = rel[i, 0], rel[i, 1], rel[i, 2]
        g_rel[i, 0] = 0.5 * (y * t3[2] - z * t3[1])
        g_rel[i, 1] = 0.5 * (z * t3[0] - x * t3[2])
        g_rel[i, 2] = 0.5 * (x * t3[1] - y * t3[0])
    mat_mul_t_into(m, target_rot, g_rel)
    g_rot += m
    mat_mul_into(m, rot, g_rel)
    g_target_rot += m
    # w = I^-1 R^T L
    mat_t_vec_into(t3, inverse, g_omega)
    for i in range(3):
        t3[i] += g_momentum[i]
    mat_vec_into(u3, rot, t3)
    for i in range(3):
        g_mom[i] += u3[i]
    _outer_add(g_rot, ang_mom, t3)
    # columns of A
    for c in range(n):
        for i in range(3):
            arm[i] = points[c, i] - pos[i]
        for k in range(3):
            col = 3 * c + k
            e[0], e[1], e[2] = axes[c, 0, k], axes[c, 1, k], axes[c, 2, k]
            gs[0], gs[1], gs[2] = (
                ctrl[W_ANG_XY] * g_a[3, col],
                ctrl[W_ANG_XY] * g_a[4, col],
                ctrl[W_ANG_Z] * g_a[5, col],
            )
            mat_t_vec_into(gt, inverse, gs)
            cross_into(t3, arm, e)
            _outer_add(g_rot, t3, gt)
            mat_vec_into(u3, rot, gt)
            cross_into(t3, e, u3)
            for i in range(3):
                g_points[c, i] += t3[i]
                g_pos[i] -= t3[i]
            cross_into(t3, u3, arm)
            g_axes[c, 0, k] += t3[0] + ctrl[W_LIN_XY] / mass * g_a[0, col]
            g_axes[c, 1, k] += t3[1] + ctrl[W_LIN_XY] / mass * g_a[1, col]
            g_axes[c, 2, k] += t3[2] + ctrl[W_LIN_Z] / mass * g_a[2, col]


@njit(**NJIT)
def vjp_one(state_new, stance, subset, action, command, ctrl, mu_scale, tape, dt, grad, g_action, g_command, ws, ids):
    """Gradient of one character; ``grad`` (42,) is dJ/d(new state) in, dJ/d(old state) out."""
    a = ws[0:180].reshape(6, 30)
    g_a = ws[180:360].reshape(6, 30)
    points, offsets, axes = ws[360:390].reshape(10, 3), ws[390:420].reshape(10, 3), ws[420:510].reshape(10, 3, 3)
    g_points, g_axes = ws[510:540].reshape(10, 3), ws[540:630].reshape(10, 3, 3)
    blocks = ws[630:720].reshape(10, 3, 3)
    f, q = ws[720:750], ws[750:780]
    mu, fmax = ws[780:790], ws[790:800]
    foot = ws[800:806].reshape(2, 3)
    # second half: small scratch
    s = ws[WORK : 2 * WORK]
    b, g_b, h = s[0:6], s[6:12], s[12:48].reshape(6, 6)
    target, g_target = s[48:75], s[75:102]
    foot_rot = s[102:120].reshape(2, 3, 3)
    g_foot, g_foot_rot = s[120:126].reshape(2, 3), s[126:144].reshape(2, 3, 3)
    g_force, g_torque, t3 = s[144:147], s[147:150], s[150:153]
    mom_new, scratch = s[153:156], s[160:240]
    m, local, g_local = s[240:249].reshape(3, 3), s[249:258].reshape(3, 3), s[258:267].reshape(3, 3)
    forces_w = s[270:300].reshape(10, 3)
    foot_of = ids[0:10]

    g_pos, g_rot, g_vel, g_mom = grad[0:3], grad[3:12].reshape(3, 3), grad[12:15], grad[15:18]
    g_target[:] = 0.0
    for k in range(2):
        at = 18 + 12 * k
        foot[k] = state_new[at : at + 3]
        foot_rot[k] = state_new[at + 3 : at + 12].reshape(3, 3)
        g_foot[k] = grad[at : at + 3]
        g_foot_rot[k] = grad[at + 3 : at + 12].reshape(3, 3)
    decode_target(tape[0], action, target)

    for sub in range(SUBSTEPS - 1, -1, -1):
        pos, rot = tape[sub, 0:3], tape[sub, 3:12].reshape(3, 3)
        vel, ang_mom, u = tape[sub, 12:15], tape[sub, 15:18], tape[sub, 18:24]
        for i in range(3):
            mom_new[i] = tape[sub + 1, 15 + i] if sub < SUBSTEPS - 1 else state_new[15 + i]
        _integrate_vjp(rot, mom_new, ctrl, dt, g_pos, g_rot, g_vel, g_mom, g_force, g_torque, scratch)
        n = place_contacts(points, axes, foot_of, offsets, foot, foot_rot, stance, subset, rot, ctrl)
        if n == 0:
            continue
        fill_force_qp(a, b, ctrl, pos, rot, vel, ang_mom, target, points, axes, n, scratch)
        for c in range(n):
            mu[c] = ctrl[FRICTION] * mu_scale
            fmax[c] = ctrl[FORCE_MAX]
        projection_jacobians_into(blocks, a, n, mu, fmax, u)
        # forces from the dual: eps u + A f = b holds, f = Proj(A^T u)
        _forces_from_dual(f, a, n, mu, fmax, u)
        g_points[:] = 0.0
        g_axes[:] = 0.0
        for c in range(n):
            for i in range(3):
                forces_w[c, i] = axes[c, i, 0] * f[3 * c] + axes[c, i, 1] * f[3 * c + 1] + axes[c, i, 2] * f[3 * c + 2]
                scratch[i] = points[c, i] - pos[i]
            cross_into(t3, g_torque, scratch[0:3])
            for i in range(3):
                t3[i] += g_force[i]
            for k in range(3):
                scratch[3 + k] = axes[c, 0, k] * t3[0] + axes[c, 1, k] * t3[1] + axes[c, 2, k] * t3[2]
                for i in range(3):
                    g_axes[c, i, k] += t3[i] * f[3 * c + k]
            for k in range(3):
                q[3 * c + k] = (
                    blocks[c, k, 0] * scratch[3] + blocks[c, k, 1] * scratch[4] + blocks[c, k, 2] * scratch[5]
                )
            cross_into(t3, forces_w[c], g_torque)
            for i in range(3):
                g_points[c, i] += t3[i]
                g_pos[i] -= t3[i]
        dual_hessian_into(h, a, n, blocks, ctrl[EPS])
        for k in range(6):
            v = 0.0
            for col in range(3 * n):
                v += a[k, col] * q[col]
            g_b[k] = v
        _solve_spd6(h, g_b)
        for c in range(n):
            for d in range(3):
                v = 0.0
                for e in range(3):
                    w = 0.0
                    for k in range(6):
                        w += a[k, 3 * c + e] * g_b[k]
                    v += blocks[c, d, e] * w
                col = 3 * c + d
                for k in range(6):
                    g_a[k, col] = u[k] * (q[col] - v) - g_b[k] * f[col]
        _qp_rows_vjp(g_a, g_b, ctrl, pos, rot, vel, ang_mom, target, points, axes, n, g_pos, g_rot, g_vel, g_mom,
                     g_target, g_points, g_axes, scratch)  # fmt: skip
        for c in range(n):
            k = foot_of[c]
            for i in range(3):
                g_foot[k, i] += g_points[c, i]
                for j in range(3):
                    g_foot_rot[k, i, j] += g_axes[c, i, j] + g_points[c, i] * offsets[c, j]

    # feet: frozen feet pass their gradient to the old state, moved feet to the command and the target
    rot = tape[0, 3:12].reshape(3, 3)
    target_rot, g_target_rot = target[3:12].reshape(3, 3), g_target[3:12].reshape(3, 3)
    c0, s0 = yaw_cos_sin(target_rot)
    gc, gs = 0.0, 0.0
    g_command[:] = 0.0
    for k in range(2):
        at = 18 + 12 * k
        moved = int(tape[SUBSTEPS, k])
        if moved == 0:
            grad[at : at + 3] = g_foot[k]
            grad[at + 3 : at + 12] = g_foot_rot[k].reshape(9)
            continue
        grad[at : at + 12] = 0.0
        x, y = command[k, 0], command[k, 1]
        gx, gy = g_foot[k, 0], g_foot[k, 1]
        g_target[0] += gx
        g_target[1] += gy
        g_command[k, 0] += c0 * gx + s0 * gy
        g_command[k, 1] += -s0 * gx + c0 * gy
        gc += gx * x + gy * y
        gs += gy * x - gx * y
        if moved == 2 and foot[k, 2] == target[2] + command[k, 2]:  # not clamped to the ground
            g_target[2] += g_foot[k, 2]
            g_command[k, 2] += g_foot[k, 2]
        gram_schmidt_into(local, command[k, 3:9])
        if moved == 1:
            # flat on level ground: only the heading of the commanded x axis counts
            wx, wy = c0 * local[0, 0] - s0 * local[1, 0], s0 * local[0, 0] + c0 * local[1, 0]
            n2 = wx * wx + wy * wy
            # heading psi: columns x (cos, sin), y (-sin, cos); d psi = (wx dwy - wy dwx) / n2
            cp, sp = foot_rot[k, 0, 0], foot_rot[k, 1, 0]
            g_psi = (
                -g_foot_rot[k, 0, 0] * sp
                + g_foot_rot[k, 1, 0] * cp
                - g_foot_rot[k, 0, 1] * cp
                - g_foot_rot[k, 1, 1] * sp
            )
            gwx, gwy = -wy * g_psi / n2, wx * g_psi / n2
            g_local[:] = 0.0
            g_local[0, 0] = c0 * gwx + s0 * gwy
            g_local[1, 0] = -s0 * gwx + c0 * gwy
            gc += gwx * local[0, 0] + gwy * local[1, 0]
            gs += gwy * local[0, 0] - gwx * local[1, 0]
        else:
            for j in range(3):
                gwx, gwy = g_foot_rot[k, 0, j], g_foot_rot[k, 1, j]
                g_local[0, j] = c0 * gwx + s0 * gwy
                g_local[1, j] = -s0 * gwx + c0 * gwy
                g_local[2, j] = g_foot_rot[k, 2, j]
                gc += gwx * local[0, j] + gwy * local[1, j]
                gs += gwy * local[0, j] - gwx * local[1, j]
        gram_schmidt_vjp_into(g_command[k, 3:9], command[k, 3:9], g_local)
    # yaw frame of the target: (c, s) = (x, y) / |(x, y)| of its first column
    length = np.sqrt(target_rot[0, 0] ** 2 + target_rot[1, 0] ** 2)
    along = gc * c0 + gs * s0
    g_target_rot[0, 0] += (gc - along * c0) / length
    g_target_rot[1, 0] += (gs - along * s0) / length

    # target: p_T = p + R a, v_T = R a, w_T = R a, R_T = R exp(a)
    turn, g_turn = target[18:27].reshape(3, 3), g_local
    for i in range(3):
        g_pos[i] += g_target[i]
    for part in range(3):
        source, at = (6, 0) if part == 0 else ((0, 12) if part == 1 else (3, 15))
        mat_t_vec_into(g_action[source : source + 3], rot, g_target[at : at + 3])
        _outer_add(g_rot, g_target[at : at + 3], action[source : source + 3])
    mat_t_mul_into(g_turn, rot, g_target_rot)
    mat_mul_t_into(m, g_target_rot, turn)
    g_rot += m
    mat_t_mul_into(m, turn, g_turn)
    t3[0], t3[1], t3[2] = m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]
    right_jacobian_t_into(g_action[9:12], action[9:12], t3)


@njit(**NJIT)
def _forces_from_dual(f, a, n, mu, fmax, u):
    for c in range(n):
        x, y, z = 0.0, 0.0, 0.0
        for k in range(6):
            x += a[k, 3 * c] * u[k]
            y += a[k, 3 * c + 1] * u[k]
            z += a[k, 3 * c + 2] * u[k]
        f[3 * c], f[3 * c + 1], f[3 * c + 2], _ = project_pyramid(x, y, z, mu[c], fmax[c])
