"""The run-time loop of the unified family: observe, policy, SRB step, full body, MMIK.

    obs = [s_SRB, s_full, s_ref(t+1)] -> policy -> target, feet, contact, body -> 4 substeps with the contact-force QP
    -> body composed on the simulated SRB -> MMIK -> pose; the played pose is the next s_full.

Both halves are public (`SrbCharacters.observe`, `SrbCharacters.apply`), so training runs the very same loop.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.ik.mmik import MMIK, MmikParams
from engine.motion.library import MotionLibrary
from engine.players import Poses
from engine.policy import Policy
from engine.rotation import quat_to_matrix, yaw_matrix, yaw_of
from engine.skeleton import momentum_w
from engine.srb.action import (
    ACTION_SIZE,
    BODY_FRAME_PROJ,
    BODY_FRAME_SRB,
    compose_body_into,
    decode_action_into,
)
from engine.srb.body import FRICTION, MASS_SCALE, SrbParams, controller_row, pack_state
from engine.srb.contact import ALL_POINTS, HEEL_POINTS, TOE_POINTS
from engine.srb.observe import OBS_SIZE, observe_into
from engine.srb.readout import read_state_into
from engine.srb.step import SrbBatch
from engine.srb.terrain import Terrain

Array = NDArray[np.float64]

CONES = ("foot_pyramid", "yaw_generators")


@dataclass(frozen=True)
class PlayerOptions:
    """How to play.

    Attributes:
        mmik: Refine the pose (exact stance feet, rigid skeleton); without it the composed pose is played as predicted.
        path_following: Feed the world position and heading error back into the reference's velocity.
        terrain: Ground. friction: Coefficient instead of the policy's. mass_scale: True mass over the policy's.
        latency_frames: Age of the observation that the policy acts on.
        compositions: Also give the pose composed in the projected frame.
        threads: Threads of the engine's kernels.
    """

    mmik: bool = True
    path_following: bool = False
    terrain: Terrain = dataclasses.field(default_factory=Terrain.flat)
    friction: float | None = None
    mass_scale: float = 1.0
    latency_frames: int = 0
    compositions: bool = False
    threads: int = 1


def controller_numbers(srb: SrbParams, mmik: MmikParams) -> dict[str, float]:
    """The ``controller`` entry of a policy's metadata: every number the engine's loop needs."""
    numbers = {f"srb.{key}": value for key, value in dataclasses.asdict(srb).items()}
    numbers["srb.cone"] = CONES.index(srb.cone)
    numbers |= {f"mmik.{key}": value for key, value in dataclasses.asdict(mmik).items()}
    return {key: float(value) for key, value in numbers.items()}


def controller_params(numbers: Mapping[str, float], where: str) -> tuple[SrbParams, MmikParams]:
    """The inverse of `controller_numbers`; raises InputError naming a missing number."""

    def collect(cls: Any, prefix: str) -> Any:
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            key = f"{prefix}.{field.name}"
            if key not in numbers:
                raise InputError.at(where, None, f"controller: {key} is missing (found {len(numbers)} numbers)")
            value = numbers[key]
            if key == "srb.cone":
                values[field.name] = CONES[int(value)]
            elif "int" in str(field.type):
                values[field.name] = int(value)
            elif "bool" in str(field.type):
                values[field.name] = bool(value)
            else:
                values[field.name] = value
        return cls(**values)

    return collect(SrbParams, "srb"), collect(MmikParams, "mmik")


def _limb_momentum(library: MotionLibrary, inertia_b: Array) -> Array:
    """Angular momentum of the reference beyond that of a rigid body, its yaw frame (F, 3) [kg m^2/s].

    Swinging limbs cancel much of the trunk's momentum, so the body's own target is that of the SRB plus this.
    """
    pos, quat = library.body_pos_w, library.body_quat_w
    _, step = momentum_w(pos[:-1], quat[:-1], pos[1:], quat[1:], 1.0 / 30.0)
    whole = np.concatenate([step[:1], 0.5 * (step[1:] + step[:-1]), step[-1:]])
    rot = quat_to_matrix(library.srb_quat_w)
    rigid = np.einsum("nij,jk,nlk,nl->ni", rot, inertia_b, rot, library.ang_vel_w)
    out = np.einsum("nij,ni->nj", yaw_matrix(rot), whole - rigid)
    for start, length in zip(library.start, library.length, strict=True):  # no step across two clips
        out[start], out[start + length - 1] = out[start + 1], out[start + length - 2]
    return out


def _contact_subsets(library: MotionLibrary, heel_toe: bool) -> NDArray[np.int64]:
    """The part of each sole that the reference stands on (F, 2): all of it, unless ``heel_toe`` and one end is up."""
    heel, toe = library.heel_toe[..., 0], library.heel_toe[..., 1]
    partial = np.where(heel & ~toe, HEEL_POINTS, np.where(toe & ~heel, TOE_POINTS, ALL_POINTS))
    return partial if heel_toe else np.full_like(partial, ALL_POINTS)


class SrbCharacters:
    """``n`` characters of the unified family on their clips: state, observation and one control step."""

    def __init__(
        self,
        n: int,
        library: MotionLibrary,
        srb: SrbParams,
        mmik: MmikParams,
        mass_kg: float,
        inertia_b: Array,
        body_frame: str,
        options: PlayerOptions,
    ) -> None:
        self.n, self.library, self.options = n, library, options
        self.inertia_b = np.asarray(inertia_b, np.float64).reshape(3, 3)
        self.body_frame = BODY_FRAME_SRB if body_frame == "srb" else BODY_FRAME_PROJ
        row = controller_row(srb, mass_kg, self.inertia_b)
        if options.friction is not None:
            row[FRICTION] = options.friction
        row[MASS_SCALE] = options.mass_scale
        self.batch = SrbBatch(np.tile(row, (n, 1)), options.terrain, options.threads)
        self.mmik = MMIK(n, mmik, threads=options.threads) if options.mmik else None
        self.mmik_proj = MMIK(n, mmik, threads=options.threads) if options.mmik and options.compositions else None
        self.frame = np.zeros(n, np.int64)  # row of the library that the state stands on
        self.last = np.zeros(n, np.int64)  # last row of the clip
        self.subsets = _contact_subsets(library, srb.heel_toe)
        self.follows_path = np.full(n, options.path_following)
        self.obs = np.zeros((n, OBS_SIZE), np.float32)
        self.ref_rows = np.concatenate([library.ref_srb, library.ref_full], axis=1).astype(np.float32)
        self.ref_height = np.ascontiguousarray(library.com_pos_w[:, 2])
        self.limb_momentum = _limb_momentum(library, self.inertia_b)
        self.body_pos_w, self.body_quat_w = np.zeros((n, 15, 3)), np.zeros((n, 15, 4))
        self.composed_pos_w, self.composed_quat_w = np.zeros((n, 15, 3)), np.zeros((n, 15, 4))
        self.proj_pos_w, self.proj_quat_w = np.zeros((n, 15, 3)), np.zeros((n, 15, 4))
        self.alive = np.ones(n, bool)
        # the state, read out after each step
        self.com_pos_w, self.srb_quat_w, self.com_vel_w = np.zeros((n, 3)), np.zeros((n, 4)), np.zeros((n, 3))
        self.momentum_w, self.ground_z = np.zeros((n, 3)), np.zeros((n, 2))
        self.foot_pos_w, self.foot_quat_w = np.zeros((n, 2, 3)), np.zeros((n, 2, 4))
        self.standing, self.contact = np.zeros((n, 2), bool), np.zeros(n, np.int64)
        workers = len(self.batch._ws)
        self._ws, self._small = np.zeros((workers, 320)), np.zeros((workers, 64))

    def reset(self, idx: NDArray[np.int64], clips: NDArray[np.int64], frames: NDArray[np.int64]) -> None:
        """Put characters ``idx`` on rows ``frames`` of their clips, standing on the terrain, feet as the reference.

        Args:
            idx: Characters (k,). clips: Clip indices (k,). frames: Frames within the clip (k,).
        """
        library, terrain = self.library, self.options.terrain
        row = library.start[clips] + frames
        self.frame[idx], self.last[idx] = row, library.start[clips] + library.length[clips] - 1
        com, feet = library.com_pos_w[row].copy(), library.foot_pos_w[row].copy()
        foot_ground = terrain.height(feet[..., :2])
        lift = terrain.height(com[:, :2])
        com[:, 2] += lift
        stance = np.stack([library.contact[row] & 1, library.contact[row] >> 1], axis=1)
        feet[..., 2] = np.where(stance == 1, 0.0, feet[..., 2]) + foot_ground
        b = self.batch
        b.state[idx] = pack_state(
            com, library.srb_quat_w[row], library.com_vel_w[row], library.ang_vel_w[row], feet,
            library.foot_quat_w[row], self.inertia_b,
        )  # fmt: skip
        b.stance[idx], b.lift[idx], b.warm[idx], b.counters[idx] = stance, 0, 0.0, 0
        self.body_pos_w[idx], self.body_quat_w[idx] = library.body_pos_w[row], library.body_quat_w[row]
        self.body_pos_w[idx, :, 2] += lift[:, None]
        self.alive[idx] = True
        for ik in (self.mmik, self.mmik_proj):
            if ik is not None:
                ik.reset(idx)

    def observe(self) -> NDArray[np.float32]:
        """Observation (n, 340): [s_SRB, s_full] of the state and s_ref of the next reference frame."""
        b, shape = self.batch, self.options.terrain
        observe_into(
            self.obs, b.state, b.stance, self.body_pos_w, self.body_quat_w, b.ctrl, shape.shape_params, shape.heights,
            self.ref_rows, self.frame, self.last, self._ws,
        )  # fmt: skip
        if self.follows_path.any():
            self._follow_path()
        return self.obs

    def _follow_path(self) -> None:
        """Bend the reference's velocity and turn towards its world path (gains: docs/methods/unified.md)."""
        state, lib = self.batch.state, self.library
        rot = state[:, 3:12].reshape(-1, 3, 3)
        yaw = yaw_of(rot)
        gap = lib.com_pos_w[self.frame, :2] - state[:, :2]
        local = np.stack(
            [np.cos(yaw) * gap[:, 0] + np.sin(yaw) * gap[:, 1], -np.sin(yaw) * gap[:, 0] + np.cos(yaw) * gap[:, 1]], 1
        )
        self.obs[:, 177:179] += np.where(self.follows_path[:, None], np.clip(2.0 * local, -0.6, 0.6), 0.0)
        ref_yaw = yaw_of(quat_to_matrix(lib.srb_quat_w[self.frame]))
        error = (ref_yaw - yaw + np.pi) % (2 * np.pi) - np.pi
        self.obs[:, 182] += np.where(self.follows_path, 30.0 * np.clip(0.2 * error, -0.1, 0.1), 0.0)

    def apply(
        self,
        act12: Array,
        command: Array,
        contact_class: NDArray[np.int64],
        body: Array | NDArray[np.float32],
        push_force_w: Array | None = None,
        push_torque_w: Array | None = None,
    ) -> None:
        """One control step: SRB under its contact forces, then the body on it; updates everything in place.

        Args:
            act12, command, contact_class: As in `engine.srb.step.SrbBatch.step`.
            body: Predicted full body (n, 135) in the policy's body frame.
            push_force_w: (n, 3) [N] or None. push_torque_w: (n, 3) [N m] or None.
        """
        b, ground = self.batch, self.options.terrain
        np.take(self.subsets, np.minimum(self.frame + 1, self.last), axis=0, out=b.subset, mode="clip")
        b.step(act12, command, contact_class, push_force_w, push_torque_w)
        np.minimum(self.frame + 1, self.last, out=self.frame)
        read_state_into(
            len(self._ws), b.state, b.stance, self.frame, self.ref_height, self.limb_momentum, ground.shape_params,
            ground.heights, self.com_pos_w, self.srb_quat_w, self.com_vel_w, self.momentum_w, self.foot_pos_w,
            self.foot_quat_w, self.standing, self.contact, self.ground_z, self.alive,
        )  # fmt: skip
        compose_body_into(
            self.composed_pos_w, self.composed_quat_w, body, b.state, self.body_frame, ground.shape_params,
            ground.heights, self._small,
        )  # fmt: skip
        if self.mmik is None:
            self.body_pos_w[:], self.body_quat_w[:] = self.composed_pos_w, self.composed_quat_w
        else:
            self._refine(self.mmik, self.body_pos_w, self.body_quat_w)
        if self.options.compositions:
            self._compose_projected(body)

    def _refine(self, ik: MMIK, out_pos: Array, out_quat: Array) -> None:
        ik.solve_into(
            out_pos, out_quat, self.composed_pos_w, self.composed_quat_w, self.com_pos_w, self.srb_quat_w,
            self.com_vel_w, self.momentum_w, self.foot_pos_w, self.foot_quat_w, self.standing, self.ground_z,
        )  # fmt: skip

    def _compose_projected(self, body: Any) -> None:
        """The same prediction placed on the yaw-only frame at the reference's height (for the error `jpe_proj`)."""
        b, ground = self.batch, self.options.terrain
        if self.body_frame == BODY_FRAME_PROJ:
            self.proj_pos_w[:], self.proj_quat_w[:] = self.composed_pos_w, self.composed_quat_w
        else:
            upright = b.state.copy()
            ref = self.library.ref_srb[self.frame]
            yaw = yaw_of(b.state[:, 3:12].reshape(-1, 3, 3))
            c, s, o, i = np.cos(yaw), np.sin(yaw), np.zeros(self.n), np.ones(self.n)
            turn = np.stack([np.stack([c, -s, o], -1), np.stack([s, c, o], -1), np.stack([o, o, i], -1)], axis=-2)
            x, y = ref[:, 1:4], ref[:, 4:7]
            tilt = np.stack([x, y, np.cross(x, y)], axis=-1)
            upright[:, 3:12] = (turn @ tilt).reshape(-1, 9)
            upright[:, 2] = ref[:, 0] + ground.height(b.state[:, :2])
            compose_body_into(
                self.proj_pos_w, self.proj_quat_w, body, upright, self.body_frame, ground.shape_params, ground.heights,
                self._small,
            )  # fmt: skip
        if self.mmik_proj is not None:
            keep = self.composed_pos_w, self.composed_quat_w
            self.composed_pos_w, self.composed_quat_w = self.proj_pos_w.copy(), self.proj_quat_w.copy()
            self._refine(self.mmik_proj, self.proj_pos_w, self.proj_quat_w)
            self.composed_pos_w, self.composed_quat_w = keep

    def poses(self) -> Poses:
        """The frame as the player's interface gives it."""
        b = self.batch
        return Poses(
            self.body_pos_w, self.body_quat_w, self.com_pos_w, self.srb_quat_w, self.com_vel_w, self.foot_pos_w,
            self.foot_quat_w, self.contact, b.forces, b.points, self.alive, self.frame,
            self.proj_pos_w if self.options.compositions else None, b.counters,
        )  # fmt: skip


