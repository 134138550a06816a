"""Generate every result table and the report: ``python -m benchmarks.report --params params.yaml``.

Reads what the other stages left: evaluation and robustness tables, the runtime JSON of pytest-benchmark, training
records and curves, policies and the library. Methods are whatever the files hold. Tables of simulated quantities have
equal bytes on a re-run; times stand in files of their own (``table3_runtime.csv``, ``table4_crowd.csv``,
``kernel_times.csv``, ``training_cost.csv``, ``runtime_summary.json``) and in the report.
"""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import polars as pl

from benchmarks import plots, tables
from benchmarks.accuracy import error_over_time, metric_definitions, round_significant, with_all_motions
from benchmarks.episodes import identify
from benchmarks.page import Page
from benchmarks.robustness import survival_table
from benchmarks.showcase import Sample, sample_motion
from engine.atomic import write_atomic
from engine.errors import run_main
from engine.motion.library import MotionLibrary
from engine.params import NotEmpty, Positive, Range, Seed, Unique, read_section

FPS = 30
HEADLINE = (
    "jpe_srb_cm",
    "jpe_proj_cm",
    "jpe_world_cm",
    "jerk_ratio_to_reference",
    "skate_frame_cm",
    "contact_f1",
    "survival_pct",
)
LIMITATIONS = (
    "The papers' numbers were measured on their machine, with their clips and with metrics they do not define. They "
    "stand beside ours for orientation; a ratio of times is only claimed between rows measured here.",
    "Errors count the frames an episode lived; read them together with survival.",
    "Policies are deterministic and clips are short cycles: episodes from the same start are copies (distinct_starts "
    "says how many differ), and all seeds share the starts, so the intervals of survival are narrower than those of "
    "independent trials.",
    "jpe_proj_cm composes the played pose in the frame in which errors are measured; a policy that copies its "
    "reference input scores near zero there. jpe_srb_cm and jpe_world_cm are the honest ones.",
    "The single rigid body has massless feet without a leg-length limit in the dynamics; feet never collide with each "
    "other or with the other leg.",
    "A slope has one world direction; episodes head where their clip heads, so each level mixes up, down and across.",
)


@dataclass(frozen=True)
class ReportParams:
    """Section ``report``."""

    motions: Annotated[list[str], NotEmpty(), Unique()]
    clip_set: Literal["train", "heldout"]
    seed: Seed
    sample_s: Positive
    strip_poses: Annotated[int, Range(ge=2, le=20)]
    renderer: Literal["auto", "mujoco", "software"]


@dataclass(frozen=True)
class Inputs:
    """Where the report reads from; a folder or file that is absent leaves its part out."""

    evaluation: list[Path]
    robustness: list[Path]
    runtime: Path | None
    models: Path
    library: Path


def write_results(params: ReportParams, inputs: Inputs, out: Path) -> None:
    """Write all tables, the summaries and the report into ``out``."""
    long = tables.read_rows(inputs.evaluation)
    accuracy = tables.table2_accuracy(long)
    over_time = round_significant(error_over_time(with_all_motions(long)))
    robust = survival_table(tables.read_rows(inputs.robustness)) if inputs.robustness else None
    runtime = tables.read_json(inputs.runtime) if inputs.runtime else {}
    table3, table4 = tables.table3_runtime(runtime), tables.table4_crowd(runtime)
    kernels = tables.kernel_times(runtime)
    cost = tables.training_cost(training_records(inputs.models))

    tables.write_table(accuracy, out / "table2_accuracy.csv")
    tables.write_table(over_time, out / "error_over_time.csv")
    if robust is not None:
        robust = round_significant(robust)
        tables.write_table(robust, out / "robustness.csv")
    tables.write_table(table3, out / "table3_runtime.csv")
    tables.write_table(table4, out / "table4_crowd.csv")
    tables.write_table(kernels, out / "kernel_times.csv")
    tables.write_table(cost, out / "training_cost.csv")
    _write_json(out / "summary.json", summary(accuracy, robust))
    _write_json(out / "runtime_summary.json", runtime_summary(table3, table4))

    page = Page("gaitforge: results")
    _introduce(page, runtime, accuracy)
    _add_accuracy(page, accuracy, over_time)
    _add_speed(page, runtime, table3, table4, kernels)
    _add_training(page, cost, training_curves(inputs.models))
    if robust is not None:
        _add_robustness(page, robust)
    _add_pictures(page, params, inputs)
    page.heading("Definitions")
    page.table(metric_definitions())
    page.heading("Limitations")
    page.items(list(LIMITATIONS))
    page.write(out)


