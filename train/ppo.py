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


class RolloutBuffer:
    """What one iteration plays: ``steps`` steps of ``n`` characters, filled row by row.

    Attributes:
        obs: (steps, n, n_obs). action: (steps, n, n_action). log_prob: (steps, n) under the policy that acted.
        reward: (steps, n). value: V(s_t) (steps, n). next_value: V(s_{t+1}) before any restart (steps, n).
        fell: Episode ended in a fall (steps, n) bool. over: ended by time (steps, n) bool.
    """

    def __init__(self, steps: int, n: int, n_obs: int, n_action: int) -> None:
        self.obs, self.action = torch.zeros(steps, n, n_obs), torch.zeros(steps, n, n_action)
        self.log_prob, self.reward, self.value, self.next_value = (torch.zeros(steps, n) for _ in range(4))
        self.fell, self.over = (torch.zeros(steps, n, dtype=torch.bool) for _ in range(2))

    def batch(self, gamma: float, lam: float) -> Batch:
        """The samples with normalised advantages and value targets."""
        adv = advantages(self.reward, self.value, self.next_value, self.fell, self.over, gamma, lam)
        target, flat = (adv + self.value).reshape(-1), adv.reshape(-1)
        obs, action = self.obs.flatten(0, 1), self.action.flatten(0, 1)
        return Batch(obs, action, self.log_prob.reshape(-1), (flat - flat.mean()) / (flat.std() + 1e-8), target)


def clipped_surrogate(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Loss (scalar, to minimise) and log-ratio (B,) of log-probabilities and normalised advantages (B,) each."""
    log_ratio = log_prob - old_log_prob
    ratio = torch.exp(log_ratio)
    return -torch.minimum(ratio * advantage, torch.clamp(ratio, 1 - clip, 1 + clip) * advantage).mean(), log_ratio


def ratio_stats(log_ratio: Tensor, clip: float) -> dict[str, float]:
    """KL estimate (Schulman's k3) and share of clipped samples."""
    with torch.no_grad():
        return {
            "kl": float((torch.expm1(log_ratio) - log_ratio).mean()),
            "clipped": float(((torch.exp(log_ratio) - 1).abs() > clip).float().mean()),
        }


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
            surrogate, log_ratio = clipped_surrogate(log_prob, batch.log_prob[rows], batch.advantage[rows], p.clip)
            value_loss = ((value(features(batch.obs[rows]))[:, 0] - batch.value_target[rows]) ** 2).mean()
            loss = surrogate - p.entropy * entropy.mean() + p.value * value_loss + supervised
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, p.clip_norm)
            optimiser.step()
            each = {
                **ratio_stats(log_ratio, p.clip),
                "value_loss": float(value_loss.detach()),
                "supervised": float(supervised.detach()),
            }
            sums = {key: sums[key] + number / len(parts) for key, number in each.items()}
    return sums
