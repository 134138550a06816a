"""Character poses -> one self-contained binary glTF 2.0 file (.glb) with a skinned, animated character.

15 joints (an armature in Blender, a skeleton in Unity, Unreal or three.js), one mesh of the character's shapes bound
rigidly to them, one animation. Metres, Y up, the character faces +Z at heading 0, as glTF asks for.
"""

from __future__ import annotations

import json
import os
import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.atomic import write_atomic
from engine.character_shapes import body_rgb, character_shapes, shape_mesh
from engine.rotation import quat_align, quat_inv, quat_mul, quat_rotate
from engine.skeleton import BODY_NAMES, PARENTS, local_from_world

Array = NDArray[np.float64]

_FLOAT, _UBYTE, _USHORT = 5126, 5121, 5123
_ARRAY_BUFFER, _ELEMENT_BUFFER = 34962, 34963
# Rotation from our axes (x forward, y left, z up) to glTF's (z forward, x left, y up): (x, y, z) -> (y, z, x).
_TO_GLTF = np.array([-0.5, 0.5, 0.5, 0.5])


def write_glb(
    path: str | os.PathLike[str], body_pos_w: Array, body_quat_w: Array, fps: float = 30.0, name: str = "motion"
) -> None:
    """Write poses as ``.glb``; a temporary file takes the name once it is complete.

    Where bodies are not joined exactly (a raw network pose before MMIK), their translations are animated too, not only
    the root's, so the file shows what was simulated.

    Args:
        path: The ``.glb`` file.
        body_pos_w: Body origins [m], shape (T, 15, 3).
        body_quat_w: Body orientations (w, x, y, z), shape (T, 15, 4).
        fps: Frames a second.
        name: Name of the animation.
    """
    write_atomic(path, glb_bytes(body_pos_w, body_quat_w, fps, name))


