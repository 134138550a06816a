"""The smallest trainings that still pass through every part of a method, and the motion library they run on."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.overrides import override
from engine.params import read_section
from engine.srb.body import SrbParams
from train.config import UnifiedParams
from train.envs.srb_env import Disturbance, SrbEnv
from train.networks import UnifiedNetwork, UnifiedPolicy
from train.no_network import START, tuned_params

REPO = Path(__file__).resolve().parents[2]
LIBRARY = REPO / "data" / "library.npz"
CALM = Disturbance(0.0, 0.0)
WINDOWS = 4

# Four kinds of motion, so four characters; episodes shorter than a window, so that restarts happen inside it.
SMALL: dict[str, Any] = {
    "train.unified.network.hidden": [8],  # an anchor: also unified_paper's network
    "train.unified.network.latent": 4,
    "train.unified.network.gate": 4,
    "train.unified.network.experts": 2,
    "train.unified.samples": 4 * 4 * WINDOWS,
    "train.unified.envs": 4,
    "train.unified.horizon": 4,
    "train.unified.episode_frames": 3,
    "train.unified.push_rate": 0.3,
    "train.unified.critic_hidden": [8],
    "train.unified.critic_batch": 8,
    "train.unified.eval_episodes": 4,
    "train.unified.eval_frames": 4,
    "train.unified.eval_every": 1,
    "train.unified.checkpoint_every": 2,
    "train.unified_paper.samples": 4 * 4 * WINDOWS,
    "train.unified_paper.envs": 4,
    "train.unified_paper.episode_frames": 3,
    "train.unified_paper.eval_episodes": 4,
    "train.unified_paper.eval_frames": 4,
    "train.unified_paper.eval_every": 1,
    "train.unified_paper.checkpoint_every": 2,
    "train.unified_paper.ppo.steps": 4,
    "train.unified_paper.ppo.batch": 8,
    "train.unified_paper.ppo.epochs": 2,
    "train.unified_paper.ppo.value_hidden": [8],
}


def write_inputs(folder: Path) -> tuple[Path, Path]:
    """Write a parameter file of the smallest trainings and an untuned ``tuned.json``; their paths."""
    params, tuned = folder / "params.yaml", folder / "tuned.json"
    override(REPO / "params.yaml", SMALL, params)
    foot_law, srb = tuned_params(np.asarray(START), read_section(params, "srb", SrbParams))
    tuned.write_text(json.dumps({"foot_law": foot_law, "srb": dataclasses.asdict(srb)}))
    return params, tuned


def small_env(library: MotionLibrary, n: int, episode_frames: int = 64, seed: int = 0, refine: bool = False) -> SrbEnv:
    """Undisturbed characters on the training clips with the repository's controller."""
    path = REPO / "params.yaml"
    srb, mmik = read_section(path, "srb", SrbParams), read_section(path, "mmik", MmikParams)
    rng = np.random.default_rng(seed)
    return SrbEnv(n, library, srb, mmik, "srb", episode_frames, CALM, rng, 1, refine=refine)


def small_params() -> UnifiedParams:
    """Section ``train.unified`` of the smallest trainings."""
    with tempfile.TemporaryDirectory() as folder:
        override(REPO / "params.yaml", SMALL, Path(folder) / "params.yaml")
        return read_section(Path(folder) / "params.yaml", "train.unified", UnifiedParams)


def small_policy(p: UnifiedParams) -> UnifiedPolicy:
    """An untrained policy of ``p``."""
    torch.manual_seed(0)
    return UnifiedPolicy(UnifiedNetwork(**dataclasses.asdict(p.network)), [0.2] * 6, **dataclasses.asdict(p.control))
