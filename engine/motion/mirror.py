"""The left-right mirror image of motions, and motions that consist of half a cycle and its mirror image."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.skeleton import mirror_pose

if TYPE_CHECKING:
    from engine.motion.retarget import CharacterMotion

Array = NDArray[np.float64]
#: Two halves of a round that mirror each other to this are half a cycle and its mirror image [deg].
MIRROR_DEG = 1.0


def mirror(motion: CharacterMotion) -> CharacterMotion:
    """The left-right mirrored motion, named ``<name>_mirror``; twice is the identity up to the name."""
    pos, quat = mirror_pose(motion.root_pos_w, motion.local_quat)
    return replace(motion, name=f"{motion.name}_mirror", root_pos_w=pos, local_quat=quat)


def mirrored_half(root_pos_w: Array, local_quat: Array) -> int:
    """Frames of half a round if the second half mirrors the first (joints within `MIRROR_DEG` on average), else 0."""
    n = len(root_pos_w) - 1
    if n < 8 or n % 2:
        return 0
    half = n // 2
    _, mirror_quat = mirror_pose(root_pos_w[:half], local_quat[:half])
    second = local_quat[half:n]
    dots = np.abs(np.sum(mirror_quat[:, 1:] * second[:, 1:], axis=-1)).clip(0, 1)
    return half if np.degrees(2 * np.arccos(dots)).mean() < MIRROR_DEG else 0
