"""A torch policy to the bytes of one ONNX file: weights inside, free batch axis, the same bytes from any checkout."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping

import onnx
import onnx_ir
import torch
from onnx_ir.passes import common as passes
from onnxscript.optimizer import fold_constants_ir
from torch import nn

from engine.errors import InputError
from engine.policy_checks import ACTION_NAME, OBS_NAME
from engine.policy_metadata import METADATA_KEY


def build_graph(module: nn.Module, obs_width: int, opset: int) -> onnx.ModelProto:
    """Trace the policy into an ONNX graph and remove all that depends on where and when it was traced.

    The graph is that of `torch.export`: stack traces, file paths, class names and doc strings which the exporter leaves
    in it are dropped, and initialisers stand in the order of their names. Constants are folded and
    equal parts merged, but the exporter's rewriting rules stay off: they take ``x + 1e-12`` for ``x + 0`` and so remove
    the guard of a square root or division.

    Args:
        module: Policy in evaluation mode, float32 weights on the CPU; ``forward(obs) -> action`` with normaliser,
            action scaling and frames inside.
        obs_width: Width of an observation row.
        opset: ONNX operator set.

    Returns:
        The model with input ``obs`` (batch, obs_width) and output ``action`` (batch, action_width), checked.

    Raises:
        InputError: The policy cannot be exported at this opset or the graph fails ONNX's own full check.
    """
    module = module.eval()
    example = torch.zeros(2, obs_width)
    batch = torch.export.Dim("batch", min=1, max=65536)
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                (example,),
                dynamo=True,
                input_names=[OBS_NAME],
                output_names=[ACTION_NAME],
                dynamic_shapes=({0: batch},),
                opset_version=opset,
                external_data=False,
                optimize=False,
                verbose=False,
            )
    except (torch.onnx.OnnxExporterError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        message = f"the policy cannot be exported (found: {reason}, expected a traceable module and a known opset)"
        raise InputError.at("export.opset", None, message) from error
    assert program is not None
    with _quiet():
        _fold(program.model)
    model = onnx.ModelProto()
    model.CopyFrom(program.model_proto)
    _strip(model)
    found = {entry.domain: entry.version for entry in model.opset_import}
    if found.get("") != opset:
        message = f"the exporter could not give this opset (found {found.get('')}, expected {opset})"
        raise InputError.at("export.opset", None, message)
    onnx.checker.check_model(model, full_check=True)
    return model


def model_bytes(graph: onnx.ModelProto, metadata: str) -> bytes:
    """Serialise a graph with its metadata; equal inputs give equal bytes.

    Args:
        graph: Model from `build_graph`; left unchanged.
        metadata: JSON text from `export.metadata`.

    Returns:
        The content of a policy file.
    """
    model = onnx.ModelProto()
    model.CopyFrom(graph)
    onnx.helper.set_model_props(model, {METADATA_KEY: metadata})
    return model.SerializeToString(deterministic=True)


def _fold(model: onnx_ir.Model) -> None:
    passes.InlinePass()(model)
    fold_constants_ir(model)
    for step in (
        passes.RemoveUnusedNodesPass(),
        passes.RemoveUnusedFunctionsPass(),
        passes.RemoveUnusedOpsetsPass(),
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.DeduplicateInitializersPass(),
        passes.CommonSubexpressionEliminationPass(),
        passes.OutputFixPass(),
        passes.NameFixPass(),
    ):
        step(model)


def _strip(model: onnx.ModelProto) -> None:
    model.producer_name = "gaitforge"
    for field in ("producer_version", "domain", "doc_string", "model_version", "metadata_props"):
        model.ClearField(field)
    graph = model.graph
    graph.name = "policy"
    used = {entry.domain for entry in model.opset_import} & {node.domain for node in graph.node}
    versions = sorted((entry.domain, entry.version) for entry in model.opset_import if entry.domain in used)
    del model.opset_import[:]
    model.opset_import.extend(onnx.helper.make_opsetid(domain, version) for domain, version in versions)
    graph.ClearField("doc_string")
    graph.ClearField("metadata_props")
    graph.ClearField("quantization_annotation")
    graph.ClearField("value_info")
    for part in (*graph.node, *graph.input, *graph.output, *graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")
    tensors = sorted(graph.initializer, key=lambda tensor: tensor.name)
    del graph.initializer[:]
    graph.initializer.extend(tensors)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's notes (such as absent optional packages) off the terminal; errors are raised, not logged."""
    loggers: Mapping[str, int] = {
        name: logging.getLogger(name).level for name in ("torch.onnx", "torch.export", "onnxscript", "onnx_ir")
    }
    for name in loggers:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in loggers.items():
            logging.getLogger(name).setLevel(level)
