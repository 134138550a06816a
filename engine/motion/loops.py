"""Cutting, closing, repairing and repeating motions, so that an episode can run past the end of a clip.

A motion is repeated with *cycle transforms*: the turn about z and the travel in the plane that carry its first frame to
its last one, so that root travel and heading accumulate; height and tilt do not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from engine.motion.legs import LEGS, place_ankles
from engine.motion.retarget import FPS, CharacterMotion
from engine.rotation import (
    quat_align,
    quat_exp,
    quat_from_axis_angle,
    quat_inv,
    quat_log,
    quat_mul,
    quat_rotate,
    quat_slerp,
    quat_to_matrix,
    yaw_of,
)
from engine.skeleton import FOOT_BODIES, MIRROR_BODIES, forward_kinematics, mirror_pose

Array = NDArray[np.float64]
UP = np.array([0.0, 0.0, 1.0])
#: A jump is this many times larger than what the steps around it differ by.
JUMP_RATIO = 3.0
#: Feet slower than this stand [m/s].
STANDING_M_S = 0.4
#: Bodies on which the feet hang.
LOWER_BODIES = (0, *LEGS[0], *LEGS[1])


@dataclass(frozen=True)
class Cycle:
    """One round of a motion and the transform from a round to the next.

    Attributes:
        root_pos_w: (N, 3) [m].
        local_quat: (N, 15, 4).
        turn_rad: Turn about z from a round to the next.
        travel_m: Translation (3,), z 0: ``p_next = Rz(turn) p + travel``.
    """

    root_pos_w: Array
    local_quat: Array
    turn_rad: float
    travel_m: Array

    def __len__(self) -> int:
        return len(self.root_pos_w)


def cut(motion: CharacterMotion, from_s: float, to_s: float) -> CharacterMotion:
    """The part between two times of the source file [s, playing time]; ``to_s`` 0 is the end.

    A cut motion is no loop any more, unless the part is the whole.
    """
    first = max(0, round((from_s - motion.start_s) * FPS))
    last = len(motion) - 1 if to_s == 0 else min(len(motion) - 1, round((to_s - motion.start_s) * FPS) - 1)
    if first == 0 and last == len(motion) - 1:
        return motion
    part = slice(first, last + 1)
    return replace(
        motion,
        root_pos_w=motion.root_pos_w[part],
        local_quat=motion.local_quat[part],
        loop="none",
        start_s=motion.start_s + first / FPS,
    )


def repair_jumps(
    root_pos_w: Array, local_quat: Array, limit_deg: float, spread_s: float
) -> tuple[Array, list[tuple[int, int, float]]]:
    """Find rotations that jump within one frame and spread the jump over a few frames on either side.

    A joint jumps between frames t and t+1 where its turn differs from the mean of the turns before and after by more
    than ``limit_deg``, and by `JUMP_RATIO` times whatever the turns change among the steps around it: a fast but smooth
    movement speeds up and slows down over several frames, a jump does not. Where the root or a leg jumps, the ankles
    are mended too, on the side on which the foot moves, so that a standing foot stays where it stands.

    Args:
        root_pos_w: Root positions [m] (T, 3).
        local_quat: Local rotations (T, 15, 4).
        limit_deg: Smallest jump [deg].
        spread_s: Length on either side over which a jump is spread [s].

    Returns:
        Repaired rotations and the jumps as (frame, body, angle in degrees).
    """
    quat = quat_align(local_quat)
    n = len(quat)
    found: list[tuple[int, int, float]] = []
    if n < 7:
        return quat, found
    turn = quat_log(quat_mul(quat_inv(quat[:-1]), quat[1:]))  # (n-1, 15, 3), body axes
    uneven = turn[1:-1] - 0.5 * (turn[:-2] + turn[2:])  # of step t+1
    size = np.linalg.norm(uneven, axis=-1)
    change = np.linalg.norm(np.diff(turn, axis=0), axis=-1)
    around = np.linalg.norm(turn[2:] - turn[:-2], axis=-1)
    out = quat.copy()
    for k in range(1, len(size) - 1):  # step k + 1; steps k - 1 to k + 3 exist
        calm = np.maximum.reduce([around[k], change[k - 1], change[k + 2]])
        for body in np.flatnonzero((size[k] > np.radians(limit_deg)) & (size[k] > JUMP_RATIO * calm)):
            out[:, body] = _spread(out[:, body], k + 1, uneven[k, body], spread_s)
            found.append((k + 1, int(body), float(np.degrees(size[k, body]))))
    steps = sorted({step for step, body, _ in found if body in LOWER_BODIES})
    if steps:
        ankles = _ankles(root_pos_w, quat)
        move = np.diff(ankles, axis=0)
        wanted = ankles.copy()
        for step in steps:
            gap = move[step] - 0.5 * (move[step - 1] + move[step + 1])
            wanted += _mended(n, step, gap, move[step - 1], move[step + 1], spread_s)
        out, _ = place_ankles(root_pos_w, out, wanted)
    return quat_align(out), found


def _ankles(root_pos_w: Array, local_quat: Array) -> Array:
    """Ankle positions [m] (T, 2, 3), left first."""
    return forward_kinematics(root_pos_w, local_quat)[0][:, list(FOOT_BODIES)]


def _mended(n: int, step: int, gap: Array, move_before: Array, move_after: Array, spread_s: float) -> Array:
    """Shifts (n, 2, 3) that close an ankle ``gap`` (2, 3) between frames step and step + 1, where the foot moves."""
    before, after = np.linalg.norm(move_before, axis=-1) + 1e-6, np.linalg.norm(move_after, axis=-1) + 1e-6
    share = (before / (before + after))[:, None]
    t = np.arange(n)
    fade_in = _fade((step - t) / FPS, spread_s) * (t <= step)
    fade_out = _fade((t - step - 1) / FPS, spread_s) * (t > step)
    return fade_in[:, None, None] * share * gap - fade_out[:, None, None] * (1 - share) * gap


def _spread(quat: Array, step: int, jump: Array, spread_s: float) -> Array:
    """Take the rotation ``jump`` (3,) between frames ``step`` and ``step + 1`` of (T, 4) up on both sides."""
    t = np.arange(len(quat))
    before = 0.5 * _fade((step - t) / FPS, spread_s) * (t <= step)
    after = -0.5 * _fade((t - step - 1) / FPS, spread_s) * (t > step)
    return quat_mul(quat, quat_exp((before + after)[:, None] * jump))


def _fade(distance_s: Array, spread_s: float) -> Array:
    """1 at distance 0, smoothly 0 from ``spread_s`` on."""
    x = np.clip(distance_s / spread_s, 0.0, 1.0)
    return 1.0 - x * x * (3.0 - 2.0 * x)


def close_cycle(motion: CharacterMotion, blend_s: float, spread_s: float) -> Cycle:
    """Make one round of a motion that continues smoothly into the next.

    A ``wrap`` motion keeps its length; what its last frame differs from its first is spread over ``spread_s`` on either
    side of the seam. A ``mirror`` motion is followed by its mirror image, and both seams are closed. Any other motion
    is blended from its end into its start over ``blend_s``, by which the round is shorter.
    """
    pos, quat = motion.root_pos_w, quat_align(motion.local_quat)
    if motion.loop != "none":
        return _close_seam(pos, quat, spread_s, mirrored=motion.loop == "mirror")
    return _blend_ends(pos, quat, min(round(blend_s * FPS), max(1, len(pos) // 3)))


def unroll(cycle: Cycle, min_frames: int) -> tuple[Array, Array]:
    """Repeat a cycle until it has ``min_frames``: whole rounds; root positions (F, 3), local rotations (F, 15, 4)."""
    rounds = max(1, -(-min_frames // len(cycle)))
    pos, quat = [cycle.root_pos_w], [cycle.local_quat]
    turn = quat_from_axis_angle(UP, cycle.turn_rad)
    for _ in range(rounds - 1):
        pos.append(quat_rotate(turn, pos[-1]) + cycle.travel_m)
        nxt = quat[-1].copy()
        nxt[:, 0] = quat_mul(turn, nxt[:, 0])
        quat.append(nxt)
    return np.concatenate(pos), quat_align(np.concatenate(quat))


def _heading(root_quat: Array) -> float:
    return float(yaw_of(quat_to_matrix(root_quat)))


def _carry(pos_a: Array, quat_a: Array, pos_b: Array, quat_b: Array) -> tuple[float, Array]:
    """Turn about z and planar travel (3,) that carry root a to root b."""
    turn = _heading(quat_b) - _heading(quat_a)
    turn = float(np.arctan2(np.sin(turn), np.cos(turn)))
    travel = pos_b - quat_rotate(quat_from_axis_angle(UP, turn), pos_a)
    return turn, travel * np.array([1.0, 1.0, 0.0])


def _moved(pos: Array, quat: Array, turn: float, travel: Array) -> tuple[Array, Array]:
    q = quat_from_axis_angle(UP, turn)
    out = quat.copy()
    out[:, 0] = quat_mul(q, quat[:, 0])
    return quat_rotate(q, pos) + travel, out


def _close_seam(pos: Array, quat: Array, spread_s: float, mirrored: bool) -> Cycle:
    """Close a motion whose last frame is the instant of its first, or of its first mirrored.

    With G the transform from a part to the next, ``G(x) = Rz(turn) S x + travel`` (S the mirror or the identity),
    the gap between the last frame and G(first) is spread over both sides; the after side is taken back by G^-1.
    """
    n = len(pos) - 1
    t = np.arange(n)
    start_pos, start_quat = mirror_pose(pos[:2], quat[:2]) if mirrored else (pos[:2], quat[:2])
    ankles, start_ankles = _ankles(pos, quat), _ankles(start_pos, start_quat)
    speed = np.linalg.norm(np.concatenate([np.diff(ankles[:2], axis=0), np.diff(ankles[-2:], axis=0)]), axis=-1) * FPS
    stands = bool(np.all(speed < STANDING_M_S))
    # a character that stands at both ends goes on where its feet are, any other where its root is
    ends = (start_ankles[0].mean(axis=0), ankles[-1].mean(axis=0)) if stands else (start_pos[0], pos[-1])
    turn, travel = _carry(ends[0], start_quat[0, 0], ends[1], quat[-1, 0])
    about_z = quat_from_axis_angle(UP, turn)
    next_pos, next_quat = _moved(start_pos, start_quat, turn, travel)

    def back(vectors: Array) -> Array:
        vectors = quat_rotate(quat_inv(about_z), vectors)
        return vectors * np.array([1.0, -1.0, 1.0]) if mirrored else vectors

    gap = quat_log(quat_mul(quat_inv(quat[-1]), next_quat[0]))  # (15, 3), axes of the last frame
    gap_back = gap[MIRROR_BODIES] * np.array([-1.0, 1.0, -1.0]) if mirrored else gap
    spread = min(spread_s, 0.5 * n / FPS)
    before, after = 0.5 * _fade((n - t) / FPS, spread), 0.5 * _fade(t / FPS, spread)
    out = quat_mul(quat[:-1], quat_exp(before[:, None, None] * gap - after[:, None, None] * gap_back))
    wide = min(2.0 * spread_s if stands else spread_s, 0.5 * n / FPS)
    before, after = 0.5 * _fade((n - t) / FPS, wide), 0.5 * _fade(t / FPS, wide)
    shift = next_pos[0] - pos[-1]
    out_pos = pos[:-1] + before[:, None] * shift - after[:, None] * back(shift)

    # the feet: their gap at the seam is closed where they move
    next_ankles = _ankles(next_pos, next_quat)
    shifts = _mended(
        2 * n, n - 1, next_ankles[0] - ankles[-1], ankles[-1] - ankles[-2], next_ankles[1] - next_ankles[0], spread
    )
    later = back(shifts[n:])
    wanted = ankles[:-1] + shifts[:n] + (later[:, ::-1] if mirrored else later)
    out, _ = place_ankles(out_pos, out, wanted)
    if not mirrored:
        return Cycle(out_pos, out, turn, travel)
    second_pos, second_quat = _moved(*mirror_pose(out_pos, out), turn, travel)
    both = quat_align(np.concatenate([out, second_quat]))
    return Cycle(
        np.concatenate([out_pos, second_pos]),
        both,
        0.0,
        quat_rotate(about_z, travel * np.array([1.0, -1.0, 1.0])) + travel,
    )


def _blend_ends(pos: Array, quat: Array, n_blend: int) -> Cycle:
    n = len(pos) - n_blend
    middle = n_blend // 2
    turn, travel = _carry(pos[middle], quat[middle, 0], pos[n + middle], quat[n + middle, 0])
    back = quat_from_axis_angle(UP, -turn)
    end_pos, end_quat = _moved(pos[n:], quat[n:], -turn, -quat_rotate(back, travel))
    x = (np.arange(n_blend) + 0.5) / n_blend
    w = x * x * (3.0 - 2.0 * x)
    out_pos, out_quat = pos[:n].copy(), quat[:n].copy()
    out_pos[:n_blend] = (1 - w)[:, None] * end_pos + w[:, None] * pos[:n_blend]
    out_quat[:n_blend] = quat_slerp(end_quat, quat[:n_blend], w[:, None])
    return Cycle(out_pos, out_quat, turn, travel)