class UnifiedPlayer:
    """A policy of the unified family with its characters; the interface is `engine.players.Player`."""

    def __init__(self, policy: Policy, n: int, library: MotionLibrary, **options: Any) -> None:
        known = [f.name for f in dataclasses.fields(PlayerOptions)]
        unknown = [key for key in options if key not in known]
        if unknown:
            raise InputError(f"player: unknown option (found {unknown[0]}, expected one of {', '.join(known)})")
        meta = policy.metadata
        srb, mmik = controller_params(meta.controller, meta.method)
        self.options = PlayerOptions(**options)
        self.policy, self.n, self.library = policy, n, library
        self.characters = SrbCharacters(
            n, library, srb, mmik, meta.mass_kg, meta.inertia_b, meta.body_frame, self.options
        )
        self.action = np.zeros((n, ACTION_SIZE), np.float32)
        self._act12, self._command = np.zeros((n, 12)), np.zeros((n, 2, 9))
        self._class = np.zeros(n, np.int64)
        self._late: list[NDArray[np.float32]] = []
        self.reset(np.zeros(n, np.int64), np.zeros(n, np.int64))

    def reset(self, clips: Sequence[int] | NDArray[np.int64], frames: Sequence[int] | NDArray[np.int64]) -> None:
        clips, frames = np.asarray(clips, np.int64), np.asarray(frames, np.int64)
        lengths = self.library.length
        if clips.shape != (self.n,) or frames.shape != (self.n,):
            raise InputError(f"reset: clips and frames (found {clips.shape} and {frames.shape}, expected ({self.n},))")
        if clips.min() < 0 or clips.max() >= len(lengths):
            raise InputError(f"reset: clip index (found {clips.max()}, expected 0 to {len(lengths) - 1})")
        if frames.min() < 0 or np.any(frames >= lengths[clips]):
            raise InputError(
                f"reset: frame (found {frames.max()}, expected less than the clip's {lengths[clips].min()})"
            )
        self.characters.reset(np.arange(self.n), clips, frames)
        self._late.clear()

    def step(self, push_force_w: Array | None = None, push_torque_w: Array | None = None) -> Poses:
        chars = self.characters
        obs = chars.observe()
        if self.options.latency_frames:
            self._late.append(obs.copy())
            obs = self._late[0]
            if len(self._late) > self.options.latency_frames:
                self._late.pop(0)
        self.policy.act_into(self.action, obs)
        ground = self.options.terrain
        decode_action_into(
            self._act12, self._command, self._class, self.action, chars.batch.state, chars.body_frame,
            ground.shape_params, ground.heights, chars._small,
        )  # fmt: skip
        body = self.action[:, 30:165]
        chars.apply(self._act12, self._command, self._class, body, push_force_w, push_torque_w)
        return chars.poses()
