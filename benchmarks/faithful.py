r"""The paper-faithful run-time of a policy: the same mathematics, built the way the paper's own program builds it.

Kim et al. 2026 (section 5.1) simulate in MuJoCo and solve the contact-force QP with Clarabel; the public code they
extend does, at each of the four substeps, MuJoCo's forward kinematics and dense mass matrix, ``scipy.linalg.logm`` for
the error on SE(3), and a QP in accelerations and forces, assembled from ``scipy.sparse`` and solved from scratch:

``min_{q'', f} |W (q'' - q''_d)|^2 + w |f|^2   s.t.   M q'' + b = sum_c J_c^T f_c,   f_c in the friction cone``

`load` gives a player like `engine.players.load`; only the rigid body's step and the (serial, one call a character)
policy evaluation are replaced, so its times are, if anything, too good for the paper's run-time. Trajectories agree
with the engine's up to the integrator's second order and, with ``se3=True``, the linear part of the SE(3) logarithm.
"""

from __future__ import annotations

from typing import Any

import clarabel
import mujoco
import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from engine import players
from engine.rotation import quat_from_matrix, quat_to_matrix
from engine.srb import body
from engine.srb.contact import place_contacts, update_feet
from engine.srb.step import SUBSTEPS, SrbBatch, decode_target

Array = NDArray[np.float64]
_MJCF = """
<mujoco><option timestep="{dt!r}" gravity="0 0 -{gravity!r}"><flag contact="disable"/></option>
<worldbody><body><freejoint/><inertial pos="0 0 0" mass="{mass!r}" fullinertia="{inertia}"/>
<geom size="0.1" contype="0" conaffinity="0" mass="0"/></body></worldbody></mujoco>
"""


def load(policy: str, n: int, library: Any, se3: bool = True, **options: Any) -> Any:
    """A player whose body steps and policy calls are the paper-faithful ones.

    Args:
        policy: Policy file.
        n: Number of characters; they are stepped one after the other.
        library: Motion library.
        se3: Linear error from the logarithm on SE(3) as in the paper; False takes the engine's ``p_T - p``.
        options: As for `engine.players.load`.
    """
    player = players.load(policy, n=n, library=library, threads=1, **options)
    player.characters.batch = FaithfulBatch(player.characters.batch, se3)
    player.policy = SerialPolicy(player.policy)
    return player


class SerialPolicy:
    """One call of the session a character, with fresh arrays, as a single-character program does it."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def act(self, obs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Action rows of observation rows."""
        return np.concatenate([self._policy.act(obs[i : i + 1].copy()) for i in range(len(obs))])

    def act_into(self, out: NDArray[np.float32], obs: NDArray[np.float32]) -> None:
        """`act` into the caller's array."""
        out[:] = self.act(obs)


