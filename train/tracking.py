"""How far the simulated SRB is from its reference, as one differentiable cost per character."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.skeleton import LEFT_ANKLE, PARENTS, RIGHT_ANKLE
from train.config import CostWeights
from train.rotation6 import with_third_row

SRB = 35


def observe_srb(state: Tensor, stance: Tensor, inverse_b: Tensor) -> Tensor:
    """s_SRB (B, 35) of states (B, 42) on level ground: `engine.srb.observe` in torch, differentiable.

    Args:
        state: (B, 42), see `engine.srb.body`. stance: (B, 2) integers. inverse_b: Inverse inertia, body axes (3, 3).
    """
    rot = state[:, 3:12].reshape(-1, 3, 3)
    x, y = rot[:, 0, 0], rot[:, 1, 0]
    n = torch.sqrt(x * x + y * y + 1e-12)
    c, s = (x / n)[:, None], (y / n)[:, None]

    def turn(v: Tensor) -> Tensor:  # rows of (B, 3, k) into the yaw frame
        return torch.stack([c * v[:, 0] + s * v[:, 1], -s * v[:, 0] + c * v[:, 1], v[:, 2]], dim=1)

    local = rot.transpose(1, 2) @ state[:, 15:18, None]
    spin = rot @ (inverse_b @ local)
    columns = turn(torch.cat([rot[:, :, :2], state[:, 12:15, None], spin], dim=2))
    parts = [state[:, 2:3], columns.transpose(1, 2).reshape(-1, 12)]
    for k in range(2):
        at = 18 + 12 * k
        foot = torch.cat(
            [
                (state[:, at : at + 3] - state[:, 0:3])[:, :, None],
                state[:, at + 3 : at + 12].reshape(-1, 3, 3)[:, :, :2],
            ],
            dim=2,
        )
        parts.append(turn(foot).transpose(1, 2).reshape(-1, 9))
    contact = torch.nn.functional.one_hot(stance[:, 0] + 2 * stance[:, 1], 4).to(state.dtype)
    return torch.cat([*parts, contact], dim=1)


def observe_body(seen: Tensor, local: Tensor, srb: Tensor, refined: Tensor) -> Tensor:
    """s_full (B, 135) as it was seen, with the derivatives that it has through the state.

    The played body is carried by the SRB, and its refined legs end at the simulated feet. Without these derivatives a
    policy that reads its own body feeds its state back along a way that its gradient does not know of.

    Args:
        seen: The value, a constant. local: Played body in the SRB frame (B, 135); may carry a graph.
        srb: s_SRB of the new state (B, 35), with its graph. refined: Characters whose legs follow the feet (B,) bool.
    """
    tilt_t = with_third_row(srb[:, 1:7].reshape(-1, 2, 3))
    rows = local.reshape(-1, 15, 3, 3) @ tilt_t[:, None]
    rise = torch.nn.functional.pad(srb[:, 0:1], (2, 0))
    parts = [row + torch.nn.functional.pad(rise[:, None], (0, 0, 0, 2)) for row in rows.unbind(1)]
    for k, ankle in enumerate((LEFT_ANKLE, RIGHT_ANKLE)):
        foot = srb[:, 13 + 9 * k : 22 + 9 * k].reshape(-1, 3, 3)
        foot = foot + torch.nn.functional.pad(rise[:, None], (0, 0, 0, 2))
        knee = int(PARENTS[ankle])
        middle = 0.5 * (foot[:, 0:1] + parts[int(PARENTS[knee])][:, 0:1])
        parts[ankle] = torch.where(refined[:, None, None], foot, parts[ankle])
        bent = torch.cat([middle, parts[knee][:, 1:]], dim=1)
        parts[knee] = torch.where(refined[:, None, None], bent, parts[knee])
    body = torch.stack(parts, dim=1).reshape(-1, 135)
    return seen + (body - body.detach())


def tracking_error(srb: Tensor, ref: Tensor, w: CostWeights) -> Tensor:
    """Squared scaled error (B,) between s_SRB and its reference, both (B, 35).

    (dh/height)^2 + |dR6|^2/tilt^2 + |dv|^2/velocity^2 + |dw|^2/spin^2 + w_foot |dfoot|^2/foot^2, feet in the ff frame.
    """
    d = srb - ref
    x = (d[:, 0] / w.height_m) ** 2 + (d[:, 1:7] ** 2).sum(1) / w.tilt**2
    x = x + (d[:, 7:10] ** 2).sum(1) / w.velocity_m_s**2 + (d[:, 10:13] ** 2).sum(1) / w.spin_rad_s**2
    feet = (d[:, 13:16] ** 2).sum(1) + (d[:, 22:25] ** 2).sum(1)
    return x + w.w_foot * feet / w.foot_m**2


def tracking_cost(srb: Tensor, ref: Tensor, w: CostWeights) -> Tensor:
    """Saturating cost 0.2 x / (1 + saturation x) of `tracking_error` x, (B,)."""
    x = tracking_error(srb, ref, w)
    return 0.2 * x / (1.0 + w.saturation * x)
