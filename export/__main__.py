"""Export a trained policy: ``python -m export --params params.yaml --policy policy.pt --out policy.onnx ...``.

Nothing is written unless everything holds: the graph passes ONNX's full check, the engine's own loader accepts it,
and torch and onnxruntime agree.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from torch import nn

from engine.atomic import write_atomic
from engine.errors import run_main
from engine.params import Positive, Range, Seed, read_section
from engine.policy import Policy
from engine.policy_layout import width
from export.card import model_card
from export.metadata import build_metadata, layouts, metadata_json, record_pair
from export.parity import check_parity, measure_parity, parity_json, parity_observations
from export.to_onnx import build_graph, model_bytes


@dataclass(frozen=True)
class ExportParams:
    """Section ``export`` of params.yaml.

    Attributes:
        opset: ONNX operator set.
        seed: Seed of the random observations of the parity check and of the recorded pair.
        tolerance: Largest error between torch and onnxruntime.
    """

    opset: Annotated[int, Range(ge=18, le=25)]
    seed: Seed
    tolerance: Positive


def export_policy(
    module: nn.Module, info: Mapping[str, Any], params: ExportParams, source: str | os.PathLike[str] = "policy.pt"
) -> tuple[bytes, dict[str, Any], str]:
    """Turn a torch policy into a policy file, checked against torch.

    Args:
        module: The policy, ``forward(obs) -> action``.
        info: What training stored beside the weights; see `export.metadata.build_metadata`. ``obs_samples``, rows met
            in training of shape (n, obs_width), is used for the recorded pair and the parity check where it is there.
        params: The ``export`` section.
        source: Where the policy came from, named in errors.

    Returns:
        The bytes of ``policy.onnx``, the parity result and the text of the card.

    Raises:
        InputError: Something is missing, or the exported policy is not the trained one.
    """
    module = module.eval()
    samples = np.asarray(info["obs_samples"], dtype=np.float32) if "obs_samples" in info else None
    observation, _ = layouts(info)
    rows = parity_observations(observation, params.seed, samples)
    obs, action = record_pair(module, rows.get("recorded", rows["random"])[0])
    metadata = build_metadata(source, info, obs, action)
    data = model_bytes(build_graph(module, width(observation), params.opset), metadata_json(metadata))
    policy = Policy(data, source, str(info["method"]))
    parity = measure_parity(module, policy, params.seed, samples)
    check_parity(os.fspath(source), parity, params.tolerance)
    card = model_card(policy.metadata, info, parity, hashlib.sha256(data).hexdigest(), params.opset)
    return data, parity, card


def main(argv: list[str]) -> int:
    """Run the export stage; see the module's text."""
    parser = argparse.ArgumentParser(prog="python -m export", description="Export a trained policy to ONNX.")
    parser.add_argument("--params", required=True, help="parameter file, section 'export'")
    parser.add_argument("--policy", required=True, help="trained policy (.pt)")
    parser.add_argument("--out", required=True, help="policy file to write (.onnx)")
    parser.add_argument("--parity", required=True, help="metrics file to write (.json)")
    parser.add_argument("--card", required=True, help="model card to write (.md)")
    args = parser.parse_args(argv)
    params = read_section(args.params, "export", ExportParams)
    from train.humanoid_policy import load_humanoid_policy, policy_kind
    from train.networks import load_policy_module

    load: Callable[[Any], tuple[nn.Module, dict[str, Any]]] = load_policy_module
    if policy_kind(args.policy) == "humanoid":
        load = load_humanoid_policy
    module, info = load(args.policy)
    data, parity, card = export_policy(module, info, params, args.policy)
    write_atomic(args.out, data)
    write_atomic(args.parity, parity_json(parity))
    write_atomic(args.card, card.encode())
    print(f"{args.out}: {len(data)} bytes, parity {parity['max_error']:.2g} ({parity['worst_case']})")
    return 0


if __name__ == "__main__":
    run_main(main)
