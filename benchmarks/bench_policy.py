"""The policy alone, by batch: onnxruntime, one thread, input and output bound once. Times are a character."""

from __future__ import annotations

import numpy as np
import pytest

from engine.policy import Policy


@pytest.mark.benchmark(group="policy")
def test_policy(benchmark, policy_path, method, batch):
    policy = Policy.load(policy_path)
    rng = np.random.default_rng(0)
    obs = np.ascontiguousarray(rng.normal(0, 0.5, (batch, policy.obs_width)), np.float32)
    action = np.empty((batch, policy.action_width), np.float32)
    policy.act_into(action, obs)
    benchmark(policy.act_into, action, obs)
    one = policy.act(obs[-1:])
    np.testing.assert_allclose(action[-1:], one, rtol=1e-4, atol=1e-4)
    benchmark.extra_info.update(
        row=f"{method}, batch {batch}",
        method=method,
        calls=batch,
        n_characters=batch,
        threads=1,
        note="time a character",
    )
