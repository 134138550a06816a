"""Ground under the single rigid body: flat, slope, steps or a height field, as one array the kernels can read.

A terrain is ``(shape_params (6,), heights (m, n))``. ``shape_params = [kind, a, b, c, d, cell]``:

=========  ====  =======================================================================================
kind       code  height [m] at world (x, y), with s = x cos(c) + y sin(c)
=========  ====  =======================================================================================
flat       0     0
slope      1     a s (a = tangent of the angle)
steps      2     a on every second tread of depth b, else 0 (up and down again)
heights    3     bilinear in the grid ``heights`` with spacing ``cell``, repeated periodically
=========  ====  =======================================================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from engine.errors import InputError
from engine.srb.frames import NJIT

FLAT, SLOPE, STEPS, HEIGHTS = 0, 1, 2, 3


@dataclass(frozen=True)
class Terrain:
    """A ground shape; build it with one of the class methods."""

    name: str
    shape_params: NDArray[np.float64]
    heights: NDArray[np.float64]

    @classmethod
    def flat(cls) -> Terrain:
        """Level ground at z = 0."""
        return cls("flat", np.zeros(6), np.zeros((1, 1)))

    @classmethod
    def slope(cls, angle_deg: float, heading_deg: float = 0.0) -> Terrain:
        """A plane rising by ``angle_deg`` towards the world heading ``heading_deg``."""
        params = np.array([SLOPE, math.tan(math.radians(angle_deg)), 0, math.radians(heading_deg), 0, 0], float)
        return cls(f"slope:{angle_deg:g}", params, np.zeros((1, 1)))

    @classmethod
    def steps(cls, height_m: float, depth_m: float = 1.0, heading_deg: float = 0.0) -> Terrain:
        """Blocks ``height_m`` high and ``depth_m`` deep with gaps of the same depth: a step up, a step down, ..."""
        params = np.array([STEPS, height_m, depth_m, math.radians(heading_deg), 0, 0], float)
        return cls(f"steps:{100 * height_m:g}", params, np.zeros((1, 1)))

    @classmethod
    def rough(cls, sd_m: float, seed: int = 0, cell_m: float = 0.5, cells: int = 64) -> Terrain:
        """Random height field: independent normal heights of standard deviation ``sd_m`` on a periodic grid."""
        heights = np.random.default_rng(seed).normal(0.0, sd_m, (cells, cells))
        return cls.height_field(heights, cell_m, f"rough:{100 * sd_m:g}")

    @classmethod
    def height_field(cls, heights: NDArray[np.float64], cell_m: float, name: str = "heights") -> Terrain:
        """A periodic grid of heights [m], spacing ``cell_m``; row index along x."""
        heights = np.ascontiguousarray(heights, np.float64)
        if heights.ndim != 2 or not np.isfinite(heights).all() or not cell_m > 0:
            raise InputError(f"{name}: a height field needs a finite 2-D array and a positive cell size")
        return cls(name, np.array([HEIGHTS, 0, 0, 0, 0, cell_m], float), heights)

    @classmethod
    def parse(cls, text: str) -> Terrain:
        """``flat``, ``slope:DEG``, ``steps:CM`` or ``rough:CM`` as on the command line."""
        kind, _, value = text.partition(":")
        try:
            if kind == "flat" and not value:
                return cls.flat()
            number = float(value)
            if math.isfinite(number):
                if kind == "slope" and abs(number) < 60:
                    return cls.slope(number)
                if kind == "steps":
                    return cls.steps(number / 100)
                if kind == "rough" and number >= 0:
                    return cls.rough(number / 100)
        except ValueError:
            pass
        raise InputError(f"terrain: cannot read it (found {text!r}, expected flat, slope:DEG, steps:CM or rough:CM)")

    def height(self, xy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Ground height [m] at world points (..., 2)."""
        flat = np.ascontiguousarray(xy, np.float64).reshape(-1, 2)
        return _heights(self.shape_params, self.heights, flat).reshape(np.shape(xy)[:-1])


@njit(**NJIT)
def ground_height(params, heights, x, y):
    """Ground height [m] at world (x, y)."""
    kind = int(params[0])
    if kind == FLAT:
        return 0.0
    if kind == HEIGHTS:
        m, n = heights.shape
        u, v = x / params[5], y / params[5]
        i, j = math.floor(u), math.floor(v)
        fu, fv = u - i, v - j
        i0, j0 = int(i) % m, int(j) % n
        i1, j1 = (i0 + 1) % m, (j0 + 1) % n
        return (heights[i0, j0] * (1 - fu) + heights[i1, j0] * fu) * (1 - fv) + (
            heights[i0, j1] * (1 - fu) + heights[i1, j1] * fu
        ) * fv
    s = x * math.cos(params[3]) + y * math.sin(params[3])
    if kind == SLOPE:
        return params[1] * s
    return params[1] if math.floor(s / params[2]) % 2 == 1 else 0.0


@njit(**NJIT)
def ground_normal_into(out, params, heights, x, y):
    """Unit ground normal at world (x, y); central differences over 10 cm on height fields, up on treads."""
    kind = int(params[0])
    gx, gy = 0.0, 0.0
    if kind == SLOPE:
        gx, gy = params[1] * math.cos(params[3]), params[1] * math.sin(params[3])
    elif kind == HEIGHTS:
        h = 0.05
        gx = (ground_height(params, heights, x + h, y) - ground_height(params, heights, x - h, y)) / (2 * h)
        gy = (ground_height(params, heights, x, y + h) - ground_height(params, heights, x, y - h)) / (2 * h)
    n = math.sqrt(gx * gx + gy * gy + 1.0)
    out[0] = -gx / n
    out[1] = -gy / n
    out[2] = 1.0 / n


@njit(**NJIT)
def _heights(params, heights, xy):
    out = xy[:, 0].copy()
    for i in range(len(out)):
        out[i] = ground_height(params, heights, xy[i, 0], xy[i, 1])
    return out
