"""Many characters simulated by MuJoCo side by side: control 30 Hz, physics 120 Hz, position servos on every joint.

A control is the exponential map of a joint: 28 numbers, three a ball joint and one a hinge, in the order of
`engine.skeleton.BODY_NAMES`; the servo's force is ``kp (target - log q) - kd w`` within its limit
(``engine/assets/humanoid.xml``), and `implicitfast` takes the damping implicitly.

MuJoCo answers a state or control that is not finite with a warning, and resets a diverged simulation by itself. Here
the character keeps the state from before the step, is marked in ``failed`` and counted; its episode is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import mujoco
import mujoco.rollout
import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine import rotation
from engine.humanoid.kinematics import N_JOINT_DOF, body_states_into, joint_slices, joints_in_order
from engine.humanoid.model import CONTACT_WIDTH, CORNERS, load_humanoid
from engine.skeleton import COM_OFFSETS, HINGE_AXIS, JOINT_TYPES, N_BODIES

Array = NDArray[np.float64]
CONTROL_HZ = 30
PHYSICS_HZ = 120
SUBSTEPS = PHYSICS_HZ // CONTROL_HZ
#: Inertia added to every joint axis [kg m^2], some percent of a limb's. `implicitfast` leaves out the damping of
#: a servo at its force limit, and at 120 Hz light bodies then diverge: MuJoCo warned in 292 of 1440
#: character-steps of the walk's open-loop replay without it, in none with it.
ARMATURE_KG_M2 = 0.01
_TIME, _NQ, _NV = 1, 43, 34


class BodyStates:
    """World states of the bodies of ``n`` characters; the arrays are overwritten by `update`.

    Attributes:
        body_pos_w: Body origins [m] (n, 15, 3). body_quat_w: Rotations (n, 15, 4).
        body_vel_w: Velocities of the origins [m/s] (n, 15, 3). body_spin_w: Angular velocities, world axes [rad/s]
            (n, 15, 3).
        com_pos_w: Centre of mass [m] (n, 3). com_vel_w: Its velocity [m/s] (n, 3).
    """

    def __init__(self, n: int) -> None:
        self.body_pos_w, self.body_quat_w = np.zeros((n, N_BODIES, 3)), np.zeros((n, N_BODIES, 4))
        self.body_vel_w, self.body_spin_w = np.zeros((n, N_BODIES, 3)), np.zeros((n, N_BODIES, 3))
        self.com_pos_w, self.com_vel_w = np.zeros((n, 3)), np.zeros((n, 3))

    def update(self, qpos: Array, qvel: Array) -> None:
        """Take the states of generalised positions (n, 43) and velocities (n, 34)."""
        body_states_into(
            self.body_pos_w, self.body_quat_w, self.body_vel_w, self.body_spin_w, self.com_pos_w, self.com_vel_w,
            qpos, qvel,
        )  # fmt: skip


class HumanoidBatch:
    """``n`` characters on the floor; results do not depend on the number of threads.

    Attributes:
        qpos: Generalised positions (n, 43), qvel: velocities (n, 34); see `engine.humanoid.model`.
        bodies: World states of the bodies, as of ``qpos`` and ``qvel``.
        failed: MuJoCo warned in the last step (n,) bool.
        warnings: Such steps since the start, over all characters.
    """

    def __init__(self, n: int, threads: int = 1, floor: bool = True) -> None:
        self.n, self.threads = n, threads
        self.model = load_humanoid(floor)
        self.model.dof_armature[6:] = ARMATURE_KG_M2
        if not joints_in_order(self.model) or self.model.nu != N_JOINT_DOF:
            raise ValueError("engine/assets/humanoid.xml: joints are not in the order of engine.skeleton.BODY_NAMES")
        if abs(self.model.opt.timestep * PHYSICS_HZ - 1.0) > 1e-9:
            raise ValueError(f"engine/assets/humanoid.xml: timestep is not 1/{PHYSICS_HZ} s")
        self._data = [mujoco.MjData(self.model) for _ in range(threads)]
        self._rollout = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._models = [self.model] * n
        self._state = np.zeros((n, _TIME + _NQ + _NV))
        self._out = np.zeros((n, SUBSTEPS, _TIME + _NQ + _NV))
        self._sensors = np.zeros((n, SUBSTEPS, self.model.nsensordata))
        self._warmstart = np.zeros((n, _NV))
        self._control = np.zeros((n, SUBSTEPS, N_JOINT_DOF + 6 * self.model.nbody))
        self._root = N_JOINT_DOF + 6 * int(self.model.body("root").id)
        self.qpos = self._state[:, _TIME : _TIME + _NQ]
        self.qvel = self._state[:, _TIME + _NQ :]
        self.bodies = BodyStates(n)
        self.failed = np.zeros(n, bool)
        self.warnings = 0
        self.set_state(np.arange(n), np.tile(self.model.qpos0, (n, 1)), np.zeros((n, _NV)))

    def set_state(self, idx: NDArray[np.int64], qpos: ArrayLike, qvel: ArrayLike) -> None:
        """Put characters ``idx`` into a state: positions (len(idx), 43), velocities (len(idx), 34)."""
        self.qpos[idx], self.qvel[idx] = qpos, qvel
        self.failed[idx] = False
        self._sensors[idx] = 0.0
        self.bodies.update(self.qpos, self.qvel)

    def step(self, target: Array, push_force_w: Array | None = None, push_torque_w: Array | None = None) -> None:
        """Advance 1/30 s with the servo targets held.

        Args:
            target: Exponential maps [rad], (n, 28).
            push_force_w: Force at the centre of mass, world axes [N], (n, 3), held over the step.
            push_torque_w: Torque, world axes [N m], (n, 3).
        """
        control = self._control
        control[:, :, :N_JOINT_DOF] = target[:, None]
        control[:, :, self._root : self._root + 6] = self._wrench(push_force_w, push_torque_w)[:, None]
        spec = mujoco.mjtState.mjSTATE_CTRL | mujoco.mjtState.mjSTATE_XFRC_APPLIED
        with _quiet_warnings():
            self._rollout.rollout(
                cast(Any, self._models), self._data, self._state, control, control_spec=int(spec), skip_checks=True,
                nstep=SUBSTEPS, initial_warmstart=self._warmstart, state=self._out, sensordata=self._sensors,
            )  # fmt: skip
        last = self._out[:, -1]
        # a warning stops a rollout, and a reset sets its clock back: either way the clock is not where it should be
        late = np.abs(last[:, 0] - SUBSTEPS / PHYSICS_HZ) > 1e-9
        self.failed[:] = late | ~np.isfinite(last).all(axis=1)
        self.warnings += int(self.failed.sum())
        self._state[~self.failed, 1:] = last[~self.failed, 1:]
        self.bodies.update(self.qpos, self.qvel)

    def foot_forces(self) -> tuple[Array, Array]:
        """Contact forces on the soles over the last of the physics steps; zeros right after `set_state`.

        Returns:
            Forces on the feet, world axes [N], and where they act [m], each (n, 2 feet, 4, 3), left foot first; both
            are zeros at corners without contact.
        """
        contact = self._sensors[:, -1].reshape(self.n, 2, CORNERS, CONTACT_WIDTH)
        normal, tangent = contact[..., 7:10], contact[..., 10:13]  # of the foot, into the floor
        axes = np.stack([normal, tangent, np.cross(normal, tangent)], axis=-2)
        held = (contact[..., :1] > 0) & ~self.failed[:, None, None, None]
        force = -np.einsum("nfci,nfcij->nfcj", contact[..., 1:4], axes)
        return np.where(held, force, 0.0), np.where(held, contact[..., 4:7], 0.0)

    def _wrench(self, force_w: Array | None, torque_w: Array | None) -> Array:
        """Force and torque (n, 6) on the root body that equal the force at the character's centre of mass."""
        wrench = np.zeros((self.n, 6))
        if force_w is not None:
            bodies = self.bodies
            at = bodies.body_pos_w[:, 0] + rotation.quat_rotate(bodies.body_quat_w[:, 0], COM_OFFSETS[0])
            wrench[:, :3] = force_w
            wrench[:, 3:] = np.cross(bodies.com_pos_w - at, force_w)
        if torque_w is not None:
            wrench[:, 3:] += torque_w
        return wrench


def joint_targets(local_quat: ArrayLike) -> Array:
    """Servo targets (..., 28) [rad] that hold a pose given by rotations to the parent (..., 15, 4).

    Ball joints: the rotation vector, angle in [0, pi]. Hinges: the turn about their axis, in [-pi, pi].
    """
    local = np.asarray(local_quat, np.float64)
    out = np.empty((*local.shape[:-2], N_JOINT_DOF))
    for body, place in joint_slices():
        turn = rotation.quat_log(local[..., body, :])
        out[..., place] = turn if JOINT_TYPES[body] == "ball" else (turn @ HINGE_AXIS)[..., None]
    return out


@contextmanager
def _quiet_warnings() -> Iterator[None]:
    """MuJoCo's warnings are counted here, not written to a MUJOCO_LOG.TXT in the working folder."""
    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(lambda text: None)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)
