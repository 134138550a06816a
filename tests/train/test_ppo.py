"""Proximal policy optimisation and the paper's reward against their definitions and numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from engine.motion.library import MotionLibrary
from tests.train.small_runs import small_env
from train.config import PaperReward, PpoParams
from train.envs.paper_reward import RewardHistory, body_error, foot_error, paper_reward, pose_error
from train.ppo import Batch, advantages, update

TABLE_1 = PaperReward(
    w_p=0.3, w_e=0.0, w_ct=1.0, w_f=0.1, w_p1=50.0, w_p2=30.0, w_p3=600.0, w_p4=50.0,
    w_s=5.0, w_m=0.1, stance_alpha=1.9, swing_alpha=0.1,
)  # fmt: skip


def test_advantages_are_discounted_sums_of_temporal_differences() -> None:
    rng = np.random.default_rng(0)
    steps, n, gamma, lam = 8, 30, 0.95, 0.9
    reward, value, ahead = (rng.normal(size=(steps, n)) for _ in range(3))
    fell = rng.random((steps, n)) < 0.15
    over = ~fell & (rng.random((steps, n)) < 0.15)
    found = advantages(*map(torch.from_numpy, (reward, value, ahead, fell, over)), gamma, lam).numpy()
    for i in range(n):
        for t in range(steps):
            total = 0.0
            for k in range(t, steps):
                follows = 0.0 if fell[k, i] else gamma * ahead[k, i]
                total += (gamma * lam) ** (k - t) * (reward[k, i] + follows - value[k, i])
                if fell[k, i] or over[k, i]:
                    break
            assert found[t, i] == pytest.approx(total, abs=1e-12)


@pytest.mark.parametrize(("log_ratio", "advantage", "direction"), [
    (1.0, 1.0, 0),  # better and already beyond the clip: no gradient
    (1.0, -1.0, -1),
    (-1.0, 1.0, 1),
    (-1.0, -1.0, 0),
    (0.0, 1.0, 1),
])  # fmt: skip
def test_the_update_stops_at_the_clipped_ratio(log_ratio: float, advantage: float, direction: int) -> None:
    params = PpoParams(
        steps=1, batch=4, epochs=1, lr_start=0.1, lr_end=0.1, gamma=0.99, lambda_=0.95, clip=0.2, entropy=0.0,
        value=0.0, clip_norm=1e3, log_std=-2.0, value_hidden=[1],
    )  # fmt: skip
    theta = nn.Parameter(torch.zeros(()))
    value = nn.Linear(1, 1)

    def evaluate(obs: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return theta.expand(len(obs)), torch.zeros(len(obs)), 0.0 * theta

    batch = Batch(
        torch.zeros(4, 1), torch.zeros(4, 1), torch.full((4,), -log_ratio), torch.full((4,), advantage), torch.zeros(4)
    )
    optimiser = torch.optim.SGD([theta], lr=0.1)
    stats = update(batch, evaluate, value, lambda obs: obs, [theta], optimiser, params)
    assert np.sign(float(theta.detach())) == direction
    assert stats["clipped"] == (1.0 if log_ratio else 0.0)
    assert stats["kl"] == pytest.approx(np.expm1(log_ratio) - log_ratio, abs=1e-6)


@pytest.fixture
def on_the_reference(library: MotionLibrary) -> tuple[RewardHistory, Any]:
    """A history of 20 steps of four characters that move exactly as their references, and the characters."""
    chars = small_env(library, 4).characters
    clips = np.array([library.names.index(name) for name in ("walk", "run", "jump", "stand")])
    history, everyone = RewardHistory(chars), np.arange(4)
    for k in range(21):
        chars.reset(everyone, clips, np.full(4, 30 + k))
        if k == 0:
            history.begin(everyone)
        else:
            history.push()
    return history, chars


def reward_of(history: RewardHistory, chars: Any, w: PaperReward, wrong: bool = False) -> np.ndarray:
    ref = chars.ref_rows[chars.frame].astype(np.float64)
    contact = chars.library.contact[chars.frame]
    return paper_reward(history, ref[:, :35], ref[:, 35:], (contact + wrong) % 4, w)


def test_the_reference_itself_has_no_penalty(on_the_reference: tuple[RewardHistory, Any]) -> None:
    history, chars = on_the_reference
    np.testing.assert_allclose(pose_error(history, chars.library, TABLE_1), 0.0, atol=1e-6)
    np.testing.assert_allclose(reward_of(history, chars, TABLE_1), 5.0, atol=1e-6)


def test_a_wrong_contact_class_costs_ten_units(on_the_reference: tuple[RewardHistory, Any]) -> None:
    history, chars = on_the_reference
    np.testing.assert_allclose(reward_of(history, chars, TABLE_1, wrong=True), 5.0 - 0.1 * 10 * 1.0, atol=1e-6)


def test_a_centimetre_of_height(on_the_reference: tuple[RewardHistory, Any]) -> None:
    history, chars = on_the_reference
    history.pos[0, :, 2] += 0.01
    # absolute: 600 * 0.01; relative, over lags 1, 5 and 15: 50 * 3 * 0.01
    expected = 600 * 0.01 + 50 * 3 * 0.01
    np.testing.assert_allclose(pose_error(history, chars.library, TABLE_1), expected, atol=1e-6)
    np.testing.assert_allclose(reward_of(history, chars, TABLE_1), 5.0 - 0.1 * 0.3 * expected, atol=1e-6)


def test_lags_that_reach_before_the_start_do_not_count(on_the_reference: tuple[RewardHistory, Any]) -> None:
    history, chars = on_the_reference
    history.pos[0, :, 2] += 0.01
    history.length[:] = [0, 4, 5, 15]
    expected = [6.0, 6.5, 7.0, 7.5]
    np.testing.assert_allclose(pose_error(history, chars.library, TABLE_1), expected, atol=1e-6)


def test_drift_and_heading_are_not_penalised(on_the_reference: tuple[RewardHistory, Any]) -> None:
    history, chars = on_the_reference
    turn = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    history.pos[:] = history.pos @ turn.T + [3.0, -2.0, 0.0]
    history.rot[:] = turn @ history.rot
    np.testing.assert_allclose(pose_error(history, chars.library, TABLE_1), 0.0, atol=1e-5)


def test_foot_error_by_hand() -> None:
    ref = np.zeros((1, 35))
    srb = ref.copy()
    srb[0, 32] = 1.0  # left foot stands, right foot swings
    srb[0, 13] = 0.1  # left: 1.9 * 0.01
    srb[0, 24] = -0.2  # right: 0.1 * 0.04
    srb[0, [17, 28]] = 0.3, -0.2  # rotations: L1
    assert foot_error(srb, ref, TABLE_1)[0] == pytest.approx(0.019 + 0.004 + 0.5)


def test_body_error_by_hand() -> None:
    body = np.zeros((1, 135))
    body[0, 9:11] = 3.0, 4.0  # position of the second body
    body[0, 134] = 2.0  # rotation of the last
    assert body_error(body, np.zeros((1, 135)))[0] == pytest.approx(7.0)
