"""A policy file made by hand with onnx and numpy: ``action = ((obs - mean) / std) W + b``, with its metadata."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from engine.policy_layout import unified_action, unified_observation
from engine.skeleton import BODY_NAMES

_RNG = np.random.default_rng(5)
MEAN = _RNG.standard_normal(340).astype(np.float32)
STD = (0.5 + _RNG.random(340)).astype(np.float32)
WEIGHT = (0.05 * _RNG.standard_normal((340, 169))).astype(np.float32)
BIAS = _RNG.standard_normal(169).astype(np.float32)
OBS = _RNG.standard_normal((6, 340)).astype(np.float32)


def action_of(obs: np.ndarray) -> np.ndarray:
    """Return the action that the file must give, in float64."""
    return ((obs.astype(np.float64) - MEAN) / STD) @ WEIGHT.astype(np.float64) + BIAS


METADATA: dict[str, Any] = {
    "format_version": 1,
    "method": "unified",
    "control_hz": 30,
    "physics_hz": 120,
    "observation": [piece._asdict() for piece in unified_observation()],
    "action": [piece._asdict() for piece in unified_action("proj")],
    "body_names": list(BODY_NAMES),
    "default_pose": [[0.1 * index, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0] for index in range(15)],
    "mass_kg": 45.0,
    "inertia_b": [9.9, 0.0, 0.1, 0.0, 8.3, 0.0, 0.1, 0.0, 2.0],
    "controller": {"k_p": 120.0, "k_d": 35.0},
    "body_frame": "proj",
    "data_licence": "CC0",
    "params_digest": "ab" * 32,
    "recorded": {"obs": OBS[0].tolist(), "action": action_of(OBS[:1])[0].tolist()},
}


def changed_metadata(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with some keys set, or removed where the value is None."""
    metadata = copy.deepcopy(METADATA)
    for key, value in changes.items():
        if value is None:
            del metadata[key]
        else:
            metadata[key] = value
    return metadata


def policy_model(
    metadata: Any = METADATA,
    obs_width: int = 340,
    action_width: int = 169,
    elem_type: int = TensorProto.FLOAT,
    batch: str | int = "batch",
    normalise: bool = True,
) -> ModelProto:
    """Build the file; the arguments other than ``metadata`` change the graph. ``metadata`` None leaves it out."""
    dtype = helper.tensor_dtype_to_np_dtype(elem_type)
    tensors = {
        "mean": np.resize(MEAN, obs_width),
        "std": np.resize(STD, obs_width),
        "weight": np.resize(WEIGHT, (obs_width, action_width)) if (obs_width, action_width) != (340, 169) else WEIGHT,
        "bias": np.resize(BIAS, action_width),
    }
    nodes = [
        helper.make_node("Sub", ["obs", "mean"], ["centred"], name="centre"),
        helper.make_node("Div", ["centred", "std"], ["normalised"], name="scale"),
        helper.make_node("Gemm", ["normalised", "weight", "bias"], ["action"], name="affine"),
    ]
    if not normalise:
        nodes = [helper.make_node("Gemm", ["obs", "weight", "bias"], ["action"], name="affine")]
        del tensors["mean"], tensors["std"]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", elem_type, [batch, obs_width])],
        [helper.make_tensor_value_info("action", elem_type, [batch, action_width])],
        [numpy_helper.from_array(value.astype(dtype), name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    if metadata is not None:
        text = metadata if isinstance(metadata, str) else json.dumps(metadata)
        helper.set_model_props(model, {"gaitforge": text})
    return model


def in_other_body_order(names: list[str]) -> ModelProto:
    """Build the same policy with its bodies in another order: rows, weights and recorded pair are permuted."""
    order = np.array([BODY_NAMES.index(name) for name in names])
    bodies = (np.arange(135).reshape(15, 9)[order]).ravel()
    obs_columns = np.concatenate([np.arange(35), 35 + bodies, np.arange(170, 205), 205 + bodies])
    action_columns = np.concatenate([np.arange(30), 30 + bodies, np.arange(165, 169)])
    recorded = {
        "obs": np.array(METADATA["recorded"]["obs"])[obs_columns].tolist(),
        "action": np.array(METADATA["recorded"]["action"])[action_columns].tolist(),
    }
    pose = np.array(METADATA["default_pose"])[order].tolist()
    model = policy_model(changed_metadata({"body_names": names, "recorded": recorded, "default_pose": pose}))
    new = {
        "mean": MEAN[obs_columns],
        "std": STD[obs_columns],
        "weight": WEIGHT[obs_columns][:, action_columns],
        "bias": BIAS[action_columns],
    }
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(new[tensor.name], tensor.name))
    return model
