"""One cycle of a clip as the humanoid's reference: generalised coordinates, world states and servo targets a frame.

The cycle continues for ever: a round begins where the one before ended, turned by ``turn_rad`` and moved by
``travel_m``. Where a reference stands in the world (``yaw_rad``, ``offset_m``) is kept for each character, so that it
can be put back under the character when a round begins, as DeepMimic does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import mujoco
import numpy as np
from numpy.typing import NDArray

from engine import rotation
from engine.errors import InputError
from engine.humanoid.inverse import joint_torques
from engine.humanoid.model import load_humanoid, qpos_from_pose
from engine.humanoid.simulation import ARMATURE_KG_M2, BodyStates, joint_targets
from engine.motion.library import MotionLibrary
from engine.motion.mirror import mirrored_half
from engine.motion.retarget import FPS

Array = NDArray[np.float64]
UP = np.array([0.0, 0.0, 1.0])


class PlacedReference(NamedTuple):
    """The reference of ``n`` characters at one frame each, in the world.

    Attributes:
        qpos: Generalised positions (n, 43). qvel: Velocities (n, 34), the linear one in world axes.
        body_pos_w: Body origins [m] (n, 15, 3). root_spin_w: Angular velocity of the root [rad/s] (n, 3).
        com_pos_w: Centre of mass [m] (n, 3). com_vel_w: Its velocity [m/s] (n, 3). yaw_rad: Heading of the root (n,).
    """

    qpos: Array
    qvel: Array
    body_pos_w: Array
    root_spin_w: Array
    com_pos_w: Array
    com_vel_w: Array
    yaw_rad: Array


@dataclass(frozen=True)
class ReferenceCycle:
    """One round of a clip, P frames at 30 Hz, as the library has it in the world.

    Attributes:
        clip: Index in the library. rows: The library's rows (P,).
        qpos: Generalised positions (P, 43). qvel: Velocities, central differences over two frames (P, 34).
        bodies: World states of the bodies; its arrays have P rows.
        targets: Servo targets (P, 28) [rad]: the pose ``lead_s`` after the frame, and the torque that the motion takes
            over the servo's gain.
        yaw_rad: Heading of the root (P,).
        turn_rad: Turn about z from a round to the next. travel_m: Translation (3,), z 0: ``x' = Rz(turn) x + travel``.
        half: Frames after which the round is its own mirror image, 0 for an asymmetric clip.
    """

    clip: int
    rows: NDArray[np.int64]
    qpos: Array
    qvel: Array
    bodies: BodyStates
    targets: Array
    yaw_rad: Array
    turn_rad: float
    travel_m: Array
    half: int

    def __len__(self) -> int:
        return len(self.rows)

    def placed(self, frame: NDArray[np.int64], yaw_rad: Array, offset_m: Array) -> PlacedReference:
        """The reference at frames (n,) in [0, P), turned about z by ``yaw_rad`` (n,), moved by ``offset_m`` (n, 3)."""
        turn = rotation.quat_from_axis_angle(UP, yaw_rad)
        qpos, qvel = self.qpos[frame], self.qvel[frame]
        qpos[:, :3] = turned(yaw_rad, qpos[:, :3]) + offset_m
        qpos[:, 3:7] = rotation.quat_mul(turn, qpos[:, 3:7])
        qvel[:, :3] = turned(yaw_rad, qvel[:, :3])
        return PlacedReference(
            qpos,
            qvel,
            turned(yaw_rad[:, None], self.bodies.body_pos_w[frame]) + offset_m[:, None],
            turned(yaw_rad, self.bodies.body_spin_w[frame, 0]),
            turned(yaw_rad, self.bodies.com_pos_w[frame]) + offset_m,
            turned(yaw_rad, self.bodies.com_vel_w[frame]),
            self.yaw_rad[frame] + yaw_rad,
        )

    def phase(self, frame: NDArray[np.int64], mirroring: bool) -> tuple[Array, NDArray[np.bool_]]:
        """Phase in [0, 1) (n,) and whether the character is seen in the mirror (n,).

        With ``mirroring`` a symmetric clip's phase runs over half a round, and the second half is seen mirrored.
        """
        if not mirroring or not self.half:
            return frame / len(self), np.zeros(len(frame), bool)
        return (frame % self.half) / self.half, frame >= self.half


def build_reference(library: MotionLibrary, clip: int | str, lead_s: float, feedforward: float) -> ReferenceCycle:
    """Make the cycle of a library's clip.

    Args:
        library: The motions; a round is ``library.period`` frames.
        clip: Index or name.
        lead_s: The servos lag behind their target by kd / kp = 0.1 s; targets are this much ahead of the frame.
        feedforward: Share of the motion's own torques (`engine.humanoid.inverse`) in the targets.

    Raises:
        InputError: The library has no such clip.
    """
    if isinstance(clip, str) and clip not in library.names:
        raise InputError(f"clip: not in the library (found {clip}, expected one of {', '.join(library.names)})")
    index = library.names.index(clip) if isinstance(clip, str) else clip
    place, period = library.frames(index), int(library.period[index])
    # the second round, where there are three: its neighbours belong to the same motion
    first = place.start + (period if library.length[index] >= 3 * period else 0)
    rows = first + np.arange(period)
    model = load_humanoid(floor=False)
    model.dof_armature[6:] = ARMATURE_KG_M2
    qpos = qpos_from_pose(model, library.root_pos_w[rows], library.local_quat[rows])
    around = np.clip(np.arange(first - 1, first + period + 1), place.start, place.stop - 1)
    slopes = _velocities(model, library, around, place)
    qvel, qacc = slopes[1:-1].copy(), (slopes[2:] - slopes[:-2]) * (FPS / 2.0)
    bodies = BodyStates(period)
    bodies.update(qpos, qvel)
    ahead = np.arange(period) + lead_s * FPS
    low = np.floor(ahead).astype(np.int64)
    local = library.local_quat[rows]
    targets = joint_targets(rotation.quat_slerp(local[low % period], local[(low + 1) % period], (ahead - low)[:, None]))
    torque, _ = joint_torques(model, qpos, qvel, qacc, library.contact[rows])
    targets += feedforward * torque / model.actuator_gainprm[:, 0]
    yaw = np.unwrap(quat_yaw(qpos[:, 3:7]))
    turn, travel, half = 0.0, np.zeros(3), 0
    if first + period < place.stop:
        again = slice(first, first + period + 1)
        half = mirrored_half(library.root_pos_w[again], library.local_quat[again])
        turn = float(quat_yaw(library.local_quat[first + period, 0]) - quat_yaw(library.local_quat[first, 0]))
        turn = float(np.arctan2(np.sin(turn), np.cos(turn)))
        travel = library.root_pos_w[first + period] - turned(np.float64(turn), library.root_pos_w[first])
        travel[2] = 0.0
    return ReferenceCycle(index, rows, qpos, qvel, bodies, targets, yaw, turn, travel, half)


def _velocities(model: mujoco.MjModel, library: MotionLibrary, rows: NDArray[np.int64], place: slice) -> Array:
    """Central differences over two frames at rows of a clip, one-sided at its ends, (len(rows), nv)."""
    before, after = np.maximum(rows - 1, place.start), np.minimum(rows + 1, place.stop - 1)
    ends = [qpos_from_pose(model, library.root_pos_w[r], library.local_quat[r]) for r in (before, after)]
    out = np.zeros((len(rows), model.nv))
    for t in range(len(rows)):
        mujoco.mj_differentiatePos(model, out[t], (after[t] - before[t]) / FPS, ends[0][t], ends[1][t])
    return out


def quat_yaw(quat: Array) -> Array:
    """Heading [rad] (...) of the x axis of rotations (..., 4)."""
    w, x, y, z = np.moveaxis(quat, -1, 0)
    return np.arctan2(2.0 * (x * y + w * z), 1.0 - 2.0 * (y * y + z * z))


def turned(yaw_rad: Array | np.float64, vectors: Array) -> Array:
    """Vectors (..., 3) turned about z by ``yaw_rad`` (...)."""
    c, s = np.cos(yaw_rad), np.sin(yaw_rad)
    x, y = vectors[..., 0], vectors[..., 1]
    return np.stack([c * x - s * y, s * x + c * y, vectors[..., 2]], axis=-1)
