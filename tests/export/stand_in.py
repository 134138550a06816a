"""A small policy with every operation of the unified networks: normaliser, gated experts, copied bodies."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

INFO = {
    "method": "unified",
    "mass_kg": 45.0,
    "inertia_b": [9.9, 0.0, 0.1, 0.0, 8.3, 0.0, 0.1, 0.0, 2.0],
    "controller": {"k_p": 120.0, "k_d": 35.0, "w_lambda": 1e-5},
    "body_frame": "proj",
    "data_licence": "CC0",
    "params_digest": "0" * 64,
    "seed": 0,
    "samples": 1000,
}


class StandInPolicy(nn.Module):
    """340 observations to 169 actions with random weights."""

    mean: Tensor
    std: Tensor

    def __init__(self, hidden: int = 16, experts: int = 4, seed: int = 0, normalise: bool = True) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.normalise = normalise
        self.register_buffer("mean", torch.randn(340, generator=generator))
        self.register_buffer("std", torch.rand(340, generator=generator) + 0.5)
        self.encoder = nn.Sequential(nn.Linear(340, hidden), nn.ELU(), nn.Linear(hidden, 8), nn.ELU())
        self.gate = nn.Sequential(nn.Linear(178, 8), nn.ELU(), nn.Linear(8, experts))
        self.layers = nn.ModuleList(
            nn.Linear(n_in, experts * n_out) for n_in, n_out in ((178, hidden), (hidden + 8, 169))
        )
        self.experts = experts
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))

    def forward(self, obs: Tensor) -> Tensor:
        """Map observations (n, 340) to actions (n, 169)."""
        x = ((obs - self.mean) / self.std).clamp(-10.0, 10.0) if self.normalise else obs
        z = self.encoder(x)
        y = torch.cat([x[:, :170], z], dim=1)
        weight = torch.softmax(self.gate(y), dim=1)
        for index, layer in enumerate(self.layers):
            if index:
                y = torch.cat([nn.functional.elu(y), z], dim=1)
            y = (layer(y).view(y.shape[0], self.experts, -1) * weight[:, :, None]).sum(dim=1)
        return torch.cat([3.14 * torch.tanh(y[:, :30]), obs[:, 205:340] + y[:, 30:165], y[:, 165:]], dim=1)


def body_order(seed: int = 1) -> np.ndarray:
    """Return a random order of the 15 bodies that is not the engine's."""
    return np.random.default_rng(seed).permutation(15)
