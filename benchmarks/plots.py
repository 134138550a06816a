"""Figures of the report, as SVG bytes that are equal for equal data (no dates, no random identifiers)."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "gaitforge",
    "svg.fonttype": "none",
    "legend.fontsize": 8,
    "legend.frameon": False,
}
NOT_CURVES = (
    "samples",
    "wall_s",
    "cpu_s",
    "iteration",
    "generation",
    "update",
    "step",
    "lr",
    "learning_rate",
    "samples_per_s",
)
MAX_PANELS = 6
GREY = {"color": "0.6", "lw": 0.8}
COLOURS = plt.get_cmap("tab10").colors


def training_curves(curves: list[tuple[str, int, pl.DataFrame]]) -> bytes | None:
    """Each logged quantity against samples, one line a seed, one colour a method.

    Args:
        curves: (method, seed, table with a ``samples`` column) of each training.
    """
    curves = [(m, s, t) for m, s, t in curves if "samples" in t.columns and len(t) > 1]
    if not curves:
        return None
    names = _common_columns([t for _, _, t in curves])
    colours = _colours(m for m, _, _ in curves)
    with plt.rc_context(STYLE):
        figure, axes = _panels(len(names))
        for axis, name in zip(axes, names, strict=False):
            shown: set[str] = set()
            for method, _, table in curves:
                if name in table.columns:
                    label = None if method in shown else method
                    shown.add(method)
                    x, y = table["samples"].to_numpy(), table[name].to_numpy()
                    axis.plot(x, y, color=colours[method], lw=1.2, alpha=0.8, label=label)
            axis.set(xlabel="samples", title=name, xscale="log" if _spread([t for _, _, t in curves]) else "linear")
            axis.legend()
        return _svg(figure)


def error_over_time(table: pl.DataFrame) -> bytes | None:
    """Joint position error in the own frame and in the world against time in the episode, one panel a motion."""
    if table.is_empty():
        return None
    motions = table["motion"].unique(maintain_order=True).to_list()
    colours = _colours(sorted(table["method"].unique().to_list()))
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(2, len(motions), figsize=(3.2 * len(motions), 5), squeeze=False, sharex=True)
        for j, motion in enumerate(motions):
            for (method, mmik, clip_set), part in table.filter(pl.col("motion") == motion).group_by(
                "method", "mmik", "clip_set", maintain_order=True
            ):
                style = {"color": colours[method], "ls": "-" if clip_set == "train" else "--", "lw": 1.2}
                label = f"{method}, {clip_set}" if mmik == "yes" else f"{method} w/o MMIK, {clip_set}"
                alpha = 1.0 if mmik == "yes" else 0.4
                grid[0, j].plot(part["time_s"], part["jpe_srb_cm"], label=label, alpha=alpha, **style)
                grid[1, j].plot(part["time_s"], part["jpe_world_cm"], alpha=alpha, **style)
            grid[0, j].set(title=motion, ylabel="jpe_srb [cm]" if j == 0 else "", ylim=(0, None))
            grid[1, j].set(xlabel="time [s]", ylabel="jpe_world [cm]" if j == 0 else "", ylim=(0, None))
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return _svg(figure)


def frame_time_distribution(rows: list[dict[str, Any]]) -> bytes | None:
    """Share of frames that took at most so long, per row of Table 3.

    Args:
        rows: With ``row`` and ``frame_time_quantiles_ms`` (0, 1, ..., 100 %).
    """
    rows = [r for r in rows if r.get("frame_time_quantiles_ms")]
    if not rows:
        return None
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(6, 3.2))
        for row in rows:
            quantiles = row["frame_time_quantiles_ms"]
            axis.plot(quantiles, np.linspace(0, 100, len(quantiles)), lw=1.4, label=row["row"])
        axis.axvline(1000 / 30, color="0.5", ls=":", lw=1)
        axis.text(1000 / 30, 3, " 30 frames/s", color="0.4")
        axis.set(xscale="log", xlabel="time of a frame [ms]", ylabel="frames at most so slow [%]", ylim=(0, 100))
        axis.legend()
        return _svg(figure)


def fps_against_characters(table4: pl.DataFrame, paper: pl.DataFrame) -> bytes | None:
    """Frames a second of the crowd against its size; the papers' rows as crosses (their machine)."""
    if table4.is_empty():
        return None
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(8.5, 3.8))
        for (row, threads), part in table4.group_by("row", "threads", maintain_order=True):
            label = f"{row}, {threads} thread{'s' if threads > 1 else ''}"
            axis.plot(part["n_characters"], part["fps"], marker="o", ms=3, lw=1.2, label=label)
        for (row,), part in paper.group_by("paper_row", maintain_order=True):
            axis.plot(part["n_characters"], part["fps"], "x--", color="0.5", lw=0.8, ms=4, label=f"paper: {row}")
        axis.axhline(30, color="0.5", ls=":", lw=1)
        axis.set(xscale="log", yscale="log", xlabel="characters", ylabel="frames/s of the whole crowd")
        axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return _svg(figure)


