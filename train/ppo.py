"""Proximal policy optimisation with a clipped ratio (Schulman et al. 2017): advantages and the update, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from train.config import PpoParams


class Batch(NamedTuple):
    """Samples of one iteration, flattened over time and characters.

    Attributes:
        obs: (B, n_obs). action: (B, n_action). log_prob: (B,) under the policy that acted.
        advantage: (B,), normalised. value_target: (B,).
    """

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    advantage: Tensor
    value_target: Tensor


def advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, fell: Tensor, over: Tensor, gamma: float, lam: float
) -> Tensor:
    """Generalised advantage estimate (T, n).

    Args:
        reward: (T, n). value: V(s_t) (T, n). next_value: V(s_{t+1}) before any restart (T, n).
        fell: Episode ended in a fall (T, n): nothing follows. over: ended by time (T, n): the value follows.
    """
    out, carry = torch.zeros_like(reward), torch.zeros_like(reward[0])
    for t in range(len(reward) - 1, -1, -1):
        delta = reward[t] + gamma * next_value[t] * (~fell[t]) - value[t]
        carry = delta + gamma * lam * carry * (~(fell[t] | over[t]))
        out[t] = carry
    return out


def update(
    batch: Batch,
    evaluate: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]],
    value: nn.Module,
    features: Callable[[Tensor], Tensor],
    parameters: list[nn.Parameter],
    optimiser: torch.optim.Optimizer,
    p: PpoParams,
) -> dict[str, float]:
    """Run the epochs of one iteration.

    Args:
        evaluate: (obs, action) to log-probability (B,), entropy (B,) and a supervised loss (scalar), differentiable.
        features: Observation to the value network's input.

    Returns:
        Means over the last epoch: ratio's KL estimate, share of clipped samples, value loss, supervised loss.
    """
    sums: dict[str, float] = {}
    for _ in range(p.epochs):
        sums = {"kl": 0.0, "clipped": 0.0, "value_loss": 0.0, "supervised": 0.0}
        parts = torch.randperm(len(batch.obs)).split(p.batch)
        for rows in parts:
            log_prob, entropy, supervised = evaluate(batch.obs[rows], batch.action[rows])
            log_ratio = log_prob - batch.log_prob[rows]
            ratio, adv = torch.exp(log_ratio), batch.advantage[rows]
            surrogate = torch.minimum(ratio * adv, torch.clamp(ratio, 1 - p.clip, 1 + p.clip) * adv).mean()
            value_loss = ((value(features(batch.obs[rows]))[:, 0] - batch.value_target[rows]) ** 2).mean()
            loss = -surrogate - p.entropy * entropy.mean() + p.value * value_loss + supervised
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, p.clip_norm)
            optimiser.step()
            with torch.no_grad():
                sums["kl"] += float((torch.expm1(log_ratio) - log_ratio).mean()) / len(parts)
                sums["clipped"] += float(((ratio - 1).abs() > p.clip).float().mean()) / len(parts)
                sums["value_loss"] += float(value_loss.detach()) / len(parts)
                sums["supervised"] += float(supervised.detach()) / len(parts)
    return sums
