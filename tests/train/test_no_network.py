"""The search for the feed-forward controller: fair to every candidate, repeatable, and its result is read back."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.params import read_section
from engine.srb.body import SrbParams
from tests.train.small_runs import REPO, small_env
from train.config import ControlParams, CostWeights, SearchParams
from train.files import read_tuned
from train.networks import UnifiedPolicy, load_policy_module
from train.no_network import START, UNIT, search_cost, train_no_network, tuned_params

PARAMS = REPO / "params.yaml"
SMALL = {"generations": 2, "population": 4, "episodes": 4, "frames": 14, "threads": 1}


@pytest.fixture(scope="module")
def search() -> SearchParams:
    return dataclasses.replace(read_section(PARAMS, "train.no_network", SearchParams), **SMALL)


@pytest.fixture(scope="module")
def control() -> ControlParams:
    return read_section(PARAMS, "train.control", ControlParams)


def test_equal_candidates_cost_the_same(library: MotionLibrary, search: SearchParams, control: ControlParams) -> None:
    cost = read_section(PARAMS, "train.cost", CostWeights)
    policy = UnifiedPolicy(None, [0.0] * 6, **dataclasses.asdict(control))
    env = small_env(library, 3 * 4, search.frames)
    points = np.stack([START, START + 2 * UNIT, START])
    found = search_cost(points, env, policy, search, cost, seed=5)
    assert np.isfinite(found).all()
    assert found[0] == found[2]
    assert found[0] != found[1]
    np.testing.assert_array_equal(search_cost(points, env, policy, search, cost, seed=5), found)
    assert search_cost(points, env, policy, search, cost, seed=6)[0] != found[0]


def test_a_point_of_the_search_is_the_controller_it_stands_for() -> None:
    srb = read_section(PARAMS, "srb", SrbParams)
    point = np.array([0.2, 0.21, 0.1, -0.1, 0.02, -0.05, 0.0, np.log(3.5), 0.0, 0.0, np.log(290.0), np.log(52.0)])
    law, tuned = tuned_params(point, srb)
    assert law == [0.2, 0.21, 0.1, -0.1, 0.02, -0.05]
    assert tuned.kp_linear == pytest.approx(290.0)
    assert tuned.kd_linear == pytest.approx(52.0)
    assert tuned.weight_linear_z == pytest.approx(3.5)
    assert (tuned.weight_linear_xy, tuned.weight_angular_xy, tuned.weight_angular_z) == (1.0, 1.0, 1.0)
    assert (tuned.kp_angular, tuned.w_lambda) == (srb.kp_angular, srb.w_lambda)


def test_a_search_writes_what_is_read_back_and_repeats_to_the_byte(
    library: MotionLibrary, search: SearchParams, control: ControlParams, tmp_path: Path
) -> None:
    srb, mmik = read_section(PARAMS, "srb", SrbParams), read_section(PARAMS, "mmik", MmikParams)
    cost = read_section(PARAMS, "train.cost", CostWeights)
    for name in ("a", "b"):
        train_no_network(search, control, cost, srb, mmik, library, tmp_path / name)
    for file in ("policy.pt", "tuned.json", "curve.csv"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    law, tuned = read_tuned(tmp_path / "a" / "tuned.json")
    assert json.loads((tmp_path / "a" / "tuned.json").read_text()) == {
        "foot_law": law, "srb": dataclasses.asdict(tuned),
    }  # fmt: skip
    policy, info = load_policy_module(tmp_path / "a" / "policy.pt")
    torch.testing.assert_close(policy.foot_law, torch.tensor(law))
    assert info["controller"]["srb.kp_linear"] == tuned.kp_linear
    assert info["samples"] == 2 * 4 * 4 * 14
