"""Synthetic contact-force problems: independent random states and a smooth walk, for tests and benchmarks of the QP.

A 45 kg body on feet of five points each (centre and corners, 0.24 m by 0.12 m), wanted accelerations as a tracking
controller asks for. *Calm* states are those of walking; *saturated* ones ask for far more than friction 0.4 and half a
body weight a point can give, so that most contacts sit at a corner of their pyramid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.srb.dual_newton import MAX_CONTACTS
from engine.srb.force_qp import Contact, ForceQP, build_force_qp

MASS_KG = 45.0
GRAVITY = np.array([0.0, 0.0, -9.81])
SOLE_FF = np.array([[0.0, 0.0, 0.0], [0.12, 0.06, 0.0], [0.12, -0.06, 0.0], [-0.12, 0.06, 0.0], [-0.12, -0.06, 0.0]])
RIDGE = 1e-3
WEIGHTS = (1.0, 1.0, 1.0, 10.0, 10.0, 10.0)
RATE_HZ = 120.0
STEP_S = 0.5
DOUBLE_SHARE = 0.2


@dataclass(frozen=True)
class ContactBatch:
    """Problems side by side in the layout of the Numba kernel, leading axis the problem."""

    A: NDArray[np.float64]
    b: NDArray[np.float64]
    mu: NDArray[np.float64]
    fmax: NDArray[np.float64]
    n_contacts: NDArray[np.int64]
    ridge: float


def stack(problems: list[ForceQP]) -> ContactBatch:
    """Copy pyramid problems into padded arrays, shapes (N, 6, 3 MAX_CONTACTS), (N, 6), (N, MAX_CONTACTS)."""
    n = len(problems)
    A = np.zeros((n, 6, 3 * MAX_CONTACTS))
    mu = np.zeros((n, MAX_CONTACTS))
    fmax = np.zeros((n, MAX_CONTACTS))
    for k, problem in enumerate(problems):
        A[k, :, : problem.A.shape[1]] = problem.A
        mu[k, : problem.n_contacts] = problem.mu
        fmax[k, : problem.n_contacts] = problem.fmax
    counts = np.array([problem.n_contacts for problem in problems])
    return ContactBatch(A, np.array([p.b for p in problems]), mu, fmax, counts, problems[0].ridge)


def foot_contacts(place_w: NDArray[np.float64], yaw: float, mu: float, fmax: float) -> list[Contact]:
    """The five points of a foot flat on level ground, its pyramids turned with the foot."""
    c, s = np.cos(yaw), np.sin(yaw)
    points = SOLE_FF @ np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]]) + place_w
    return [Contact(point, (0.0, 0.0, 1.0), mu, fmax, (c, s, 0.0)) for point in points]


def random_state(
    rng: np.random.Generator, feet: int, saturated: bool = False, ridge: float = RIDGE, cone: str = "pyramid"
) -> ForceQP:
    """Draw one state with one or two feet down."""
    com_w = np.array([0.0, 0.0, 0.9]) + rng.normal(0.0, 0.03, 3)
    mu = 0.4 if saturated else rng.uniform(0.5, 1.2)
    fmax = np.inf if cone == "edges" else MASS_KG * 9.81 * (0.5 if saturated else 1.5)
    contacts = []
    for side in rng.permutation([0.1, -0.1])[:feet]:
        place = np.array([rng.normal(0.0, 0.15), side + rng.normal(0.0, 0.03), 0.0])
        contacts += foot_contacts(place, rng.normal(0.0, 0.2), mu, fmax)
    size = 6.0 if saturated else 1.0
    force = MASS_KG * rng.normal(0.0, size, 3)
    torque = rng.normal(0.0, 10.0 * size, 3)
    return build_force_qp(MASS_KG, com_w, GRAVITY, force, torque, contacts, weights=WEIGHTS, ridge=ridge, cone=cone)


def walk(frames: int, rng: np.random.Generator, saturated: bool = False, ridge: float = RIDGE) -> list[ForceQP]:
    """A walk of 1.2 m/s at 120 Hz: both feet down for 20 % of each step, one for the rest; all quantities smooth."""
    mu = 0.4 if saturated else 0.8
    fmax = MASS_KG * 9.81 * (0.5 if saturated else 1.5)
    size = 6.0 if saturated else 1.0
    phases = rng.uniform(0.0, 2.0 * np.pi, (6, 3))
    rates = rng.uniform(0.5, 2.0, (6, 3))
    problems = []
    for frame in range(frames):
        t = frame / RATE_HZ
        step, part = divmod(t / STEP_S, 1.0)
        speed = 1.2
        com_w = np.array([speed * t, 0.03 * np.sin(np.pi * t / STEP_S), 0.9 + 0.02 * np.cos(2.0 * np.pi * t / STEP_S)])
        stance = [step, step + 1.0] if part > 1.0 - DOUBLE_SHARE else [step]
        contacts = []
        for k in stance:
            side = 0.1 if int(k) % 2 == 0 else -0.1
            place = np.array([speed * STEP_S * (k + 0.5), side, 0.0])
            contacts += foot_contacts(place, 0.1 * np.sign(side), mu, fmax)
        swing = np.sin(2.0 * np.pi * rates * t + phases).sum(axis=1) / 3.0
        force = MASS_KG * size * swing[:3]
        torque = 10.0 * size * swing[3:]
        problems.append(build_force_qp(MASS_KG, com_w, GRAVITY, force, torque, contacts, weights=WEIGHTS, ridge=ridge))
    return problems
