"""What a policy file is and what is wrong with it: every check of the loader, all findings at once."""

from __future__ import annotations

import collections
import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from engine import policy_checks as checks
from engine.errors import InputError
from engine.policy import Policy
from engine.policy_metadata import METADATA_KEY, PolicyMetadata, read_metadata


@dataclass
class PolicyReport:
    """Findings about one policy file.

    Attributes:
        path: The file.
        facts: ``(heading, lines)`` in the order to be shown.
        problems: What makes the loader refuse it, one line each; empty for a usable policy.
    """

    path: str
    facts: list[tuple[str, list[str]]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The report as it is printed."""
        lines = [f"{self.path}: {'usable' if not self.problems else f'refused, {len(self.problems)} problem(s)'}"]
        for heading, rows in self.facts:
            lines.append(f"{heading}:")
            lines += [f"  {row}" for row in rows]
        if self.problems:
            lines.append("problems:")
            lines += [f"  {problem}" for problem in self.problems]
        return "\n".join(lines)


def inspect_policy(path: str | os.PathLike[str]) -> PolicyReport:
    """Read a policy file, run every check and the recorded pair.

    Raises:
        InputError: The file cannot be read or is no ONNX file, so that nothing can be said about it.
    """
    data = Path(path).read_bytes()
    report = PolicyReport(os.fspath(path))
    model = checks.parse_model(path, data)
    report.facts.append(("graph", _graph_facts(model, len(data))))

    def attempt(check: Callable[[], Any]) -> Any:
        try:
            return check()
        except InputError as error:
            if str(error) not in report.problems:
                report.problems.append(str(error))
            return None

    widths = attempt(lambda: checks.check_inputs_outputs(path, model))
    attempt(lambda: checks.check_weights(path, model))
    read = attempt(lambda: read_metadata(path, model))
    if read is not None:
        metadata, order = read
        report.facts += _metadata_facts(metadata, order)
        if widths is not None:
            attempt(lambda: checks.check_widths(path, metadata, *widths))
    policy = attempt(lambda: Policy(data, path))
    if policy is not None:
        report.facts.append(("recorded pair", _parity_facts(policy)))
        report.facts.append(("runs in", [policy.executor]))
    return report


def _graph_facts(model: Any, size: int) -> list[str]:
    operators = collections.Counter(node.op_type for node in model.graph.node)
    opsets = ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import)
    weights = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
    metadata = ", ".join(sorted(entry.key for entry in model.metadata_props)) or "none"
    return [
        f"size {size / 1e6:.2f} MB, {weights} numbers in {len(model.graph.initializer)} tensors",
        f"opset {opsets}; IR {model.ir_version}; producer {model.producer_name or '-'} {model.producer_version}",
        *(f"input {_signature(value)}" for value in model.graph.input),
        *(f"output {_signature(value)}" for value in model.graph.output),
        "operators " + ", ".join(f"{name} {count}" for name, count in operators.most_common(12)),
        f"metadata keys {metadata}" + ("" if METADATA_KEY in metadata.split(", ") else f" ('{METADATA_KEY}' missing)"),
    ]


def _signature(value: Any) -> str:
    tensor = value.type.tensor_type
    dims = [d.dim_param or "?" if not d.HasField("dim_value") else str(d.dim_value) for d in tensor.shape.dim]
    kinds = {1: "float32", 10: "float16", 11: "float64"}
    return f"{value.name} {kinds.get(tensor.elem_type, f'type {tensor.elem_type}')} [{', '.join(dims)}]"


def _metadata_facts(metadata: PolicyMetadata, order: np.ndarray) -> list[tuple[str, list[str]]]:
    own_order = bool((order == np.arange(len(order))).all())
    sequence = "in the engine's order" if own_order else "in another order, mapped by name"
    inertia = " ".join(f"{v:.3g}" for v in np.diag(metadata.inertia_b))
    facts = [
        f"method {metadata.method}, format version {metadata.format_version}",
        f"control {metadata.control_hz:g} Hz, physics {metadata.physics_hz:g} Hz",
        f"mass {metadata.mass_kg:g} kg, inertia diagonal {inertia} kg m^2",
        f"{len(metadata.body_names)} bodies, {sequence}; the action's bodies stand in the {metadata.body_frame} frame",
        f"data licence {metadata.data_licence or '-'}",
        f"params digest {metadata.params_digest or '-'}",
    ]
    controller = ", ".join(f"{key} {value:g}" for key, value in sorted(metadata.controller.items()))
    return [
        ("policy", facts),
        ("controller", textwrap.wrap(controller, 110, break_on_hyphens=False)),
        (f"observation, {sum(p.size for p in metadata.observation)} numbers", _layout(metadata.observation)),
        (f"action, {sum(p.size for p in metadata.action)} numbers", _layout(metadata.action)),
    ]


def _layout(pieces: Any) -> list[str]:
    rows, place = [], 0
    for piece in pieces:
        rows.append(
            f"{place:4d}..{place + piece.size - 1:<4d} {piece.name:20s} {piece.size:4d}  {piece.unit} ({piece.frame})"
        )
        place += piece.size
    return rows


def _parity_facts(policy: Policy) -> list[str]:
    """Largest difference to the recorded action at three batch sizes, and whether rows of a batch agree."""
    expected = policy.metadata.recorded_action.astype(np.float64)
    rows = []
    for batch in (1, 4, 64):
        found = policy.act(np.repeat(policy.metadata.recorded_obs[None], batch, axis=0)).astype(np.float64)
        rows.append(f"batch {batch}: largest difference to the recorded action {np.abs(found - expected).max():.2e}")
    return rows
