"""A window of simulation with gradients: what `train.unified` differentiates, and what its critic learns from."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.srb.adjoint import step_vjp
from train.config import CostWeights, UnifiedParams
from train.envs.srb_env import SrbEnv
from train.networks import Reference, UnifiedPolicy
from train.rollout import relative_body
from train.tracking import observe_body, observe_srb, tracking_cost

REF_SRB = slice(170, 205)  # columns of the observation: the next SRB of the reference


class SrbStep(torch.autograd.Function):
    """One control step of the whole environment; its backward is the engine's adjoint."""

    @staticmethod
    def forward(
        ctx: Any, state: Tensor, act12: Tensor, command: Tensor, env: SrbEnv, contact: Any, body: Any
    ) -> Tensor:
        batch = env.characters.batch
        a, c = act12.detach().numpy(), command.detach().numpy()
        env.characters.apply(a, c, contact, body, env.pushes())
        ctx.saved = batch.record(), a, c, batch.dt, batch.threads
        return torch.from_numpy(batch.state.copy())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        record, a, c, dt, threads = ctx.saved
        g_state, g_act, g_command = step_vjp(record, a, c, grad.numpy(), dt, threads)
        return torch.from_numpy(g_state), torch.from_numpy(g_act), torch.from_numpy(g_command), None, None, None


class Window:
    """What one window of simulation leaves for the critic, and its actor loss."""

    def __init__(self) -> None:
        self.obs: list[Tensor] = []
        self.next_obs: list[Tensor] = []
        self.cost: list[Tensor] = []
        self.fell: list[Tensor] = []
        self.over: list[Tensor] = []
        self.actor = torch.zeros(())
        self.supervised = torch.zeros(())
        self.mean_cost = 0.0


def roll_window(
    env: SrbEnv, policy: UnifiedPolicy, target: torch.nn.Module, p: UnifiedParams, inverse_b: Tensor, previous: Tensor
) -> tuple[Window, Tensor]:
    """Simulate ``p.horizon`` steps with gradients.

    Args:
        env: The environment, continued from where it stands.
        target: The slowly moving critic, on normalised observations.
        previous: Raw residual of the last step, (n, 18).

    Returns:
        The window, with losses that still carry their graph, and the last raw residual (detached).
    """
    chars, out = env.characters, Window()
    state = torch.from_numpy(chars.batch.state.copy())
    discount = torch.ones(env.n)
    # Half of the characters play the reference's body, refined, and give the body head its targets. The others run
    # closed loop as a player does, a quarter of all with and a quarter without the refinement.
    group = torch.arange(env.n) % 4
    teacher, refined, unrefined = group < 2, group != 3, np.flatnonzero((group == 3).numpy())
    lag = torch.zeros(env.n, 2, 3)
    swinging = torch.zeros(env.n, 2, dtype=torch.bool)
    lessons: list[tuple[Tensor, Tensor]] = []
    obs = torch.from_numpy(chars.observe().copy())
    for t in range(p.horizon):
        ref = Reference(obs)
        raw = policy.raw(obs)
        act12, command, _ = policy.targets(ref, raw)
        body = policy.body(ref, raw)
        live = raw[:, policy.live]
        played = torch.where(teacher[:, None], policy.reference_body(ref), body).detach()
        contact = policy.logits(ref, raw).argmax(1).numpy()
        state = SrbStep.apply(state, act12.double(), command.double(), env, contact, played.numpy())
        wanted = relative_body(chars.body_pos_w, chars.body_quat_w, chars.batch.state)
        chars.body_pos_w[unrefined] = chars.composed_pos_w[unrefined]
        chars.body_quat_w[unrefined] = chars.composed_quat_w[unrefined]
        fell_np, over_np = env.ends()
        fell, over = torch.from_numpy(fell_np), torch.from_numpy(over_np)

        reference = obs[:, REF_SRB].detach()  # bent towards the path where the character follows it
        new_srb = observe_srb(state, torch.from_numpy(chars.batch.stance.copy()), inverse_b).float()
        change = torch.where(torch.from_numpy(env.age > 1)[:, None], live - previous, torch.zeros_like(live))
        cost = tracking_cost(new_srb, reference, p.cost) + p.cost.w_effort * (live**2).mean(1)
        cost = cost + p.cost.w_rate * (change**2).mean(1) + p.cost.fall * fell
        swing_cost, lag, swinging = swing_smoothness(new_srb, reference, chars.batch.stance, lag, swinging, p.cost)
        cost = cost + swing_cost
        cost = torch.where(torch.isfinite(cost), cost, torch.full_like(cost, p.cost.fall).detach())
        previous = live
        lessons.append((wanted, teacher & ~fell))

        seen = torch.from_numpy(chars.observe().copy())
        carried = observe_body(seen[:, 35:170], torch.where(refined[:, None], wanted, played), new_srb, refined)
        next_obs = torch.cat([new_srb, carried, seen[:, 170:]], dim=1)
        last = t == p.horizon - 1
        beyond = over | (torch.tensor(last) & ~fell)
        out.actor = out.actor + (discount * cost).sum() / (env.n * p.horizon)
        if bool(beyond.any()):
            value = target(policy.features(next_obs))[:, 0]
            out.actor = out.actor + (p.gamma * discount * value * beyond).sum() / (env.n * p.horizon)
        out.obs.append(obs.detach())
        out.next_obs.append(next_obs.detach())
        out.cost.append(cost.detach())
        out.fell.append(fell)
        out.over.append(over)
        out.mean_cost += float(cost.detach().mean()) / p.horizon

        done = fell_np | over_np
        discount = torch.where(torch.from_numpy(done), torch.ones(()), p.gamma * discount)
        obs = next_obs
        if done.any():
            env.restart(np.flatnonzero(done))
            swinging = swinging & ~torch.from_numpy(done)[:, None]
            fresh = torch.from_numpy(done)[:, None]
            obs = torch.where(fresh, torch.from_numpy(chars.observe().copy()), obs)
            state = torch.where(fresh, torch.from_numpy(chars.batch.state.copy()), state)
    out.supervised = supervised_loss(policy, torch.cat(out.obs), lessons, p)
    return out, previous.detach()