def training_records(models: Path) -> list[dict[str, Any]]:
    """``train.json`` of every training under ``models``; method and seed from the path where the file names none."""
    records = []
    for path in sorted(models.rglob("train.json")):
        method, seed = identify(path.with_name("policy.onnx"))
        records.append({"method": method, "seed": seed, **tables.read_json(path)})
    return records


def training_curves(models: Path) -> list[tuple[str, int, pl.DataFrame]]:
    """``curve.csv`` of every training under ``models``."""
    found = []
    for path in sorted(models.rglob("curve.csv")):
        found.append((*identify(path.with_name("policy.onnx")), tables.read_rows([path])))
    return found


def summary(accuracy: pl.DataFrame, robust: pl.DataFrame | None) -> dict[str, Any]:
    """Headline numbers for ``dvc metrics``: method -> clip set -> metric, all motions, best post-process setting."""
    result: dict[str, Any] = {}
    motions = accuracy["motion"].unique().to_list()
    part = accuracy.filter(pl.col("motion") == ("all" if "all" in motions else motions[0]))
    for row in part.sort("method", "clip_set", "condition", "mmik").iter_rows(named=True):
        group = result.setdefault(row["method"], {}).setdefault(row["clip_set"], {})
        if row["condition"] == "none":
            if row["mmik"] == "yes" or "jpe_srb_cm" not in group:
                group.update({name: _short(row[name]) for name in HEADLINE})
        elif row["condition"].startswith("push"):
            group["survival_pushed_pct"] = _short(row["survival_pct"])
        else:
            group["jpe_world_10s_path_following_cm"] = _short(row["jpe_world_10s_cm"])
    if robust is not None:
        mean = robust.group_by("method", "disturbance").agg(pl.col("survival_pct").mean()).sort("method", "disturbance")
        for method, disturbance, value in mean.iter_rows():
            if disturbance != "none":
                result.setdefault(method, {}).setdefault("robustness_pct", {})[disturbance] = _short(value)
    return result


def runtime_summary(table3: pl.DataFrame, table4: pl.DataFrame) -> dict[str, Any]:
    """Headline times of this machine."""
    result: dict[str, Any] = {}
    for row in table3.filter(pl.col("runtime") != "faithful").iter_rows(named=True):
        key = f"{row['method']}_{'mmik' if row['mmik'] == 'yes' else 'no_mmik'}"
        result[key] = {n: row[n] for n in ("time_per_frame_ms", "p99_ms", "fps", "speedup_vs_faithful")}
    for row in table4.iter_rows(named=True):
        key = f"{row['method']}_{'mmik' if row['mmik'] == 'yes' else 'no_mmik'}"
        best = result.setdefault(key, {})
        name = f"characters_at_30_fps_{row['threads']}_threads"
        best[name] = max(best.get(name, 0.0), row["characters_at_30_fps"])
    return result


def _introduce(page: Page, runtime: dict[str, Any], accuracy: pl.DataFrame) -> None:
    page.text(
        f"Methods: {', '.join(accuracy['method'].unique(maintain_order=True).to_list())}. Generated by "
        "`python -m benchmarks.report`; every number comes from a file of this run. Columns that start with paper_ are "
        "the papers' own numbers, with their machine, table and page."
    )
    machine = runtime.get("machine_info", {})
    if machine:
        cpu = machine.get("cpu", {})
        page.heading("Machine of the times")
        versions = machine.get("versions", {})
        page.items(
            [
                f"{cpu.get('brand_raw', machine.get('processor', 'unknown CPU'))}, {cpu.get('count', '?')} cores",
                f"{machine.get('system', '')} {machine.get('machine', '')}, Python {machine.get('python_version', '')}",
                ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) or "versions not recorded",
                "One BLAS and one onnxruntime thread; Numba threads as stated in each row.",
            ]
        )


def _add_accuracy(page: Page, accuracy: pl.DataFrame, over_time: pl.DataFrame) -> None:
    page.heading("Table 2: accuracy, smoothness, foot skating, survival")
    hidden = ["paper_machine", "paper_table", "paper_page"]
    plain = accuracy.filter(pl.col("condition") == "none").drop("condition")
    sources = plain.select(hidden).drop_nulls().unique()
    page.table(plain.drop(hidden))
    for machine, table, pages in sources.iter_rows():
        page.text(f"Paper's columns: {table}, pages {pages}, measured on {machine}.")
    for condition in accuracy["condition"].unique().sort().to_list():
        if condition != "none":
            page.heading(f"Table 2 under: {condition}")
            part = accuracy.filter(pl.col("condition") == condition)
            page.table(part.select(c for c in part.columns if not c.startswith("paper_") and c != "condition"))
    rows = over_time.filter((pl.col("condition") == "none") & (pl.col("mmik") == "yes"))
    page.figure(
        "error_over_time.svg", plots.error_over_time(rows), "Joint position error over the time in the episode."
    )


