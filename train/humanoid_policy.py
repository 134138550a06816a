"""The humanoid's policy: observation to servo numbers in radians, normaliser and action scaling inside.

Layouts: `engine.humanoid.observe`. Whether the action is a servo target or is added to the reference's is said by
``targets`` in what builds the policy.
"""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

ACTION = 28
"""Servo numbers, `engine.humanoid.kinematics.N_JOINT_DOF`; stated here so that loading a policy needs no engine."""
CLIP = 5.0


class HumanoidPolicy(nn.Module):
    """An MLP between a normaliser and a scale.

    Args:
        obs: Width of an observation row.
        hidden: Widths of the hidden layers.
        scale_rad: What one unit of the network's output turns a joint by [rad].
        limit: Largest output in those units.
    """

    obs_mean: Tensor
    obs_std: Tensor

    def __init__(self, obs: int, hidden: list[int], scale_rad: float, limit: float) -> None:
        super().__init__()
        self.scale_rad, self.limit = scale_rad, limit
        self.register_buffer("obs_mean", torch.zeros(obs))
        self.register_buffer("obs_std", torch.ones(obs))
        layers: list[nn.Module] = []
        for a, b in pairwise([obs, *hidden]):
            layers += [nn.Linear(a, b), nn.ELU()]
        last = nn.Linear(hidden[-1], ACTION)
        # the first policy is the reference itself: noise around it, no offset
        nn.init.uniform_(last.weight, -0.01, 0.01)
        nn.init.zeros_(last.bias)
        self.network = nn.Sequential(*layers, last)

    def features(self, obs: Tensor) -> Tensor:
        """Normalised observation (B, n_obs), also the critic's input."""
        return torch.clamp((obs - self.obs_mean) / self.obs_std, -CLIP, CLIP)

    def forward(self, obs: Tensor) -> Tensor:
        """Observation (B, n_obs) to action (B, 28) [rad]."""
        return self.scale_rad * torch.clamp(self.network(self.features(obs)), -self.limit, self.limit)


class RunningNormaliser:
    """Mean and deviation of all observations so far, merged batch by batch (Chan et al. 1979), in float64."""

    def __init__(self, width: int) -> None:
        self.mean, self.squares = torch.zeros(width, dtype=torch.float64), torch.zeros(width, dtype=torch.float64)
        self.count = 0

    def add(self, obs: Tensor) -> None:
        """Merge rows (B, width)."""
        rows = obs.double()
        n, mean = len(rows), rows.mean(0)
        delta, total = mean - self.mean, self.count + n
        self.squares += ((rows - mean) ** 2).sum(0) + delta**2 * (self.count * n / total)
        self.mean += delta * (n / total)
        self.count = total

    def into(self, policy: HumanoidPolicy) -> None:
        """Give the policy the present mean and deviation, at least 0.01."""
        policy.obs_mean.copy_(self.mean)
        policy.obs_std.copy_((self.squares / max(self.count, 1)).sqrt().clamp(min=0.01))

    def state(self) -> dict[str, Tensor | int]:
        """For a checkpoint."""
        return {"mean": self.mean, "squares": self.squares, "count": self.count}

    def restore(self, state: dict[str, Tensor | int]) -> None:
        """Put back what `state` gave."""
        self.mean, self.squares = torch.as_tensor(state["mean"]).clone(), torch.as_tensor(state["squares"]).clone()
        self.count = int(state["count"])


def policy_kind(path: str | os.PathLike[str]) -> str:
    """What kind of policy a file of `train.networks.save_policy` holds, such as ``unified`` or ``humanoid``."""
    return str(torch.load(path, map_location="cpu", weights_only=True)["build"]["kind"])


def load_humanoid_policy(path: str | os.PathLike[str]) -> tuple[HumanoidPolicy, dict[str, Any]]:
    """Read what `train.deepmimic` wrote: the policy in eval mode and the facts about it."""
    data = torch.load(path, map_location="cpu", weights_only=True)
    build = {key: value for key, value in data["build"].items() if key != "kind"}
    policy = HumanoidPolicy(**build)
    policy.load_state_dict(data["weights"])
    return policy.eval(), data["info"]