class FaithfulBatch(SrbBatch):
    """`SrbBatch` whose step goes through MuJoCo, SciPy and Clarabel; it shares the state of the batch it replaces."""

    def __init__(self, batch: SrbBatch, se3: bool = True) -> None:
        self.__dict__.update(batch.__dict__)
        self.se3 = se3
        self._bodies = [_Body(row, self.dt) for row in self.ctrl]
        self._target = np.zeros(27)
        self._small = [np.zeros(3), np.zeros((2, 3)), np.zeros((2, 3, 3)), np.zeros((3, 3)), np.zeros((3, 3))]
        self._places = (np.zeros((10, 3)), np.zeros((10, 3, 3)), np.zeros(10, np.int64), np.zeros((10, 3)))

    def step(
        self,
        action: Array,
        command: Array,
        contact_class: NDArray[np.int64],
        push_force_w: Array | None = None,
        push_torque_w: Array | None = None,
    ) -> None:
        """As `SrbBatch.step`."""
        push = np.zeros((len(self.state), 6))
        if push_force_w is not None:
            push[:, :3] = push_force_w
        if push_torque_w is not None:
            push[:, 3:] = push_torque_w
        for i in range(len(self.state)):
            self._step_one(i, action[i], command[i], int(contact_class[i]), push[i])

    def _step_one(self, i: int, action: Array, command: Array, contact_class: int, push: Array) -> None:
        state, ctrl, character = self.state[i], self.ctrl[i], self._bodies[i]
        decode_target(state, action, self._target)
        goal = np.eye(4)
        goal[:3, :3], goal[:3, 3] = self._target[3:12].reshape(3, 3), self._target[:3]
        foot = np.array([state[18:21], state[30:33]])
        foot_rot = np.array([state[21:30].reshape(3, 3), state[33:42].reshape(3, 3)])
        update_feet(
            foot, foot_rot, self.stance[i], self.lift[i], np.zeros(2, np.int64), contact_class, goal[:3, 3].copy(),
            goal[:3, :3].copy(), command, ctrl, self.terrain.shape_params, self.terrain.heights, *self._small,
        )  # fmt: skip
        for k in range(2):
            state[18 + 12 * k : 21 + 12 * k] = foot[k]
            state[21 + 12 * k : 30 + 12 * k] = foot_rot[k].ravel()
        character.set_state(state)
        self.forces[i] = 0.0
        points, axes, foot_of, offsets = self._places
        for _ in range(SUBSTEPS):
            rotation = character.rotation()
            n = place_contacts(
                points, axes, foot_of, offsets, foot, foot_rot, self.stance[i], self.subset[i], rotation, ctrl
            )
            mujoco.mj_step1(character.model, character.data)
            wrench = np.zeros(6)
            if n:
                wanted = wanted_acceleration(character, goal, self._target[12:18], ctrl, self.se3)
                force = self._contact_forces(i, character, wanted, points[:n], axes[:n])
                jacobian = contact_jacobian(points[:n] - character.data.qpos[:3], rotation)
                wrench = jacobian.T @ force.ravel()
                self.forces[i, :n] += force / SUBSTEPS
                self.points[i, :n] = points[:n]
            wrench[:3] += push[:3]
            wrench[3:] += rotation.T @ push[3:]
            character.data.qfrc_applied[:] = wrench / ctrl[body.MASS_SCALE]
            mujoco.mj_step2(character.model, character.data)
        character.get_state(state)

    def _contact_forces(self, i: int, character: _Body, wanted: Array, points: Array, axes: Array) -> Array:
        ctrl = self.ctrl[i]
        friction = ctrl[body.FRICTION] * self.mu_scale[i]
        mass_matrix = np.zeros((6, 6))
        mujoco.mj_fullM(character.model, character.data, mass_matrix)
        jacobian = contact_jacobian(points - character.data.qpos[:3], character.rotation())
        edges, inequality, bound = friction_cone(len(points), axes, friction, ctrl)
        weights = np.repeat(ctrl[[body.W_LIN_XY, body.W_LIN_Z, body.W_ANG_XY, body.W_ANG_Z]] ** 2, [2, 1, 2, 1])
        generated = jacobian.T @ edges
        solution, solved = solve_accelerations(
            mass_matrix, character.data.qfrc_bias, generated, wanted, weights, ctrl[body.EPS], inequality, bound
        )
        self.counters[i, 2] += 1
        self.counters[i, 0] += not solved
        return (edges @ solution).reshape(-1, 3)


class _Body:
    """MuJoCo's model and data of one free rigid body."""

    def __init__(self, ctrl: Array, dt: float) -> None:
        inertia = ctrl[body.INERTIA : body.INERTIA + 9].reshape(3, 3)
        xx, yy, zz, xy, xz, yz = (repr(float(inertia[k])) for k in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2)))
        text = _MJCF.format(
            dt=dt, gravity=body.GRAVITY, mass=float(ctrl[body.MASS]), inertia=" ".join((xx, yy, zz, xy, xz, yz))
        )
        self.model = mujoco.MjModel.from_xml_string(text)
        self.data = mujoco.MjData(self.model)
        self.inertia = inertia

    def rotation(self) -> Array:
        return quat_to_matrix(self.data.qpos[3:7])

    def set_state(self, state: Array) -> None:
        rotation = state[3:12].reshape(3, 3)
        self.data.qpos[:3], self.data.qpos[3:7] = state[:3], quat_from_matrix(rotation)
        self.data.qvel[:3] = state[12:15]
        self.data.qvel[3:] = np.linalg.solve(self.inertia, rotation.T @ state[15:18])

    def get_state(self, state: Array) -> None:
        rotation = self.rotation()
        state[:3], state[3:12] = self.data.qpos[:3], rotation.ravel()
        state[12:15] = self.data.qvel[:3]
        state[15:18] = rotation @ (self.inertia @ self.data.qvel[3:])


