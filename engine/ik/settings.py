"""Parameters of MMIK as the user sets them, as the kernels read them, and the memory the kernels use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.ik.limb import LEG_LENGTH
from engine.skeleton import N_BODIES

Array = NDArray[np.float64]
COUNTERS = ("frames", "pelvis_shifted", "stance_missed", "momentum_clipped", "bad_input")


@dataclass(frozen=True)
class MmikParams:
    """Settings of `MMIK` (``params.yaml``, section ``mmik``)."""

    iterations: int
    """COM-leg iterations, >= 1."""
    com_halflife_s: float
    """Half-life of a COM deviation that the reach of a leg has forced [s]."""
    swing_follow: float
    """How far a swing foot follows the simulated foot instead of the predicted one, 0 to 1."""
    swing_halflife_s: float
    landing_halflife_s: float
    """Half-life of height and pitch left at touch-down [s]; 0 snaps."""
    stance_roll: bool
    """False: the stance sole stays flat on the simulated foot; True: it rolls about toe or heel as predicted."""
    roll_deadband_rad: float
    heel_lift_max_rad: float
    toe_lift_max_rad: float
    reach_heel_lift_max_rad: float
    """How far a stance heel may also be lifted where the leg is too short (with ``stance_roll``); 0 never."""
    knee_soft_start: float
    """Start of the soft zone of the leg's length, fraction of the straight leg."""
    knee_limit: float
    """Longest leg, fraction of the straight leg (a longer predicted leg is kept)."""
    pelvis_shift_max_m: float
    """Largest pelvis shift for the reach of the stance legs [m]."""
    momentum_gain: float
    """Fraction of the angular-momentum difference that is mapped (kappa); 0 turns the mapping off."""
    momentum_damping: float
    momentum_trunk_weight: float
    """Mobility of the trunk against 1 for the arms."""
    momentum_max_rad: float
    """Largest turn of trunk or arm by the mapping [rad]."""


class Settings(NamedTuple):
    """`MmikParams` as the kernels read them (lengths in metres, half-lives as spring rates)."""

    iterations: int
    com_rate: float
    swing_follow: float
    swing_rate: float
    landing_rate: float
    stance_roll: bool
    roll_deadband: float
    heel_lift_max: float
    toe_lift_max: float
    reach_lift_max: float
    leg_start: float
    leg_limit: float
    pelvis_shift_max: float
    momentum_gain: float
    momentum_damping: float
    trunk_weight: float
    momentum_max: float
    dt: float


class State(NamedTuple):
    """Memory and scratch of all characters; every array has a leading character axis."""

    age: NDArray[np.int64]
    com_excess: Array  # last two COM deviations e, newest first: (n, 2, 3)
    momentum: Array  # last target (n, 3)
    last_pos: Array  # last output: body positions (n, 15, 3), their COMs, rotations
    last_coms: Array
    last_quat: Array
    coms: Array  # scratch
    predicted_legs: Array  # thigh rotations and leg lengths of the prediction, (n, 2, 5)
    predicted_feet: Array  # predicted foot rotations (n, 2, 4)
    base_pos: Array  # ankle targets before the heel is lifted for reach (n, 2, 3)
    base_quat: Array
    foot_pos: Array  # ankle targets (n, 2, 3)
    foot_quat: Array
    reach: Array  # longest leg allowed in stance (n, 2)
    flags: NDArray[np.bool_]  # touched down, heel may lift (n, 2, 2)
    jac: Array  # (n, 2, 3, 9): COM, angular
    step: Array  # (n, 2, 9): weights, step
    vectors: Array  # (n, 6, 3)
    com_error: Array  # result (n,)
    foot_error: Array  # result (n, 2)
    counters: NDArray[np.int64]  # (n, len(COUNTERS))


def _rate(halflife_s: float) -> float:
    return 2.0 * math.log(2.0) / halflife_s if halflife_s > 0.0 else math.inf


def make_settings(params: MmikParams, control_hz: float) -> Settings:
    """Kernel settings from the parameters and the control rate [Hz]."""
    p = params
    return Settings(
        iterations=int(p.iterations),
        com_rate=_rate(p.com_halflife_s),
        swing_follow=float(p.swing_follow),
        swing_rate=_rate(p.swing_halflife_s),
        landing_rate=_rate(p.landing_halflife_s),
        stance_roll=bool(p.stance_roll),
        roll_deadband=float(p.roll_deadband_rad),
        heel_lift_max=float(p.heel_lift_max_rad),
        toe_lift_max=float(p.toe_lift_max_rad),
        reach_lift_max=float(p.reach_heel_lift_max_rad),
        leg_start=p.knee_soft_start * LEG_LENGTH,
        leg_limit=p.knee_limit * LEG_LENGTH,
        pelvis_shift_max=float(p.pelvis_shift_max_m),
        momentum_gain=float(p.momentum_gain),
        momentum_damping=float(p.momentum_damping),
        trunk_weight=float(p.momentum_trunk_weight),
        momentum_max=float(p.momentum_max_rad),
        dt=1.0 / control_hz,
    )


def make_state(n: int) -> State:
    """Zeroed memory for ``n`` characters."""
    bodies = (n, N_BODIES)
    return State(
        age=np.zeros(n, np.int64),
        com_excess=np.zeros((n, 2, 3)),
        momentum=np.zeros((n, 3)),
        last_pos=np.zeros((*bodies, 3)),
        last_coms=np.zeros((*bodies, 3)),
        last_quat=np.zeros((*bodies, 4)),
        coms=np.zeros((*bodies, 3)),
        predicted_legs=np.zeros((n, 2, 5)),
        predicted_feet=np.zeros((n, 2, 4)),
        base_pos=np.zeros((n, 2, 3)),
        base_quat=np.zeros((n, 2, 4)),
        foot_pos=np.zeros((n, 2, 3)),
        foot_quat=np.zeros((n, 2, 4)),
        reach=np.zeros((n, 2)),
        flags=np.zeros((n, 2, 2), np.bool_),
        jac=np.zeros((n, 2, 3, 9)),
        step=np.zeros((n, 2, 9)),
        vectors=np.zeros((n, 6, 3)),
        com_error=np.zeros(n),
        foot_error=np.zeros((n, 2)),
        counters=np.zeros((n, len(COUNTERS)), np.int64),
    )
