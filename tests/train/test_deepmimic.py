"""The humanoid's policy, its update, and whole trainings in miniature."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.humanoid.observe import OBS
from engine.motion.library import MotionLibrary
from engine.overrides import override
from engine.params import read_section
from engine.policy_layout import humanoid_action, width
from export.to_onnx import build_graph
from tests.train.small_runs import LIBRARY, REPO
from train.__main__ import main
from train.config import DeepMimicParams
from train.deepmimic import (
    Learner,
    average_into,
    collect,
    imitation_options,
    log_prob,
    make_learner,
    read_curve,
    update,
)
from train.envs.humanoid_env import HumanoidEnv
from train.humanoid_policy import ACTION, HumanoidPolicy, RunningNormaliser, load_humanoid_policy, policy_kind
from train.ppo import Batch

ITERATIONS = 4
SMALL: dict[str, Any] = {
    "train.deepmimic.samples": 8 * 6 * ITERATIONS,
    "train.deepmimic.envs": 8,
    "train.deepmimic.episode_frames": 5,  # so that restarts happen inside an iteration
    "train.deepmimic.hidden": [16],
    "train.deepmimic.normaliser_samples": 8 * 6 * 3,
    "train.deepmimic.eval_episodes": 4,
    "train.deepmimic.eval_frames": 6,
    "train.deepmimic.eval_every": 1,
    "train.deepmimic.checkpoint_every": 2,
    "train.deepmimic.ppo.steps": 6,
    "train.deepmimic.ppo.batch": 16,
    "train.deepmimic.ppo.critic_hidden": [16],
}
# Kills itself after the third iteration's log row: past the checkpoint of the second.
KILLED = """
import os, signal, sys
import train.deepmimic as module
from train.__main__ import main

write = module.append_row

def write_and_die(path, row):
    write(path, row)
    if row["iteration"] == 3:
        os.kill(os.getpid(), signal.SIGKILL)

module.append_row = write_and_die
main(sys.argv[1:])
"""


def write_params(folder: Path, **changes: Any) -> Path:
    path = folder / f"params{len(list(folder.iterdir()))}.yaml"
    override(REPO / "params.yaml", SMALL | {f"train.deepmimic.{key}": value for key, value in changes.items()}, path)
    return path


def arguments(params: Path, out: Path) -> list[str]:
    paths = ["--params", str(params), "--library", str(LIBRARY), "--out", str(out)]
    return ["--method", "deepmimic", "--clip", "walk", "--seed", "3", *paths]


def outputs(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("policy.pt", "curve.csv")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One uninterrupted run."""
    folder = tmp_path_factory.mktemp("deepmimic")
    main(arguments(write_params(folder), folder / "run"))
    return folder / "run"


def test_a_training_logs_finite_numbers_and_says_what_it_made(finished: Path) -> None:
    rows = read_curve(finished / "curve.csv")
    assert [row["iteration"] for row in rows] == list(range(1, ITERATIONS + 1))
    assert all(np.isfinite(value) for row in rows for value in row.values())
    assert all(0 < row["return_official"] <= 1 for row in rows)
    policy, info = load_humanoid_policy(finished / "policy.pt")
    assert isinstance(policy, HumanoidPolicy)
    assert info["method"] == "deepmimic"
    assert (info["clip"], info["body_frame"], info["goal"]) == ("walk", "parent", False)
    controller = info["controller"]
    assert (controller["residual"], controller["round_frames"], controller["half_round_frames"]) == (1, 38, 19)
    assert policy_kind(finished / "policy.pt") == "humanoid"
    assert not (finished / "checkpoints").exists()
    assert (finished / "train.json").is_file()


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_seeds_give_equal_bytes_whatever_the_threads(threads: int, finished: Path, tmp_path: Path) -> None:
    main(arguments(write_params(tmp_path, threads=threads), tmp_path / "run"))
    found, wanted = outputs(tmp_path / "run"), outputs(finished)
    assert found["curve.csv"] == wanted["curve.csv"]
    weights = [load_humanoid_policy(folder / "policy.pt")[0].state_dict() for folder in (tmp_path / "run", finished)]
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
    if threads == 1:
        assert found == wanted


