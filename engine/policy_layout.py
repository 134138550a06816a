"""Observation and action of a policy as named pieces with size, unit and frame.

The pieces stand in a policy file's metadata and say what every number of a row means; the layouts are fixed here, and a
file that says otherwise is refused. Frames: ``srb`` the simulated rigid body, ``ff`` its
forward-facing frame (yaw only, origin at the centre of mass), ``proj`` the same axes on the ground below it, ``ref_ff``
and ``ref_proj`` those of the reference's own body at the next frame.

Source: specification of the single-rigid-body methods, sections 1.4 (state, 340) and 1.5 (action, 169).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BODY_WIDTH = 9
"""Numbers a body: position [m] (3), then the rotation's first two columns (6)."""


class Piece(NamedTuple):
    """One named run of numbers in an observation or action row."""

    name: str
    size: int
    unit: str
    frame: str

    @property
    def per_body(self) -> bool:
        """Whether the piece is body-major, ``[pos3, rot6]`` a body, in the order of ``body_names``."""
        return self.name.endswith("bodies")


def _state(prefix: str, n_bodies: int) -> tuple[Piece, ...]:
    proj, ff = ("ref_proj", "ref_ff") if prefix else ("proj", "ff")
    return (
        Piece(f"{prefix}com_height", 1, "m", proj),
        Piece(f"{prefix}srb_rot6", 6, "1", proj),
        Piece(f"{prefix}com_vel", 3, "m/s", proj),
        Piece(f"{prefix}ang_vel", 3, "rad/s", proj),
        Piece(f"{prefix}left_foot", BODY_WIDTH, "m, rot6", ff),
        Piece(f"{prefix}right_foot", BODY_WIDTH, "m, rot6", ff),
        Piece(f"{prefix}contact", 4, "one-hot none/left/right/both", "-"),
        Piece(f"{prefix}bodies", BODY_WIDTH * n_bodies, "m, rot6", proj),
    )


def unified_observation(n_bodies: int = 15) -> tuple[Piece, ...]:
    """Return the 340 observations of the unified family: state at t, then the reference at t + 1."""
    return _state("", n_bodies) + _state("ref_", n_bodies)


def unified_action(body_frame: str, n_bodies: int = 15) -> tuple[Piece, ...]:
    """Return the 169 actions of the unified family; the bodies stand in ``body_frame`` (``srb`` or ``proj``)."""
    return (
        Piece("com_vel", 3, "m/s", "srb"),
        Piece("ang_vel", 3, "rad/s", "srb"),
        Piece("com_delta", 3, "m", "srb"),
        Piece("rot_delta", 3, "rad", "srb"),
        Piece("left_foot_residual", BODY_WIDTH, "m, rot6", "ff"),
        Piece("right_foot_residual", BODY_WIDTH, "m, rot6", "ff"),
        Piece("bodies", BODY_WIDTH * n_bodies, "m, rot6", body_frame),
        Piece("contact_logits", 4, "logit none/left/right/both", "-"),
    )


HARMONICS = 4
"""Of the phase: one alone leaves it to the network to tell neighbouring frames of a fast motion apart."""


def humanoid_observation(goal: bool = False, n_balls: int = 8, n_hinges: int = 4) -> tuple[Piece, ...]:
    """Return the 120 observations of the MuJoCo humanoid, all in its heading frame; a goal direction adds 2.

    The heading frame stands at the root's ground point, x along the root's x axis in the plane. Joints stand in the
    order of the bodies, ball joints before hinges.
    """
    pieces = (
        Piece("root_height", 1, "m", "heading"),
        Piece("root_rot6", 6, "1", "heading"),
        Piece("heading_error", 2, "sin, cos of heading minus the reference's", "-"),
        Piece("root_drift", 2, "m, to the reference's root", "heading"),
        Piece("root_vel", 3, "m/s", "heading"),
        Piece("root_spin", 3, "rad/s", "heading"),
        Piece("joint_rot6", 6 * n_balls, "1, a ball joint", "parent"),
        Piece("hinge_angle", n_hinges, "rad", "-"),
        Piece("joint_vel", 3 * n_balls + n_hinges, "rad/s, in the order of the action", "body"),
        Piece("key_positions", 3 * 5, "m, head, wrists, ankles from the root", "heading"),
        Piece("phase", 2 * HARMONICS, f"sin, cos of 2 pi phase, then of 2 to {HARMONICS} times that", "-"),
    )
    return (*pieces, Piece("goal_direction", 2, "1", "heading")) if goal else pieces


def humanoid_action(n_balls: int = 8, n_hinges: int = 4) -> tuple[Piece, ...]:
    """Return the 28 actions of the MuJoCo humanoid: servo targets, or what is added to the reference's."""
    return (Piece("servo_target", 3 * n_balls + n_hinges, "rad, exponential map", "parent"),)


def width(pieces: tuple[Piece, ...]) -> int:
    """Return the numbers a row has."""
    return sum(piece.size for piece in pieces)


def slices(pieces: tuple[Piece, ...]) -> dict[str, slice]:
    """Return where each piece stands in a row, by name."""
    ends = np.cumsum([piece.size for piece in pieces])
    return {piece.name: slice(int(end) - piece.size, int(end)) for piece, end in zip(pieces, ends, strict=True)}


def rotation_columns(pieces: tuple[Piece, ...]) -> np.ndarray:
    """Return the columns of every 6-D rotation in a row, shape (n_rotations, 6)."""
    blocks = []
    for piece, place in zip(pieces, slices(pieces).values(), strict=True):
        if "rot6" in piece.unit or piece.name.endswith("rot6"):
            step = BODY_WIDTH if piece.size % BODY_WIDTH == 0 else 6
            blocks.append(np.arange(place.start, place.stop).reshape(-1, step)[:, -6:])
    return np.concatenate(blocks) if blocks else np.zeros((0, 6), dtype=np.int64)


def body_gather(pieces: tuple[Piece, ...], order: np.ndarray) -> np.ndarray:
    """Return the columns that bring the bodies of a row into another order.

    Args:
        pieces: The row's layout.
        order: Body of the given row that stands in each place of the new row, shape (n_bodies,).

    Returns:
        Column indices, shape (width,): ``new_row = row[gather]``.
    """
    columns = np.arange(width(pieces))
    for piece, place in zip(pieces, slices(pieces).values(), strict=True):
        if piece.per_body:
            columns[place] = columns[place].reshape(len(order), -1)[order].ravel()
    return columns
