"""Small fixed-size linear algebra for the single-rigid-body kernels (Numba, no allocation).

Vectors are (3,) and matrices (3, 3) float64 arrays; functions ending in ``_into`` write their first argument. Frames of
the SRB (srb spec, after Kim et al. 2026 section 4.1): *body* (COM, SRB orientation R), *forward-facing* ``ff`` (COM,
yaw only), *projected* ``p`` (ground point under the COM, yaw only). The yaw frame's x axis is the body x axis projected
on the ground.
"""

from __future__ import annotations

import math

from numba import njit

NJIT = {"cache": True, "error_model": "numpy"}


@njit(**NJIT)
def mat_vec_into(out, m, v):
    """out = M v."""
    a, b, c = v[0], v[1], v[2]
    out[0] = m[0, 0] * a + m[0, 1] * b + m[0, 2] * c
    out[1] = m[1, 0] * a + m[1, 1] * b + m[1, 2] * c
    out[2] = m[2, 0] * a + m[2, 1] * b + m[2, 2] * c


@njit(**NJIT)
def mat_t_vec_into(out, m, v):
    """out = M^T v."""
    a, b, c = v[0], v[1], v[2]
    out[0] = m[0, 0] * a + m[1, 0] * b + m[2, 0] * c
    out[1] = m[0, 1] * a + m[1, 1] * b + m[2, 1] * c
    out[2] = m[0, 2] * a + m[1, 2] * b + m[2, 2] * c


@njit(**NJIT)
def mat_mul_into(out, a, b):
    """out = A B (out is neither A nor B)."""
    for i in range(3):
        for j in range(3):
            out[i, j] = a[i, 0] * b[0, j] + a[i, 1] * b[1, j] + a[i, 2] * b[2, j]


@njit(**NJIT)
def mat_t_mul_into(out, a, b):
    """out = A^T B (out is neither A nor B)."""
    for i in range(3):
        for j in range(3):
            out[i, j] = a[0, i] * b[0, j] + a[1, i] * b[1, j] + a[2, i] * b[2, j]


@njit(**NJIT)
def mat_mul_t_into(out, a, b):
    """out = A B^T (out is neither A nor B)."""
    for i in range(3):
        for j in range(3):
            out[i, j] = a[i, 0] * b[j, 0] + a[i, 1] * b[j, 1] + a[i, 2] * b[j, 2]


@njit(**NJIT)
def cross_into(out, a, b):
    """out = a x b (out is neither a nor b)."""
    out[0] = a[1] * b[2] - a[2] * b[1]
    out[1] = a[2] * b[0] - a[0] * b[2]
    out[2] = a[0] * b[1] - a[1] * b[0]


@njit(**NJIT)
def exp_into(out, v):
    """out = exp([v]x), Rodrigues; series below 1e-4 rad."""
    x, y, z = v[0], v[1], v[2]
    t2 = x * x + y * y + z * z
    if t2 < 1e-8:
        s = 1.0 - t2 / 6.0
        c = 0.5 - t2 / 24.0
    else:
        t = math.sqrt(t2)
        s = math.sin(t) / t
        c = (1.0 - math.cos(t)) / t2
    out[0, 0] = 1.0 - c * (y * y + z * z)
    out[0, 1] = c * x * y - s * z
    out[0, 2] = c * x * z + s * y
    out[1, 0] = c * x * y + s * z
    out[1, 1] = 1.0 - c * (x * x + z * z)
    out[1, 2] = c * y * z - s * x
    out[2, 0] = c * x * z - s * y
    out[2, 1] = c * y * z + s * x
    out[2, 2] = 1.0 - c * (x * x + y * y)


@njit(**NJIT)
def log_into(out, m):
    """out = rotation vector of M, through the quaternion (stable at any angle up to pi)."""
    t = m[0, 0] + m[1, 1] + m[2, 2]
    if t > 0.0:
        s = math.sqrt(t + 1.0) * 2.0
        w = 0.25 * s
        x = (m[2, 1] - m[1, 2]) / s
        y = (m[0, 2] - m[2, 0]) / s
        z = (m[1, 0] - m[0, 1]) / s
    elif m[0, 0] >= m[1, 1] and m[0, 0] >= m[2, 2]:
        s = math.sqrt(max(1.0 + m[0, 0] - m[1, 1] - m[2, 2], 0.0)) * 2.0
        w = (m[2, 1] - m[1, 2]) / s
        x = 0.25 * s
        y = (m[0, 1] + m[1, 0]) / s
        z = (m[0, 2] + m[2, 0]) / s
    elif m[1, 1] >= m[2, 2]:
        s = math.sqrt(max(1.0 + m[1, 1] - m[0, 0] - m[2, 2], 0.0)) * 2.0
        w = (m[0, 2] - m[2, 0]) / s
        x = (m[0, 1] + m[1, 0]) / s
        y = 0.25 * s
        z = (m[1, 2] + m[2, 1]) / s
    else:
        s = math.sqrt(max(1.0 + m[2, 2] - m[0, 0] - m[1, 1], 0.0)) * 2.0
        w = (m[1, 0] - m[0, 1]) / s
        x = (m[0, 2] + m[2, 0]) / s
        y = (m[1, 2] + m[2, 1]) / s
        z = 0.25 * s
    if w < 0.0:
        w, x, y, z = -w, -x, -y, -z
    n = math.sqrt(x * x + y * y + z * z)
    k = 2.0 if n < 1e-12 else 2.0 * math.atan2(n, w) / n
    out[0] = k * x
    out[1] = k * y
    out[2] = k * z


