"""The single rigid body: how its state and its controller are laid out in arrays.

State row (42 numbers, float64, world frame)::

    0:3   COM position [m]           18:21  left sole centre [m]    30:33  right sole centre [m]
    3:12  orientation R, row major   21:30  left foot R, row major  33:42  right foot R, row major
    12:15 COM velocity [m/s]
    15:18 angular momentum about the COM, over the mass scale [kg m^2/s]

Angular momentum, not angular velocity, is the state: without contacts it is conserved to the last bit whatever the
inertia. Feet carry no mass (Kim et al. 2026, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from engine.params import Range
from engine.rotation import quat_to_matrix

STATE = 42
MAX_CONTACTS = 10
GRAVITY = 9.81

# Controller row: one per character, so that disturbed or differently tuned characters run in one batch.
MASS, INERTIA, INVERSE = 0, 1, 10
KP_LIN, KD_LIN, KP_ANG, KD_ANG = 19, 20, 21, 22
W_LIN_XY, W_LIN_Z, W_ANG_XY, W_ANG_Z = 23, 24, 25, 26
EPS, HALF_X, HALF_Y = 27, 28, 29
RECOVER_DISTANCE, RECOVER_FRAMES, FORCE_MAX, FRICTION, CONE, POINTS = 30, 31, 32, 33, 34, 35
MASS_SCALE = 36  # true mass and inertia over those the controller believes in
CONTROLLER = 37

CONE_FOOT_PYRAMID, CONE_YAW_GENERATORS = 0, 1


@dataclass(frozen=True)
class SrbParams:
    """Section ``srb`` of params.yaml, and the ``controller`` entry of a policy's metadata."""

    kp_linear: Annotated[float, Range(gt=0)]
    kd_linear: Annotated[float, Range(gt=0)]
    kp_angular: Annotated[float, Range(gt=0)]
    kd_angular: Annotated[float, Range(gt=0)]
    weight_linear_xy: Annotated[float, Range(gt=0)]
    weight_linear_z: Annotated[float, Range(gt=0)]
    weight_angular_xy: Annotated[float, Range(gt=0)]
    weight_angular_z: Annotated[float, Range(gt=0)]
    w_lambda: Annotated[float, Range(gt=0)]
    foot_half_length_m: Annotated[float, Range(gt=0)]
    foot_half_width_m: Annotated[float, Range(gt=0)]
    contact_points: Annotated[int, Range(ge=4, le=5)]
    friction: Annotated[float, Range(ge=0)]
    force_max_n: Annotated[float, Range(gt=0)]
    cone: Literal["foot_pyramid", "yaw_generators"]
    recovery_distance_m: Annotated[float, Range(gt=0)]
    recovery_frames: Annotated[int, Range(ge=0)]
    heel_toe: bool


def controller_row(params: SrbParams, mass_kg: float, inertia_b: NDArray[np.float64]) -> NDArray[np.float64]:
    """The controller's numbers as one row (37,) for the kernels.

    Args:
        params: Gains, weights, contact geometry.
        mass_kg: Total mass.
        inertia_b: Composite inertia about the COM, body axes [kg m^2], shape (3, 3).
    """
    row = np.zeros(CONTROLLER)
    row[MASS] = mass_kg
    row[INERTIA : INERTIA + 9] = np.asarray(inertia_b).reshape(9)
    row[INVERSE : INVERSE + 9] = np.linalg.inv(np.asarray(inertia_b).reshape(3, 3)).reshape(9)
    row[KP_LIN : KD_ANG + 1] = params.kp_linear, params.kd_linear, params.kp_angular, params.kd_angular
    row[W_LIN_XY : W_ANG_Z + 1] = (
        params.weight_linear_xy,
        params.weight_linear_z,
        params.weight_angular_xy,
        params.weight_angular_z,
    )
    row[EPS] = params.w_lambda
    row[HALF_X], row[HALF_Y] = params.foot_half_length_m, params.foot_half_width_m
    row[RECOVER_DISTANCE], row[RECOVER_FRAMES] = params.recovery_distance_m, params.recovery_frames
    row[FORCE_MAX], row[FRICTION] = params.force_max_n, params.friction
    row[CONE] = CONE_YAW_GENERATORS if params.cone == "yaw_generators" else CONE_FOOT_PYRAMID
    row[POINTS] = params.contact_points
    row[MASS_SCALE] = 1.0
    return row


def pack_state(
    com_pos_w: NDArray[np.float64],
    srb_quat_w: NDArray[np.float64],
    com_vel_w: NDArray[np.float64],
    ang_vel_w: NDArray[np.float64],
    foot_pos_w: NDArray[np.float64],
    foot_quat_w: NDArray[np.float64],
    inertia_b: NDArray[np.float64],
) -> NDArray[np.float64]:
    """State rows (n, 42) from poses and velocities; angular momentum is R I R^T w.

    Args:
        com_pos_w: (n, 3) [m]. srb_quat_w: (n, 4). com_vel_w: (n, 3) [m/s]. ang_vel_w: (n, 3) world [rad/s].
        foot_pos_w: (n, 2, 3) sole centres [m], left first. foot_quat_w: (n, 2, 4).
        inertia_b: (3, 3) or (n, 3, 3) [kg m^2].
    """
    n = len(com_pos_w)
    r = quat_to_matrix(srb_quat_w)
    state = np.empty((n, STATE))
    state[:, 0:3] = com_pos_w
    state[:, 3:12] = r.reshape(n, 9)
    state[:, 12:15] = com_vel_w
    inertia_w = r @ inertia_b @ np.swapaxes(r, -1, -2)
    state[:, 15:18] = np.einsum("nij,nj->ni", inertia_w, ang_vel_w)
    feet = quat_to_matrix(foot_quat_w)
    for k in range(2):
        at = 18 + 12 * k
        state[:, at : at + 3] = foot_pos_w[:, k]
        state[:, at + 3 : at + 12] = feet[:, k].reshape(n, 9)
    return state
