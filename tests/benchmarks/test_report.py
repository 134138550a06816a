"""Tables and pages from files of known content; methods nobody has heard of are rows like any other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks import evaluate as evaluate_module
from benchmarks import report, robustness, showcase, tables
from benchmarks.accuracy import pool
from benchmarks.report import Inputs, ReportParams, write_results
from engine.errors import InputError
from tests.benchmarks.stand_in import StandInPlayer, make_library
from tests.benchmarks.test_evaluate import PARAMS as EVALUATE
from tests.benchmarks.test_robustness import PARAMS as ROBUSTNESS

PARAMS = ReportParams(motions=["walk"], clip_set="heldout", seed=1, sample_s=1.0, strip_poses=3, renderer="software")


def bench(group, mean, **info):
    """One benchmark as pytest-benchmark writes it."""
    return {"group": group, "name": "b", "stats": {"mean": mean, "stddev": mean / 10, "rounds": 5}, "extra_info": info}


def runtime() -> dict:
    """Two run-times of one method, a small crowd, one kernel with a peer."""
    rows = []
    for name, seconds in (("engine", 0.1), ("faithful", 10.0)):
        for mmik in ("yes", "no"):
            rows.append(
                bench(
                    "table3", seconds, row=f"m {mmik} {name}", method="unified", runtime=name, mmik=mmik, threads=1,
                    frames=1000, p99_ms=0.2, frame_time_quantiles_ms=list(np.linspace(0.05, 0.3, 101)),
                )
            )  # fmt: skip
    for n in (1, 4, 1000):
        rows.append(
            bench("table4", 0.5, method="unified", runtime="engine", mmik="yes", threads=2, n_characters=n, frames=100)
        )
    rows.append(bench("substeps", 1e-3, row="ours", ours=True, calls=100, note="n"))
    rows.append(bench("substeps", 1e-1, row="theirs", calls=100))
    return {"benchmarks": rows, "machine_info": {"cpu": {"brand_raw": "CPU X", "count": 2}, "versions": {"numba": "1"}}}


@pytest.fixture
def inputs(tmp_path, monkeypatch) -> Inputs:
    """What the stages before the report leave, for two methods of two seeds."""
    library = make_library()

    def load(policy, n, library, **options):
        return StandInPlayer(library, n, offset_m=(0.02 if "novel" in str(policy) else 0.01, 0, 0), **options)

    for module in (evaluate_module, robustness, showcase):
        monkeypatch.setattr(module.players, "load", load)
    monkeypatch.setattr(report.MotionLibrary, "load", lambda _: library)
    for method in ("unified", "novel"):
        for seed in (0, 1):
            folder = tmp_path / "models" / method / f"seed{seed}"
            folder.mkdir(parents=True)
            (folder / "policy.onnx").write_text("x")
            (folder / "train.json").write_text(json.dumps({"samples": 1000, "wall_s": 10, "cpu_s": 9.5}))
            (folder / "curve.csv").write_text("samples,wall_s,survival_s\n10,1,2.0\n1000,10,17.0\n")
            long = evaluate_module.evaluate(EVALUATE, str(folder), library, method, seed)
            name = f"{method}{seed}"
            if seed:
                tables.write_table(pool(long), tmp_path / "eval" / f"{name}.csv")
            else:
                tables.write_table(pool(long), tmp_path / "eval" / f"{name}.parquet")
            rows = robustness.run_levels(ROBUSTNESS, str(folder), library, method, seed)
            tables.write_table(rows, tmp_path / "robustness" / f"{name}.parquet")
    (tmp_path / "runtime.json").write_text(json.dumps(runtime()))
    (tmp_path / "library.npz").write_text("x")
    return Inputs(
        sorted((tmp_path / "eval").iterdir()),
        sorted((tmp_path / "robustness").iterdir()),
        tmp_path / "runtime.json",
        tmp_path / "models",
        tmp_path / "library.npz",
    )


def test_all_results_are_written_and_a_second_run_gives_equal_bytes(inputs, tmp_path):
    out = tmp_path / "results"
    write_results(PARAMS, inputs, out)
    names = (
        *("table2_accuracy.csv", "table3_runtime.csv", "table4_crowd.csv", "training_cost.csv", "robustness.csv"),
        *(
            "kernel_times.csv",
            "error_over_time.csv",
            "summary.json",
            "runtime_summary.json",
            "report.md",
            "report.html",
        ),
    )
    first = {name: (out / name).read_bytes() for name in names}
    pictures = {p.name: p.read_bytes() for p in (out / "plots").iterdir()}
    assert {"training_curves.svg", "error_over_time.svg", "frame_times.svg", "fps_characters.svg"} <= set(pictures)
    assert {"feet_unified_walk.svg", "strip_novel_walk.png"} <= set(pictures)
    (out / "plots" / "old.svg").write_text("gone")
    write_results(PARAMS, inputs, out)
    assert {name: (out / name).read_bytes() for name in names} == first
    assert {p.name: p.read_bytes() for p in (out / "plots").iterdir()} == pictures

    html = first["report.html"].decode()
    assert "http://" not in html.replace("http://www.w3.org", "")
    assert html.count("data:image/") == len(pictures)
    text = first["report.md"].decode()
    assert "novel" in text
    assert "CPU X" in text
    assert "Ultra" in text
    summary = json.loads(first["summary.json"])
    assert summary["novel"]["heldout"]["jpe_srb_cm"] == pytest.approx(2)
    assert summary["unified"]["train"]["survival_pct"] == 100
    assert "time" not in json.dumps(summary)

    cost = pl.read_csv(out / "training_cost.csv")
    assert cost.columns[:7] == ["method", "clip", "seed", "samples", "wall_s", "cpu_s", "samples_per_s"]
    assert cost["samples_per_s"].unique().to_list() == [100]
    accuracy = pl.read_csv(out / "table2_accuracy.csv")
    assert accuracy["seeds"].unique().to_list() == [2]


def test_speedup_is_a_ratio_within_one_run_of_one_method_and_setting():
    table = tables.table3_runtime(runtime())
    assert table.columns[0] == "row"
    ours = table.filter(runtime="engine", mmik="yes").row(0, named=True)
    assert ours["time_per_frame_ms"] == pytest.approx(0.1)
    assert ours["fps"] == pytest.approx(10000)
    assert ours["speedup_vs_faithful"] == pytest.approx(100)
    assert ours["paper_time_per_frame_ms"] == 13.483
    assert ours["paper_table"] == "Table 3"
    alone = {"benchmarks": [b for b in runtime()["benchmarks"] if b["extra_info"].get("runtime") == "engine"]}
    assert tables.table3_runtime(alone)["speedup_vs_faithful"].null_count() == 2


def test_crowd_counts_frames_of_the_whole_crowd():
    table = tables.table4_crowd(runtime()).filter(n_characters=1000).row(0, named=True)
    assert table["fps"] == pytest.approx(200)
    assert table["characters_at_30_fps"] == pytest.approx(1000 * 200 / 30, rel=1e-4)
    assert table["time_per_character_us"] == pytest.approx(5)


def test_kernels_are_compared_with_their_groups_own_row():
    table = tables.kernel_times(runtime())
    assert table["row"].to_list() == ["ours", "theirs"]
    assert table["ratio_to_ours"].to_list() == pytest.approx([1, 100])
    assert table["time_us"].to_list() == pytest.approx([10, 1000])


def test_absent_parts_are_left_out(inputs, tmp_path):
    bare = Inputs(inputs.evaluation, [], None, tmp_path / "none", tmp_path / "no.npz")
    write_results(PARAMS, bare, tmp_path / "bare")
    assert not (tmp_path / "bare" / "robustness.csv").exists()
    assert pl.read_csv(tmp_path / "bare" / "table3_runtime.csv").is_empty()
    assert "(nothing measured)" in (tmp_path / "bare" / "report.md").read_text()


def test_no_evaluation_at_all_is_an_error():
    with pytest.raises(InputError, match="no evaluation table"):
        tables.read_rows([])


def test_broken_table_is_named(tmp_path):
    (tmp_path / "a.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"a\.parquet: cannot be read as a table"):
        tables.read_rows([tmp_path / "a.parquet"])


@pytest.mark.parametrize("name", ["table2_accuracy", "table3_runtime", "table4_crowd", "training_cost"])
def test_published_numbers_name_machine_table_and_page(name):
    table = tables.published(name)
    for column in ("machine", "table", "page", "source"):
        assert table[column].null_count() == 0, column


def test_no_method_is_named_in_the_code():
    folder = Path(report.__file__).parent
    for path in folder.glob("*.py"):
        if path.name in ("lafan1.py", "faithful.py"):
            continue
        for name in ("unified_paper", "no_network", '"unified"', "'unified'"):
            assert name not in path.read_text(), f"{path.name} names {name}"
