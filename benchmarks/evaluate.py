"""Measure one policy: ``python -m benchmarks.evaluate --policy POLICY --library NPZ --out PARQUET``.

Every kind of motion and clip set gets the same number of episodes at random starts, without noise, with and without the
post-process (MMIK); with it also under one push an episode and with path following. Episodes are drawn from seeds that
no method enters, so methods are compared on the same starts. The Parquet file has one row a window of an episode
(``accuracy.KEYS`` and sums); a second run writes the same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import polars as pl
from tqdm import tqdm

from benchmarks.accuracy import EPISODE_SUMS, KEYS, long_rows, pool
from benchmarks.episodes import CLIP_SETS, Episodes, draw_episodes, draw_push, identify
from benchmarks.measures import QUANTITIES, frame_quantities, window_sums
from benchmarks.rollout import Push, record_episodes
from benchmarks.tables import write_table
from engine import players
from engine.errors import InputError, run_main
from engine.motion.library import MotionLibrary
from engine.params import NonNegative, NotEmpty, Positive, Range, Seed, Unique, read_section

FPS = 30
Count = Annotated[int, Range(ge=1)]


@dataclass(frozen=True)
class PushParams:
    """One push an episode: strength [N], duration [s] and when it may set in [s]."""

    force_n: Positive
    duration_s: Positive
    earliest_s: NonNegative
    latest_s: NonNegative


@dataclass(frozen=True)
class EvaluateParams:
    """Section ``evaluate``."""

    seed: Seed
    motions: Annotated[list[str], NotEmpty(), Unique()]
    episodes: Count
    frames: Annotated[int, Range(ge=4)]
    window_frames: Count
    threads: Count
    push: PushParams


class Run:
    """One batch to play: its player's options, its disturbance and its name."""

    def __init__(self, condition: str, mmik: bool, path_following: bool, pushed: bool) -> None:
        self.condition, self.mmik, self.path_following, self.pushed = condition, mmik, path_following, pushed


def runs(params: EvaluateParams, mmik: str) -> list[Run]:
    """What is played: plain for each of the asked post-process settings, pushed and path following for the last."""
    settings = {"both": [False, True], "yes": [True], "no": [False]}[mmik]
    plain = [Run("none", setting, False, False) for setting in settings]
    push = f"push {params.push.force_n:g} N x {params.push.duration_s:g} s"
    return [*plain, Run(push, settings[-1], False, True), Run("path following", settings[-1], True, False)]


def evaluate(
    params: EvaluateParams, policy: str, library: Any, method: str, seed: int, mmik: str = "both"
) -> pl.DataFrame:
    """Play all episodes and return the long table, sorted by its keys."""
    parts = []
    batches = list(_batches(params, library))
    progress = tqdm(total=len(batches) * len(runs(params, mmik)), desc=f"evaluate {method}", disable=None)
    for run in runs(params, mmik):
        options = {"mmik": run.mmik, "path_following": run.path_following, "threads": params.threads}
        player = players.load(policy, n=params.episodes, library=library, compositions=True, **options)
        for clip_set, episodes, push in batches:
            disturbance = push if run.pushed else None
            recording = record_episodes(player, library, episodes.clips, episodes.starts, params.frames, disturbance)
            sums = window_sums(frame_quantities(recording, library), params.window_frames)
            survival = recording.alive.sum(axis=0)
            rows = long_rows(sums, survival, episodes, library, params.frames, params.window_frames)
            parts.append(
                rows.with_columns(
                    pl.lit(method).alias("method"),
                    pl.lit(seed).alias("seed"),
                    pl.lit("yes" if run.mmik else "no").alias("mmik"),
                    pl.lit(run.condition).alias("condition"),
                    pl.lit(clip_set).alias("clip_set"),
                )
            )
            progress.update()
    progress.close()
    return pl.concat(parts).select(*KEYS, *QUANTITIES, *EPISODE_SUMS).sort(KEYS)


def _batches(params: EvaluateParams, library: Any) -> Iterator[tuple[str, Episodes, Push]]:
    root = np.random.SeedSequence(params.seed)
    push = params.push
    found = False
    for clip_set, set_seed in zip(CLIP_SETS, root.spawn(len(CLIP_SETS)), strict=True):
        for motion, motion_seed in zip(params.motions, set_seed.spawn(len(params.motions)), strict=True):
            start_seed, push_seed = motion_seed.spawn(2)
            episodes = draw_episodes(library, motion, clip_set, params.episodes, params.frames, start_seed)
            if episodes is None:
                print(f"evaluate: no {clip_set} clip of kind {motion}, left out", file=sys.stderr)
                continue
            found = True
            held = round(push.duration_s * FPS)
            latest = min(round(push.latest_s * FPS), params.frames - held)
            earliest = min(round(push.earliest_s * FPS), latest)
            yield clip_set, episodes, draw_push(params.episodes, push.force_n, held, earliest, latest, push_seed)
    if not found:
        kinds = ", ".join(sorted(set(library.kind)))
        raise InputError(f"library: no clip of any kind in evaluate.motions (found {kinds})")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evaluate", description=__doc__)
    parser.add_argument("--params", default="params.yaml", help="parameter file (section evaluate)")
    parser.add_argument("--policy", required=True, help="policy.onnx; method and seed are read from its path")
    parser.add_argument("--library", default="data/library.npz", help="motion library")
    parser.add_argument("--out", required=True, help="Parquet file to write")
    parser.add_argument("--pooled", help="also write sums over episodes here (CSV; same metrics, small)")
    parser.add_argument("--mmik", choices=("both", "yes", "no"), default="both", help="with the post-process or not")
    parser.add_argument("--method", help="name in the tables instead of the one in the path")
    parser.add_argument("--seed", type=int, help="seed in the tables instead of the one in the path")
    args = parser.parse_args(argv)
    params = read_section(args.params, "evaluate", EvaluateParams)
    method, seed = identify(args.policy)
    library = MotionLibrary.load(args.library)
    table = evaluate(
        params, args.policy, library, args.method or method, seed if args.seed is None else args.seed, args.mmik
    )
    write_table(table, Path(args.out))
    if args.pooled:
        write_table(pool(table), Path(args.pooled))
    episodes, survived = int(table["episodes"].sum()), int(table["survived"].sum())
    print(f"{args.out}: {len(table)} windows, {survived} of {episodes} episodes survived")


if __name__ == "__main__":
    run_main(main)