def wanted_acceleration(character: _Body, goal: Array, goal_velocity_w: Array, ctrl: Array, se3: bool = True) -> Array:
    """PD acceleration towards the target: linear in the world, angular in the body's axes, (6,).

    ``xi = log(T^-1 T_T)`` on SE(3), by the matrix logarithm; linear part turned to the world.
    """
    rotation, data = character.rotation(), character.data
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, data.qpos[:3]
    xi = scipy.linalg.logm(np.linalg.inv(pose) @ goal).real
    linear = rotation @ xi[:3, 3] if se3 else goal[:3, 3] - data.qpos[:3]
    angular = np.array([xi[2, 1], xi[0, 2], xi[1, 0]])
    return np.concatenate(
        [
            ctrl[body.KP_LIN] * linear + ctrl[body.KD_LIN] * (goal_velocity_w[:3] - data.qvel[:3]),
            ctrl[body.KP_ANG] * angular + ctrl[body.KD_ANG] * (rotation.T @ goal_velocity_w[3:] - data.qvel[3:]),
        ]
    )


def contact_jacobian(arm_w: Array, rotation: Array) -> Array:
    """Velocity of the contact points from (linear world, angular body) velocity, (3 n, 6)."""
    n = len(arm_w)
    jacobian = np.zeros((3 * n, 6))
    for c, (x, y, z) in enumerate(arm_w):
        cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
        jacobian[3 * c : 3 * c + 3, :3] = np.eye(3)
        jacobian[3 * c : 3 * c + 3, 3:] = -cross @ rotation
    return jacobian


def friction_cone(n: int, axes: Array, friction: float, ctrl: Array) -> tuple[Any, Any, Any]:
    """Cone as ``f = edges @ x`` (world forces, 3 n) with ``inequality @ x <= bound``.

    Generators of the paper, ``(+-mu, 0, 1), (0, +-mu, 1)`` with ``x >= 0``; or tangent-tangent-normal components inside
    the pyramid ``|t| <= mu n``, ``0 <= n <= f_max``, whichever the controller has.
    """
    if ctrl[body.CONE] == body.CONE_YAW_GENERATORS:
        local = np.array([[friction, -friction, 0, 0], [0, 0, friction, -friction], [1, 1, 1, 1]])
        inequality, bound = -np.eye(4 * n), np.zeros(4 * n)
    else:
        local = np.eye(3)
        tangents = [[1, 0, -friction], [-1, 0, -friction], [0, 1, -friction], [0, -1, -friction]]
        rows = np.array([*tangents, [0, 0, -1], [0, 0, 1]])
        inequality = np.kron(np.eye(n), rows)
        bound = np.tile([0, 0, 0, 0, 0, ctrl[body.FORCE_MAX]], n)
        keep = np.isfinite(bound)
        inequality, bound = inequality[keep], bound[keep]
    return scipy.linalg.block_diag(*(axes[c] @ local for c in range(n))), inequality, bound


def solve_accelerations(
    mass_matrix: Array,
    bias: Array,
    generated: Array,
    wanted: Array,
    weights: Array,
    force_weight: float,
    inequality: Array,
    bound: Array,
) -> tuple[Array, bool]:
    """Assemble the QP in ``(q'', x)`` from sparse blocks and solve it with Clarabel from scratch.

    Args:
        mass_matrix: M (6, 6). bias: Gravity and gyroscopic force (6,). generated: ``J^T`` times the edges (6, k).
        wanted: Acceleration asked for (6,). weights: Of its squared errors (6,). force_weight: Of ``x`` squared.
        inequality, bound: ``inequality @ x <= bound``.

    Returns:
        ``x`` and whether Clarabel calls it solved (zeros where it is not).
    """
    k = generated.shape[1]
    cost = scipy.sparse.csc_matrix(scipy.sparse.diags(np.concatenate([weights, np.full(k, force_weight)])))
    gradient = np.concatenate([-weights * wanted, np.zeros(k)])
    rows = scipy.sparse.bmat(
        [
            [scipy.sparse.csc_matrix(mass_matrix), scipy.sparse.csc_matrix(-generated)],
            [None, scipy.sparse.csc_matrix(inequality)],
        ],
        format="csc",
    )
    right = np.concatenate([-bias, bound])
    cones = [clarabel.ZeroConeT(6), clarabel.NonnegativeConeT(len(bound))]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(cost, gradient, rows, right, cones, settings).solve()
    solved = solution.status in (clarabel.SolverStatus.Solved, clarabel.SolverStatus.AlmostSolved)
    return (np.array(solution.x[6:]) if solved else np.zeros(k)), solved
