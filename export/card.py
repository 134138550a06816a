"""The model card: what a policy is, what it takes and gives, what it was trained on, and what it cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.policy_layout import Piece, slices, width
from engine.policy_metadata import PolicyMetadata

_FRAMES = {
    "srb": "the simulated rigid body",
    "ff": "forward-facing: the body's yaw only, origin at its centre of mass",
    "proj": "the same axes, origin on the ground below the centre of mass",
    "ref_ff": "`ff` of the reference's own body at the next frame",
    "ref_proj": "`proj` of the reference's own body at the next frame",
    "heading": "yaw of the root only, origin at the root's ground point",
    "parent": "axes of the joint's parent body",
    "body": "axes of the joint's own body",
    "-": "no frame",
}
_IN_METADATA = (
    "method", "mass_kg", "inertia_b", "controller", "body_frame", "reference", "data_licence", "params_digest"
)  # fmt: skip


def model_card(
    metadata: PolicyMetadata, info: Mapping[str, Any], parity: Mapping[str, Any], sha256: str, opset: int
) -> str:
    """Write the card of an exported policy as Markdown.

    Args:
        metadata: What the policy file says about itself.
        info: What training stored beside the weights; plain values that the metadata lacks (seed, samples ...) are
            listed.
        parity: Result of `export.parity.measure_parity`.
        sha256: Digest of the policy file.
        opset: ONNX operator set of the file.

    Returns:
        The text; equal inputs give equal text.
    """
    training = [
        f"| {key} | {_shown(value)} |"
        for key, value in sorted(info.items())
        if key not in _IN_METADATA and isinstance(value, (str, int, float, bool))
    ]
    used = {piece.frame for piece in (*metadata.observation, *metadata.action)}
    lines = [
        f"# Policy card: {metadata.method}",
        "",
        f"One step of `{metadata.method}` maps {width(metadata.observation)} observations to {width(metadata.action)} "
        f"actions, {metadata.control_hz:g} times a second; physics runs at {metadata.physics_hz:g} Hz. Normaliser and "
        "action scaling are inside the file: observations go in and actions come out in the units below.",
        "",
        "| | |",
        "|---|---|",
        f"| file | ONNX, opset {opset}, float32, free batch axis, sha256 `{sha256}` |",
        f"| parameters digest | `{metadata.params_digest}` |",
        *training,
        f"| body | {metadata.mass_kg:.6g} kg, inertia diagonal "
        f"{', '.join(f'{value:.6g}' for value in metadata.inertia_b.diagonal())} kg m^2 |",
        f"| parity with torch | {parity['max_error']:.2g} (largest error, {parity['worst_case']}); "
        f"{parity['max_abs_error']:.2g} on ordinary rows |",
        "",
        "## Data and licence",
        "",
        f"Trained on motion capture under: {metadata.data_licence}",
        "",
        "## Observation",
        "",
        *_table(metadata.observation),
        "",
        "## Action",
        "",
        *_table(metadata.action),
        "",
        "Frames: " + "; ".join(f"`{name}` {text}" for name, text in _FRAMES.items() if name in used) + ".",
        f"Bodies: {', '.join(metadata.body_names)}.",
        "",
        *_reference(metadata),
        "## Controller",
        "",
        f"Numbers of the {'servos' if metadata.reference else 'rigid-body controller'} that the policy was trained "
        "with; the engine reads them from the file.",
        "",
        "| name | value |",
        "|---|---|",
        *(f"| {name} | {value:.6g} |" for name, value in sorted(metadata.controller.items())),
        "",
        "## Use and limits",
        "",
        "`engine.players.load` runs it; `docs/standalone.md` evaluates it with onnxruntime and numpy alone. The file",
        "holds a recorded observation and action, and a loader that gets another action refuses it. The policy knows",
        "the character above only, follows references like those it was trained on, and has no sense of objects or of",
        "the ground ahead. It is made for animation, not for driving a robot.",
        "",
    ]
    return "\n".join(lines)


def _reference(metadata: PolicyMetadata) -> list[str]:
    if not metadata.reference:
        return []
    rows = [f"| {name} | {text} |" for name, text in sorted(metadata.reference.items())]
    return ["## Reference", "", "What the policy imitates, and how.", "", "| | |", "|---|---|", *rows, ""]


def _table(pieces: tuple[Piece, ...]) -> list[str]:
    rows = ["| columns | name | unit | frame |", "|---|---|---|---|"]
    for piece, place in zip(pieces, slices(pieces).values(), strict=True):
        rows.append(f"| {place.start}:{place.stop} | {piece.name} | {piece.unit} | {piece.frame} |")
    return rows


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
