"""Many humanoids that imitate one clip: starts on the reference, ends of episodes, phase, mirror, goal direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.humanoid.kinematics import lowest_points
from engine.humanoid.observe import mirror_action, mirror_observation, observe
from engine.humanoid.reference import PlacedReference, build_reference, quat_yaw, turned
from engine.humanoid.simulation import HumanoidBatch
from engine.motion.library import MotionLibrary
from engine.skeleton import BODY_NAMES
from train.checkpoint import restore_arrays
from train.config import TermWeights
from train.envs.imitation_reward import goal_reward, imitation_reward

Array = NDArray[np.float64]
#: Bodies that may touch the floor.
FEET = ("right_ankle", "left_ankle")


@dataclass(frozen=True)
class ImitationOptions:
    """How an episode goes.

    Attributes:
        rsi: Start at a random frame of the clip (reference-state initialisation); otherwise at its first.
        early_termination: A fall, or a body far from the reference, ends the episode; its reward is 0.
        fall_bodies: Bodies whose touching the floor is a fall.
        pose_limit_m: Largest distance of a body from the reference's; inf is off.
        mirroring: Symmetric clips are learnt by half rounds, the other half in the mirror.
        residual: Actions are added to the reference's servo targets; otherwise they are the targets.
        lead_s: How far the reference's targets are ahead. feedforward: Share of its own torques in them.
        episode_frames: Longest episode.
        version: Reward, ``paper`` or ``official``. weights: Of its terms. sharpness: Factor of its pose and velocity
            errors; 1 is the published reward. w_i: Of the imitation.
        w_g: Of the goal direction; 0 is no goal. goal_speed_m_s: Wanted speed. goal_turn_rad: Largest change of the
            direction. goal_frames: Frames between two changes.
    """

    rsi: bool
    early_termination: bool
    fall_bodies: tuple[str, ...]
    pose_limit_m: float
    mirroring: bool
    residual: bool
    lead_s: float
    feedforward: float
    episode_frames: int
    version: str
    weights: TermWeights
    sharpness: float
    w_i: float
    w_g: float
    goal_speed_m_s: float
    goal_turn_rad: float
    goal_frames: int


class HumanoidEnv:
    """``n`` characters on one clip; the reference is put back under a character at every round, as DeepMimic does.

    With a goal the reference follows the character's place and heading in every frame, so that the imitation says how
    to walk and the goal says where to.

    Attributes:
        batch: The simulation. cycle: The reference. frame: Frame of each character in the round (n,).
        age: Frames since the start of the episode (n,). yaw_rad, offset_m: Where the reference stands (n,), (n, 3).
        goal_yaw_rad: Wanted direction (n,), or None.
    """

    def __init__(
        self, n: int, library: MotionLibrary, clip: int | str, options: ImitationOptions, rng: np.random.Generator,
        threads: int,
    ) -> None:  # fmt: skip
        for name in options.fall_bodies:
            if name not in BODY_NAMES:
                raise InputError(f"fall_bodies: no such body (found {name}, expected of {', '.join(BODY_NAMES)})")
        self.n, self.options, self.rng = n, options, rng
        self.cycle = build_reference(library, clip, options.lead_s, options.feedforward)
        self.batch = HumanoidBatch(n, threads)
        self.frame, self.age = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.yaw_rad, self.offset_m = np.zeros(n), np.zeros((n, 3))
        self.goal_yaw_rad = np.zeros(n) if options.w_g > 0 else None
        self._fall = np.array([BODY_NAMES.index(name) for name in options.fall_bodies], np.int64)
        self.restart(np.arange(n))

    def restart(self, idx: NDArray[np.int64]) -> None:
        """Put characters ``idx`` on the reference, pose and velocity, where the clip has it."""
        if len(idx) == 0:
            return
        draw = self.rng.random(len(idx))  # drawn in any case, so that switching RSI off changes nothing else
        self.frame[idx] = (draw * len(self.cycle)).astype(np.int64) if self.options.rsi else 0
        self.age[idx], self.yaw_rad[idx], self.offset_m[idx] = 0, 0.0, 0.0
        self.batch.set_state(idx, self.cycle.qpos[self.frame[idx]], self.cycle.qvel[self.frame[idx]])
        if self.goal_yaw_rad is not None:
            self.goal_yaw_rad[idx] = self.cycle.yaw_rad[self.frame[idx]] + self._turns(len(idx))

    def observe(self) -> NDArray[np.float32]:
        """Observation rows (n, 120), with a goal (n, 122), of the mirror image in the second half of a round."""
        ref = self.reference()
        phase, mirrored = self.cycle.phase(self.frame, self.options.mirroring)
        obs = observe(
            self.batch.qpos, self.batch.qvel, self.batch.bodies, ref.qpos[:, :3], ref.yaw_rad, phase, self.goal_yaw_rad
        )
        obs[mirrored] = mirror_observation(obs[mirrored])
        return obs.astype(np.float32)

    def step(
        self, action: Array, push_force_w: Array | None = None
    ) -> tuple[Array, NDArray[np.bool_], NDArray[np.bool_]]:
        """Advance 1/30 s.

        Args:
            action: Exponential maps [rad] (n, 28), in the mirror where the observation was.
            push_force_w: Force at the centre of mass [N] (n, 3).

        Returns:
            Reward (n,), who fell (n,), whose time was up (n,). A warning of MuJoCo is a fall, whatever the options.
        """
        action = np.array(action, np.float64)
        _, mirrored = self.cycle.phase(self.frame, self.options.mirroring)
        action[mirrored] = mirror_action(action[mirrored])
        target = action + self.cycle.targets[self.frame] if self.options.residual else action
        self.batch.step(target, push_force_w)
        self.age += 1
        self._advance()
        ref = self.reference()
        fell = self.batch.failed.copy()
        if self.options.early_termination:
            fell |= self.fallen() | (self.distance_m(ref) > self.options.pose_limit_m)
        reward = np.where(fell, 0.0, self.reward(ref))
        return reward, fell, ~fell & (self.age >= self.options.episode_frames)

    def reward(self, ref: PlacedReference) -> Array:
        """``w^I r^I + w^G r^G`` (n,) of the present state."""
        o, b = self.options, self.batch
        reward = o.w_i * imitation_reward(o.version, o.weights, b.qpos, b.qvel, b.bodies, ref, o.sharpness)
        if self.goal_yaw_rad is not None:
            reward += o.w_g * goal_reward(b.bodies.com_vel_w, self.goal_yaw_rad, o.goal_speed_m_s)
        return reward

    def reference(self) -> PlacedReference:
        """The reference of the present frame where it stands."""
        return self.cycle.placed(self.frame, self.yaw_rad, self.offset_m)

    def fallen(self) -> NDArray[np.bool_]:
        """Whether the shape of a fall body is in the floor (n,)."""
        return (
            lowest_points(self.batch.bodies.body_pos_w, self.batch.bodies.body_quat_w, self._fall).min(
                axis=1, initial=np.inf
            )
            < 0.0
        )

    def distance_m(self, ref: PlacedReference) -> Array:
        """Largest distance of a body from the reference's [m] (n,)."""
        return np.linalg.norm(self.batch.bodies.body_pos_w - ref.body_pos_w, axis=2).max(axis=1)

    def _advance(self) -> None:
        """Go to the next frame; where a round begins, the reference is put back under the character."""
        self.frame += 1
        again = np.flatnonzero(self.frame >= len(self.cycle))
        self.frame[again] = 0
        self.offset_m[again] += turned(self.yaw_rad[again], np.tile(self.cycle.travel_m, (len(again), 1)))
        self.yaw_rad[again] += self.cycle.turn_rad
        if self.goal_yaw_rad is not None:
            again = np.arange(self.n)
            heading = quat_yaw(self.batch.bodies.body_quat_w[:, 0])
            self.yaw_rad[:] = heading - self.cycle.yaw_rad[self.frame]
            change = np.flatnonzero(self.age % self.options.goal_frames == 0)
            self.goal_yaw_rad[change] += self._turns(len(change))
        place = self.batch.bodies.body_pos_w[again, 0] - turned(
            self.yaw_rad[again], self.cycle.qpos[self.frame[again], :3]
        )
        self.offset_m[again, :2] = place[:, :2]

    def _turns(self, count: int) -> Array:
        return self.rng.uniform(-self.options.goal_turn_rad, self.options.goal_turn_rad, count)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """All that the next step depends on, for a checkpoint."""
        found: dict[str, NDArray[np.generic]] = {
            "qpos": self.batch.qpos, "qvel": self.batch.qvel, "frame": self.frame, "age": self.age,
            "yaw_rad": self.yaw_rad, "offset_m": self.offset_m,
        }  # fmt: skip
        if self.goal_yaw_rad is not None:
            found["goal_yaw_rad"] = self.goal_yaw_rad
        return found

    def restore(self, arrays: dict[str, NDArray[np.generic]]) -> None:
        """Put back what `arrays` gave."""
        restore_arrays(self.arrays(), arrays)
        self.batch.set_state(np.arange(self.n), self.batch.qpos.copy(), self.batch.qvel.copy())
