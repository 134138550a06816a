"""What the graph of a policy file must hold before it is run: one function a kind of fault, one line an error."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto

from engine.errors import InputError
from engine.policy_layout import width
from engine.policy_metadata import PolicyMetadata, refuse

OBS_NAME = "obs"
ACTION_NAME = "action"
RECORDED_TOLERANCE = 1e-4
"""Largest difference to the recorded action, times the largest recorded number where that is above 1."""

_IR = re.compile(r"Unsupported model IR version: (\d+), max supported IR version: (\d+)")
_OPSET = re.compile(r"Opset (\d+) is under development.*support for domain (\S+) is till opset (\d+)", re.DOTALL)
_UNKNOWN_OPERATOR = (re.compile(r"No Op registered for (\S+)"), re.compile(r"(\S+)\(-?\d+\) is not a registered"))


def parse_model(path: str | os.PathLike[str], data: bytes) -> ModelProto:
    """Parse the bytes of an ONNX file.

    Raises:
        InputError: The bytes are empty, cut off, text or something else than an ONNX file.
    """
    if not data:
        refuse(path, "the file is empty", "0 bytes", "an ONNX policy")
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError:
        refuse(path, "not an ONNX file, or cut off", _start_of(data), "an ONNX policy; export it again")
    if not model.ir_version or not model.graph.node:
        refuse(path, "not an ONNX file: no graph inside", _start_of(data), "an ONNX policy")
    if not model.opset_import:
        refuse(path, "cut off after the graph", "no opset_import", "an ONNX policy; export it again")
    return model


def _start_of(data: bytes) -> str:
    text = data[:24].decode("ascii", errors="replace")
    printable = text.isascii() and all(c.isprintable() or c.isspace() for c in text)
    return f"text starting {text!r}" if printable else f"{len(data)} bytes of other data"


def _graph_tensors(nodes: Any) -> Iterator[tuple[str, TensorProto]]:
    for node in nodes:
        for attribute in node.attribute:
            name = f"{node.name or node.op_type}.{attribute.name}"
            for tensor in (attribute.t, *attribute.tensors):
                yield name, tensor
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield name, sparse.values
                yield name, sparse.indices
            for graph in (attribute.g, *attribute.graphs):
                yield from _tensors_of(graph)


def _tensors_of(graph: Any) -> Iterator[tuple[str, TensorProto]]:
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for sparse in graph.sparse_initializer:
        yield sparse.values.name, sparse.values
        yield sparse.values.name, sparse.indices
    yield from _graph_tensors(graph.node)


def model_tensors(model: ModelProto) -> Iterator[tuple[str, TensorProto]]:
    """Yield every tensor of a model with a name: weights, constants, those of sub-graphs and local functions."""
    yield from _tensors_of(model.graph)
    for function in model.functions:
        yield from _graph_tensors(function.node)


def check_weights(path: str | os.PathLike[str], model: ModelProto) -> None:
    """Refuse weights that lie in another file, do not fill their shape or are not finite."""
    folder = Path(path).resolve().parent
    for name, tensor in model_tensors(model):
        if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
            location = next((e.value for e in tensor.external_data if e.key == "location"), "")
            target = (folder / location).resolve()
            state = "there, but apart" if target.is_file() else "missing"
            if not target.is_relative_to(folder):
                state = "outside the policy's folder"
            found = f"external data '{location}', {state}"
            refuse(path, f"{name}: weights must be inside the policy file", found, "tensors with their data")
        try:
            values = onnx.numpy_helper.to_array(tensor) if tensor.data_type else np.zeros(0)
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            refuse(path, f"{name}: tensor cannot be read: {error}", f"shape {list(tensor.dims)}", "data of that shape")
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            bad = values[~np.isfinite(values)]
            found = f"{bad[0]} in {bad.size} of {values.size}"
            refuse(path, f"{name}: weights are not finite", found, "finite numbers")


def check_inputs_outputs(path: str | os.PathLike[str], model: ModelProto) -> tuple[int, int | None]:
    """Check names, types, rank and the free batch axis of the graph's input and output.

    Returns:
        Width of an observation row, and of an action row where the graph declares it.
    """
    initialised = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initialised]
    widths: list[int | None] = []
    for kind, values, name in (("input", inputs, OBS_NAME), ("output", list(model.graph.output), ACTION_NAME)):
        if [value.name for value in values] != [name]:
            refuse(path, f"graph {kind}s", ", ".join(value.name for value in values) or "none", f"one, '{name}'")
        tensor = values[0].type.tensor_type
        if tensor.elem_type != TensorProto.FLOAT:
            known = TensorProto.DataType.values()
            found = TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type in known else tensor.elem_type
            refuse(path, f"{name}: graph {kind} type", str(found).lower(), "float (32 bit)")
        dims = tensor.shape.dim
        if len(dims) != 2:
            refuse(path, f"{name}: graph {kind} shape", f"{len(dims)} axes", "2: batch and row")
        if dims[0].HasField("dim_value"):
            refuse(path, f"{name}: batch axis is fixed", dims[0].dim_value, "a free axis")
        widths.append(dims[1].dim_value if dims[1].HasField("dim_value") else None)
    if widths[0] is None:
        refuse(path, f"{OBS_NAME}: row width is not fixed", "a free axis", "a number")
    return widths[0], widths[1]


def explain_runtime_error(path: str | os.PathLike[str], error: Exception) -> InputError:
    """Turn onnxruntime's refusal into one line that says what to change or upgrade."""
    text, version = str(error), onnxruntime.__version__
    if match := _IR.search(text):
        return InputError.at(
            path,
            None,
            f"ir_version: newer than onnxruntime {version} reads, upgrade onnxruntime "
            f"(found {match[1]}, expected at most {match[2]})",
        )
    if match := _OPSET.search(text):
        return InputError.at(
            path,
            None,
            f"opset_import: opset newer than onnxruntime {version} runs, upgrade onnxruntime or export with a lower "
            f"export.opset (found {match[1]}, expected at most {match[3]})",
        )
    for pattern in _UNKNOWN_OPERATOR:
        if match := pattern.search(text):
            return InputError.at(
                path,
                None,
                f"unknown operator '{match[1]}' (found in the graph, expected operators of onnxruntime {version})",
            )
    reason = " ".join(text.split())
    return InputError.at(
        path,
        None,
        f"onnxruntime {version} refuses it: {reason[:300]} (found a broken graph, expected a policy that loads)",
    )


