"""Character poses -> BVH: 15 joints with end sites, centimetres, Y up, 30 frames a second.

The file's axes are X forward, Y up, Z right; the project's readers turn it back into the same world positions. A BVH
skeleton has fixed bone lengths, so poses whose bodies are not joined exactly (a raw network pose before MMIK) are
rejoined at the joints; `bvh_text` says by how much.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from engine.atomic import write_atomic
from engine.rotation import quat_to_matrix
from engine.skeleton import BODY_NAMES, OFFSETS, PARENTS, forward_kinematics, local_from_world

Array = NDArray[np.float64]

CENTIMETRES = 100.0
# Tips of the bodies without a child [m], body axes at the zero pose (x forward, z up).
END_SITES = {
    "neck": (0.0, 0.0, 0.28),
    "right_wrist": (0.0, 0.0, -0.08),
    "left_wrist": (0.0, 0.0, -0.08),
    "right_ankle": (0.125, 0.0, -0.05),
    "left_ankle": (0.125, 0.0, -0.05),
}
# World axes of the file, as rows: x_file = forward, y_file = up, z_file = right.
TO_FILE = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, -1.0, 0.0]])


def write_bvh(path: str | os.PathLike[str], body_pos_w: Array, body_quat_w: Array, fps: float = 30.0) -> float:
    """Write poses as BVH; a temporary file takes the name once it is complete.

    Args:
        path: The ``.bvh`` file.
        body_pos_w: Body origins [m], shape (T, 15, 3).
        body_quat_w: Body orientations (w, x, y, z), shape (T, 15, 4).
        fps: Frames a second.

    Returns:
        The largest distance [m] between a given body origin and the one in the file (0 for joined bodies).
    """
    text, deviation_m = bvh_text(body_pos_w, body_quat_w, fps)
    write_atomic(path, text.encode("ascii"))
    return deviation_m


def bvh_text(body_pos_w: Array, body_quat_w: Array, fps: float = 30.0) -> tuple[str, float]:
    """The BVH file as text, and the largest body displacement [m]; arguments as `write_bvh`."""
    body_pos_w, body_quat_w = np.asarray(body_pos_w, np.float64), np.asarray(body_quat_w, np.float64)
    local_quat = local_from_world(body_quat_w)
    joined_pos_w, _ = forward_kinematics(body_pos_w[:, 0], local_quat)
    deviation_m = float(np.abs(joined_pos_w - body_pos_w).max()) if len(body_pos_w) else 0.0
    matrices = TO_FILE @ quat_to_matrix(local_quat) @ TO_FILE.T
    angles = np.rad2deg(_euler_yxz(matrices))
    root = body_pos_w[:, 0] @ TO_FILE.T * CENTIMETRES

    lines = ["HIERARCHY"]
    order: list[int] = []
    _write_joint(lines, order, 0, "")
    lines += ["MOTION", f"Frames: {len(root)}", f"Frame Time: {1.0 / fps:.9f}"]
    rows = np.concatenate([root, angles[:, order].reshape(len(root), -1)], axis=1)
    lines += [" ".join(f"{v:.6f}" for v in row) for row in rows]
    return "\n".join(lines) + "\n", deviation_m


def _write_joint(lines: list[str], order: list[int], body: int, indent: str) -> None:
    """Append one joint and its descendants, depth first; ``order`` collects the bodies as their channels follow."""
    order.append(body)
    name = BODY_NAMES[body]
    offset = np.zeros(3) if body == 0 else np.asarray(OFFSETS[body])
    position = "Xposition Yposition Zposition " if body == 0 else ""
    lines.append(f"{indent}{'ROOT' if body == 0 else 'JOINT'} {name}")
    lines.append(f"{indent}{{")
    inner = indent + "  "
    lines.append(f"{inner}OFFSET {_offset(offset)}")
    lines.append(f"{inner}CHANNELS {6 if position else 3} {position}Yrotation Xrotation Zrotation")
    for child in range(len(BODY_NAMES)):
        if PARENTS[child] == body:
            _write_joint(lines, order, child, inner)
    if name in END_SITES:
        lines += [
            f"{inner}End Site",
            f"{inner}{{",
            f"{inner}  OFFSET {_offset(np.array(END_SITES[name]))}",
            f"{inner}}}",
        ]
    lines.append(f"{indent}}}")


def _offset(offset_b: Array) -> str:
    return " ".join(f"{v + 0.0:.6f}" for v in TO_FILE @ offset_b * CENTIMETRES)


def _euler_yxz(matrices: Array) -> Array:
    """Angles (..., 3) [rad] about y, x, z with R = Ry Rx Rz, unwrapped along axis 0 (time) for curves without jumps.

    In the file's axes: heading, roll, pitch. Only roll is limited to 90 degrees, the one that no gait brings there.
    """
    roll = np.arcsin(np.clip(-matrices[..., 1, 2], -1.0, 1.0))
    locked = np.abs(matrices[..., 1, 2]) > 1.0 - 1e-12
    heading = np.arctan2(matrices[..., 0, 2], matrices[..., 2, 2])
    heading = np.where(locked, np.arctan2(-matrices[..., 2, 0], matrices[..., 0, 0]), heading)
    pitch = np.where(locked, 0.0, np.arctan2(matrices[..., 1, 0], matrices[..., 1, 1]))
    return np.unwrap(np.stack([heading, roll, pitch], axis=-1), axis=0)