def glb_bytes(body_pos_w: Array, body_quat_w: Array, fps: float = 30.0, name: str = "motion") -> bytes:
    """The ``.glb`` file as bytes; arguments as `write_glb`."""
    buffer = _Buffer()
    local_pos, local_quat = _local_transforms(np.asarray(body_pos_w, np.float64), np.asarray(body_quat_w, np.float64))
    nodes: list[dict[str, Any]] = []
    for body, body_name in enumerate(BODY_NAMES):
        node: dict[str, Any] = {
            "name": body_name,
            "translation": local_pos[0, body].tolist(),
            "rotation": _xyzw(local_quat[0, body]).tolist(),
        }
        children = [c for c, parent in enumerate(PARENTS) if parent == body]
        if children:
            node["children"] = children
        nodes.append(node)
    nodes.append({"name": "character", "mesh": 0, "skin": 0})
    rest_pos = _rest_positions(local_pos[0])
    document = {
        "asset": {"version": "2.0", "generator": "gaitforge"},
        "scene": 0,
        "scenes": [{"name": name, "nodes": [0, len(BODY_NAMES)]}],
        "nodes": nodes,
        "meshes": [{"name": "character", "primitives": [_mesh(buffer, rest_pos)]}],
        "materials": [
            {
                "name": "body",
                "pbrMetallicRoughness": {
                    "baseColorFactor": [1, 1, 1, 1],
                    "metallicFactor": 0.0,
                    "roughnessFactor": 0.7,
                },
            }
        ],
        "skins": [
            {
                "joints": list(range(len(BODY_NAMES))),
                "skeleton": 0,
                "inverseBindMatrices": buffer.add(_inverse_bind(rest_pos), "MAT4", _FLOAT),
            }
        ],
        "animations": [_animation(buffer, local_pos, local_quat, fps, name)],
    }
    document["accessors"], document["bufferViews"] = buffer.accessors, buffer.views
    document["buffers"] = [{"byteLength": len(buffer.data)}]
    text = json.dumps(document, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    data = bytes(buffer.data) + b"\0" * (-len(buffer.data) % 4)
    total = 12 + 8 + len(text) + 8 + len(data)
    return b"".join(
        [
            struct.pack("<4sII", b"glTF", 2, total),
            struct.pack("<I4s", len(text), b"JSON"),
            text,
            struct.pack("<I4s", len(data), b"BIN\0"),
            data,
        ]
    )


class _Buffer:
    """The binary chunk while it grows, with its views and accessors."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.views: list[dict[str, Any]] = []
        self.accessors: list[dict[str, Any]] = []

    def add(
        self, values: NDArray[Any], kind: str, component: int, target: int | None = None, bounds: bool = False
    ) -> int:
        """Append an array (one row an element); returns the index of its accessor."""
        dtype = {_FLOAT: "<f4", _UBYTE: "<u1", _USHORT: "<u2"}[component]
        values = np.ascontiguousarray(values, dtype)
        self.data += b"\0" * (-len(self.data) % 4)
        view: dict[str, Any] = {"buffer": 0, "byteOffset": len(self.data), "byteLength": values.nbytes}
        if target is not None:
            view["target"] = target
        self.data += values.tobytes()
        accessor: dict[str, Any] = {
            "bufferView": len(self.views),
            "componentType": component,
            "count": len(values),
            "type": kind,
        }
        if bounds:
            columns = values.reshape(len(values), -1)
            accessor["min"], accessor["max"] = columns.min(axis=0).tolist(), columns.max(axis=0).tolist()
        self.views.append(view)
        self.accessors.append(accessor)
        return len(self.accessors) - 1


def _local_transforms(body_pos_w: Array, body_quat_w: Array) -> tuple[Array, Array]:
    """Joint translations (T, 15, 3) and rotations (T, 15, 4) against the parent, glTF axes.

    All frames are conjugated by the change of axes, so that the skeleton at rest is upright in glTF's axes too.
    """
    local_quat = quat_align(local_from_world(body_quat_w))
    local_pos = np.empty_like(body_pos_w)
    for body, parent in enumerate(PARENTS):
        if parent < 0:
            local_pos[:, body] = body_pos_w[:, body]
        else:
            apart = body_pos_w[:, body] - body_pos_w[:, parent]
            local_pos[:, body] = quat_rotate(quat_inv(body_quat_w[:, parent]), apart)
    turned = quat_mul(quat_mul(_TO_GLTF, local_quat), quat_inv(_TO_GLTF))
    return quat_rotate(_TO_GLTF, local_pos), turned


def _rest_positions(local_pos: Array) -> Array:
    """Joint positions (15, 3) with all rotations at zero and the root at the origin, glTF axes."""
    rest = np.zeros_like(local_pos)
    for body, parent in enumerate(PARENTS):
        if parent >= 0:
            rest[body] = rest[parent] + local_pos[body]
    return rest


def _inverse_bind(rest_pos: Array) -> Array:
    matrices = np.tile(np.eye(4), (len(rest_pos), 1, 1))
    matrices[:, :3, 3] = -rest_pos
    return matrices.transpose(0, 2, 1).reshape(len(rest_pos), 16)  # column-major


def _mesh(buffer: _Buffer, rest_pos: Array) -> dict[str, Any]:
    """All shapes in the rest pose as one primitive; each vertex follows one joint."""
    positions, normals, colours, joints, faces = [], [], [], [], []
    count = 0
    for shape in character_shapes():
        vertices, normal, triangles = shape_mesh(shape)
        positions.append(quat_rotate(_TO_GLTF, vertices) + rest_pos[shape.body])
        normals.append(quat_rotate(_TO_GLTF, normal))
        linear = np.array(body_rgb(shape.body)) ** 2.2  # vertex colours are linear, ours are sRGB
        colours.append(np.tile(linear, (len(vertices), 1)))
        joints.append(np.tile([shape.body, 0, 0, 0], (len(vertices), 1)))
        faces.append(triangles + count)
        count += len(vertices)
    joint = np.concatenate(joints)
    weight = np.tile([1.0, 0.0, 0.0, 0.0], (count, 1))
    return {
        "attributes": {
            "POSITION": buffer.add(np.concatenate(positions), "VEC3", _FLOAT, _ARRAY_BUFFER, bounds=True),
            "NORMAL": buffer.add(np.concatenate(normals), "VEC3", _FLOAT, _ARRAY_BUFFER),
            "COLOR_0": buffer.add(np.concatenate(colours), "VEC3", _FLOAT, _ARRAY_BUFFER),
            "JOINTS_0": buffer.add(joint, "VEC4", _UBYTE, _ARRAY_BUFFER),
            "WEIGHTS_0": buffer.add(weight, "VEC4", _FLOAT, _ARRAY_BUFFER),
        },
        "indices": buffer.add(np.concatenate(faces).ravel(), "SCALAR", _USHORT, _ELEMENT_BUFFER),
        "material": 0,
        "mode": 4,
    }


def _animation(buffer: _Buffer, local_pos: Array, local_quat: Array, fps: float, name: str) -> dict[str, Any]:
    times = buffer.add(np.arange(len(local_pos)) / fps, "SCALAR", _FLOAT, bounds=True)
    samplers, channels = [], []

    def animate(body: int, path: str, values: Array, kind: str) -> None:
        samplers.append({"input": times, "output": buffer.add(values, kind, _FLOAT), "interpolation": "LINEAR"})
        channels.append({"sampler": len(samplers) - 1, "target": {"node": body, "path": path}})

    for body in range(len(BODY_NAMES)):
        animate(body, "rotation", _xyzw(local_quat[:, body]), "VEC4")
        if body == 0 or np.ptp(local_pos[:, body], axis=0).max() > 1e-5:
            animate(body, "translation", local_pos[:, body], "VEC3")
    return {"name": name, "samplers": samplers, "channels": channels}


def _xyzw(quat: Array) -> Array:
    return np.concatenate([quat[..., 1:], quat[..., :1]], axis=-1)
