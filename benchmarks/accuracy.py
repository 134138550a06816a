"""Definitions of the accuracy metrics (Table 2), as Polars expressions over rows of summed frame quantities.

One row of the long table is one window of one episode: the key columns ``KEYS``, one sum a quantity of
``measures.QUANTITIES`` and ``EPISODE_SUMS``. Every metric is a ratio of sums, so it is the mean over all frames (or
points) of the group, whatever the windows, and rows may be added up beforehand (`pool`). The paper (Kim et al. 2026,
Table 2) names joint position error, motion jerk and foot skating without defining them; ``METRICS`` says for each of
ours the formula, unit, frame and points counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.episodes import Episodes
from benchmarks.measures import QUANTITIES
from benchmarks.rollout import Array

FPS = 30
KEYS = (
    "method",
    "seed",
    "mmik",
    "condition",
    "clip_set",
    "motion",
    "clip",
    "start_frame",
    "episode",
    "first_frame",
)
EPISODE_SUMS = (
    "episodes",
    "survived",
    "survival_frames",
    "distinct_starts",
)  # counted in the first window of each episode, else 0
GROUP = ("method", "mmik", "condition", "clip_set", "motion")
SPREAD = ("jpe_srb_cm", "jpe_proj_cm", "jerk_cm_per_frame3", "skate_frame_cm", "survival_pct")
Z_95 = 1.959963984540054


@dataclass(frozen=True)
class Metric:
    """One column of the accuracy table.

    Attributes:
        name: Column, with its unit.
        unit: Unit in words.
        frame: In which frame positions are compared.
        points: Which points are counted.
        formula: What is averaged.
        expression: The aggregation.
    """

    name: str
    unit: str
    frame: str
    points: str
    formula: str
    expression: pl.Expr


def _mean(total: str, count: str) -> pl.Expr:
    """Ratio of two summed columns; null where nothing was counted."""
    return pl.when(pl.col(count).sum() > 0).then(pl.col(total).sum() / pl.col(count).sum())


def _mean_first_10_s(total: str, count: str) -> pl.Expr:
    early = pl.col("first_frame") < 10 * FPS
    counted = pl.col(count).filter(early).sum()
    return pl.when(counted > 0).then(pl.col(total).filter(early).sum() / counted)


_ALL = "15 body origins"
_MARKERS = "heel and toe of both feet"
_true_positives = 2 * pl.col("contact_tp").sum()
_contact_decisions = _true_positives + pl.col("contact_fp").sum() + pl.col("contact_fn").sum()

METRICS = (
    Metric(
        "jpe_srb_cm",
        "cm",
        "each one's own projected SRB frame (yaw of the SRB, ground point under the COM)",
        _ALL,
        "mean |p_sim - p_ref|; the played pose is composed on the full SRB, so it tilts with the body",
        _mean("jpe_srb", "frames"),
    ),
    Metric(
        "jpe_proj_cm",
        "cm",
        "as jpe_srb_cm",
        _ALL,
        "mean |p_sim - p_ref|; the same prediction placed on the SRB's yaw and ground point, with the reference's "
        "height and tilt, so only the prediction itself errs",
        _mean("jpe_proj", "frames"),
    ),
    Metric(
        "jpe_root_cm",
        "cm",
        "world axes, origin at the pelvis",
        "14 bodies without the pelvis",
        "mean |(p_sim - root_sim) - (p_ref - root_ref)|, no rotation alignment (MPJPE)",
        _mean("jpe_root", "frames"),
    ),
    Metric(
        "jpe_world_cm",
        "cm",
        "world; equal at the start of the episode",
        _ALL,
        "mean |p_sim - p_ref|, drift included",
        _mean("jpe_world", "frames"),
    ),
    Metric(
        "jpe_world_10s_cm",
        "cm",
        "as jpe_world_cm",
        _ALL,
        "jpe_world_cm over the first 10 s",
        _mean_first_10_s("jpe_world", "frames"),
    ),
    Metric(
        "jerk_cm_per_frame3",
        "cm/frame^3",
        "world",
        _ALL,
        "mean |x(t) - 3 x(t-1) + 3 x(t-2) - x(t-3)| at 30 frames/s",
        _mean("jerk", "jerk_frames"),
    ),
    Metric(
        "jerk_reference_cm_per_frame3",
        "cm/frame^3",
        "world",
        _ALL,
        "the same of the reference, over the same frames",
        _mean("jerk_reference", "jerk_frames"),
    ),
    Metric(
        "jerk_ratio_to_reference",
        "1",
        "world",
        _ALL,
        "jerk_cm_per_frame3 / jerk_reference_cm_per_frame3",
        _mean("jerk", "jerk_reference"),
    ),
    Metric(
        "skate_frame_cm",
        "cm a frame",
        "world, horizontal",
        _MARKERS,
        "mean |x(t) - x(t-1)| of a marker whose REFERENCE label is in contact at both frames",
        _mean("skate", "skate_steps"),
    ),
    Metric(
        "skate_frame_sim_cm",
        "cm a frame",
        "world, horizontal",
        _MARKERS,
        "the same with the contacts of the SIMULATION",
        _mean("skate_sim", "skate_sim_steps"),
    ),
    Metric(
        "skate_frame_of_reference_cm",
        "cm a frame",
        "world, horizontal",
        _MARKERS,
        "how far the reference motion itself skates under its own labels",
        _mean("skate_reference", "skate_steps"),
    ),
    Metric(
        "skate_drift_cm",
        "cm",
        "world, horizontal",
        _MARKERS,
        "mean distance to the mean place of the contact interval (reference labels)",
        _mean("drift", "drift_points"),
    ),
    Metric(
        "skate_mann_cm",
        "cm a frame",
        "world, horizontal",
        _MARKERS,
        "mean v (2 - 2^(h/H)), v way a frame, h height of the marker clipped to [0, H], H = 2.5 cm",
        _mean("skate_mann", "mann_steps"),
    ),
    Metric(
        "penetration_cm",
        "cm",
        "world, vertical",
        _MARKERS,
        "mean max(0, -z): depth below the flat floor, zero where above",
        _mean("penetration", "frames"),
    ),
    Metric(
        "contact_f1",
        "1",
        "-",
        "both feet",
        "2 TP / (2 TP + FP + FN) of foot-in-contact, simulation against reference label, all frames pooled",
        pl.when(_contact_decisions > 0).then(_true_positives / _contact_decisions),
    ),
    Metric(
        "survival_pct",
        "% of episodes",
        "-",
        "-",
        "share of episodes that reach their last frame",
        100 * _mean("survived", "episodes"),
    ),
    Metric(
        "survival_s",
        "s",
        "-",
        "-",
        "mean time until the end of the episode",
        _mean("survival_frames", "episodes") / FPS,
    ),
)


def aggregate(long: pl.DataFrame, group: tuple[str, ...] = GROUP) -> pl.DataFrame:
    """Metrics of each group over all its frames, episodes and seeds.

    Args:
        long: Rows of windows (see the module).
        group: Key columns that stay.

    Returns:
        One row a group, sorted by it: ``episodes``, ``distinct_starts`` (different starts of a seed), the metrics,
        ``seeds``; standard deviation of ``SPREAD`` over seeds (null for a single seed) as ``<metric>_sd``; Wilson's
        95 % interval of survival over all episodes as ``survival_low_pct`` and ``survival_high_pct``.
    """
    metrics = [m.expression.alias(m.name) for m in METRICS]
    counts = [pl.col("episodes", "survived", "distinct_starts").sum(), pl.col("seed").n_unique().alias("seeds")]
    pooled = long.group_by(group).agg(*metrics, *counts)
    by_seed = long.group_by(*group, "seed").agg(*(m.expression.alias(m.name) for m in METRICS if m.name in SPREAD))
    spread = by_seed.group_by(group).agg(*(pl.col(name).std().alias(f"{name}_sd") for name in SPREAD))
    low, high = wilson_interval(pl.col("survived"), pl.col("episodes"))
    table = pooled.join(spread, on=list(group), how="left", nulls_equal=True)
    table = table.with_columns((100 * low).alias("survival_low_pct"), (100 * high).alias("survival_high_pct"))
    table = table.with_columns(pl.col("distinct_starts") // pl.col("seeds"))
    columns = [*group, "episodes", "distinct_starts", *(m.name for m in METRICS), "seeds"]
    columns += [f"{name}_sd" for name in SPREAD] + ["survival_low_pct", "survival_high_pct"]
    return table.select(columns).sort(group)


def with_all_motions(long: pl.DataFrame) -> pl.DataFrame:
    """Append every row once more under ``motion = "all"`` where there is more than one kind of motion."""
    if long["motion"].n_unique() < 2:
        return long
    return pl.concat([long, long.with_columns(pl.lit("all").alias("motion"))])


def long_rows(
    sums: dict[str, Array],
    survival_frames: NDArray[np.int64],
    episodes: Episodes,
    library: Any,
    frames: int,
    window_frames: int,
) -> pl.DataFrame:
    """Lay (W, n) window sums out as rows; windows after the end of an episode are left out."""
    windows, n = sums["frames"].shape
    first = np.zeros((windows, n), np.int64)
    first[0] = 1
    columns: dict[str, Any] = {
        "motion": episodes.motion * windows,
        "clip": [library.names[c] for c in episodes.clips] * windows,
        "start_frame": np.tile(episodes.starts, windows),
        "episode": np.tile(np.arange(n), windows),
        "first_frame": np.repeat(np.arange(windows) * window_frames, n),
        **{name: sums[name].ravel() for name in QUANTITIES},
        "episodes": first.ravel(),
        "survived": (first * (survival_frames >= frames)).ravel(),
        "survival_frames": (first * survival_frames).ravel(),
        "distinct_starts": (first * _first_of_its_kind(episodes)).ravel(),
    }
    return pl.DataFrame(columns).filter((pl.col("frames") > 0) | (pl.col("episodes") > 0))


def _first_of_its_kind(episodes: Episodes) -> NDArray[np.int64]:
    """1 for the first episode from each start; a deterministic policy plays the others just so again."""
    starts = np.stack([episodes.clips, episodes.starts], axis=1)
    out = np.zeros(len(starts), np.int64)
    out[np.unique(starts, axis=0, return_index=True)[1]] = 1
    return out


def pool(long: pl.DataFrame) -> pl.DataFrame:
    """Add up clips and episodes: one row a group, seed and window, small enough for git; the metrics stay the same."""
    keys = [*GROUP, "seed", "first_frame"]
    sums = [name for name in (*QUANTITIES, *EPISODE_SUMS) if name in long.columns]
    return long.group_by(keys).agg(pl.col(sums).sum()).sort(keys)


def wilson_interval(successes: pl.Expr, trials: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Wilson's 95 % interval of a proportion, low and high end in [0, 1]; right also at 0 and at all."""
    p, z2 = successes / trials, Z_95**2
    centre = (p + z2 / (2 * trials)) / (1 + z2 / trials)
    half = Z_95 * (p * (1 - p) / trials + z2 / (4 * trials**2)).sqrt() / (1 + z2 / trials)
    return pl.max_horizontal(centre - half, pl.lit(0.0)), pl.min_horizontal(centre + half, pl.lit(1.0))


def error_over_time(long: pl.DataFrame, group: tuple[str, ...] = GROUP) -> pl.DataFrame:
    """Joint position errors of each group in each window: columns ``time_s`` (start), jpe_srb_cm, jpe_world_cm."""
    names = ("jpe_srb_cm", "jpe_proj_cm", "jpe_world_cm")
    expressions = [m.expression.alias(m.name) for m in METRICS if m.name in names]
    table = long.group_by(*group, "first_frame").agg(*expressions, pl.col("frames").sum())
    return table.with_columns((pl.col("first_frame") / FPS).alias("time_s")).sort(*group, "first_frame")


def metric_definitions() -> pl.DataFrame:
    """The definitions as a table for the report."""
    return pl.DataFrame(
        {
            "metric": [m.name for m in METRICS],
            "unit": [m.unit for m in METRICS],
            "frame": [m.frame for m in METRICS],
            "points": [m.points for m in METRICS],
            "formula": [m.formula for m in METRICS],
        }
    )


def round_significant(table: pl.DataFrame, digits: int = 6) -> pl.DataFrame:
    """Round every float column to so many significant digits: what a result file in git shows."""
    return table.with_columns(pl.col(pl.Float64).round_sig_figs(digits))
