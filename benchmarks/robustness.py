"""Survival under disturbances: ``python -m benchmarks.robustness --params params.yaml --policy POLICY --out PARQUET``.

Pushes in eight directions, slopes, steps, friction, mass and latency, each level on the same episodes. One player call
plays all motions of a level at once. The Parquet file has one row an episode; `survival_table` pools them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import polars as pl
from tqdm import tqdm

from benchmarks.accuracy import wilson_interval
from benchmarks.episodes import Episodes, draw_episodes, draw_push, identify, join_episodes
from benchmarks.rollout import Push
from benchmarks.tables import write_table
from engine import players
from engine.errors import InputError, run_main
from engine.motion.library import MotionLibrary
from engine.params import NonNegative, NotEmpty, Positive, Range, Seed, Unique, read_section
from engine.srb.terrain import Terrain

FPS = 30
Count = Annotated[int, Range(ge=1)]
Levels = Annotated[list[float], Unique(), Range(ge=0)]


@dataclass(frozen=True)
class RobustnessParams:
    """Section ``robustness``; an empty list leaves that disturbance out."""

    seed: Seed
    motions: Annotated[list[str], NotEmpty(), Unique()]
    clip_set: Literal["train", "heldout"]
    episodes: Count
    frames: Count
    mmik: bool
    threads: Count
    push_force_n: Levels
    push_duration_s: Positive
    push_earliest_s: NonNegative
    push_latest_s: NonNegative
    slope_deg: Levels
    step_cm: Levels
    friction: Levels
    mass_scale: Annotated[list[float], Unique(), Range(gt=0)]
    latency_frames: Annotated[list[int], Unique(), Range(ge=0)]


class Level(NamedTuple):
    """One row of the table: what is disturbed, how much, and the player options that do it."""

    disturbance: str
    level: float
    unit: str
    options: dict[str, Any]
    force_n: float = 0.0


def levels(params: RobustnessParams) -> Iterator[Level]:
    """Every level of every disturbance, the undisturbed run first."""
    yield Level("none", 0.0, "-", {})
    for force in params.push_force_n:
        yield Level("push", force, f"N for {params.push_duration_s:g} s, 8 directions", {}, force)
    for angle in params.slope_deg:
        yield Level("slope", angle, "deg", {"terrain": Terrain.slope(angle)})
    for height in params.step_cm:
        yield Level("steps", height, "cm, 1 m treads up and down", {"terrain": Terrain.steps(height / 100)})
    for friction in params.friction:
        yield Level("friction", friction, "coefficient", {"friction": friction})
    for scale in params.mass_scale:
        yield Level("mass", round(100 * (scale - 1), 6), "% of the trained mass", {"mass_scale": scale})
    for frames in params.latency_frames:
        yield Level("latency", float(frames), "frames of 1/30 s", {"latency_frames": frames})


def run_levels(params: RobustnessParams, policy: str, library: Any, method: str, seed: int) -> pl.DataFrame:
    """Play all levels; one row an episode."""
    root = np.random.SeedSequence(params.seed)
    start_seed, push_seed = root.spawn(2)
    drawn = [
        draw_episodes(library, motion, params.clip_set, params.episodes, params.frames, motion_seed)
        for motion, motion_seed in zip(params.motions, start_seed.spawn(len(params.motions)), strict=True)
    ]
    parts = [part for part in drawn if part is not None]
    if not parts:
        raise InputError(f"library: no {params.clip_set} clip of any kind in robustness.motions")
    episodes = join_episodes(parts)
    n = len(episodes.motion)
    held = round(params.push_duration_s * FPS)
    latest = max(0, min(round(params.push_latest_s * FPS), params.frames - held))
    earliest = min(round(params.push_earliest_s * FPS), latest)
    rows, player, loaded = [], None, None
    for level in tqdm(list(levels(params)), desc=f"robustness {method}", disable=None):
        if player is None or level.options or loaded:
            options = {"mmik": params.mmik, "threads": params.threads, **level.options}
            player, loaded = players.load(policy, n=n, library=library, **options), level.options
        push = draw_push(n, level.force_n, held, earliest, latest, push_seed)
        alive = survival_frames(player, episodes, params.frames, push)
        rows.append(
            pl.DataFrame(
                {
                    "method": [method] * n,
                    "seed": [seed] * n,
                    "motion": episodes.motion,
                    "disturbance": [level.disturbance] * n,
                    "level": [float(level.level)] * n,
                    "unit": [level.unit] * n,
                    "direction_deg": np.round(np.degrees(push.direction_rad) * (level.force_n > 0), 6),
                    "episode": np.arange(n),
                    "survival_frames": alive,
                    "survived": alive >= params.frames,
                }
            )
        )
    return pl.concat(rows)


def survival_frames(player: Any, episodes: Episodes, frames: int, push: Push) -> np.ndarray:
    """Frames that each character stays alive, (n,)."""
    player.reset(episodes.clips, episodes.starts)
    alive = np.ones(len(episodes.clips), bool)
    lived = np.zeros(len(alive), np.int64)
    for t in range(frames):
        alive &= player.step(push_force_w=push.force_w(t)).alive
        lived += alive
    return lived


def survival_table(rows: pl.DataFrame) -> pl.DataFrame:
    """Survival per method, motion, disturbance and level over all seeds and directions, with Wilson's 95 % interval."""
    group = ["method", "motion", "disturbance", "level", "unit"]
    order = rows.select("disturbance").unique(maintain_order=True).with_row_index("order")
    table = rows.group_by(group).agg(
        (100 * pl.col("survived").mean()).alias("survival_pct"),
        (pl.col("survival_frames").mean() / FPS).alias("survival_s"),
        pl.len().alias("episodes"),
        pl.col("survived").sum(),
        pl.col("seed").n_unique().alias("seeds"),
    )
    low, high = wilson_interval(pl.col("survived"), pl.col("episodes"))
    table = table.with_columns((100 * low).alias("survival_low_pct"), (100 * high).alias("survival_high_pct"))
    table = table.join(order, on="disturbance").sort("method", "motion", "order", "level")
    interval = ("survival_low_pct", "survival_high_pct")
    return table.select(*group[:4], "survival_pct", *interval, "survival_s", "unit", "episodes", "seeds")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robustness", description=__doc__)
    parser.add_argument("--params", default="params.yaml", help="parameter file (section robustness)")
    parser.add_argument("--policy", required=True, help="policy.onnx; method and seed are read from its path")
    parser.add_argument("--library", default="data/library.npz", help="motion library")
    parser.add_argument("--out", required=True, help="Parquet file to write")
    parser.add_argument("--method", help="name in the tables instead of the one in the path")
    parser.add_argument("--seed", type=int, help="seed in the tables instead of the one in the path")
    args = parser.parse_args(argv)
    params = read_section(args.params, "robustness", RobustnessParams)
    method, seed = identify(args.policy)
    library = MotionLibrary.load(args.library)
    rows = run_levels(params, args.policy, library, args.method or method, seed if args.seed is None else args.seed)
    write_table(rows, Path(args.out))
    print(f"{args.out}: {len(rows)} episodes, {int(rows['survived'].sum())} survived")


if __name__ == "__main__":
    run_main(main)
