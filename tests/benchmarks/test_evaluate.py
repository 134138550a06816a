"""Episodes are drawn and laid out as the tables need them; a second run gives the same bytes."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from benchmarks import evaluate as evaluate_module
from benchmarks.accuracy import aggregate, error_over_time, pool, with_all_motions
from benchmarks.episodes import Episodes, draw_episodes, draw_push, identify, join_episodes
from benchmarks.evaluate import EvaluateParams, PushParams, evaluate
from benchmarks.tables import table2_accuracy, write_table
from engine.errors import InputError
from tests.benchmarks.stand_in import FRAMES, StandInPlayer, make_library

PARAMS = EvaluateParams(
    seed=5,
    motions=["walk", "run"],
    episodes=8,
    frames=70,
    window_frames=30,
    threads=1,
    push=PushParams(force_n=400, duration_s=0.2, earliest_s=0.5, latest_s=1.0),
)


@pytest.fixture
def stand_in(monkeypatch):
    """Let `players.load` make stand-ins; returns the list of those made."""
    made = []

    def load(policy, n, library, **options):
        made.append(StandInPlayer(library, n, offset_m=(0.01, 0, 0), **options))
        return made[-1]

    monkeypatch.setattr(evaluate_module.players, "load", load, raising=False)
    return made


def test_all_motions_sets_and_conditions_are_played(stand_in):
    long = evaluate(PARAMS, "policy.onnx", make_library(), "m", 3)
    table = aggregate(long)
    assert len(table) == 4 * 2 * 2  # plain without and with MMIK, pushed, path following; two sets; two motions
    assert table["episodes"].unique().to_list() == [8]
    assert table["survival_pct"].unique().to_list() == [100]
    assert table["jpe_srb_cm"].to_list() == pytest.approx([1] * len(table))
    assert sorted(table["condition"].unique()) == ["none", "path following", "push 400 N x 0.2 s"]
    assert [p.options["mmik"] for p in stand_in] == [False, True, True, True]
    assert [p.options["path_following"] for p in stand_in] == [False, False, False, True]
    assert [bool(p.pushes) for p in stand_in] == [False, False, True, False]
    assert all(p.options["compositions"] for p in stand_in)


def test_second_run_writes_equal_bytes(stand_in, tmp_path):
    for name in ("a", "b"):
        table = evaluate(PARAMS, "policy.onnx", make_library(), "m", 0, "yes")
        write_table(table, tmp_path / f"{name}.parquet")
        write_table(table2_accuracy(table), tmp_path / f"{name}.csv")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_methods_start_at_the_same_places(stand_in):
    a, b = (evaluate(PARAMS, "policy.onnx", make_library(), name, seed) for name, seed in (("m", 0), ("other", 1)))
    assert a["start_frame"].to_list() == b["start_frame"].to_list()


def test_sums_over_episodes_keep_every_metric(stand_in):
    long = with_all_motions(evaluate(PARAMS, "policy.onnx", make_library(), "m", 0))
    pooled = pool(long)
    assert len(pooled) < len(long) / 7
    a, b = aggregate(long), aggregate(pooled)
    for name in a.columns:
        if a.schema[name].is_numeric():
            np.testing.assert_allclose(a[name].to_numpy(), b[name].to_numpy(), rtol=1e-12, atol=1e-12, err_msg=name)


def test_spread_is_over_seeds(stand_in):
    parts = [evaluate(PARAMS, "policy.onnx", make_library(), "m", seed, "yes") for seed in range(3)]
    parts[2] = parts[2].with_columns(pl.col("jpe_srb") * 4)
    table = aggregate(pl.concat(parts))
    assert table["seeds"].unique().to_list() == [3]
    assert table["jpe_srb_cm"].to_list() == pytest.approx([2] * len(table))
    assert table["jpe_srb_cm_sd"].to_list() == pytest.approx([np.sqrt(3)] * len(table))
    assert table["episodes"].unique().to_list() == [24]


def test_error_over_time_has_one_row_a_window(stand_in):
    table = error_over_time(evaluate(PARAMS, "policy.onnx", make_library(), "m", 0, "no").filter(condition="none"))
    assert table.filter(motion="walk", clip_set="train")["time_s"].to_list() == [0.0, 1.0, 2.0]


def test_table_has_the_asked_columns_and_the_papers_numbers(stand_in):
    table = table2_accuracy(evaluate(PARAMS, "policy.onnx", make_library(), "unified", 0))
    asked = (
        *(
            "method",
            "mmik",
            "clip_set",
            "motion",
            "episodes",
            "jpe_srb_cm",
            "jpe_proj_cm",
            "jpe_root_cm",
            "jpe_world_cm",
        ),
        *(
            "jerk_cm_per_frame3",
            "jerk_ratio_to_reference",
            "skate_frame_cm",
            "contact_f1",
            "survival_pct",
            "survival_s",
        ),
        *("seeds", "survival_low_pct", "survival_high_pct"),
    )
    assert set(asked) <= set(table.columns)
    row = table.filter(mmik="yes", motion="all", clip_set="train", condition="none").row(0, named=True)
    assert row["paper_joint_position_error_cm"] == 8.3116
    assert row["paper_page"] == "79-89"
    assert "Ultra" in row["paper_machine"]


def test_kind_without_a_clip_is_left_out_and_named(stand_in, capsys):
    long = evaluate(PARAMS, "policy.onnx", make_library(splits=("train",)), "m", 0)
    assert long["clip_set"].unique().to_list() == ["train"]
    assert "no heldout clip of kind walk" in capsys.readouterr().err


def test_library_without_any_of_the_motions_is_refused(stand_in):
    with pytest.raises(InputError, match="found aim"):
        evaluate(PARAMS, "policy.onnx", make_library(kinds=("aim",)), "m", 0)


def drawn(library, motion, frames, n=500) -> Episodes:
    """Episodes that must be there."""
    episodes = draw_episodes(library, motion, "heldout", n, frames, 1)
    assert episodes is not None
    return episodes


def test_starts_leave_room_for_the_episode_and_stay_in_the_first_repetition():
    library = make_library(frames=FRAMES, period=200)
    episodes = drawn(library, "run", 512)
    assert set(episodes.clips) == {3}
    assert episodes.starts.min() == 0
    assert episodes.starts.max() == 640 - 512 - 1
    assert drawn(library, "run", 100).starts.max() == 199
    assert draw_episodes(library, "stand", "train", 5, 100, 1) is None
    with pytest.raises(InputError, match="found at most 640 frames, expected more than 640"):
        draw_episodes(library, "run", "heldout", 5, 640, 1)


def test_batches_are_joined_in_order():
    library = make_library()
    both = join_episodes([drawn(library, kind, 100, 3) for kind in ("walk", "jump")])
    assert both.motion == ["walk"] * 3 + ["jump"] * 3
    assert both.clips.tolist() == [1] * 3 + [5] * 3


def test_pushes_come_from_eight_directions():
    push = draw_push(16, 400, 6, 10, 20, 3)
    assert len(set(np.round(np.degrees(push.direction_rad)))) == 8
    assert push.first_frame.min() >= 10
    assert push.first_frame.max() <= 20


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models/unified/seed2/policy.onnx", ("unified", 2)),
        ("/a/b/no_network/seed0/policy.onnx", ("no_network", 0)),
        ("models/unified/policy.onnx", ("unified", 0)),
        ("released.onnx", ("released", 0)),
    ],
)
def test_method_and_seed_come_from_the_path(path, expected):
    assert identify(path) == expected
