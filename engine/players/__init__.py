"""Playing a policy: one interface whatever the method; read this first.

    from engine import players
    from engine.motion.library import MotionLibrary

    library = MotionLibrary.load("data/library.npz")
    player = players.load("models/unified/seed0/policy.onnx", n=4, library=library)
    player.reset(clips=[0, 0, 2, 2], frames=[0, 10, 0, 10])
    for _ in range(300):
        poses = player.step()

A method is a file in this folder that holds a class with `reset` and `step` as in `Player`; evaluation, benchmarks, the
viewer and a user's own program see nothing else.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.motion.library import MotionLibrary
from engine.policy import Policy

Array = NDArray[np.float64]
_PLAYERS = {
    "unified": ("unified", "UnifiedPlayer"),
    "unified_paper": ("unified", "UnifiedPlayer"),
    "no_network": ("unified", "UnifiedPlayer"),
    "deepmimic": ("deepmimic", "DeepMimicPlayer"),
}


class Poses(NamedTuple):
    """One frame of ``n`` characters; arrays belong to the player and are overwritten by the next step.

    Attributes:
        body_pos_w: Body origins, world [m], (n, 15, 3). body_quat_w: Body rotations (n, 15, 4).
        com_pos_w: Simulated centre of mass, world [m], (n, 3). srb_quat_w: SRB orientation (n, 4).
        com_vel_w: [m/s], (n, 3).
        foot_pos_w: Simulated sole centres, left first [m], (n, 2, 3). foot_quat_w: (n, 2, 4).
        contact: Class 0 none, 1 left, 2 right, 3 both, (n,).
        forces_w: Contact forces, world [N], (n, 10, 3). force_points_w: Where they act [m], (n, 10, 3).
        alive: False once the character has fallen, (n,). It is simulated on.
        ref_frame: Row of the library that this pose should match, (n,).
        body_proj_pos_w: With ``compositions=True`` the same pose composed in the projected frame [m], (n, 15, 3).
        counters: Since the reset: failed QP solves, Newton iterations, solves (n, 3).
    """

    body_pos_w: Array
    body_quat_w: Array
    com_pos_w: Array
    srb_quat_w: Array
    com_vel_w: Array
    foot_pos_w: Array
    foot_quat_w: Array
    contact: NDArray[np.int64]
    forces_w: Array
    force_points_w: Array
    alive: NDArray[np.bool_]
    ref_frame: NDArray[np.int64]
    body_proj_pos_w: Array | None
    counters: NDArray[np.int64]


class Player(Protocol):
    """What every method's player offers."""

    n: int

    def reset(self, clips: Sequence[int] | NDArray[np.int64], frames: Sequence[int] | NDArray[np.int64]) -> None:
        """Put each character on its clip (index into the library) at a start frame within the clip."""
        ...

    def step(self, push_force_w: Array | None = None, push_torque_w: Array | None = None) -> Poses:
        """Advance 1/30 s; ``push_force_w`` (n, 3) [N] acts at the COM, ``push_torque_w`` (n, 3) [N m]."""
        ...


def load(path: str | os.PathLike[str], n: int, library: MotionLibrary, **options: Any) -> Player:
    """Open an exported policy with the player of its method.

    Args:
        path: An ONNX file made by ``python -m export``.
        n: Number of characters.
        library: Motions to follow.
        options: Of the method's player; see `engine.players.unified.PlayerOptions`.

    Raises:
        InputError: The file is not a policy, or no player knows its method.
    """
    policy = Policy.load(path)
    method = policy.metadata.method
    if method not in _PLAYERS:
        raise InputError.at(path, None, f"method: no player for it (found {method}, expected {', '.join(_PLAYERS)})")
    module, name = _PLAYERS[method]
    # by name, so that a method's stages do not depend on the code of the others
    return getattr(importlib.import_module(f"engine.players.{module}"), name)(policy, n, library, **options)
