"""Does the exported policy say what the trained one says? torch against onnxruntime, ordinary and extreme rows.

Ordinary rows may differ by the tolerance, absolutely. On extreme rows float32 itself may know less than that: an action
of thousands has seven digits, and a rotation made from two parallel columns is noise in both programs. There the
difference is measured against the policy's own condition number (see `condition`), so that what is compared is the
program and not the rounding.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from engine.errors import InputError
from engine.policy import Policy
from engine.policy_layout import Piece, rotation_columns, width
from engine.rotation import exp_so3, matrix_to_6d

BATCHES = (1, 4, 64)
EXTREMES = (1e-38, 1e-6, 1.0, 1e2, 1e4, 1e6)
ORDINARY = ("random", "recorded")
_ULP = 2.0**-23
_LARGEST_TILT = 1.1
"""Angle of the rotations in random rows [rad], about the tilt at which an episode ends."""


def parity_observations(
    pieces: tuple[Piece, ...], seed: int, samples: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """Return the observation rows that torch and onnxruntime are compared on, by name.

    Args:
        pieces: Layout of an observation row.
        seed: Seed of the random rows.
        samples: Rows met in training, shape (n, obs_width); None if there are none.

    Returns:
        Rows by name, each float32 of shape (64, obs_width). Ordinary are ``random`` (standard normal, rotations proper)
        and ``recorded`` (the samples); extreme are ``wide`` (normal times 10), ``zeros`` and, for each magnitude of
        `EXTREMES`, rows that are constant, alternating, or zero but for one entry.
    """
    n_rows, obs_width = max(BATCHES), width(pieces)
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    rows = {"random": rng.standard_normal((n_rows, obs_width)), "zeros": np.zeros((n_rows, obs_width))}
    rotations = rotation_columns(pieces)
    axis = rng.standard_normal((n_rows, len(rotations), 3))
    axis /= np.linalg.norm(axis, axis=-1, keepdims=True)
    angle = rng.uniform(0.0, _LARGEST_TILT, size=(n_rows, len(rotations), 1))
    rows["random"][:, rotations] = matrix_to_6d(exp_so3(axis * angle))
    rows["wide"] = 10.0 * rng.standard_normal((n_rows, obs_width))
    signs = rng.choice([-1.0, 1.0], size=(n_rows, 1))
    for magnitude in EXTREMES:
        rows[f"constant {magnitude:g}"] = magnitude * signs * np.ones(obs_width)
        rows[f"alternating {magnitude:g}"] = magnitude * signs * np.where(np.arange(obs_width) % 2, 1.0, -1.0)
        spike = np.zeros((n_rows, obs_width))
        spike[np.arange(n_rows), rng.integers(obs_width, size=n_rows)] = magnitude
        rows[f"spike {magnitude:g}"] = signs * spike
    if samples is not None and len(samples):
        rows["recorded"] = np.resize(np.asarray(samples), (n_rows, obs_width))
    return {name: np.ascontiguousarray(row, dtype=np.float32) for name, row in rows.items()}


def condition(double: nn.Module, obs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    r"""Return how strongly rounding the observations moves the actions, in float64.

    ``max |a(x + d) - a(x)| / u`` over four draws of ``d = +-u max(1, |x|)``, where ``u = 2^-23`` is the spacing of
    float32 at 1.

    Args:
        double: The policy in float64.
        obs: Observation rows, shape (n, obs_width).
        rng: Draws the signs.

    Returns:
        Condition of each row, shape (n, 1).
    """
    rows = torch.from_numpy(obs.astype(np.float64))
    worst = np.zeros((len(obs), 1))
    with torch.no_grad():
        base = double(rows).numpy()
        for _ in range(4):
            signs = torch.from_numpy(rng.choice([-1.0, 1.0], size=obs.shape))
            moved = double(rows + _ULP * signs * rows.abs().clamp_min(1.0)).numpy()
            worst = np.maximum(worst, np.abs(moved - base).max(axis=1, keepdims=True) / _ULP)
    return worst


def measure_parity(
    module: nn.Module,
    policy: Policy,
    seed: int,
    samples: np.ndarray | None = None,
    batches: Sequence[int] = BATCHES,
) -> dict[str, Any]:
    """Compare torch with onnxruntime.

    Args:
        module: The torch policy.
        policy: The exported one.
        seed: Seed of the random rows.
        samples: Rows met in training, shape (n, obs_width); None if there are none.
        batches: Batch sizes.

    Returns:
        ``max_abs_error``: largest ``|a_torch - a_onnx|`` on ordinary rows; ``max_extreme_error``: the same on extreme
        rows, divided by the row's condition where that is above 1; ``max_error``: the larger of the two, with the rows
        and batch it was met on and the largest by batch size.

    Raises:
        InputError: torch's own action is not finite for an observation.
    """
    module = module.eval()
    double = copy.deepcopy(module).double()
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    largest = {True: 0.0, False: 0.0}
    worst_case = "none"
    by_batch = {str(batch): 0.0 for batch in batches}
    for name, rows in parity_observations(policy.metadata.observation, seed, samples).items():
        ordinary = name in ORDINARY
        scale = np.ones((len(rows), 1)) if ordinary else np.fmax(1.0, condition(double, rows, rng))
        for batch in batches:
            obs = rows[:batch]
            with torch.no_grad():
                expected = module(torch.from_numpy(obs)).numpy().astype(np.float64)
            if not np.isfinite(expected).all():
                message = f"'{name}' observations, batch {batch} (found an action that is not finite, expected finite)"
                raise InputError.at("parity", None, message)
            scaled = np.abs(expected - policy.act(obs)) / scale[:batch]
            error = float(scaled.max()) if np.isfinite(scaled).all() else float("inf")
            if error > max(largest.values()):
                worst_case = f"{name}, batch {batch}"
            largest[ordinary] = max(largest[ordinary], error)
            by_batch[str(batch)] = max(by_batch[str(batch)], error)
    return {
        "max_error": max(largest.values()),
        "max_abs_error": largest[True],
        "max_extreme_error": largest[False],
        "worst_case": worst_case,
        "max_error_by_batch": by_batch,
    }


def check_parity(path: str, result: dict[str, Any], tolerance: float) -> None:
    """Raise `InputError` where the largest error is above the tolerance; names the rows where it is."""
    if not result["max_error"] <= tolerance:
        message = (
            f"parity: torch and onnxruntime differ on {result['worst_case']} "
            f"(found {result['max_error']:.3g}, expected at most {tolerance:g})"
        )
        raise InputError.at(path, None, message)


def parity_json(result: dict[str, Any]) -> bytes:
    """Return the result as the bytes of a DVC metrics file."""
    rounded = {
        key: {k: float(f"{v:.3g}") for k, v in value.items()}
        if isinstance(value, dict)
        else float(f"{value:.3g}")
        if isinstance(value, float)
        else value
        for key, value in result.items()
    }
    return (json.dumps(rounded, indent=2, sort_keys=True) + "\n").encode()