def check_widths(
    path: str | os.PathLike[str], metadata: PolicyMetadata, obs_width: int, action_width: int | None
) -> None:
    """Refuse a graph whose rows are not as wide as the metadata's layout says."""
    if obs_width != width(metadata.observation):
        refuse(path, f"{OBS_NAME}: width of an observation row", obs_width, f"{width(metadata.observation)} by layout")
    if action_width is not None and action_width != width(metadata.action):
        refuse(path, f"{ACTION_NAME}: width of an action row", action_width, f"{width(metadata.action)} by layout")


def check_recorded(
    path: str | os.PathLike[str], metadata: PolicyMetadata, act: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Run the recorded observation and compare with the recorded action, alone and as one row of a batch."""
    expected = metadata.recorded_action
    tolerance = RECORDED_TOLERANCE * max(1.0, float(np.abs(expected).max()))
    for batch in (1, 2):
        found = act(np.repeat(metadata.recorded_obs[None], batch, axis=0))
        if found.shape != (batch, expected.size):
            refuse(path, f"{ACTION_NAME}: shape of a batch of {batch}", list(found.shape), [batch, expected.size])
        error = float(np.abs(found.astype(np.float64) - expected).max())
        if not error <= tolerance:
            what = "recorded: the graph does not give the recorded action; was it exported without its normaliser?"
            refuse(path, what, f"a difference of {error:.3g}", f"at most {tolerance:.3g}")
