"""The run-time loop of `deepmimic`: observe, policy, servo targets, MuJoCo.

    obs (heading frame, phase) -> policy -> residual -> + the reference's servo targets -> 4 substeps of MuJoCo

A policy imitates one clip by its phase. Symmetric clips are seen by half rounds: in the second half the observation and
the action are those of the mirror image. The mirror image of the policy's clip (``<clip>_mirror``) is therefore played
too, seen in the mirror throughout; any other clip is played with its own reference, as far as the policy copes.

At the start of a round the reference is put back under the character, as in training, but its heading stays.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.humanoid.kinematics import N_JOINT_DOF, lowest_points
from engine.humanoid.model import model_digest
from engine.humanoid.observe import mirror_action, mirror_observation, observe
from engine.humanoid.reference import PlacedReference, ReferenceCycle, build_reference, quat_yaw, turned
from engine.humanoid.simulation import ARMATURE_KG_M2, HumanoidBatch
from engine.motion.library import MotionLibrary
from engine.players import Poses
from engine.players.unified import PlayerOptions
from engine.policy import Policy
from engine.rotation import quat_rotate
from engine.skeleton import BODY_NAMES, FOOT_BODIES, SOLE_OFFSET

Array = NDArray[np.float64]
#: With path following: how far the reference may stand from under the character when a round begins [m].
PATH_SLACK_M = 0.15
#: A sole that carries more than this stands [N].
STANDING_N = 1.0
_FALL_BODIES = np.array([i for i in range(len(BODY_NAMES)) if i not in FOOT_BODIES])


@dataclass(frozen=True)
class ImitationControl:
    """How an action becomes servo targets; the numbers of a policy's ``controller`` metadata.

    Attributes:
        residual: Actions are added to the reference's servo targets; otherwise they are the targets.
        mirroring: Symmetric clips by half rounds.
        lead_s: How far the reference's targets are ahead. feedforward: Share of its own torques in them.
        armature_kg_m2: Inertia added to every joint axis.
        round_frames: Frames of a round of the policy's clip. half_round_frames: Of half a round, 0 if not symmetric.
    """

    residual: bool
    mirroring: bool
    lead_s: float
    feedforward: float
    armature_kg_m2: float
    round_frames: int
    half_round_frames: int


def control_numbers(control: ImitationControl, model: mujoco.MjModel) -> dict[str, float]:
    """The ``controller`` entry of a policy's metadata: `ImitationControl`, and gains and force limit of every servo."""
    numbers = {name: float(value) for name, value in dataclasses.asdict(control).items()}
    for i in range(model.nu):
        name = model.actuator(i).name
        numbers[f"kp.{name}"] = float(model.actuator_gainprm[i, 0])
        numbers[f"kd.{name}"] = float(-model.actuator_biasprm[i, 2])
        numbers[f"limit_n_m.{name}"] = float(model.actuator_forcerange[i, 1])
    return numbers


def control_of(numbers: Mapping[str, float], where: str) -> ImitationControl:
    """The inverse of `control_numbers`; raises InputError naming a missing number."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(ImitationControl):
        if field.name not in numbers:
            raise InputError.at(where, None, f"controller: {field.name} is missing (found {len(numbers)} numbers)")
        value = numbers[field.name]
        values[field.name] = {"bool": bool, "int": int, "float": float}[str(field.type)](value)
    return ImitationControl(**values)


def cycle_digest(cycle: ReferenceCycle) -> str:
    """Digest of a reference to 0.1 mm and 0.1 mrad, to which a policy is bound; 16 hex digits."""
    start = cycle.qpos[0, :3] * np.array([1.0, 1.0, 0.0])
    rows = np.round(np.concatenate([cycle.qpos[:, :3] - start, cycle.qpos[:, 3:]], axis=1), 4) + 0.0
    return hashlib.sha256(np.ascontiguousarray(rows, "<f8").tobytes()).hexdigest()[:16]


def reference_texts(
    cycle: ReferenceCycle, clip: str, control: ImitationControl, model: mujoco.MjModel
) -> dict[str, str]:
    """The ``reference`` entry of a policy's metadata: what binds it to its motion and body, and its rules in words."""
    by = f"{control.half_round_frames} of {control.round_frames} frames" if control.half_round_frames else "the round"
    return {
        "clip": clip,
        "clip_digest": cycle_digest(cycle),
        "model_digest": model_digest(model),
        "action": (
            "exponential map of each joint [rad]"
            + (", added to the reference's servo targets" if control.residual else " as servo target")
        ),
        "targets": (
            "the reference's pose lead_s after the frame, plus feedforward times the torque of its inverse dynamics "
            "over kp"
        ),
        "phase": f"frame over {by}, in [0, 1)",
        "mirror": (
            "in the second half of a round observation and action are those of the mirror image"
            if control.half_round_frames
            else "none"
        ),
    }


