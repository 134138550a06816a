"""The policy alone, by batch, one thread, arrays bound once; times are a character.

One and two rows run as a Numba program, more in onnxruntime (`engine.policy`); `note` says which.
"""

from __future__ import annotations

import numpy as np
import pytest

from engine.policy import PROGRAM_ROWS, Policy


@pytest.mark.benchmark(group="policy")
def test_policy(benchmark, policy_path, method, batch):
    policy = Policy.load(policy_path)
    rng = np.random.default_rng(0)
    obs = np.ascontiguousarray(rng.normal(0, 0.5, (batch, policy.obs_width)), np.float32)
    action = np.empty((batch, policy.action_width), np.float32)
    policy.act_into(action, obs)
    benchmark(policy.act_into, action, obs)
    executor = "Numba program" if batch <= PROGRAM_ROWS and policy.executor != "onnxruntime" else "onnxruntime"
    one = policy.act(obs[-1:])
    np.testing.assert_allclose(action[-1:], one, rtol=1e-4, atol=1e-4)
    benchmark.extra_info.update(
        row=f"{method}, batch {batch}",
        method=method,
        calls=batch,
        n_characters=batch,
        threads=1,
        note=f"time a character; {executor}",
    )
