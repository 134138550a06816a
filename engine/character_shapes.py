"""The visible shapes of the 15-body character, as primitives, meshes and colours.

Every picture and export (MuJoCo, software drawing, glTF, browser page) takes its shapes from here. The first 15 are
the bodies' own shapes of `engine.skeleton`, the ones that have mass and collide, so a foot that sinks into the
ground in a picture sinks into it in the simulation; the rest only fill the gaps between them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.rotation import quat_rotate
from engine.skeleton import BODY_NAMES, COM_OFFSETS, OFFSETS, SHAPES

Array = NDArray[np.float64]

# Left, right and middle differ in colour so that swapped sides are seen at once; RGB in [0, 1].
RIGHT_RGB = (0.20, 0.47, 0.78)
LEFT_RGB = (0.90, 0.48, 0.16)
MIDDLE_RGB = (0.86, 0.84, 0.80)
GHOST_RGB = (0.16, 0.62, 0.42)
FORCE_RGB = (0.93, 0.76, 0.10)
PUSH_RGB = (0.84, 0.12, 0.18)
_UPRIGHT = np.array([1.0, 0.0, 0.0, 0.0])


class Shape(NamedTuple):
    """One primitive fixed to a body.

    Attributes:
        body: Index of the body it moves with.
        kind: ``"sphere"``, ``"capsule"`` (along local z) or ``"box"``.
        size: MuJoCo's half sizes [m]: (radius, -, -), (radius, half length, -) or (half x, half y, half z).
        pos_b: Centre in body axes [m], shape (3,).
        quat_b: Orientation in the body, (w, x, y, z), shape (4,).
    """

    body: int
    kind: str
    size: Array
    pos_b: Array
    quat_b: Array


def character_shapes() -> tuple[Shape, ...]:
    """The colliding shape of each body in body order, then the trim that joins them for the eye."""
    own = [
        Shape(body, kind, np.array([*size, 0.0, 0.0][:3]), COM_OFFSETS[body], _UPRIGHT)
        for body, (kind, size) in enumerate(SHAPES)
    ]
    return tuple(own + _trim())


def _trim() -> list[Shape]:
    """Hips, waist, shoulders, neck and joint balls; inside the body's outline, never at a foot."""
    at = BODY_NAMES.index
    shoulder, elbow = OFFSETS[at("left_shoulder")], OFFSETS[at("left_elbow")]
    hip, knee = OFFSETS[at("left_hip")], OFFSETS[at("left_knee")]
    flip = np.array([1.0, -1.0, 1.0])
    shapes = [
        _rod(at("root"), hip, hip * flip, 0.07),
        _rod(at("root"), np.array([0.0, 0.0, 0.05]), OFFSETS[at("chest")], 0.075),
        _rod(at("chest"), np.array([0.0, -0.05, 0.1]), np.array([0.0, 0.05, 0.1]), 0.1),
        _rod(at("chest"), shoulder * [0.5, 1.0, 0.98], shoulder * flip * [0.5, 1.0, 0.98], 0.05),
        _rod(at("neck"), np.array([0.0, 0.0, -0.01]), np.array([0.0, 0.0, 0.1]), 0.045),
    ]
    for side in ("right", "left"):
        shapes += [
            _rod(at(f"{side}_shoulder"), np.zeros(3), elbow * 0.35, 0.048),
            _rod(at(f"{side}_elbow"), np.zeros(3), np.array([0.0, 0.0, -0.06]), 0.041),
            _rod(at(f"{side}_elbow"), np.array([0.0, 0.0, -0.18]), OFFSETS[at(f"{side}_wrist")], 0.03),
            _rod(at(f"{side}_hip"), knee * 0.12, knee, 0.052),
            _rod(at(f"{side}_knee"), np.array([0.0, 0.0, -0.3]), OFFSETS[at(f"{side}_ankle")], 0.036),
        ]
    return shapes


def _rod(body: int, start_b: Array, end_b: Array, radius: float) -> Shape:
    """Capsule between two points of a body."""
    along = np.asarray(end_b, np.float64) - start_b
    length = float(np.linalg.norm(along))
    quat = np.array([length + along[2], -along[1], along[0], 0.0])  # shortest turn from z to the rod
    norm = np.linalg.norm(quat)
    quat = quat / norm if norm > 1e-9 else np.array([0.0, 1.0, 0.0, 0.0])
    return Shape(body, "capsule", np.array([radius, length / 2, 0.0]), np.asarray(start_b + along / 2), quat)


def body_rgb(body: int) -> tuple[float, float, float]:
    """Colour of a body: blue right, orange left, pale in the middle."""
    name = BODY_NAMES[body]
    if name.startswith("right"):
        return RIGHT_RGB
    return LEFT_RGB if name.startswith("left") else MIDDLE_RGB


def shape_mesh(shape: Shape, segments: int = 16) -> tuple[Array, Array, NDArray[np.int64]]:
    """Triangle mesh of a shape in body axes.

    Args:
        shape: The primitive.
        segments: Edges around a sphere or capsule; half as many from pole to pole.

    Returns:
        Vertices [m] (V, 3), unit normals (V, 3) and counter-clockwise faces (F, 3).
    """
    if shape.kind == "box":
        vertices, normals, faces = _box_mesh(shape.size)
    else:
        half = float(shape.size[1]) if shape.kind == "capsule" else 0.0
        vertices, normals, faces = _capsule_mesh(float(shape.size[0]), half, segments)
    return shape.pos_b + quat_rotate(shape.quat_b, vertices), quat_rotate(shape.quat_b, normals), faces


def _box_mesh(half: Array) -> tuple[Array, Array, NDArray[np.int64]]:
    vertices, normals, faces = [], [], []
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        for sign in (1.0, -1.0):
            start = len(vertices)
            for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1)):
                corner = np.zeros(3)
                corner[axis], corner[u], corner[v] = sign * half[axis], a * half[u], b * half[v]
                vertices.append(corner)
                normals.append(np.eye(3)[axis] * sign)
            quad = [[0, 1, 2], [0, 2, 3]] if sign > 0 else [[0, 2, 1], [0, 3, 2]]
            faces += [[start + i for i in triangle] for triangle in quad]
    return np.array(vertices), np.array(normals), np.array(faces, np.int64)


def _capsule_mesh(radius: float, half_length: float, segments: int) -> tuple[Array, Array, NDArray[np.int64]]:
    rings = max(2, segments // 4)
    upper = np.linspace(np.pi / 2, 0.0, rings + 1)
    latitudes = (
        np.concatenate([upper, -upper[::-1]]) if half_length > 0 else np.linspace(np.pi / 2, -np.pi / 2, 2 * rings + 1)
    )
    lifts = np.where(np.arange(len(latitudes)) < len(latitudes) / 2, half_length, -half_length)
    longitudes = np.arange(segments + 1) * (2 * np.pi / segments)
    cos_lat, sin_lat = np.cos(latitudes)[:, None], np.sin(latitudes)[:, None]
    normals = np.stack(
        [cos_lat * np.cos(longitudes), cos_lat * np.sin(longitudes), sin_lat + 0.0 * longitudes], axis=-1
    )
    vertices = normals * radius
    vertices[..., 2] += lifts[:, None]
    width = segments + 1
    faces = []
    for row in range(len(latitudes) - 1):
        for column in range(segments):
            a, b = row * width + column, (row + 1) * width + column
            faces += [[a, b, a + 1], [a + 1, b, b + 1]]
    return (
        vertices.reshape(-1, 3).astype(np.float64),
        normals.reshape(-1, 3).astype(np.float64),
        np.array(faces, np.int64),
    )