class _Group(NamedTuple):
    """Characters on one clip: its reference, which they are, and whether the policy sees it in the mirror."""

    cycle: ReferenceCycle
    idx: NDArray[np.int64]
    flipped: bool


class DeepMimicPlayer:
    """A policy of `deepmimic` with its characters; the interface is `engine.players.Player`.

    Of `engine.players.unified.PlayerOptions`, ``mmik`` and ``compositions`` change nothing: the simulated pose is the
    pose. The ground is flat.

    Attributes:
        batch: The simulation. round_frame: Frame of each character in its clip's round (n,). ref_frame: Row of the
            library (n,). yaw_rad, offset_m: Where the reference stands (n,), (n, 3).
    """

    def __init__(self, policy: Policy, n: int, library: MotionLibrary, **options: Any) -> None:
        known = [f.name for f in dataclasses.fields(PlayerOptions)]
        unknown = [key for key in options if key not in known]
        if unknown:
            raise InputError(f"player: unknown option (found {unknown[0]}, expected one of {', '.join(known)})")
        self.options = PlayerOptions(**options)
        if self.options.terrain.name != "flat":
            raise InputError(f"player: terrain of deepmimic (found {self.options.terrain.name}, expected flat)")
        self.policy, self.n, self.library = policy, n, library
        meta = policy.metadata
        self.control = control_of(meta.controller, meta.method)
        self.batch = HumanoidBatch(n, self.options.threads)
        self._cycles: dict[int, ReferenceCycle] = {}
        self.clip = self._checked_clip(meta.reference)
        if self.options.friction is not None:
            self.batch.model.geom_friction[:, 0] = self.options.friction
        if self.options.mass_scale != 1.0:
            self.batch.model.body_mass[:] *= self.options.mass_scale
            self.batch.model.body_inertia[:] *= self.options.mass_scale
            mujoco.mj_setConst(self.batch.model, mujoco.MjData(self.batch.model))
        self._groups: list[_Group] = []
        self.round_frame, self.ref_frame = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.last = np.zeros(n, np.int64)
        self.yaw_rad, self.offset_m, self.path_m = np.zeros(n), np.zeros((n, 3)), np.zeros((n, 3))
        self.alive = np.ones(n, bool)
        self.action = np.zeros((n, N_JOINT_DOF), np.float32)
        self._late: list[tuple[NDArray[np.float32], NDArray[np.bool_]]] = []
        self._forces, self._points = np.zeros((n, 10, 3)), np.zeros((n, 10, 3))
        self._foot_pos, self._foot_quat = np.zeros((n, 2, 3)), np.zeros((n, 2, 4))
        self._contact, self._counters = np.zeros(n, np.int64), np.zeros((n, 3), np.int64)
        own = library.names.index(self.clip)
        self.reset(np.full(n, own), np.zeros(n, np.int64))

    def reset(self, clips: Sequence[int] | NDArray[np.int64], frames: Sequence[int] | NDArray[np.int64]) -> None:
        clips, frames = np.asarray(clips, np.int64), np.asarray(frames, np.int64)
        library, lengths = self.library, self.library.length
        if clips.shape != (self.n,) or frames.shape != (self.n,):
            raise InputError(f"reset: clips and frames (found {clips.shape} and {frames.shape}, expected ({self.n},))")
        if clips.min() < 0 or clips.max() >= len(lengths):
            raise InputError(f"reset: clip index (found {clips.max()}, expected 0 to {len(lengths) - 1})")
        if frames.min() < 0 or np.any(frames >= lengths[clips]):
            raise InputError(
                f"reset: frame (found {frames.max()}, expected less than the clip's {lengths[clips].min()})"
            )
        self.ref_frame[:] = library.start[clips] + frames
        self.last[:] = library.start[clips] + lengths[clips] - 1
        self._groups = [
            _Group(self._cycle(int(clip)), np.flatnonzero(clips == clip), self._is_mirror(int(clip)))
            for clip in np.unique(clips)
        ]
        for cycle, idx, _ in self._groups:
            self.round_frame[idx] = (self.ref_frame[idx] - cycle.rows[0]) % len(cycle)
            at, row = self.round_frame[idx], self.ref_frame[idx]
            turn = quat_yaw(library.local_quat[row, 0]) - cycle.yaw_rad[at]
            self.yaw_rad[idx] = np.arctan2(np.sin(turn), np.cos(turn))
            place = library.root_pos_w[row] - turned(self.yaw_rad[idx], cycle.qpos[at, :3])
            place[:, 2] = 0.0
            self.offset_m[idx], self.path_m[idx] = place, place
            ref = cycle.placed(at, self.yaw_rad[idx], self.offset_m[idx])
            self.batch.set_state(idx, ref.qpos, ref.qvel)
        self.alive[:] = True
        self._counters[:] = 0
        self._late.clear()

    def step(self, push_force_w: Array | None = None, push_torque_w: Array | None = None) -> Poses:
        obs, mirrored = self.observe()
        if self.options.latency_frames:
            self._late.append((obs, mirrored))
            obs, mirrored = self._late[0]
            if len(self._late) > self.options.latency_frames:
                self._late.pop(0)
        self.policy.act_into(self.action, obs)
        target = self.action.astype(np.float64)
        target[mirrored] = mirror_action(target[mirrored])
        if self.control.residual:
            for cycle, idx, _ in self._groups:
                target[idx] += cycle.targets[self.round_frame[idx]]
        self.batch.step(target, push_force_w, push_torque_w)
        self._counters[:, 0] += self.batch.failed
        self._counters[:, 2] += 1
        self._advance()
        low = lowest_points(self.batch.bodies.body_pos_w, self.batch.bodies.body_quat_w, _FALL_BODIES)
        self.alive &= ~self.batch.failed & (low.min(axis=1) >= 0.0)
        return self.poses()

    def observe(self) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Observation rows (n, 120) as the policy sees them, and who is seen in the mirror (n,)."""
        root, yaw, phase = np.zeros((self.n, 3)), np.zeros(self.n), np.zeros(self.n)
        mirrored = np.zeros(self.n, bool)
        for cycle, idx, flipped in self._groups:
            ref = self._placed(cycle, idx)
            root[idx], yaw[idx] = ref.qpos[:, :3], ref.yaw_rad
            phase[idx], second = cycle.phase(self.round_frame[idx], self.control.mirroring)
            mirrored[idx] = second != flipped
        obs = observe(self.batch.qpos, self.batch.qvel, self.batch.bodies, root, yaw, phase)
        obs[mirrored] = mirror_observation(obs[mirrored])
        return np.ascontiguousarray(obs, np.float32), mirrored

    def poses(self) -> Poses:
        """The frame as the player's interface gives it; counters are MuJoCo's warnings, 0, and steps."""
        bodies, feet = self.batch.bodies, list(FOOT_BODIES)
        force, point = self.batch.foot_forces()
        self._forces[:, :8], self._points[:, :8] = force.reshape(self.n, 8, 3), point.reshape(self.n, 8, 3)
        stands = force[..., 2].sum(axis=2) > STANDING_N
        self._contact[:] = stands[:, 0] + 2 * stands[:, 1]
        self._foot_quat[:] = bodies.body_quat_w[:, feet]
        self._foot_pos[:] = bodies.body_pos_w[:, feet] + quat_rotate(self._foot_quat, SOLE_OFFSET)
        return Poses(
            bodies.body_pos_w, bodies.body_quat_w, bodies.com_pos_w, bodies.body_quat_w[:, 0], bodies.com_vel_w,
            self._foot_pos, self._foot_quat, self._contact, self._forces, self._points, self.alive, self.ref_frame,
            bodies.body_pos_w if self.options.compositions else None, self._counters,
        )  # fmt: skip

    def _placed(self, cycle: ReferenceCycle, idx: NDArray[np.int64]) -> PlacedReference:
        return cycle.placed(self.round_frame[idx], self.yaw_rad[idx], self.offset_m[idx])

    def _advance(self) -> None:
        """Go to the next frame; where a round begins, the reference is put back under the character."""
        np.minimum(self.ref_frame + 1, self.last, out=self.ref_frame)
        self.round_frame += 1
        for cycle, idx, _ in self._groups:
            again = idx[self.round_frame[idx] >= len(cycle)]
            self.round_frame[again] = 0
            self.path_m[again] += turned(self.yaw_rad[again], np.tile(cycle.travel_m, (len(again), 1)))
            self.yaw_rad[again] += cycle.turn_rad
            root = turned(self.yaw_rad[again], np.tile(cycle.qpos[0, :3], (len(again), 1)))
            under = self.batch.bodies.body_pos_w[again, 0] - root
            under[:, 2] = 0.0
            if self.options.path_following:
                gap = self.path_m[again] - under
                size = np.linalg.norm(gap, axis=1, keepdims=True)
                under += gap * np.minimum(1.0, PATH_SLACK_M / np.maximum(size, 1e-9))
            self.offset_m[again] = under

    def _cycle(self, clip: int) -> ReferenceCycle:
        if clip not in self._cycles:
            c = self.control
            self._cycles[clip] = build_reference(self.library, clip, c.lead_s, c.feedforward)
        return self._cycles[clip]

    def _is_mirror(self, clip: int) -> bool:
        name = self.library.names[clip]
        return name == f"{self.clip}_mirror" or self.clip == f"{name}_mirror"

    def _checked_clip(self, reference: Mapping[str, str]) -> str:
        """The clip that the policy imitates; refuses a policy of another body or another motion than ours."""
        where = self.policy.metadata.method
        for key in ("clip", "clip_digest", "model_digest"):
            if key not in reference:
                raise InputError.at(where, None, f"reference.{key} missing (found {', '.join(sorted(reference))})")
        clip = reference["clip"]
        if clip not in self.library.names:
            raise InputError.at(where, None, f"reference.clip: not in the library (found {clip})")
        control = self.control
        cycle = self._cycle(self.library.names.index(clip))
        half = cycle.half if control.mirroring else 0
        for key, found, expected in (
            ("controller.armature_kg_m2", control.armature_kg_m2, ARMATURE_KG_M2),
            ("reference.model_digest", reference["model_digest"], model_digest(self.batch.model)),
            ("controller.round_frames", control.round_frames, len(cycle)),
            ("controller.half_round_frames", control.half_round_frames, half),
            ("reference.clip_digest", reference["clip_digest"], cycle_digest(cycle)),
        ):
            if found != expected:
                raise InputError.at(
                    where, None, f"{key}: not of this engine or library (found {found}, expected {expected})"
                )
        return clip
