"""A tiny training loop that uses checkpoints as a real one does; run as a program so that a test can kill it.

``python -m tests.train.tiny_training FOLDER STEPS [KILL_AFTER]``: KILL_AFTER is the step after which the process kills
itself with SIGKILL, between two checkpoints and with a half-written temporary file and log row lying about.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from train.checkpoint import capture_rng, latest_checkpoint, restore_rng, save_checkpoint, truncate_log

EVERY = 5
PARAMS = {"lr": 0.01, "hidden": [16], "betas": (0.9, 0.999)}
DIMS = {"obs": 6, "action": 2}


def train(folder: Path, steps: int, kill_after: int | None) -> None:
    """Fit noise with dropout; every number depends on both generators, the optimiser and the running statistics."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    rng = np.random.default_rng(np.random.SeedSequence(0))
    network = nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Dropout(0.2), nn.Linear(16, 2))
    optimiser = torch.optim.Adam(network.parameters(), lr=PARAMS["lr"], betas=PARAMS["betas"])
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.99)
    mean, count, done = np.zeros(6), 0, 0
    log = folder / "log.csv"
    found = latest_checkpoint(folder / "checkpoints", {"dims": DIMS, "params": PARAMS})
    if found is not None:
        payload, done = found.payload, found.step
        network.load_state_dict(payload["weights"])
        optimiser.load_state_dict(payload["optimiser"]["adam"])
        schedule.load_state_dict(payload["optimiser"]["schedule"])
        mean, count = payload["normaliser"]["mean"].copy(), payload["normaliser"]["count"]
        restore_rng(payload["rng"], {"data": rng})
        truncate_log(log, "step", done)
    elif not log.exists():
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("step,loss\n")
    for step in range(done + 1, steps + 1):
        batch = rng.standard_normal((8, 6))
        count += 1
        mean += (batch.mean(axis=0) - mean) / count
        obs = torch.from_numpy((batch - mean).astype(np.float32))
        loss = (network(obs) - obs[:, :2].sin()).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        with log.open("a") as stream:
            stream.write(f"{step},{loss.item()!r}\n")
        if step % EVERY == 0:
            save_checkpoint(
                folder / "checkpoints",
                step,
                {
                    "weights": network.state_dict(),
                    "optimiser": {"adam": optimiser.state_dict(), "schedule": schedule.state_dict()},
                    "normaliser": {"mean": mean, "count": count},
                    "rng": capture_rng({"data": rng}),
                    "dims": DIMS,
                    "params": PARAMS,
                },
            )
        if step == kill_after:
            (folder / "checkpoints" / f"ckpt_{step:09d}.pt.tmp").write_bytes(b"half")
            with log.open("a") as stream:
                stream.write(f"{step + 1},0.1")
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
