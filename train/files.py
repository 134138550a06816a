"""What trainings hand on as files: the tuned controller, the facts of the export, the cost of a training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.players.unified import controller_numbers
from engine.srb.body import SrbParams


def read_tuned(path: Path) -> tuple[list[float], SrbParams]:
    """Foot law and controller that `train.no_network` found."""
    data = json.loads(path.read_text())
    return list(data["foot_law"]), SrbParams(**data["srb"])


def policy_info(
    method: str, library: MotionLibrary, srb: SrbParams, mmik: MmikParams, body_frame: str, digest: str, seed: int,
    samples: int,
) -> dict[str, object]:  # fmt: skip
    """What the export writes into the metadata."""
    used = sorted({lic for lic, split in zip(library.licence, library.split, strict=True) if split == "train"})
    rows = np.linspace(0, len(library.contact) - 2, 256).astype(int)
    ref = np.concatenate([library.ref_srb, library.ref_full], axis=1)
    samples_obs = np.concatenate([ref[rows], ref[rows + 1]], axis=1).astype(np.float32)
    return {
        "method": method,
        "mass_kg": float(library.mass_kg),
        "inertia_b": [float(v) for v in library.inertia_b.reshape(-1)],
        "controller": controller_numbers(srb, mmik),
        "body_frame": body_frame,
        "data_licence": "; ".join(used),
        "params_digest": digest,
        "seed": seed,
        "samples": samples,
        "obs_samples": torch.from_numpy(samples_obs),
    }


def write_train_json(out: Path, method: str, seed: int, samples: int, wall_s: float, cpu_s: float) -> None:
    """What the training cost on this machine; the report's only source for it."""
    facts = {
        "method": method,
        "seed": seed,
        "samples": samples,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s, 1),
        "samples_per_s": round(samples / max(wall_s, 1e-9), 1),
    }
    (out / "train.json").write_text(json.dumps(facts, indent=1) + "\n")
