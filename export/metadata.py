"""What a policy file says about itself: layout, units, frames, bodies, controller and one recorded action, as JSON."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from engine import skeleton
from engine.errors import InputError
from engine.policy_layout import (
    Piece,
    humanoid_action,
    humanoid_observation,
    unified_action,
    unified_observation,
    width,
)
from engine.policy_metadata import FORMAT_VERSION

CONTROL_HZ = 30
PHYSICS_HZ = 120
_NEEDED = ("method", "mass_kg", "inertia_b", "controller", "body_frame", "data_licence", "params_digest")


def build_metadata(
    path: str | os.PathLike[str], info: Mapping[str, Any], recorded_obs: np.ndarray, recorded_action: np.ndarray
) -> dict[str, Any]:
    """Assemble the metadata of a policy.

    Args:
        path: The checkpoint, named in errors.
        info: What training stored beside the weights: ``method``, ``mass_kg``, ``inertia_b`` (9 numbers),
            ``controller`` (numbers by name), ``body_frame``, ``data_licence``, ``params_digest``, and for some
            ``reference`` (texts by name); other keys are for the card.
        recorded_obs: An observation row, float32, shape (n_obs,).
        recorded_action: What the torch policy gives for it, float32, shape (n_action,).

    Returns:
        Plain values, ready for JSON.

    Raises:
        InputError: A key is missing from ``info`` or a row is not as wide as the layout.
    """
    for key in _NEEDED:
        if key not in info:
            found = ", ".join(sorted(info)) or "nothing"
            raise InputError.at(path, None, f"info.{key} missing (found {found}, expected '{key}')")
    observation, action = layouts(info)
    for key, row, pieces in (("observation", recorded_obs, observation), ("action", recorded_action, action)):
        if row.shape != (width(pieces),):
            raise InputError.at(path, None, f"{key}: width (found {list(row.shape)}, expected [{width(pieces)}])")
        if not np.isfinite(row).all():
            raise InputError.at(path, None, f"{key}: recorded row (found a number that is not finite, expected finite)")
    reference = {"reference": {str(k): str(v) for k, v in info["reference"].items()}} if "reference" in info else {}
    return {
        **reference,
        "format_version": FORMAT_VERSION,
        "method": str(info["method"]),
        "control_hz": CONTROL_HZ,
        "physics_hz": PHYSICS_HZ,
        "observation": [_plain_piece(piece) for piece in observation],
        "action": [_plain_piece(piece) for piece in action],
        "body_names": list(skeleton.BODY_NAMES),
        "default_pose": standing_pose().tolist(),
        "mass_kg": float(info["mass_kg"]),
        "inertia_b": [float(value) for value in np.asarray(info["inertia_b"], dtype=np.float64).ravel()],
        "controller": {str(name): _number(path, name, value) for name, value in sorted(info["controller"].items())},
        "body_frame": str(info["body_frame"]),
        "data_licence": str(info["data_licence"]),
        "params_digest": str(info["params_digest"]),
        "recorded": {"obs": shortest(recorded_obs), "action": shortest(recorded_action)},
    }


def layouts(info: Mapping[str, Any]) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Observation and action layout of the policy that ``info`` is about."""
    if info.get("method") == "deepmimic":
        return humanoid_observation(bool(info.get("goal"))), humanoid_action()
    return unified_observation(), unified_action(str(info.get("body_frame")))


def metadata_json(metadata: Mapping[str, Any]) -> str:
    """Return the metadata as JSON on one line with sorted keys; NaN and infinity are a ValueError."""
    return json.dumps(metadata, sort_keys=True, separators=(",", ":"), allow_nan=False)


def record_pair(module: nn.Module, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Run torch's policy on one observation row.

    Args:
        module: The policy.
        obs: Observation row, float32, shape (n_obs,).

    Returns:
        The row and its action row, shape (n_action,), float32.
    """
    with torch.no_grad():
        action = module.eval()(torch.from_numpy(np.ascontiguousarray(obs[None])))[0]
    return obs, action.numpy().astype(np.float32)


def standing_pose() -> np.ndarray:
    """Return the skeleton's zero pose, position relative to the root [m] and quaternion (w,x,y,z), shape (15, 7)."""
    identity = np.zeros((len(skeleton.BODY_NAMES), 4))
    identity[:, 0] = 1.0
    position_w, quat_w = skeleton.forward_kinematics(np.zeros(3), identity)
    return np.round(np.concatenate([position_w, quat_w], axis=1), 9) + 0.0


def shortest(row: np.ndarray) -> list[float]:
    """Return float32 numbers as the shortest decimals that read back to the same float32."""
    return [float(str(value)) for value in row.astype(np.float32)]


def _plain_piece(piece: Piece) -> dict[str, Any]:
    return piece._asdict()


def _number(path: str | os.PathLike[str], name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
        raise InputError.at(path, None, f"info.controller.{name} (found {value!r}, expected a finite number)")
    return float(value)