def survival_against_level(table: pl.DataFrame, disturbance: str) -> bytes | None:
    """Survival against the level of one disturbance, one panel a motion."""
    part = table.filter(pl.col("disturbance") == disturbance)
    if part.is_empty():
        return None
    motions = part["motion"].unique(maintain_order=True).to_list()
    colours = _colours(sorted(part["method"].unique().to_list()))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, len(motions), figsize=(3 * len(motions), 2.6), squeeze=False, sharey=True)
        for axis, motion in zip(axes[0], motions, strict=True):
            for (method,), rows in part.filter(pl.col("motion") == motion).group_by("method", maintain_order=True):
                rows = rows.sort("level")
                axis.plot(rows["level"], rows["survival_pct"], "o-", ms=3, color=colours[method], label=method)
                axis.fill_between(
                    rows["level"],
                    rows["survival_low_pct"],
                    rows["survival_high_pct"],
                    color=colours[method],
                    alpha=0.15,
                )
            axis.set(title=motion, xlabel=f"{disturbance} [{part['unit'][0].split(',')[0]}]", ylim=(-3, 103))
        axes[0, 0].set_ylabel("survival [%]")
        axes[0, -1].legend()
        return _svg(figure)


def foot_traces(title: str, marker_pos_w: np.ndarray, ref_marker_pos_w: np.ndarray) -> bytes:
    """Height and ground track of heel and toe against the reference's.

    Args:
        title: Heading.
        marker_pos_w: Played markers [m], (T, 2 feet, 2 heel/toe, 3); ref_marker_pos_w: of the reference.
    """
    time = np.arange(len(marker_pos_w)) / 30
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(9.5, 2.6))
        for foot, side in enumerate(("left", "right")):
            for end, ls in enumerate(("-", ":")):
                name = f"{side} {'heel' if end == 0 else 'toe'}"
                axes[0].plot(time, 100 * marker_pos_w[:, foot, end, 2], ls, color=COLOURS[foot], lw=1.2, label=name)
                axes[0].plot(time, 100 * ref_marker_pos_w[:, foot, end, 2], ls, color="0.6", lw=0.8)
            for track, style in ((marker_pos_w, {"color": COLOURS[foot], "lw": 1.2}), (ref_marker_pos_w, GREY)):
                step = np.linalg.norm(np.diff(track[:, foot, 0, :2], axis=0), axis=-1)
                axes[1].plot(time[1:], 100 * step, **style)
            axes[2].plot(*marker_pos_w[:, foot, 0, :2].T, color=COLOURS[foot], lw=1.2)
            axes[2].plot(*ref_marker_pos_w[:, foot, 0, :2].T, color="0.6", lw=0.8)
        axes[0].set(xlabel="time [s]", ylabel="height [cm]", title=title)
        axes[1].set(xlabel="time [s]", ylabel="heel, way a frame [cm]", title="speed of the heels")
        axes[2].set(xlabel="x [m]", ylabel="y [m]", title="heels on the ground (grey: clip)")
        axes[0].legend(ncols=2)
        return _svg(figure)


def _common_columns(tables: list[pl.DataFrame]) -> list[str]:
    """Numeric columns to show: those of most tables first, in file order."""
    names: dict[str, int] = {}
    for table in tables:
        for name, kind in table.schema.items():
            if kind.is_numeric() and name not in NOT_CURVES:
                names[name] = names.get(name, 0) + 1
    return sorted(names, key=lambda n: -names[n])[:MAX_PANELS]


def _spread(tables: list[pl.DataFrame]) -> bool:
    """Whether trainings differ so much in samples that a linear axis would hide the short ones."""
    ends = [float(t["samples"].max()) for t in tables]  # type: ignore[arg-type]
    return min(ends) > 0 and max(ends) > 20 * min(ends)


def _panels(count: int) -> tuple[Figure, list[Axes]]:
    columns = min(3, max(1, count))
    rows = -(-max(1, count) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(3.4 * columns, 2.5 * rows), squeeze=False)
    for axis in axes.ravel()[count:]:
        axis.set_visible(False)
    return figure, list(axes.ravel()[:count])


def _colours(methods: Iterable[str]) -> dict[str, Any]:
    return {m: COLOURS[i % len(COLOURS)] for i, m in enumerate(dict.fromkeys(methods))}


def _svg(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return buffer.getvalue()
