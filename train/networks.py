"""The policies of the unified family: observation 340 to action 169, normaliser and scaling inside.

`UnifiedNetwork` is the paper's shape (extractor 340 -> 340, MLP to 64, gate, 8 blended experts). Around it stand two
policies: `UnifiedPolicy`, whose action is a feed-forward of the reference plus a foot law plus the network's bounded
residual, and `PaperPolicy`, whose action is the network's output as the paper states it. Layouts: `engine.srb.observe`,
`engine.srb.action`.
"""

from __future__ import annotations

import io
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from engine.atomic import write_atomic
from engine.skeleton import LEFT_ANKLE, RIGHT_ANKLE, SOLE_OFFSET
from train.rotation6 import log_so3, small_rotation_t, turn_z_t, with_third_row, yaw_free_t

OBS, ACTION, SRB, FULL = 340, 169, 35, 135
DT = 1.0 / 30.0


class UnifiedNetwork(nn.Module):
    """Extractor, encoder and mixture-of-experts decoder (Kim et al. 2026, section 4.2).

    The experts are affine; blending their parameters equals blending their outputs, so they are one matrix product
    followed by a weighted sum.
    """

    def __init__(self, hidden: list[int], latent: int, gate: int, experts: int, last_std: float) -> None:
        super().__init__()
        self.experts, self.physical = experts, SRB + FULL
        self.extractor = nn.Linear(OBS, OBS)
        sizes = [OBS, *hidden, latent]
        self.encoder = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        width = self.physical + latent
        self.gate = nn.ModuleList([nn.Linear(width, gate), nn.Linear(gate, gate), nn.Linear(gate, experts)])
        self.decoder = nn.Linear(width, experts * ACTION)
        nn.init.normal_(self.decoder.weight, std=last_std / math.sqrt(width))
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised observation (B, 340) to raw output (B, 169)."""
        act = nn.functional.elu
        z = act(self.extractor(x))
        for layer in self.encoder:
            z = act(layer(z))
        y = torch.cat([x[:, : self.physical], z], dim=1)
        g = act(self.gate[0](y))
        g = act(self.gate[1](g))
        g = torch.softmax(self.gate[2](g), dim=1)
        out = self.decoder(y).reshape(-1, self.experts, ACTION)
        return (g[:, :, None] * out).sum(1)


class Reference:
    """The observation taken apart, and the rotations both halves need.

    Rotations are held transposed (rows are columns of R), which the 6-D form gives without a transpose; the simulated
    and the reference tilt come as one batch. Observed 6-D rotations are orthonormal by construction.
    """

    def __init__(self, obs: Tensor) -> None:
        self.srb, self.full = obs[:, :SRB], obs[:, SRB : SRB + FULL]
        self.ref, self.ref_full = obs[:, SRB + FULL : 2 * SRB + FULL], obs[:, 2 * SRB + FULL :]
        both = torch.stack([self.srb[:, 1:7], self.ref[:, 1:7]], dim=1).reshape(-1, 2, 2, 3)
        both_t = with_third_row(both)
        self.tilt_t, self.ref_tilt_t = both_t[:, 0], both_t[:, 1]
        self.turn_t = turn_z_t(self.ref[:, 12:13] * DT)


def local_body(full: Tensor, height: Tensor, tilt_t: Tensor, up: Tensor) -> Tensor:
    """A body of the proj frame (B, 135) in the frame of an SRB of that height (B, 1) and tilt, transposed (B, 3, 3)."""
    rows = full.reshape(-1, 15, 3, 3)  # rows: position, first column, second column
    rise = torch.nn.functional.pad((height * up)[:, None], (0, 0, 0, 2))
    return ((rows - rise[:, None]).reshape(-1, 45, 3) @ tilt_t.transpose(1, 2)).reshape(-1, FULL)


class UnifiedPolicy(nn.Module):
    """Feed-forward of the reference + foot law + 18 bounded residuals, body pose as a residual on the reference.

    With ``network=None`` it is the `no_network` row: the same controller with a zero residual.

    Args:
        network: The residual network, or None.
        foot_law: Gains K_v [s], K_t [m], K_w [m s], each forward and sideways (6,).
        residual_scale: Largest raw unit of v [m/s], w [rad/s], dx [m], dR [rad], foot xy [m], foot yaw [rad] (6,).
        error_scale: Scale of each s_SRB error group: h, rot6, v, w, foot xy, foot z, foot rot6, contact (8,).
        body_scale: Raw unit of a body position [m] and of a 6-D rotation; feet keep the reference's rotation (2,).
    """

    body_frame = "srb"
    foot_law: Tensor
    scale: Tensor
    error_scale: Tensor
    obs_mean: Tensor
    obs_std: Tensor
    body_scale: Tensor
    live: Tensor
    up: Tensor
    level: Tensor
    sole: Tensor
    pairs: Tensor
    feet: Tensor

    def __init__(
        self,
        network: UnifiedNetwork | None,
        foot_law: list[float],
        residual_scale: list[float],
        error_scale: list[float],
        body_scale: list[float],
    ) -> None:
        super().__init__()
        self.network = network
        v, w, dx, dr, foot, yaw = residual_scale
        self.register_buffer("foot_law", torch.tensor(foot_law))
        self.register_buffer("scale", torch.tensor([v] * 3 + [w] * 3 + [dx] * 3 + [dr] * 3 + [foot, foot, yaw] * 2))
        h, r6, sv, sw, fxy, fz, f6, c = error_scale
        feet = ([fxy, fxy, fz] + [f6] * 6) * 2
        self.register_buffer("error_scale", torch.tensor([h] + [r6] * 6 + [sv] * 3 + [sw] * 3 + feet + [c] * 4))
        self.register_buffer("obs_mean", torch.zeros(OBS))
        self.register_buffer("obs_std", torch.ones(OBS))
        scale = torch.tensor(([body_scale[0]] * 3 + [body_scale[1]] * 6) * 15)
        self.body_error_scale = scale.clone()
        for ankle in (LEFT_ANKLE, RIGHT_ANKLE):
            scale[9 * ankle + 3 : 9 * ankle + 9] = 0.0
        self.register_buffer("body_scale", scale)
        # raw outputs in the 169 layout that act: v, w, dx, dR, then xy and one yaw of each foot
        self.register_buffer("live", torch.tensor([*range(12), 12, 13, 15, 21, 22, 24]))
        self.register_buffer("up", torch.tensor([0.0, 0.0, 1.0]))
        self.register_buffer("level", torch.tensor([DT, DT, 0.0]))
        self.register_buffer("sole", torch.tensor(SOLE_OFFSET, dtype=torch.float32)[None, None, None])
        # foot law as one product: (dv_x, dv_y, lean_x, lean_y, dw_y, -dw_x) * gains summed in pairs
        self.register_buffer("pairs", torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 3))
        self.register_buffer("feet", torch.tensor([LEFT_ANKLE, RIGHT_ANKLE]))

    def fit_normaliser(self, ref_srb: Tensor, ref_full: Tensor) -> None:
        """Mean and deviation of the reference part; the parts before it are read as errors against the reference."""
        both = torch.cat([ref_srb, ref_full], 1)
        mean, std = both.mean(0), both.std(0).clamp(min=0.03)
        self.obs_mean.copy_(torch.cat([torch.zeros(SRB + FULL), mean]))
        self.obs_std.copy_(torch.cat([self.error_scale, self.body_error_scale, std]))

    def features(self, obs: Tensor) -> Tensor:
        """Normalised observation (B, 340), an invertible change of variables.

        s_SRB is read as its error against the reference, and s_full in the SRB's own frame against the reference's in
        its own: what the tilt of the SRB does to the body is in s_SRB already.
        """
        ref = Reference(obs)
        error = ref.srb - ref.ref
        body = local_body(ref.full, ref.srb[:, 0:1], ref.tilt_t, self.up) - self.reference_body(ref)
        x = torch.cat([error, body, obs[:, SRB + FULL :]], dim=1)
        return torch.clamp((x - self.obs_mean) / self.obs_std, -5.0, 5.0)

    def raw(self, obs: Tensor) -> Tensor:
        """Network output (B, 169) before scaling; zeros without a network."""
        if self.network is None:
            return torch.zeros_like(obs[:, :ACTION])
        return self.network(self.features(obs))

    def targets(self, ref: Reference, raw: Tensor, foot_law: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """SRB target and foot commands.

        Returns:
            Target part of the action (B, 12), foot commands (B, 2, 9) in the target's ff frame, and the target's
            rotation with its heading removed, transposed (B, 3, 3).
        """
        a = torch.clamp(raw[:, self.live], -3.0, 3.0) * self.scale
        gain = self.foot_law if foot_law is None else foot_law
        s, r, turn_t = ref.srb, ref.ref, ref.turn_t
        # rows: velocity, angular velocity, displacement; each turned by the reference's turn, then into the SRB frame
        moving = (r[:, 7:13] + a[:, 0:6]).reshape(-1, 2, 3)
        rows = torch.cat([moving, (r[:, 7:10] * self.level)[:, None]], dim=1) @ turn_t
        rise = (r[:, 0:1] - s[:, 0:1]) * self.up
        rows = rows + torch.nn.functional.pad((a[:, 6:9] + rise)[:, None], (0, 0, 2, 0))
        target_t = ref.ref_tilt_t @ small_rotation_t(a[:, 9:12]) @ turn_t
        tilt = ref.tilt_t.transpose(1, 2)
        act12 = torch.cat([(rows @ tilt).reshape(-1, 9), -log_so3(target_t @ tilt)], dim=1)

        lean = ref.tilt_t[:, 2, :2] - ref.ref_tilt_t[:, 2, :2]
        spin = torch.cat([s[:, 11:12] - r[:, 11:12], r[:, 10:11] - s[:, 10:11]], dim=1)
        law = (torch.cat([s[:, 7:9] - r[:, 7:9], lean, spin], dim=1) * gain) @ self.pairs
        own = a[:, 12:18].reshape(-1, 2, 3)
        feet = r[:, 13:31].reshape(-1, 2, 3, 3)  # rows: position, first column, second column
        place = feet[:, :, 0] + torch.nn.functional.pad(own[:, :, :2] + law[:, None], (0, 1))
        turned = feet[:, :, 1:] @ turn_z_t(own[:, :, 2:3])
        command = torch.cat([place, turned.reshape(-1, 2, 6)], dim=2)
        return act12, command, yaw_free_t(target_t)

    def body(self, ref: Reference, raw: Tensor) -> Tensor:
        """Next full-body pose relative to the SRB (B, 135): the reference's, plus the scaled residual."""
        return self.reference_body(ref) + raw[:, 30:165] * self.body_scale

    def reference_body(self, ref: Reference) -> Tensor:
        """The reference's next body in the frame of its own SRB (B, 135)."""
        return local_body(ref.ref_full, ref.ref[:, 0:1], ref.ref_tilt_t, self.up)

    def logits(self, ref: Reference, raw: Tensor) -> Tensor:
        """Contact logits (B, 4): the reference's next class as a prior, plus the network's."""
        return 6.0 * ref.ref[:, 31:35] + raw[:, 165:169]

    def forward(self, obs: Tensor) -> Tensor:
        """Observation (B, 340) to action (B, 169)."""
        ref = Reference(obs)
        raw = self.raw(obs)
        act12, command, tilt_t = self.targets(ref, raw)
        body = self.body(ref, raw)
        residual = (command - self.feet_of_body(body, tilt_t)).reshape(-1, 18)
        return torch.cat([act12, residual, body, self.logits(ref, raw)], dim=1)

    def feet_of_body(self, body: Tensor, tilt_t: Tensor) -> Tensor:
        """Sole centres and rotations (B, 2, 9) that ``body`` puts the feet at, in the target's ff frame."""
        rows = body.reshape(-1, 15, 3, 3)[:, self.feet]
        rot_t = with_third_row(rows[:, :, 1:])
        pos = rows[:, :, 0:1] + self.sole @ rot_t
        return (torch.cat([pos, rows[:, :, 1:]], dim=2) @ tilt_t[:, None]).reshape(-1, 2, 9)


