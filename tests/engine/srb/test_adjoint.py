"""The step's adjoint against finite differences along the rotation group."""

import numpy as np
import pytest

from engine.rotation import exp_so3, matrix_to_6d, quat_exp
from engine.srb.adjoint import step_vjp
from engine.srb.body import SrbParams, controller_row, pack_state
from engine.srb.step import SrbBatch
from engine.srb.terrain import Terrain

PARAMS = SrbParams(
    kp_linear=286.0,
    kd_linear=52.0,
    kp_angular=120.0,
    kd_angular=35.0,
    weight_linear_xy=1.4,
    weight_linear_z=3.5,
    weight_angular_xy=0.9,
    weight_angular_z=0.6,
    w_lambda=1e-5,
    foot_half_length_m=0.12,
    foot_half_width_m=0.06,
    contact_points=4,
    friction=0.8,
    force_max_n=10000.0,
    cone="foot_pyramid",
    recovery_distance_m=0.3,
    recovery_frames=0,
    heel_toe=False,
)
INERTIA = np.diag([7.0, 6.5, 1.2]) + 0.1


def random_case(seed, n=24):
    rng = np.random.default_rng(seed)
    batch = SrbBatch(np.tile(controller_row(PARAMS, 45.0, INERTIA), (n, 1)), Terrain.flat())
    com = np.tile([0.2, -0.1, 0.85], (n, 1)) + rng.normal(0, 0.03, (n, 3))
    feet = np.stack([com + np.array([0.05, 0.09, 0]), com + np.array([-0.1, -0.09, 0])], 1) + rng.normal(
        0, 0.03, (n, 2, 3)
    )
    feet[..., 2] = 0
    foot_quat = quat_exp(np.stack([np.zeros((n, 2)), np.zeros((n, 2)), rng.normal(0, 0.2, (n, 2))], -1))
    batch.state[:] = pack_state(
        com,
        quat_exp(rng.normal(0, 0.15, (n, 3))),
        rng.normal(0, 0.4, (n, 3)),
        rng.normal(0, 0.7, (n, 3)),
        feet,
        foot_quat,
        INERTIA,
    )
    batch.stance[:] = rng.integers(0, 2, (n, 2))
    action = rng.normal(0, 1, (n, 12)) * np.array([0.6] * 3 + [0.8] * 3 + [0.04] * 3 + [0.15] * 3)
    command = np.zeros((n, 2, 9))
    for k, side in enumerate((1, -1)):
        command[:, k, :3] = np.array([0.05, 0.09 * side, -0.8]) + rng.normal(0, 0.05, (n, 3))
        command[:, k, 3:] = matrix_to_6d(exp_so3(rng.normal(0, 0.2, (n, 3)))) * rng.uniform(0.8, 1.2, (n, 1))
    return batch, action, command, rng.integers(0, 4, n), rng


def run(batch, state, stance, action, command, cls):
    batch.state[:], batch.stance[:] = state, stance
    batch.warm[:] = 0
    batch.lift[:] = 0
    batch.step(action, command, cls)
    return batch.state.copy()


@pytest.mark.parametrize("seed", range(4))
def test_adjoint_equals_central_differences(seed):
    batch, action, command, cls, rng = random_case(seed)
    n = len(cls)
    state0, stance0 = batch.state.copy(), batch.stance.copy()
    run(batch, state0, stance0, action, command, cls)
    record = batch.record()
    weight = rng.normal(size=(n, 42))
    g_state, g_action, g_command = step_vjp(record, action, command, weight)
    h = 1e-6
    errors = []
    for trial in range(12):
        d_lin, d_rot = rng.normal(size=(n, 42)), rng.normal(size=(n, 3, 3))
        d_act, d_cmd = rng.normal(size=(n, 12)), rng.normal(size=(n, 2, 9))
        if trial % 3 == 0:
            d_act[:], d_cmd[:] = 0, 0
        elif trial % 3 == 1:
            d_lin[:], d_rot[:] = 0, 0

        def perturbed(sign, d_lin=d_lin, d_rot=d_rot, d_act=d_act, d_cmd=d_cmd):
            s = state0.copy()
            lin = np.zeros(42, bool)
            lin[[0, 1, 2, 12, 13, 14, 15, 16, 17, 18, 19, 30, 31]] = True
            s[:, lin] += sign * h * d_lin[:, lin]
            for j, at in enumerate((3, 21, 33)):
                v = d_rot[:, j].copy()
                if j:
                    v[:, :2] = 0  # feet in contact stay level
                r = s[:, at : at + 9].reshape(n, 3, 3) @ exp_so3(sign * h * v)
                s[:, at : at + 9] = r.reshape(n, 9)
            return s, action + sign * h * d_act, command + sign * h * d_cmd

        plus, minus = (run(batch, s, stance0, a, c, cls) for s, a, c in (perturbed(1), perturbed(-1)))
        numeric = np.sum(weight * (plus - minus), axis=1) / (2 * h)
        sp, sm = perturbed(1)[0], perturbed(-1)[0]
        analytic = (
            np.sum(g_state * (sp - sm), axis=1) / (2 * h)
            + np.sum(g_action * d_act, axis=1)
            + np.sum(g_command * d_cmd, axis=(1, 2))
        )
        errors.append(np.abs(numeric - analytic) / (1 + np.abs(numeric)))
    # a face of the friction pyramid may switch inside the difference interval: all but a few characters must agree
    worst = np.max(errors, axis=0)
    assert np.mean(worst < 1e-6) >= 0.9
    assert np.median(worst) < 1e-7
