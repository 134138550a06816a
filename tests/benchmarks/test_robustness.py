"""Every disturbance is played on the same episodes and lands in its row."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import robustness
from benchmarks.robustness import RobustnessParams, levels, run_levels, survival_table
from benchmarks.tables import write_table
from tests.benchmarks.stand_in import StandInPlayer, make_library

PARAMS = RobustnessParams(
    seed=1, motions=["walk", "jump"], clip_set="train", episodes=8, frames=30, mmik=True, threads=1,
    push_force_n=[100, 400], push_duration_s=0.2, push_earliest_s=0.1, push_latest_s=0.5, slope_deg=[5], step_cm=[10],
    friction=[0.3, 1.0], mass_scale=[0.8, 1.2], latency_frames=[1],
)  # fmt: skip


@pytest.fixture
def rows(monkeypatch):
    """Stand-ins of which half die on ice."""
    made = []

    def load(policy, n, library, **options):
        dies = 10 if options.get("friction") == 0.3 else None
        made.append(StandInPlayer(library, n, dies_at=dies, **options))
        return made[-1]

    monkeypatch.setattr(robustness.players, "load", load)
    table = run_levels(PARAMS, "policy.onnx", make_library(), "m", 0)
    return table, made


def test_levels_have_the_players_options(rows):
    _, made = rows
    options = [{k: v for k, v in p.options.items() if k not in ("mmik", "threads")} for p in made]
    assert [sorted(o) for o in options] == [
        [], ["terrain"], ["terrain"], ["friction"], ["friction"], ["mass_scale"], ["mass_scale"], ["latency_frames"],
    ]  # fmt: skip
    assert all(p.n == 16 for p in made)


def test_table_has_one_row_a_level_and_motion(rows, tmp_path):
    table = survival_table(rows[0])
    assert table.columns[:5] == ["method", "motion", "disturbance", "level", "survival_pct"]
    assert len(table) == 2 * len(list(levels(PARAMS)))
    ice = table.filter(disturbance="friction", level=0.3)
    assert dict(ice.select("motion", "survival_pct").iter_rows()) == {"walk": 100, "jump": 0}
    assert sorted(ice["survival_s"]) == pytest.approx([1 / 3, 1])
    assert table.filter(disturbance="mass")["level"].unique().sort().to_list() == [-20, 20]
    write_table(table, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text().startswith("method,motion,disturbance,level,survival_pct")


def test_pushes_have_their_force_and_eight_directions(rows):
    table, made = rows
    pushes = np.array(made[0].pushes)  # undisturbed, then two forces, on one player
    strongest = np.linalg.norm(pushes, axis=-1).max(axis=1)
    assert strongest[:30].max() == 0
    assert strongest[30:60].max() == pytest.approx(100)
    assert strongest[60:].max() == pytest.approx(400)
    assert table.filter(disturbance="push")["direction_deg"].n_unique() == 8
