r"""Make the height of a motion physically possible: weight on the ground in stance, free fall in flight.

Reconstructed, retargeted and retimed clips do not fall at g. The height ``z`` of the centre of mass is replaced by the
least-squares solution of

.. math::
    \min_z \sum_t \frac{(z - z_0)^2}{s_z^2} + \sum_{stance} \frac{(\ddot z - \max(\ddot z_0, -g))^2}{s_s^2}
    + \sum_{flight} \frac{(\ddot z + g)^2}{s_f^2}

with central second differences: a symmetric pentadiagonal system, solved for the whole clip at once
(unified-recipe.md, section 1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solveh_banded

from engine.motion.config import DynamicFilterParams

Array = NDArray[np.float64]
GRAVITY = 9.81


def filter_height(com_z: Array, flight: NDArray[np.bool_], fps: float, params: DynamicFilterParams) -> Array:
    """Filter the height of the centre of mass.

    Args:
        com_z: Recorded height [m] (T,).
        flight: Frames without contact (T,).
        fps: Frames a second.
        params: Standard deviations.

    Returns:
        Height [m] (T,) that falls at g in flight.
    """
    n = len(com_z)
    if n < 3:
        return np.array(com_z, np.float64)
    z0 = np.asarray(com_z, np.float64)
    acc0 = (z0[2:] - 2 * z0[1:-1] + z0[:-2]) * fps**2
    in_flight = flight[1:-1]
    target = np.where(in_flight, -GRAVITY, np.maximum(acc0, -GRAVITY))
    weight = np.where(in_flight, params.flight_m_s2, params.stance_m_s2) ** -2.0
    stencil = np.array([1.0, -2.0, 1.0]) * fps**2
    bands = np.zeros((3, n))  # upper form: bands[2] diagonal, bands[1] first, bands[0] second off-diagonal
    rhs = z0 / params.height_m**2
    bands[2] = 1.0 / params.height_m**2
    for a in range(3):
        rhs[a : n - 2 + a] += weight * stencil[a] * target
        for b in range(a, 3):
            bands[2 - (b - a), b : n - 2 + b] += weight * stencil[a] * stencil[b]
    return solveh_banded(bands, rhs)