def test_a_killed_training_resumes_to_the_unbroken_runs_bytes(finished: Path, tmp_path: Path) -> None:
    args = arguments(write_params(tmp_path), tmp_path / "run")
    environment = {**os.environ, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run([sys.executable, "-c", KILLED, *args], env=environment, cwd=REPO, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert len(read_curve(tmp_path / "run" / "curve.csv")) == 3
    main(args)
    assert outputs(tmp_path / "run") == outputs(finished)


def test_both_rewards_a_goal_and_absolute_targets_train(tmp_path: Path) -> None:
    for changes in (
        {"reward.version": "paper", "targets": "absolute", "mirroring": False},
        {"reward.w_i": 0.7, "reward.w_g": 0.3},
        {"rsi": False, "early_termination": False, "reward.official.w_e": 0.0},
    ):
        out = tmp_path / "run"
        main(arguments(write_params(tmp_path, samples=48, **changes), out))
        assert np.isfinite(list(read_curve(out / "curve.csv")[-1].values())).all()


def test_the_policy_normalises_scales_and_limits_and_can_be_traced() -> None:
    torch.manual_seed(0)
    policy = HumanoidPolicy(OBS, [16, 16], 0.05, 2.0)
    with torch.no_grad():
        policy.network[-1].weight.mul_(1e4)
    rows = torch.randn(64, OBS) * 3 + 1
    normaliser = RunningNormaliser(OBS)
    for part in rows.split(10):
        normaliser.add(part)
    normaliser.into(policy)
    torch.testing.assert_close(policy.obs_mean, rows.mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(policy.obs_std, rows.std(0, correction=0), atol=1e-5, rtol=1e-5)
    action = policy(rows)
    assert action.shape == (64, ACTION) == (64, width(humanoid_action()))
    assert float(action.detach().abs().max()) == pytest.approx(0.1)  # two units of 0.05 rad
    graph = build_graph(policy, OBS, 18)
    assert graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value == OBS


def test_the_kept_policy_is_the_average_of_the_trained_ones() -> None:
    torch.manual_seed(0)
    average, policy = HumanoidPolicy(OBS, [16], 0.05, 2.0), HumanoidPolicy(OBS, [16], 0.05, 2.0)
    policy.obs_mean.fill_(3.0)
    first, then = (parameters.detach().clone() for parameters in (average.network[0].weight, policy.network[0].weight))
    average_into(average, policy, 0.25)
    torch.testing.assert_close(average.network[0].weight.detach(), 0.75 * first + 0.25 * then)
    assert torch.equal(average.obs_mean, policy.obs_mean)  # one normaliser, that of the networks trained with it
    torch.testing.assert_close(policy.network[0].weight, then, atol=0, rtol=0)


def test_exploration_goes_from_its_first_deviation_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = []

    def listening(env: HumanoidEnv, learner: Learner, std: float, p: DeepMimicParams) -> tuple[Batch, dict[str, float]]:
        used.append(std)
        return collect(env, learner, std, p)

    monkeypatch.setattr("train.deepmimic.collect", listening)
    for hold, expected in ((0.0, [0.06, 0.05, 0.04, 0.03]), (0.5, [0.06, 0.06, 0.06, 0.04])):
        used.clear()
        changes = {"noise_start_rad": 0.06, "noise_end_rad": 0.02, "noise_hold": hold}
        main(arguments(write_params(tmp_path, **changes), tmp_path / f"run{hold}"))
        assert used == pytest.approx(expected)


def test_noise_resembles_that_of_the_step_before(tmp_path: Path, library: MotionLibrary) -> None:
    found = []
    for correlation in (0.0, 0.8):
        changes = {"noise_correlation": correlation, "episode_frames": 600, "early_termination": False, "ppo.steps": 40}
        p = read_section(write_params(tmp_path, **changes), "train.deepmimic", DeepMimicParams)
        torch.manual_seed(0)
        learner = make_learner(p, {"obs": OBS, "hidden": [16], "scale_rad": 0.05, "limit": 20.0})
        with torch.no_grad():
            learner.policy.network[-1].weight.zero_()  # so that an action is its noise
        env = HumanoidEnv(8, library, "walk", imitation_options(p), np.random.default_rng(0), 1)
        batch, _ = collect(env, learner, 0.05, p)
        noise = batch.action.reshape(40, 8, 28) / 0.05
        assert float(noise.std()) == pytest.approx(1.0, abs=0.1)
        found.append(float((noise[1:] * noise[:-1]).mean() / (noise * noise).mean()))
    assert found == pytest.approx([0.0, 0.8], abs=0.05)


def test_the_log_probability_is_that_of_a_gaussian() -> None:
    mean, action = torch.randn(5, 28), torch.randn(5, 28)
    expected = torch.distributions.Normal(mean, 0.3).log_prob(action).sum(1)
    torch.testing.assert_close(log_prob(mean, action, 0.3), expected)


def test_an_update_makes_good_actions_likelier_and_the_rate_follows_the_divergence(
    tmp_path: Path, library: MotionLibrary
) -> None:
    p = read_section(write_params(tmp_path), "train.deepmimic", DeepMimicParams)
    torch.manual_seed(0)
    learner = make_learner(p, {"obs": OBS, "hidden": [16], "scale_rad": 0.05, "limit": 20.0})
    env = HumanoidEnv(8, library, "walk", imitation_options(p), np.random.default_rng(0), 1)
    batch, played = collect(env, learner, 0.05, p)
    assert batch.obs.shape == (48, OBS)
    assert played["reward"] > 0.5
    assert float(batch.value_target.max()) < 1.0  # rewards are scaled by 1 - gamma
    with torch.no_grad():  # what was likely then is what the policy says now
        torch.testing.assert_close(log_prob(learner.policy(batch.obs), batch.action, 0.05), batch.log_prob)
    wanted = torch.sign(batch.action[:, 0])  # good is what turns the first joint up
    taught = Batch(batch.obs, batch.action, batch.log_prob, wanted, batch.value_target)
    before = learner.policy(batch.obs)[:, 0].mean().detach()
    rate = learner.actor_optimiser.param_groups[0]["lr"]
    stats = update(taught, learner, 0.05, 0.01, p.ppo)
    assert float(learner.policy(batch.obs)[:, 0].mean().detach()) > float(before)
    assert stats["kl"] < 0.5 * 0.01
    assert stats["lr"] == pytest.approx(1.5 * rate)
    learner.actor_optimiser.param_groups[0]["lr"] = 0.05
    stats = update(taught, learner, 0.05, 0.01, p.ppo)
    assert stats["lr"] == pytest.approx(0.05 / 1.5)
