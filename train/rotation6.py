"""Rotations in torch, on batches, differentiable, in few operations: each one is a node of the exported graph.

A matrix named ``..._t`` is the transpose R^T, whose rows are the columns of R: the 6-D form is its first two rows, and
a row vector times R^T is a rotation by R.
"""

from __future__ import annotations

import torch
from torch import Tensor

# v @ SKEW, reshaped (3, 3), is the matrix of v x .
SKEW = torch.tensor([[0, 0, 0, 0, 0, -1, 0, 1, 0], [0, 0, 1, 0, 0, 0, -1, 0, 0], [0, -1, 0, 1, 0, 0, 0, 0, 0]]).float()
EYE = torch.eye(3)
# M reshaped (9,) times VEE is the axial vector of (M - M^T) / 2; times TRACE, the trace.
VEE = 0.5 * SKEW.T.contiguous()
TRACE = EYE.reshape(9, 1)
# transposed rotation about z: cos * TURN_C + sin * TURN_S + TURN_1
TURN_C = torch.diag(torch.tensor([1.0, 1.0, 0.0]))
TURN_S = torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
TURN_1 = torch.diag(torch.tensor([0.0, 0.0, 1.0]))


def skew(v: Tensor) -> Tensor:
    """Matrices K(v) with K(v) w = v x w, (..., 3) to (..., 3, 3)."""
    return (v @ SKEW.to(v.dtype)).reshape(*v.shape[:-1], 3, 3)


def with_third_row(rows: Tensor) -> Tensor:
    """Append the cross product of two orthonormal rows: (..., 2, 3) to (..., 3, 3)."""
    x, y = rows[..., 0, :], rows[..., 1:, :]
    return torch.cat([rows, -(y @ skew(x))], dim=-2)


def small_rotation_t(v: Tensor) -> Tensor:
    """R^T of the rotation with Gibbs vector v/2, which is exp(v) up to |v|^3/12: (..., 3) to (..., 3, 3)."""
    u = 0.5 * v
    k = skew(u)
    factor = 2.0 / (1.0 + (u * u).sum(-1, keepdim=True))[..., None]
    return EYE + factor * (k @ k - k)


def log_so3(m: Tensor) -> Tensor:
    """Rotation vectors (..., 3) of rotations below pi: half-angle form, tan(t/2) = sin t / (1 + cos t)."""
    flat = m.reshape(*m.shape[:-2], 9)
    v = flat @ VEE.to(flat.dtype)
    sin = torch.sqrt(torch.clamp((v * v).sum(-1, keepdim=True), min=1e-12))
    one_plus_cos = torch.clamp(0.5 + 0.5 * (flat @ TRACE.to(flat.dtype)), min=1e-6)
    return v * (2.0 * torch.atan(sin / one_plus_cos) / sin)


def turn_z_t(angle: Tensor) -> Tensor:
    """R^T of rotations about z, (..., 1) to (..., 3, 3)."""
    a = angle[..., None]
    return torch.cos(a) * TURN_C + torch.sin(a) * TURN_S + TURN_1


def yaw_free_t(m_t: Tensor) -> Tensor:
    """Transpose of Y(R)^T R, the rotation without its heading, from R^T (..., 3, 3)."""
    heading = m_t[..., 0, :2]
    heading = heading / torch.sqrt(torch.clamp((heading * heading).sum(-1, keepdim=True), min=1e-12))
    c, s = heading[..., None, 0:1], heading[..., None, 1:2]
    # (Y^T R)^T = R^T Y, and Y is the transpose of the transposed turn
    return m_t @ (c * TURN_C - s * TURN_S + TURN_1)


def matrix_rows(quat: Tensor) -> Tensor:
    """First two columns of unit quaternions (..., 4), as rows (..., 2, 3)."""
    w, x, y, z = quat.unbind(-1)
    first = torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)], -1)
    second = torch.stack([2 * (x * y - w * z), 1 - 2 * (x * x + z * z), 2 * (y * z + w * x)], -1)
    return torch.stack([first, second], dim=-2)
