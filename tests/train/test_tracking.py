"""Costs of the analytic training against numbers worked out by hand, its targets and gradients against definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.motion.library import MotionLibrary
from tests.train.small_runs import small_env, small_params, small_policy
from train.config import CostWeights
from train.networks import Reference, UnifiedPolicy
from train.rollout import mlp
from train.tracking import observe_body, observe_srb, tracking_cost, tracking_error
from train.window import SrbStep, Window, roll_window, swing_smoothness, td_targets

WEIGHTS = CostWeights(
    height_m=0.04,
    tilt=0.15,
    velocity_m_s=0.5,
    spin_rad_s=1.5,
    foot_m=0.15,
    swing_m=0.02,
    w_foot=1.5,
    w_swing=0.05,
    w_effort=0.02,
    w_rate=0.4,
    saturation=0.05,
    fall=8.0,
)
CONTROL = {
    "foot_law": [0.2, 0.22, 0.1, 0.15, 0.02, -0.05],
    "residual_scale": [0.3, 0.5, 0.03, 0.1, 0.05, 0.1],
    "error_scale": [0.05, 0.15, 0.3, 0.7, 0.1, 0.05, 0.3, 1.0],
    "body_scale": [0.1, 0.3],
}
# column of s_SRB, deviation there, squared scaled error
UNIT_ERRORS = {
    "height": (0, 0.04, 1.0),
    "tilt": (3, 0.3, 4.0),
    "velocity": (8, -0.5, 1.0),
    "spin": (12, 3.0, 4.0),
    "left foot": (14, 0.15, 1.5),
    "right foot": (24, -0.3, 6.0),
    "foot rotation": (16, 1.0, 0.0),
    "contact": (31, 1.0, 0.0),
}


@pytest.mark.parametrize("name", UNIT_ERRORS)
def test_tracking_cost_of_one_error(name: str) -> None:
    column, deviation, x = UNIT_ERRORS[name]
    ref = torch.linspace(-1, 1, 35, dtype=torch.float64)[None]
    srb = ref.clone()
    srb[0, column] += deviation
    assert float(tracking_error(srb, ref, WEIGHTS)) == pytest.approx(x)
    assert float(tracking_cost(srb, ref, WEIGHTS)) == pytest.approx(0.2 * x / (1 + 0.05 * x))


def test_a_swing_foot_costs_what_its_error_changes() -> None:
    ref = torch.zeros(4, 35)
    srb = ref.clone()
    srb[:, 13:16] = torch.tensor([0.5, 0.0, 0.02])
    srb[:, 24] = 0.04
    lag = torch.zeros(4, 2, 3)
    lag[:, 0, 0] = 0.5
    stance = np.array([[0, 0], [0, 1], [1, 1], [0, 0]])
    swinging = torch.tensor([[True, True], [True, True], [True, True], [False, True]])
    cost, rows, now = swing_smoothness(srb, ref, stance, lag, swinging, WEIGHTS)
    # the left foot moved by 0.02 m against the reference: 1; the right one by 0.04 m: 4
    expected = [0.05 * x / (1 + 0.05 * x) for x in (5.0, 1.0, 0.0, 4.0)]
    np.testing.assert_allclose(cost.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(rows[:, 1, 2].numpy(), 0.04, rtol=1e-6)
    np.testing.assert_array_equal(now.numpy(), stance == 0)


def test_a_constant_foot_error_costs_no_smoothness() -> None:
    ref, srb = torch.zeros(1, 35), torch.zeros(1, 35)
    srb[0, 13:16] = 0.3
    lag = torch.zeros(1, 2, 3)
    lag[0, 0] = 0.3
    cost, _, _ = swing_smoothness(srb, ref, np.zeros((1, 2)), lag, torch.ones(1, 2, dtype=torch.bool), WEIGHTS)
    assert float(cost) == pytest.approx(0.0, abs=1e-12)


def test_td_targets_are_the_weighted_mean_of_k_step_returns() -> None:
    rng = np.random.default_rng(0)
    horizon, n, gamma, lam = 7, 40, 0.9, 0.8
    cost, ahead = rng.normal(size=(horizon, n)), rng.normal(size=(horizon, n))
    fell = rng.random((horizon, n)) < 0.15
    over = ~fell & (rng.random((horizon, n)) < 0.15)
    window = Window()
    window.cost, window.fell, window.over = ([*torch.from_numpy(x)] for x in (cost, fell, over))
    found = td_targets(window, torch.from_numpy(ahead), gamma, lam).numpy()
    for i in range(n):
        for t in range(horizon):
            end = next((k for k in range(t, horizon) if fell[k, i] or over[k, i]), horizon - 1)
            returns = [
                sum(gamma**j * cost[t + j, i] for j in range(k + 1))
                + gamma ** (k + 1) * (0.0 if fell[t + k, i] else ahead[t + k, i])
                for k in range(end - t + 1)
            ]
            weights = [(1 - lam) * lam**k for k in range(end - t)] + [lam ** (end - t)]
            assert found[t, i] == pytest.approx(np.dot(weights, returns), abs=1e-12)


def test_gradient_of_a_two_step_rollout_equals_central_differences(library: MotionLibrary) -> None:
    n = 12
    env = small_env(library, n)
    start = {key: value.copy() for key, value in env.arrays().items()}
    policy = UnifiedPolicy(None, **CONTROL)
    ref = Reference(torch.from_numpy(env.characters.observe().copy()))
    rng = np.random.default_rng(1)
    with torch.no_grad():
        act12, command, _ = policy.targets(ref, torch.zeros(n, 169))
    act = act12.double() + torch.from_numpy(rng.normal(0, 0.02, (n, 12)))
    command = command.double() + torch.from_numpy(rng.normal(0, 0.02, (n, 2, 9)))
    contact = env.characters.library.contact[env.characters.frame + 1]
    wanted = torch.from_numpy(env.characters.library.ref_srb[env.characters.frame + 2])
    body = np.zeros((n, 135), np.float32)
    body[:, 3::9] = body[:, 7::9] = 1.0
    inverse_b = torch.from_numpy(np.linalg.inv(library.inertia_b))

    def rollout(a: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        """Cost (n,) after two steps with the same action; the second state depends on it through the first too."""
        env.restore(start)
        state = torch.from_numpy(env.characters.batch.state.copy())
        for _ in range(2):
            state = SrbStep.apply(state, a, c, env, contact, body)
        return tracking_cost(
            observe_srb(state, torch.from_numpy(env.characters.batch.stance), inverse_b), wanted, WEIGHTS
        )

    a, c = act.clone().requires_grad_(True), command.clone().requires_grad_(True)
    rollout(a, c).sum().backward()
    assert a.grad is not None
    assert c.grad is not None
    h, errors, sizes = 1e-6, [], []
    for _ in range(6):
        da, dc = torch.from_numpy(rng.normal(size=(n, 12))), torch.from_numpy(rng.normal(size=(n, 2, 9)))
        with torch.no_grad():
            change = (rollout(act + h * da, command + h * dc) - rollout(act - h * da, command - h * dc)) / (2 * h)
        slope = (a.grad * da).sum(1) + (c.grad * dc).sum((1, 2))
        errors.append((slope - change).abs().numpy())
        sizes.append(change.abs().numpy())
    assert np.median(sizes) > 1e-3  # there is something to differentiate
    relative = np.array(errors) / (np.array(sizes) + 1e-3)
    assert np.median(relative) < 1e-5
    assert np.mean(relative < 1e-3) > 0.95  # a difference across a change of active contacts has no derivative


def test_the_derivative_of_the_observed_body_is_that_of_the_engines_observation(library: MotionLibrary) -> None:
    """One step with a constant predicted body, not refined; s_full of the engine in single precision against it."""
    n = 12
    env = small_env(library, n)
    start = {key: value.copy() for key, value in env.arrays().items()}
    chars, rng = env.characters, np.random.default_rng(2)
    with torch.no_grad():
        policy = UnifiedPolicy(None, **CONTROL)
        ref = Reference(torch.from_numpy(chars.observe().copy()))
        act12, command, _ = policy.targets(ref, torch.zeros(n, 169))
        body = policy.body(ref, torch.zeros(n, 169))
    contact = library.contact[chars.frame + 1]
    inverse_b = torch.from_numpy(np.linalg.inv(library.inertia_b))
    weight = torch.from_numpy(rng.normal(size=(n, 135)))

    def observed(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        env.restore(start)
        state = SrbStep.apply(
            torch.from_numpy(chars.batch.state.copy()), a, command.double(), env, contact, body.numpy()
        )
        srb = observe_srb(state, torch.from_numpy(chars.batch.stance.copy()), inverse_b)
        return srb, torch.from_numpy(chars.observe()[:, 35:170].astype(np.float64))

    a = act12.double().requires_grad_(True)
    srb, seen = observed(a)
    full = observe_body(seen, body.double(), srb, torch.zeros(n, dtype=torch.bool))
    np.testing.assert_array_equal(full.detach().numpy(), seen.numpy())
    (full * weight).sum().backward()
    assert a.grad is not None
    h, errors, sizes = 3e-3, [], []
    for _ in range(6):
        d = torch.from_numpy(rng.normal(size=(n, 12)))
        with torch.no_grad():
            plus, minus = observed(act12.double() + h * d)[1], observed(act12.double() - h * d)[1]
        change = ((plus - minus) * weight).sum(1) / (2 * h)
        errors.append(((a.grad * d).sum(1) - change).abs().numpy())
        sizes.append(change.abs().numpy())
    assert np.median(sizes) > 1e-2
    assert np.median(np.array(errors) / (np.array(sizes) + 1e-2)) < 0.02


def test_refined_legs_follow_the_feet() -> None:
    srb = torch.zeros(2, 35)
    srb[:, 0], srb[:, 1], srb[:, 5] = 0.9, 1.0, 1.0
    srb.requires_grad_(True)
    full = observe_body(torch.zeros(2, 135), torch.zeros(2, 135), srb, torch.tensor([True, False]))
    left_ankle, left_knee = 14, 13
    (full[:, 9 * left_ankle + 1] + full[:, 9 * left_knee + 2]).sum().backward()
    assert srb.grad is not None
    np.testing.assert_allclose(srb.grad[:, 14].numpy(), [1.0, 0.0])  # sideways: the ankle is where the foot is
    np.testing.assert_allclose(srb.grad[:, 15].numpy(), [0.5, 0.0])  # the knee half as high as the foot
    np.testing.assert_allclose(srb.grad[:, 0].numpy(), [1.0, 1.0])  # and as the body rises, all rises


def test_the_supervised_losses_do_not_pull_at_the_simulation(library: MotionLibrary) -> None:
    env, p = small_env(library, 8, refine=True), small_params()
    policy = small_policy(p)
    critic = mlp([340, 8, 1])
    inverse_b = torch.from_numpy(np.linalg.inv(library.inertia_b))
    window, _ = roll_window(env, policy, critic, p, inverse_b, torch.zeros(8, 18))
    assert policy.network is not None
    (gradient,) = torch.autograd.grad(window.supervised, policy.network.decoder.bias)
    by_output = gradient.reshape(-1, 169).abs().sum(0)
    assert by_output[:30].max() == 0.0  # targets and feet
    assert by_output[30:165].max() > 0.0
    assert by_output[165:].max() > 0.0