@njit(**NJIT)
def right_jacobian_t_into(out, phi, g):
    """out = Jr(phi)^T g, where exp(phi + d) = exp(phi) exp(Jr(phi) d) to first order."""
    x, y, z = phi[0], phi[1], phi[2]
    t2 = x * x + y * y + z * z
    if t2 < 1e-6:
        a = 0.5 - t2 / 24.0
        b = 1.0 / 6.0 - t2 / 120.0
    else:
        t = math.sqrt(t2)
        a = (1.0 - math.cos(t)) / t2
        b = (t - math.sin(t)) / (t2 * t)
    # Jr = I - a [phi]x + b [phi]x^2, so Jr^T g = g + a phi x g + b phi x (phi x g)
    cx = y * g[2] - z * g[1]
    cy = z * g[0] - x * g[2]
    cz = x * g[1] - y * g[0]
    out[0] = g[0] + a * cx + b * (y * cz - z * cy)
    out[1] = g[1] + a * cy + b * (z * cx - x * cz)
    out[2] = g[2] + a * cz + b * (x * cy - y * cx)


@njit(**NJIT)
def right_jacobian_inv_t_into(out, phi, g):
    """out = Jr(phi)^-T g (the derivative of the logarithm, transposed)."""
    x, y, z = phi[0], phi[1], phi[2]
    t2 = x * x + y * y + z * z
    if t2 < 1e-6:
        b = 1.0 / 12.0 + t2 / 720.0
    else:
        t = math.sqrt(t2)
        b = 1.0 / t2 - (1.0 + math.cos(t)) / (2.0 * t * math.sin(t))
    cx = y * g[2] - z * g[1]
    cy = z * g[0] - x * g[2]
    cz = x * g[1] - y * g[0]
    # Jr^-1 = I + [phi]x / 2 + b [phi]x^2
    out[0] = g[0] - 0.5 * cx + b * (y * cz - z * cy)
    out[1] = g[1] - 0.5 * cy + b * (z * cx - x * cz)
    out[2] = g[2] - 0.5 * cz + b * (x * cy - y * cx)


@njit(**NJIT)
def yaw_cos_sin(m):
    """Cosine and sine of the heading of M's x axis; (1, 0) where that axis is vertical."""
    n = math.sqrt(m[0, 0] * m[0, 0] + m[1, 0] * m[1, 0])
    if n < 1e-3:
        return 1.0, 0.0
    return m[0, 0] / n, m[1, 0] / n


@njit(**NJIT)
def gram_schmidt_into(out, d):
    """Rotation matrix from the 6-D form ``d`` (6,): first two columns, orthonormalised in order."""
    n = math.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])
    n = max(n, 1e-9)
    x0, x1, x2 = d[0] / n, d[1] / n, d[2] / n
    k = x0 * d[3] + x1 * d[4] + x2 * d[5]
    y0, y1, y2 = d[3] - k * x0, d[4] - k * x1, d[5] - k * x2
    n = max(math.sqrt(y0 * y0 + y1 * y1 + y2 * y2), 1e-9)
    y0, y1, y2 = y0 / n, y1 / n, y2 / n
    out[0, 0], out[1, 0], out[2, 0] = x0, x1, x2
    out[0, 1], out[1, 1], out[2, 1] = y0, y1, y2
    out[0, 2] = x1 * y2 - x2 * y1
    out[1, 2] = x2 * y0 - x0 * y2
    out[2, 2] = x0 * y1 - x1 * y0


@njit(**NJIT)
def gram_schmidt_vjp_into(out, d, g):
    """out (6,) += gradient of <G, gram_schmidt(d)> with respect to ``d``; ``g`` is G (3, 3)."""
    n = max(math.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]), 1e-9)
    x0, x1, x2 = d[0] / n, d[1] / n, d[2] / n
    k = x0 * d[3] + x1 * d[4] + x2 * d[5]
    u0, u1, u2 = d[3] - k * x0, d[4] - k * x1, d[5] - k * x2
    m = max(math.sqrt(u0 * u0 + u1 * u1 + u2 * u2), 1e-9)
    y0, y1, y2 = u0 / m, u1 / m, u2 / m
    z0, z1, z2 = g[0, 2], g[1, 2], g[2, 2]
    # third column x cross y
    gx0 = g[0, 0] + y1 * z2 - y2 * z1
    gx1 = g[1, 0] + y2 * z0 - y0 * z2
    gx2 = g[2, 0] + y0 * z1 - y1 * z0
    gy0 = g[0, 1] + z1 * x2 - z2 * x1
    gy1 = g[1, 1] + z2 * x0 - z0 * x2
    gy2 = g[2, 1] + z0 * x1 - z1 * x0
    # y = u / |u|
    s = gy0 * y0 + gy1 * y1 + gy2 * y2
    gu0, gu1, gu2 = (gy0 - s * y0) / m, (gy1 - s * y1) / m, (gy2 - s * y2) / m
    # u = b - (x.b) x
    s = gu0 * x0 + gu1 * x1 + gu2 * x2
    out[3] += gu0 - s * x0
    out[4] += gu1 - s * x1
    out[5] += gu2 - s * x2
    gx0 -= s * d[3] + k * gu0
    gx1 -= s * d[4] + k * gu1
    gx2 -= s * d[5] + k * gu2
    s = gx0 * x0 + gx1 * x1 + gx2 * x2
    out[0] += (gx0 - s * x0) / n
    out[1] += (gx1 - s * x1) / n
    out[2] += (gx2 - s * x2) / n
