"""Deterministic evaluation during training: how long the policy survives on the training clips."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from engine.players.unified import SrbCharacters
from engine.srb.action import decode_action_into
from train.envs.srb_env import SrbEnv
from train.rotation6 import matrix_rows


class Evaluation:
    """The same starts each time: mean survival in seconds per motion kind, on the environment's clips."""

    def __init__(self, env: SrbEnv, frames: int) -> None:
        self.env, self.frames = env, frames
        chars = env.characters
        self.start = {key: value.copy() for key, value in env.arrays().items()}
        self.kinds = [chars.library.kind[group[0]] for group in env.clips_of_kind]
        self.act12, self.command = np.zeros((env.n, 12)), np.zeros((env.n, 2, 9))
        self.contact = np.zeros(env.n, np.int64)

    def survival_s(self, act: Callable[[Tensor], Tensor]) -> dict[str, float]:
        """Play all episodes with ``act`` (observation to action, (n, 340) to (n, 169))."""
        chars: SrbCharacters = self.env.characters
        self.env.restore(self.start)
        if chars.mmik is not None:
            chars.mmik.reset()
        lived = np.zeros(self.env.n)
        ground = chars.options.terrain
        for _ in range(self.frames):
            with torch.no_grad():
                action = act(torch.from_numpy(chars.observe())).numpy()
            decode_action_into(
                self.act12, self.command, self.contact, action, chars.batch.state, chars.body_frame,
                ground.shape_params, ground.heights, chars._small,
            )  # fmt: skip
            chars.apply(self.act12, self.command, self.contact, action[:, 30:165])
            lived += chars.alive
        return {kind: float(lived[self.env.kind == k].mean() / 30.0) for k, kind in enumerate(self.kinds)}


class Progress:
    """A bar on a terminal, otherwise a plain line a minute; samples, rate, time left."""

    def __init__(self, total: int, done: int, name: str) -> None:
        self.total, self.name = total, name
        self.bar = tqdm(total=total, initial=done, desc=name, unit="sample", unit_scale=True, disable=None)
        self.first, self.began, self.last = done, time.perf_counter(), time.perf_counter()

    def update(self, done: int, text: str) -> None:
        """Show ``done`` samples and ``text``."""
        self.bar.update(done - self.bar.n if not self.bar.disable else 0)
        self.bar.set_postfix_str(text)
        now = time.perf_counter()
        if self.bar.disable and now - self.last > 60:
            self.last = now
            rate = (done - self.first) / (now - self.began)
            left = (self.total - done) / max(rate, 1e-9)
            print(
                f"{self.name}: {done}/{self.total} samples, {rate:.0f}/s, {left:.0f} s left, {text}",
                file=sys.stderr,
                flush=True,
            )

    def close(self) -> None:
        """Finish the bar."""
        self.bar.close()


def append_row(path: Path, row: dict[str, object]) -> None:
    """Add one line to a CSV log, with its header where the file is new."""
    new = not path.exists() or path.stat().st_size == 0
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def mlp(sizes: list[int]) -> nn.Sequential:
    """Fully connected network with ELU between the layers."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ELU()]
    return nn.Sequential(*layers[:-1])


def relative_body(
    body_pos_w: NDArray[np.float64], body_quat_w: NDArray[np.float64], state: NDArray[np.float64]
) -> Tensor:
    """A world pose as a policy's body output in the ``srb`` frame, (n, 135)."""
    rot = torch.from_numpy(state[:, 3:12].reshape(-1, 3, 3).copy())
    pos = torch.from_numpy(body_pos_w - state[:, None, :3])
    columns = matrix_rows(torch.from_numpy(body_quat_w))
    rows = torch.cat([pos[:, :, None], columns], dim=2) @ rot[:, None]
    return rows.reshape(len(rows), 135).float()
