"""glTF export: a valid binary file whose skeleton, evaluated as a viewer does, shows the poses."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import skeleton
from engine.character_shapes import character_shapes, shape_mesh
from engine.export_gltf import glb_bytes, write_glb
from engine.rotation import quat_mul, quat_rotate, quat_to_matrix
from tests.engine.playback import walk_poses

_SIZES = {5121: ("u1", 1), 5123: ("<u2", 2), 5126: ("<f4", 4)}
_WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4, "MAT4": 16}


def _read(content: bytes) -> tuple[dict[str, Any], bytes]:
    magic, version, total = struct.unpack_from("<4sII", content)
    assert (magic, version, total) == (b"glTF", 2, len(content))
    length, kind = struct.unpack_from("<I4s", content, 12)
    assert kind == b"JSON"
    assert length % 4 == 0
    document = json.loads(content[20 : 20 + length])
    data_length, data_kind = struct.unpack_from("<I4s", content, 20 + length)
    assert data_kind == b"BIN\0"
    assert data_length % 4 == 0
    data = content[28 + length :]
    assert len(data) == data_length
    return document, data


def _accessor(document: dict[str, Any], data: bytes, index: int) -> np.ndarray:
    accessor = document["accessors"][index]
    view = document["bufferViews"][accessor["bufferView"]]
    dtype, size = _SIZES[accessor["componentType"]]
    width = _WIDTHS[accessor["type"]]
    assert view["byteOffset"] % size == 0
    assert view["byteLength"] == accessor["count"] * width * size
    assert view["byteOffset"] + view["byteLength"] <= document["buffers"][0]["byteLength"]
    flat = np.frombuffer(data, dtype, accessor["count"] * width, view["byteOffset"])
    return flat.reshape(accessor["count"], width)


def _world(document: dict[str, Any], data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate the animation: node positions (T, 15, 3) and quaternions (T, 15, 4), glTF axes."""
    animation = document["animations"][0]
    frames = document["accessors"][animation["samplers"][0]["input"]]["count"]
    pos = np.array([[n["translation"] for n in document["nodes"][:15]]] * frames)
    quat = np.array([[[n["rotation"][3], *n["rotation"][:3]] for n in document["nodes"][:15]]] * frames)
    for channel in animation["channels"]:
        node, path = channel["target"]["node"], channel["target"]["path"]
        values = _accessor(document, data, animation["samplers"][channel["sampler"]]["output"])
        if path == "translation":
            pos[:, node] = values
        else:
            quat[:, node] = values[:, [3, 0, 1, 2]]
    for node, entry in enumerate(document["nodes"][:15]):
        for child in entry.get("children", []):
            assert child > node
            pos[:, child] = pos[:, node] + quat_rotate(quat[:, node], pos[:, child])
            quat[:, child] = quat_mul(quat[:, node], quat[:, child])
    return pos, quat


def test_animation_restores_the_poses() -> None:
    pos, quat = walk_poses()
    found, _ = _world(*_read(glb_bytes(pos, quat)))
    assert np.abs(found[..., [2, 0, 1]] - pos).max() < 1e-5  # z forward, x left, y up


def test_bodies_that_are_not_joined_are_shown_as_they_are() -> None:
    pos, quat = walk_poses(10)
    pos[:, 8] += np.linspace(0.0, 0.05, 10)[:, None]
    found, _ = _world(*_read(glb_bytes(pos, quat)))
    assert np.abs(found[..., [2, 0, 1]] - pos).max() < 1e-5


def test_skinned_vertices_lie_on_the_moving_shapes() -> None:
    pos, quat = walk_poses(20)
    document, data = _read(glb_bytes(pos, quat))
    joint_pos, joint_quat = _world(document, data)
    attributes = document["meshes"][0]["primitives"][0]["attributes"]
    rest = _accessor(document, data, attributes["POSITION"])
    joints = _accessor(document, data, attributes["JOINTS_0"])[:, 0]
    weights = _accessor(document, data, attributes["WEIGHTS_0"])
    assert np.allclose(weights.sum(axis=1), 1.0)
    inverse = (
        _accessor(document, data, document["skins"][0]["inverseBindMatrices"]).reshape(-1, 4, 4).transpose(0, 2, 1)
    )
    frame = 13
    local = np.einsum("vij,vj->vi", inverse[joints], np.column_stack([rest, np.ones(len(rest))]))[:, :3]
    matrices = quat_to_matrix(joint_quat[frame])
    shown = joint_pos[frame, joints] + np.einsum("vij,vj->vi", matrices[joints], local)
    expected = np.concatenate(
        [pos[frame, s.body] + quat_rotate(quat[frame, s.body], shape_mesh(s)[0]) for s in character_shapes()]
    )
    assert np.abs(shown[:, [2, 0, 1]] - expected).max() < 1e-5


def test_indices_bounds_and_times_are_consistent() -> None:
    document, data = _read(glb_bytes(*walk_poses(31), fps=30.0, name="walk"))
    primitive = document["meshes"][0]["primitives"][0]
    positions = _accessor(document, data, primitive["attributes"]["POSITION"])
    accessor = document["accessors"][primitive["attributes"]["POSITION"]]
    assert np.allclose(positions.min(axis=0), accessor["min"])
    assert np.allclose(positions.max(axis=0), accessor["max"])
    assert _accessor(document, data, primitive["indices"]).max() == len(positions) - 1
    times = _accessor(document, data, document["animations"][0]["samplers"][0]["input"])[:, 0]
    assert times[-1] == pytest.approx(1.0)
    assert document["animations"][0]["name"] == "walk"
    assert [n["name"] for n in document["nodes"][:15]] == list(skeleton.BODY_NAMES)


def test_meshes_face_outwards() -> None:
    for shape in character_shapes():
        vertices, normals, faces = shape_mesh(shape)
        corners = vertices[faces]
        area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        outward = np.einsum("fi,fi->f", area, corners.mean(axis=1) - shape.pos_b)
        assert outward.min() > -1e-12
        assert np.allclose(np.linalg.norm(normals, axis=1), 1.0)


def test_file_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "walk.glb"
    write_glb(path, *walk_poses(4))
    _read(path.read_bytes())
    assert list(path.parent.iterdir()) == [path]
