"""Result tables: what was measured, the papers' numbers in their own columns beside it.

Every function takes measured data (Parquet rows, pytest-benchmark JSON, training records) and returns one table, rows
sorted by their keys. Nothing here knows a method: rows come from the files, papers' numbers from ``published/*.csv`` by
the key columns that both share.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.accuracy import aggregate, round_significant, with_all_motions
from engine.atomic import write_atomic
from engine.errors import InputError

PUBLISHED = Path(__file__).parent / "published"
SOURCE = ("machine", "table", "page")


def write_table(table: pl.DataFrame, path: Path) -> None:
    """Write Parquet, or CSV where the name ends so; whole or not at all, equal bytes for equal tables."""
    buffer = io.BytesIO()
    if path.suffix == ".csv":
        table.write_csv(buffer)
    else:
        table.write_parquet(buffer, compression="zstd")
    write_atomic(path, buffer.getvalue())


def read_rows(paths: list[Path]) -> pl.DataFrame:
    """Concatenate Parquet or CSV tables with the same columns.

    Raises:
        InputError: There is none, or one cannot be read.
    """
    if not paths:
        raise InputError("report: no evaluation table (found none, expected Parquet or CSV files from evaluate)")
    frames = []
    for path in sorted(paths):
        try:
            frames.append(pl.read_csv(path) if path.suffix == ".csv" else pl.read_parquet(path))
        except (OSError, pl.exceptions.PolarsError) as error:
            raise InputError.at(path, None, f"cannot be read as a table ({str(error).splitlines()[0]})") from None
    return pl.concat(frames, how="vertical_relaxed")


def published(name: str) -> pl.DataFrame:
    """Numbers of the papers for one table, as printed."""
    return pl.read_csv(PUBLISHED / f"{name}.csv")


def beside_published(table: pl.DataFrame, name: str, keys: list[str], values: list[str]) -> pl.DataFrame:
    """Join the papers' ``values`` as ``paper_<value>`` with ``paper_machine``, ``paper_table``, ``paper_page``."""
    paper = published(name).select(
        *keys, *(pl.col(v).alias(f"paper_{v}") for v in values), *(pl.col(c).alias(f"paper_{c}") for c in SOURCE)
    )
    return table.join(paper, on=keys, how="left", maintain_order="left")


def table2_accuracy(long: pl.DataFrame) -> pl.DataFrame:
    """Table 2: accuracy, smoothness, foot skating and survival per method, post-process, clip set and motion."""
    table = aggregate(with_all_motions(long))
    table = beside_published(
        table,
        "table2_accuracy",
        ["method", "mmik"],
        ["joint_position_error_cm", "jerk_cm_per_frame3", "skate_cm"],
    )
    return round_significant(table)


def benchmark_rows(runtime: dict[str, Any], group: str) -> list[dict[str, Any]]:
    """``extra_info`` of every benchmark of a group, with its statistics under ``stats``."""
    rows = [b for b in runtime.get("benchmarks", []) if b.get("group") == group]
    return [{**b["extra_info"], "stats": b["stats"], "name": b["name"]} for b in rows]


TABLE3_SCHEMA = {
    "row": pl.String,
    "method": pl.String,
    "runtime": pl.String,
    "mmik": pl.String,
    "threads": pl.Int64,
    "time_per_frame_ms": pl.Float64,
    "time_per_frame_sd_ms": pl.Float64,
    "p99_ms": pl.Float64,
    "fps": pl.Float64,
    "runs": pl.Int64,
    "frames_per_run": pl.Int64,
}


def table3_runtime(runtime: dict[str, Any]) -> pl.DataFrame:
    """Table 3: time per frame of one character, ratio to the paper-faithful run-time of the same policy beside it."""
    rows = [
        {
            "row": _row_name(b),
            "method": b["method"],
            "runtime": b["runtime"],
            "mmik": b["mmik"],
            "threads": b["threads"],
            "time_per_frame_ms": 1e3 * b["stats"]["mean"] / b["frames"],
            "time_per_frame_sd_ms": 1e3 * b["stats"]["stddev"] / b["frames"],
            "p99_ms": b["p99_ms"],
            "fps": b["frames"] / b["stats"]["mean"],
            "runs": b["stats"]["rounds"],
            "frames_per_run": b["frames"],
        }
        for b in benchmark_rows(runtime, "table3")
    ]
    table = pl.DataFrame(rows, schema=TABLE3_SCHEMA)
    keys = ["method", "mmik"]
    faithful = table.filter(pl.col("runtime") == "faithful").select(*keys, pl.col("time_per_frame_ms").alias("base"))
    table = table.join(faithful, on=keys, how="left", maintain_order="left")
    table = table.with_columns((pl.col("base") / pl.col("time_per_frame_ms")).alias("speedup_vs_faithful")).drop("base")
    table = _with_postprocess(table.sort("method", "runtime", "mmik"))
    table = beside_published(table, "table3_runtime", ["method", "postprocess"], ["time_per_frame_ms", "fps"]).drop(
        "postprocess"
    )
    return round_significant(table, 5)