class PaperPolicy(nn.Module):
    """The paper's action: every number is the network's, feet are a 0.1-scaled residual on the predicted body."""

    body_frame = "proj"
    obs_mean: Tensor
    obs_std: Tensor
    out_scale: Tensor
    out_mean: Tensor

    def __init__(self, network: UnifiedNetwork, foot_residual_scale: float) -> None:
        super().__init__()
        self.network = network
        self.foot_residual_scale = foot_residual_scale
        self.register_buffer("obs_mean", torch.zeros(OBS))
        self.register_buffer("obs_std", torch.ones(OBS))
        scale = torch.ones(ACTION)
        scale[12:30] = foot_residual_scale
        self.register_buffer("out_scale", scale)
        self.register_buffer("out_mean", torch.zeros(ACTION))

    def fit_normaliser(self, ref_srb: Tensor, ref_full: Tensor) -> None:
        """Mean and deviation of the reference for inputs; the body output starts at the mean pose."""
        both = torch.cat([ref_srb, ref_full], 1)
        mean, std = both.mean(0), both.std(0).clamp(min=0.03)
        self.obs_mean.copy_(torch.cat([mean, mean]))
        self.obs_std.copy_(torch.cat([std, std]))
        self.out_mean[30:165] = mean[SRB:]

    def forward(self, obs: Tensor) -> Tensor:
        """Observation (B, 340) to action (B, 169)."""
        x = torch.clamp((obs - self.obs_mean) / self.obs_std, -5.0, 5.0)
        out = self.network(x)
        bounded = torch.clamp(out[:, :30], -3.14, 3.14)
        return torch.cat([bounded, out[:, 30:]], dim=1) * self.out_scale + self.out_mean


def save_policy(path: Path, policy: nn.Module, build: dict[str, Any], info: dict[str, Any]) -> None:
    """Write a trained policy: what builds it, its weights, and the facts the export puts in the metadata."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    torch.save({"build": build, "weights": policy.state_dict(), "info": info}, buffer)
    write_atomic(path, buffer.getvalue())


def build_policy(build: dict[str, Any]) -> nn.Module:
    """Make the module that ``build`` describes (the inverse of `save_policy`'s first part)."""
    spec = dict(build)
    kind, network = spec.pop("kind"), spec.pop("network")
    net = UnifiedNetwork(**network) if network is not None else None
    if kind == "unified":
        return UnifiedPolicy(net, **spec)
    if kind == "paper" and net is not None:
        return PaperPolicy(net, **spec)
    raise ValueError(f"unknown policy kind {kind!r}")


def load_policy_module(path: Path) -> tuple[nn.Module, dict[str, Any]]:
    """Read what `save_policy` wrote: the module in eval mode and the info dict."""
    data = torch.load(path, map_location="cpu", weights_only=True)
    policy = build_policy(data["build"])
    policy.load_state_dict(data["weights"])
    return policy.eval(), data["info"]
