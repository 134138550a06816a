r"""MMIK: multi-frame, momentum-mapped inverse kinematics, closed form, many characters at a time.

The policy's pose composed on the simulated body is not a skeleton pose: bones change length, the feet are not where the
simulation has them, the centre of mass (COM) is not the simulated one. Each control step, without delay:

1. *Rigid projection*: rotations are kept (knees put on their hinge), positions follow by forward kinematics with the
   skeleton's bones, translated so that the COM lies on its goal: the simulated COM, plus what a critically damped
   spring (half-life ``com_halflife_s``, last two frames) leaves of a deviation that step 4 had to make. Without
   deviations the COM's position and acceleration are exactly the simulated ones, which is the optimum of the COM
   problem of the SRBTrack code (Kim et al. 2025: acceleration match, window mean) with the past fixed and the new frame
   free; after a deviation the spring tracks better than that problem's own filter, which overshoots.
2. *Feet*: see `engine.ik.feet`. Legs by `engine.ik.limb`.
3. *Momentum*: the angular momentum of the motion since the last output is compared with the mean of the target at both
   ends. A fraction ``momentum_gain`` of the difference goes to the trunk (turning on the pelvis) and the arms, by one
   damped least-squares step; the feet keep their places, as the legs are solved after it.
4. ``iterations`` times: shift the pelvis by what the COM lacks; where a stance leg is too short, lift the heel, rolling
   about the toe, up to ``reach_heel_lift_max_rad`` (with ``stance_roll``), then shift the pelvis back by the least that
   lets the stance legs reach; solve the legs.

Stance feet come before the COM. Frames in which the pelvis had to give way are counted (``pelvis_shifted``). Where
that would take more than ``pelvis_shift_max_m``, or the feet are too far apart, the ankle stays short of its place, in
the right direction, and the frame is counted (``stance_missed``). Unusable input (not finite, zero rotation) repeats
the last output (``bad_input``).
"""

from __future__ import annotations

import numba
import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from engine.ik.character import solve_character
from engine.ik.feet import FootState, make_foot_state
from engine.ik.kinematics import NJIT
from engine.ik.settings import COUNTERS, MmikParams, make_settings, make_state

Array = NDArray[np.float64]


@njit(**NJIT)
def _solve_serial(
    pos, quat, state, feet, settings, in_pos, in_quat, com, momentum, foot_pos, foot_quat, contact, ground
):
    for i in range(pos.shape[0]):
        solve_character(
            i, pos[i], quat[i], state, feet, settings, in_pos[i], in_quat[i], com[i], momentum[i],
            foot_pos[i], foot_quat[i], contact[i], ground[i],
        )  # fmt: skip


@njit(parallel=True, **NJIT)
def _solve_parallel(
    pos, quat, state, feet, settings, in_pos, in_quat, com, momentum, foot_pos, foot_quat, contact, ground
):
    for i in prange(pos.shape[0]):
        solve_character(
            i, pos[i], quat[i], state, feet, settings, in_pos[i], in_quat[i], com[i], momentum[i],
            foot_pos[i], foot_quat[i], contact[i], ground[i],
        )  # fmt: skip


class MMIK:
    """Batched MMIK with its memory; nothing is allocated per step.

    Attributes:
        com_error: Distance of the last output's COM from the simulated one [m], shape (n,).
        foot_error: Distance of each ankle from its target [m], shape (n, 2), left first.
    """

    def __init__(self, n: int, params: MmikParams, control_hz: float = 30.0, threads: int = 1) -> None:
        """Make the memory of ``n`` characters; ``threads`` > 1 spreads them over Numba's threads."""
        self.n = n
        self.params = params
        self.threads = threads
        self._settings = make_settings(params, control_hz)
        self._feet: FootState = make_foot_state(n)
        self._state = make_state(n)
        self.com_error = self._state.com_error
        self.foot_error = self._state.foot_error

    def reset(self, idx: NDArray[np.int64] | None = None) -> None:
        """Forget the past of characters ``idx`` (all where None): their next step starts without blending."""
        rows = slice(None) if idx is None else idx
        self._state.age[rows] = 0
        self._state.counters[rows] = 0
        self._feet.stance[rows] = False

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The memory itself by name, for checkpoints; writing into the arrays restores it."""
        named = {f"state_{k}": v for k, v in self._state._asdict().items()}
        named |= {f"feet_{k}": v for k, v in self._feet._asdict().items()}
        return {key: value for key, value in named.items() if isinstance(value, np.ndarray)}

    @property
    def counters(self) -> dict[str, NDArray[np.int64]]:
        """Counts since the last reset by name, each (n,); see the module's text."""
        return {name: self._state.counters[:, j] for j, name in enumerate(COUNTERS)}

    def solve_into(
        self,
        out_pos: Array,
        out_quat: Array,
        body_pos_w: Array,
        body_quat_w: Array,
        com_pos_w: Array,
        srb_quat_w: Array,
        com_vel_w: Array,
        ang_momentum_w: Array,
        foot_pos_w: Array,
        foot_quat_w: Array,
        contact: NDArray[np.bool_],
        ground_z: Array,
    ) -> None:
        """Solve one control step for all characters.

        Args:
            out_pos: Body positions, world frame [m], shape (n, 15, 3); written.
            out_quat: Body rotations, shape (n, 15, 4); written.
            body_pos_w: Predicted body positions composed on the simulated body, world frame [m], shape (n, 15, 3).
            body_quat_w: Predicted body rotations, shape (n, 15, 4).
            com_pos_w: Simulated centre of mass, world frame [m], shape (n, 3).
            srb_quat_w: Simulated body rotation, shape (n, 4); not used (the pose is composed on it already).
            com_vel_w: Simulated COM velocity [m/s], shape (n, 3); not used (the COM itself is followed).
            ang_momentum_w: Angular momentum about the COM that the full body shall have, world axes [kg m^2/s],
                shape (n, 3). A single rigid body's own ``I w`` has no limbs that move against each other; add its
                deviation from the reference, ``I (w - w_ref)``, to the reference motion's momentum.
            foot_pos_w: Simulated sole centres, left first, world frame [m], shape (n, 2, 3).
            foot_quat_w: Simulated foot rotations, shape (n, 2, 4).
            contact: Simulated stance of the left and right foot, shape (n, 2).
            ground_z: Ground height under the feet [m], shape (n, 2).
        """
        args = (
            out_pos, out_quat, self._state, self._feet, self._settings, body_pos_w, body_quat_w, com_pos_w,
            ang_momentum_w, foot_pos_w, foot_quat_w, contact, ground_z,
        )  # fmt: skip
        if self.threads > 1 and self.n > 1:
            numba.set_num_threads(min(self.threads, numba.config.NUMBA_NUM_THREADS))
            _solve_parallel(*args)
        else:
            _solve_serial(*args)