TABLE4_SCHEMA = {
    "row": pl.String,
    "method": pl.String,
    "runtime": pl.String,
    "mmik": pl.String,
    "n_characters": pl.Int64,
    "threads": pl.Int64,
    "fps": pl.Float64,
    "time_per_character_us": pl.Float64,
    "characters_at_30_fps": pl.Float64,
}


def table4_crowd(runtime: dict[str, Any]) -> pl.DataFrame:
    """Table 4: frames a second of a whole crowd, each character on a start of its own."""
    rows = [
        {
            "row": _row_name(b),
            "method": b["method"],
            "runtime": b["runtime"],
            "mmik": b["mmik"],
            "n_characters": b["n_characters"],
            "threads": b["threads"],
            "fps": b["frames"] / b["stats"]["mean"],
            "time_per_character_us": 1e6 * b["stats"]["mean"] / b["frames"] / b["n_characters"],
            "characters_at_30_fps": b["n_characters"] * b["frames"] / b["stats"]["mean"] / 30.0,
        }
        for b in benchmark_rows(runtime, "table4")
    ]
    table = pl.DataFrame(rows, schema=TABLE4_SCHEMA).sort("method", "runtime", "mmik", "threads", "n_characters")
    table = _with_postprocess(table)
    keys = ["method", "postprocess", "n_characters"]
    return round_significant(beside_published(table, "table4_crowd", keys, ["fps"]).drop("postprocess"), 5)


KERNEL_SCHEMA = {
    "group": pl.String,
    "row": pl.String,
    "time_us": pl.Float64,
    "sd_us": pl.Float64,
    "ratio_to_ours": pl.Float64,
    "note": pl.String,
}


def kernel_times(runtime: dict[str, Any]) -> pl.DataFrame:
    """Every other benchmark: mean time of one call, and its ratio to the group's own row (``extra_info.ours``)."""
    rows = []
    for bench in runtime.get("benchmarks", []):
        if bench.get("group") in ("table3", "table4"):
            continue
        info, calls = bench["extra_info"], bench["extra_info"].get("calls", 1)
        rows.append(
            {
                "group": bench.get("group") or "other",
                "row": str(info.get("row", bench["name"])),
                "time_us": 1e6 * bench["stats"]["mean"] / calls,
                "sd_us": 1e6 * bench["stats"]["stddev"] / calls,
                "note": str(info.get("note", "")),
                "ours": bool(info.get("ours", False)),
            }
        )
    if not rows:
        return pl.DataFrame(schema=KERNEL_SCHEMA)
    table = pl.DataFrame(rows)
    own = table.filter(pl.col("ours")).group_by("group").agg(pl.col("time_us").min().alias("own"))
    table = table.join(own, on="group", how="left", maintain_order="left")
    table = table.with_columns((pl.col("time_us") / pl.col("own")).alias("ratio_to_ours"))
    return round_significant(table.select(*KERNEL_SCHEMA).sort("group", "time_us", "row"), 5)


COST_SCHEMA = {
    "method": pl.String,
    "clip": pl.String,
    "seed": pl.Int64,
    "samples": pl.Int64,
    "wall_s": pl.Float64,
    "cpu_s": pl.Float64,
    "samples_per_s": pl.Float64,
}


def training_cost(records: list[dict[str, Any]]) -> pl.DataFrame:
    """Samples and time of each training, the papers' hours and samples beside it."""
    rows = [
        {
            "method": r["method"],
            "clip": r.get("clip", "all"),
            "seed": r["seed"],
            "samples": r["samples"],
            "wall_s": r["wall_s"],
            "cpu_s": r["cpu_s"],
            "samples_per_s": r["samples"] / r["wall_s"] if r["wall_s"] else None,
        }
        for r in records
    ]
    table = pl.DataFrame(rows, schema=COST_SCHEMA).sort("method", "clip", "seed")
    paper = published("training_cost").unique("method", keep="first", maintain_order=True)
    paper = paper.select("method", *(pl.col(c).alias(f"paper_{c}") for c in ("wall_h", "samples", *SOURCE)))
    return round_significant(table.join(paper, on="method", how="left", maintain_order="left"))


def read_json(path: Path) -> Any:
    """Read a JSON file; an unreadable one is an `InputError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.at(path, None, f"cannot be read ({(error.strerror or 'error').lower()})") from None
    except ValueError as error:
        raise InputError.at(path, getattr(error, "lineno", None), f"not JSON ({error})") from None


def _row_name(info: dict[str, Any]) -> str:
    post = "+ MMIK" if info["mmik"] == "yes" else "w/o MMIK"
    return f"{info['method']} {post}, {info['runtime']}"


def _with_postprocess(table: pl.DataFrame) -> pl.DataFrame:
    """The papers name the post-process of a row; ours is MMIK or none."""
    refined = pl.when(pl.col("mmik") == "yes").then(pl.lit("mmik")).otherwise(pl.lit("none"))
    return table.with_columns(refined.alias("postprocess"))
