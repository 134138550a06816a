"""Every quantity against the value that a known error must give."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from benchmarks.accuracy import METRICS, aggregate, long_rows
from benchmarks.episodes import Episodes
from benchmarks.measures import frame_quantities, window_sums
from benchmarks.rollout import Push, feet_of_class, record_episodes
from tests.benchmarks.stand_in import StandInPlayer, make_library

T, N = 120, 6


def measured(library=None, frames=T, push=None, starts=None, **errors):
    """Metrics of a stand-in with the given errors, one row as a dict."""
    library = library or make_library()
    clips = np.arange(N) % len(library.names)
    starts = np.full(N, 7) if starts is None else starts
    player = StandInPlayer(library, N, **errors)
    recording = record_episodes(player, library, clips, starts, frames, push)
    sums = window_sums(frame_quantities(recording, library), 50)
    episodes = Episodes(["walk"] * N, clips, starts)
    long = long_rows(sums, recording.alive.sum(axis=0), episodes, library, frames, 50)
    keys = {"method": "m", "seed": 0, "mmik": "no", "condition": "none", "clip_set": "train"}
    return aggregate(long.with_columns(**{k: pl.lit(v) for k, v in keys.items()})).row(0, named=True)


def test_reference_played_back_has_no_error_and_the_jerk_of_the_reference():
    row = measured()
    for name in ("jpe_srb_cm", "jpe_proj_cm", "jpe_root_cm", "jpe_world_cm"):
        assert row[name] == pytest.approx(0, abs=1e-9), name
    assert row["jerk_ratio_to_reference"] == pytest.approx(1, abs=1e-12)
    assert row["contact_f1"] == 1
    assert row["survival_pct"] == 100
    assert row["survival_s"] == pytest.approx(T / 30)


def test_constant_offset_of_the_body_is_the_joint_error():
    row = measured(offset_m=(0.03, -0.04, 0.0))
    assert row["jpe_srb_cm"] == pytest.approx(5)
    assert row["jpe_proj_cm"] == pytest.approx(0, abs=1e-9)
    assert row["jpe_world_cm"] == pytest.approx(5)
    assert row["jpe_root_cm"] == pytest.approx(0, abs=1e-9)


def test_composition_in_the_projected_frame_has_its_own_error():
    row = measured(proj_offset_m=(0.0, 0.02, 0.0))
    assert row["jpe_proj_cm"] == pytest.approx(2)
    assert row["jpe_srb_cm"] == pytest.approx(0, abs=1e-9)


def test_drift_of_body_and_srb_together_shows_in_the_world_error_only():
    row = measured(offset_m=(0.1, 0.0, 0.0), move_srb=True)
    assert row["jpe_srb_cm"] == pytest.approx(0, abs=1e-9)
    assert row["jpe_world_cm"] == pytest.approx(10)


def test_heading_error_is_invisible_in_the_own_projected_frame():
    row = measured(yaw_rad=0.3)
    assert row["jpe_srb_cm"] == pytest.approx(0, abs=1e-9)
    assert row["jpe_root_cm"] > 1
    assert row["jpe_world_cm"] > 1


def test_vertical_saw_has_third_difference_of_eight_amplitudes():
    library = make_library(bob_m=0.0)
    row = measured(library, shake_m=0.001)
    assert row["jerk_cm_per_frame3"] == pytest.approx(0.8)
    assert row["jerk_reference_cm_per_frame3"] == pytest.approx(0, abs=1e-9)
    assert row["jpe_srb_cm"] == pytest.approx(0.1)


def test_jerk_of_a_sine_is_its_analytic_third_difference():
    row = measured(frames=203)  # 200 third differences: ten whole periods of 20 frames
    w = 2 * np.pi / 20
    mean_abs = np.mean(np.abs(np.cos(w * (np.arange(20) + 7 + 1 + 1.5))))
    assert row["jerk_reference_cm_per_frame3"] == pytest.approx(2 * (2 * np.sin(w / 2)) ** 3 * mean_abs, rel=1e-6)


def test_skate_of_a_gliding_body_is_its_speed():
    row = measured()
    for name in ("skate_frame_cm", "skate_frame_sim_cm", "skate_frame_of_reference_cm"):
        assert row[name] == pytest.approx(4)


def test_skate_counts_frames_in_contact_before_and_after_only():
    library = make_library()
    library.body_pos_w[:, [14, 11], 0] = 0.0  # both feet stand still in x ...
    library.body_pos_w[::10, [14, 11], 0] += 0.5  # ... but for the first frame of each contact interval
    row = measured(library, starts=np.full(N, 9))
    assert row["skate_frame_cm"] == pytest.approx(50 / 9)  # nine steps an interval, the first of them half a metre


def test_drift_is_the_mean_distance_to_the_middle_of_the_contact_interval():
    row = measured(frames=100, starts=np.full(N, 9))
    assert row["skate_drift_cm"] == pytest.approx(4 * 2.5)  # ten points 4 cm apart


def test_penetration_is_depth_below_the_floor():
    row = measured(make_library(bob_m=0.0), offset_m=(0, 0, -0.01))
    assert row["penetration_cm"] == pytest.approx(1)
    assert measured()["penetration_cm"] == pytest.approx(0, abs=1e-9)


def test_mann_skate_weighs_by_height():
    glide = measured(make_library(bob_m=0.0))
    assert glide["skate_mann_cm"] == pytest.approx(4)
    raised = measured(make_library(bob_m=0.0), offset_m=(0, 0, 0.0125))
    assert raised["skate_mann_cm"] == pytest.approx(4 * (2 - 2**0.5))


def test_contacts_of_the_wrong_foot_have_no_true_positive():
    assert measured(swap_feet=True)["contact_f1"] == 0


def test_only_frames_before_death_count_and_nan_after_it_does_no_harm():
    row = measured(dies_at=60, offset_m=(0.0, 0.01, 0.0))
    assert row["survival_pct"] == 50
    assert row["survival_s"] == pytest.approx((T + 60) / 2 / 30)
    assert row["jpe_srb_cm"] == pytest.approx(1)
    assert row["episodes"] == N


def test_interval_of_survival_is_wilsons():
    row = measured(dies_at=60)
    assert (row["survival_low_pct"], row["survival_high_pct"]) == pytest.approx((18.761, 81.239), abs=1e-3)


def test_jump_of_the_reference_index_is_no_jerk():
    library = make_library()

    class Jumping(StandInPlayer):
        def step(self, **push):
            if self.t == 50:
                self.at = self.at - 40
            return super().step(**push)

    player = Jumping(library, N)
    quantities = frame_quantities(record_episodes(player, library, np.zeros(N, int), np.full(N, 60), T), library)
    assert quantities["jerk_frames"][49, 0] == 1
    assert not quantities["jerk_frames"][50:53].any()
    assert quantities["jerk_frames"][53, 0] == 1
    assert not quantities["skate_steps"][50].any()


def test_chunks_of_episodes_give_what_one_block_gives(monkeypatch):
    library = make_library()
    recording = record_episodes(StandInPlayer(library, N, yaw_rad=0.1), library, np.arange(N), np.arange(N), 50)
    whole = frame_quantities(recording, library)
    monkeypatch.setattr("benchmarks.measures.CHUNK", 4)
    for name, values in frame_quantities(recording, library).items():
        np.testing.assert_array_equal(values, whole[name], err_msg=name)


def test_player_that_starts_elsewhere_is_refused():
    library = make_library()
    with pytest.raises(RuntimeError, match="beside its reference"):
        record_episodes(StandInPlayer(library, N, (0, 3, 0), True), library, np.arange(N), np.zeros(N, int), 5)


def test_push_acts_in_its_frames_and_direction():
    library = make_library()
    player = StandInPlayer(library, 2)
    push = Push(np.array([400.0, 200.0]), np.array([0.0, np.pi / 2]), np.array([3, 5]), 6)
    record_episodes(player, library, np.arange(2), np.zeros(2, int), 20, push)
    forces = np.array(player.pushes)
    assert np.flatnonzero(forces[:, 0, 0]).tolist() == list(range(3, 9))
    assert np.flatnonzero(forces[:, 1, 1] > 1).tolist() == list(range(5, 11))
    assert np.abs(forces[:, :, 2]).max() == 0
    assert forces[4, 0, 0] == 400


def test_contact_class_names_left_first():
    assert feet_of_class(np.array([0, 1, 2, 3])).tolist() == [[False, False], [True, False], [False, True], [True] * 2]


def test_every_metric_says_what_it_is():
    for metric in METRICS:
        assert all((metric.formula, metric.unit, metric.frame, metric.points)), metric.name
    assert len({m.name for m in METRICS}) == len(METRICS)
