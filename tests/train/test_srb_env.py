"""What an episode of the training environment meets: calm and disturbed ones, and the path to follow."""

from __future__ import annotations

import numpy as np

from engine.motion.library import MotionLibrary
from engine.srb.body import MASS_SCALE
from tests.train.small_runs import small_env
from train.envs.srb_env import Disturbance, SrbEnv


def disturbed_env(library: MotionLibrary, n: int, **changes: float) -> SrbEnv:
    env = small_env(library, n)
    env.disturbance = Disturbance(0.05, 0.05, 0.5, 3, 300.0, (0.5, 0.9), (1.1, 1.3), **changes)
    env.restart(np.arange(n))
    return env


def test_calm_episodes_meet_nothing_and_the_others_all(library: MotionLibrary) -> None:
    env = disturbed_env(library, 200, calm_share=0.5)
    batch, calm = env.characters.batch, env.calm
    assert 60 < calm.sum() < 140
    np.testing.assert_array_equal(batch.mu_scale[calm], 1.0)
    np.testing.assert_array_equal(batch.ctrl[calm, MASS_SCALE], 1.0)
    assert batch.mu_scale[~calm].max() <= 0.9
    assert batch.ctrl[~calm, MASS_SCALE].min() >= 1.1
    force = sum(np.linalg.norm(env.pushes(), axis=1) for _ in range(20))
    np.testing.assert_array_equal(force[calm], 0.0)
    assert force[~calm].min() > 0.0


def test_only_the_characters_that_follow_their_path_see_a_bent_reference(library: MotionLibrary) -> None:
    env = disturbed_env(library, 60, path_share=0.5)
    chars = env.characters
    chars.batch.state[:, 0] -= 0.1
    obs = chars.observe()
    plain = chars.ref_rows[np.minimum(chars.frame + 1, chars.last)]
    bent = np.abs(obs[:, 170:] - plain).max(axis=1) > 1e-3
    np.testing.assert_array_equal(bent, chars.follows_path)
    assert 10 < bent.sum() < 50
    speed = np.linalg.norm(obs[:, 177:179] - plain[:, 7:9], axis=1)[bent]
    np.testing.assert_allclose(speed, 0.2, atol=1e-4)  # 2 /s times 0.1 m


def test_what_a_restart_drew_is_in_the_checkpoint(library: MotionLibrary) -> None:
    env = disturbed_env(library, 30, calm_share=0.5, path_share=0.5)
    kept = {key: value.copy() for key, value in env.arrays().items()}
    env.restart(np.arange(30))
    env.restore(kept)
    for key, value in env.arrays().items():
        np.testing.assert_array_equal(value, kept[key])