def _add_speed(
    page: Page, runtime: dict[str, Any], table3: pl.DataFrame, table4: pl.DataFrame, kernels: pl.DataFrame
) -> None:
    page.heading("Table 3: time per frame, one character")
    page.table(table3)
    rows = sorted(tables.benchmark_rows(runtime, "table3"), key=lambda r: r["row"])
    figure = plots.frame_time_distribution(rows)
    page.figure("frame_times.svg", figure, "How long frames take: share of frames at most so slow.")
    page.heading("Table 4: crowds")
    page.table(table4)
    page.figure(
        "fps_characters.svg",
        plots.fps_against_characters(table4, tables.published("table4_crowd")),
        "Frames a second against the number of characters (logarithmic); grey crosses: the paper, on its machine.",
    )
    page.heading("Kernels against peers")
    page.table(kernels)


def _add_training(page: Page, cost: pl.DataFrame, curves: list[tuple[str, int, pl.DataFrame]]) -> None:
    page.heading("Training cost")
    page.table(cost)
    page.figure("training_curves.svg", plots.training_curves(curves), "Training curves, one line a seed.")


def _add_robustness(page: Page, robust: pl.DataFrame) -> None:
    page.heading("Robustness")
    wide = robust.with_columns(
        (pl.col("disturbance") + " " + pl.col("level").cast(pl.String).str.strip_suffix(".0")).alias("disturbance")
    ).pivot("motion", index=["method", "disturbance", "unit", "episodes", "seeds"], values="survival_pct")
    page.text("Survival in % of the episodes, columns are motions.")
    page.table(wide)
    for name in robust["disturbance"].unique(maintain_order=True).to_list():
        if robust.filter(pl.col("disturbance") == name)["level"].n_unique() > 2:
            figure = plots.survival_against_level(robust, name)
            page.figure(f"survival_{name}.svg", figure, f"Survival against {name}; bands: 95 % interval.")


def _add_pictures(page: Page, params: ReportParams, inputs: Inputs) -> None:
    samples = _samples(params, inputs)
    if not samples:
        return
    page.heading("Poses and feet")
    for sample in samples:
        caption = f"{sample.method}, {sample.motion} ({sample.clip}), with MMIK"
        name = f"{sample.method}_{sample.motion}"
        picture = _png(sample.strip(params.strip_poses, params.renderer))
        page.figure(f"strip_{name}.png", picture, f"{caption}: poses over the ghost of the reference.")
        page.figure(
            f"feet_{name}.svg", plots.foot_traces(caption, *sample.markers), f"{caption}: feet; grey: reference."
        )


def _samples(params: ReportParams, inputs: Inputs) -> list[Sample]:
    """First seed of each method, one sample a motion."""
    first: dict[str, Path] = {}
    for path in sorted(inputs.models.rglob("policy.onnx"), key=lambda p: (identify(p)[0], identify(p)[1])):
        first.setdefault(identify(path)[0], path)
    if not first or not inputs.library.is_file():
        return []
    library = MotionLibrary.load(inputs.library)
    frames = round(params.sample_s * FPS)
    drawn = [
        sample_motion(str(policy), library, method, motion, params.clip_set, frames, params.seed)
        for method, policy in first.items()
        for motion in params.motions
    ]
    return [sample for sample in drawn if sample is not None]


def _png(picture: Any) -> bytes:
    import imageio.v3 as iio

    buffer = io.BytesIO()
    iio.imwrite(buffer, picture, extension=".png")
    return buffer.getvalue()


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_atomic(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def _tables_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("*") if p.suffix in (".parquet", ".csv")) if folder.is_dir() else []


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--params", default="params.yaml", help="parameter file (section report)")
    parser.add_argument("--evaluation", default="data/eval", help="folder of evaluation tables")
    parser.add_argument("--robustness", default="data/robustness", help="folder of robustness tables")
    parser.add_argument("--runtime", default="data/runtime.json", help="JSON of pytest-benchmark")
    parser.add_argument("--models", default="models", help="folder of trainings: <method>/seed<k>/")
    parser.add_argument("--library", default="data/library.npz", help="motion library")
    parser.add_argument("--out", default="results", help="folder to write")
    args = parser.parse_args(argv)
    params = read_section(args.params, "report", ReportParams)
    runtime = Path(args.runtime)
    inputs = Inputs(
        _tables_in(Path(args.evaluation)),
        _tables_in(Path(args.robustness)),
        runtime if runtime.is_file() else None,
        Path(args.models),
        Path(args.library),
    )
    write_results(params, inputs, Path(args.out))
    print(f"{args.out}: tables, summary.json, report.md, report.html")


if __name__ == "__main__":
    run_main(main)