def supervised_loss(
    policy: UnifiedPolicy, obs: Tensor, lessons: list[tuple[Tensor, Tensor]], p: UnifiedParams
) -> Tensor:
    """Losses of the body and the contact head on the window's observations, taken as constants.

    Through the simulation they would ask the controller to move the body towards a target that moves with it.

    Args:
        obs: (horizon * n, 340). lessons: Per step, the wanted body (n, 135) and who may learn from it (n,).
    """
    ref, raw = Reference(obs), policy.raw(obs)
    wanted, usable = (torch.cat(part) for part in zip(*lessons, strict=True))
    error = ((policy.body(ref, raw) - wanted) ** 2).mean(1)
    body_loss = (error * usable).sum() / usable.sum().clamp(min=1)
    class_loss = torch.nn.functional.cross_entropy(policy.logits(ref, raw), obs[:, 201:205].argmax(1))
    return p.loss.w_b * body_loss + p.loss.w_cs * class_loss


def swing_smoothness(
    srb: Tensor, ref: Tensor, stance: np.ndarray, lag: Tensor, swinging: Tensor, w: CostWeights
) -> tuple[Tensor, Tensor, Tensor]:
    """Cost (B,) of a swing foot that moves unlike the reference's: squared change of its error over a step.

    Args:
        srb: s_SRB (B, 35). ref: The reference's. stance: (B, 2) after the step.
        lag: Foot errors of the step before (B, 2, 3). swinging: Feet that were in swing then (B, 2).

    Returns:
        The cost, this step's foot errors and swing flags.
    """
    rows = torch.stack([srb[:, 13:16] - ref[:, 13:16], srb[:, 22:25] - ref[:, 22:25]], dim=1)
    now = torch.from_numpy(stance == 0)
    change = ((rows - lag) ** 2).sum(2) / w.swing_m**2
    x = (change * (now & swinging)).sum(1)
    return w.w_swing * x / (1.0 + w.saturation * x), rows, now


def td_targets(w: Window, values_next: Tensor, gamma: float, lam: float) -> Tensor:
    """TD(lambda) cost-to-go (horizon, n); a fall ends it, the end of an episode continues with the value."""
    horizon = len(w.cost)
    out, carry = torch.zeros_like(values_next), values_next[-1]
    for t in range(horizon - 1, -1, -1):
        mixed = (1 - lam) * values_next[t] + lam * carry
        ahead = torch.where(w.over[t] | torch.tensor(t == horizon - 1), values_next[t], mixed)
        carry = w.cost[t] + gamma * torch.where(w.fell[t], torch.zeros_like(ahead), ahead)
        out[t] = carry
    return out
