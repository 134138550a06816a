"""Method `deepmimic` (Peng et al. 2018): one policy a clip, trained by clipped PPO to imitate it in MuJoCo.

The recipe that makes it cheap: servo targets are the reference's plus a residual, symmetric
clips are learnt by half rounds, networks are small, exploration is 0.05 rad, rewards are scaled by 1 - gamma so that
values lie in [0, 1], the critic has its own optimiser, and the actor's rate follows the KL divergence. Training counts
pose and velocity errors several times (the published reward is forgiving), exploration shrinks, and the policy that is
kept is a running average of the trained ones.
"""

from __future__ import annotations

import copy
import csv
import dataclasses
import math
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from engine.humanoid.simulation import ARMATURE_KG_M2, CONTROL_HZ
from engine.motion.library import MotionLibrary
from engine.params import params_digest
from engine.players.deepmimic import ImitationControl, control_numbers, reference_texts
from train.checkpoint import capture_rng, latest_checkpoint, restore_rng, save_checkpoint
from train.config import AdaptivePpoParams, DeepMimicParams
from train.envs.humanoid_env import HumanoidEnv, ImitationOptions
from train.envs.imitation_reward import OFFICIAL, PAPER, imitation_reward
from train.files import write_train_json
from train.humanoid_policy import HumanoidPolicy, RunningNormaliser
from train.log import truncate_log
from train.networks import save_policy
from train.ppo import Batch, RolloutBuffer, clipped_surrogate, ratio_stats
from train.rollout import Progress, append_row, mlp


class Learner(NamedTuple):
    """Everything that an update changes."""

    policy: HumanoidPolicy
    average: HumanoidPolicy  # of the policies so far, the later the more; the one that is kept
    critic: nn.Module
    actor_optimiser: torch.optim.Optimizer
    critic_optimiser: torch.optim.Optimizer
    normaliser: RunningNormaliser


def log_prob(mean: Tensor, action: Tensor, std: float) -> Tensor:
    """log N(action; mean, std) (B,) of (B, 28) each."""
    z = (action - mean) / std
    return -0.5 * (z * z).sum(1) - action.shape[1] * (math.log(std) + 0.5 * math.log(2.0 * math.pi))


def collect(env: HumanoidEnv, learner: Learner, std: float, p: DeepMimicParams) -> tuple[Batch, dict[str, float]]:
    """Play ``p.ppo.steps`` steps with exploration of deviation ``std`` [rad].

    The noise of a step resembles that of the step before, as a servo hardly follows what changes 30 times a second; its
    likelihood is taken step by step (Hollenstein et al. 2024, Colored noise in PPO).

    Returns:
        The batch; the mean reward of a step and the mean length of the episodes that ended.
    """
    steps, n, gamma = p.ppo.steps, env.n, p.ppo.gamma
    obs = torch.from_numpy(env.observe())
    buffer = RolloutBuffer(steps, n, obs.shape[1], 28)
    ages: list[np.ndarray] = []
    policy, critic = learner.policy, learner.critic
    rho, noise = p.noise_correlation, torch.randn(n, 28)
    with torch.no_grad():
        for t in range(steps):
            mean = policy(obs)
            action = mean + std * noise
            buffer.obs[t], buffer.action[t], buffer.log_prob[t] = obs, action, log_prob(mean, action, std)
            buffer.value[t] = critic(policy.features(obs))[:, 0]
            earned, fell, over = env.step(action.double().numpy())
            buffer.reward[t] = torch.from_numpy(earned * (1.0 - gamma))
            buffer.fell[t], buffer.over[t] = torch.from_numpy(fell), torch.from_numpy(over)
            noise = rho * noise + math.sqrt(1.0 - rho * rho) * torch.randn_like(noise)
            obs = torch.from_numpy(env.observe())
            buffer.next_value[t] = critic(policy.features(obs))[:, 0]
            done = np.flatnonzero(fell | over)
            if len(done):
                ages.append(env.age[done].copy())
                env.restart(done)
                noise[done] = torch.randn(len(done), 28)
                obs = torch.from_numpy(env.observe())
    lived = float(np.concatenate(ages).mean()) if ages else float(env.age.mean())
    return buffer.batch(gamma, p.ppo.lambda_), {
        "reward": float(buffer.reward.mean()) / (1.0 - gamma),
        "episode_s": lived / CONTROL_HZ,
    }


def update(batch: Batch, learner: Learner, std: float, kl_target: float, p: AdaptivePpoParams) -> dict[str, float]:
    """Run the epochs of one iteration, then adapt the actor's learning rate to a KL divergence near ``kl_target``.

    Returns:
        Means over the last epoch: KL estimate, share of clipped samples, value loss; and the new rate.
    """
    policy, critic = learner.policy, learner.critic
    with torch.no_grad():
        features = policy.features(batch.obs)
    sums: dict[str, float] = {}
    for _ in range(p.epochs):
        sums = {"kl": 0.0, "clipped": 0.0, "value_loss": 0.0}
        parts = torch.randperm(len(batch.obs)).split(p.batch)
        for rows in parts:
            now = log_prob(policy(batch.obs[rows]), batch.action[rows], std)
            loss, log_ratio = clipped_surrogate(now, batch.log_prob[rows], batch.advantage[rows], p.clip)
            value_loss = ((critic(features[rows])[:, 0] - batch.value_target[rows]) ** 2).mean()
            for module, optimiser, each in (
                (policy, learner.actor_optimiser, loss),
                (critic, learner.critic_optimiser, value_loss),
            ):
                optimiser.zero_grad()
                each.backward()
                nn.utils.clip_grad_norm_(module.parameters(), p.clip_norm)
                optimiser.step()
            numbers = {**ratio_stats(log_ratio, p.clip), "value_loss": float(value_loss.detach())}
            sums = {key: sums[key] + number / len(parts) for key, number in numbers.items()}
    group = learner.actor_optimiser.param_groups[0]
    if sums["kl"] > 2.0 * kl_target:
        group["lr"] = max(p.lr_min, group["lr"] / 1.5)
    elif sums["kl"] < 0.5 * kl_target:
        group["lr"] = min(p.lr_max, group["lr"] * 1.5)
    return {**sums, "lr": group["lr"]}


def average_into(average: HumanoidPolicy, policy: HumanoidPolicy, rate: float) -> None:
    """Move the averaged policy's weights by ``rate`` towards the policy's; the normaliser is the policy's."""
    with torch.no_grad():
        for kept, now in zip(average.parameters(), policy.parameters(), strict=True):
            kept.lerp_(now, rate)
        for kept, now in zip(average.buffers(), policy.buffers(), strict=True):
            kept.copy_(now)


class Check:
    """Deterministic episodes from the same starts each time, on the published rewards whatever the training's."""

    def __init__(self, env: HumanoidEnv, frames: int) -> None:
        self.env, self.frames = env, frames
        self.start = {key: value.copy() for key, value in env.arrays().items()}

    def measure(self, policy: HumanoidPolicy) -> dict[str, float]:
        """Mean survival [s], share alive at the end, and the normalised return of both versions (1 is perfect)."""
        env, n = self.env, self.env.n
        env.restore(self.start)
        alive, lived = np.ones(n, bool), np.zeros(n)
        returns = {"paper": np.zeros(n), "official": np.zeros(n)}
        for _ in range(self.frames):
            if not alive.any():
                break
            with torch.no_grad():
                action = policy(torch.from_numpy(env.observe())).double().numpy()
            _, fell, _ = env.step(action)
            alive &= ~fell
            lived += alive
            ref, b = env.reference(), env.batch
            for version, weights in (("paper", PAPER), ("official", OFFICIAL)):
                earned = imitation_reward(version, weights, b.qpos, b.qvel, b.bodies, ref)
                returns[version] += np.where(alive, earned, 0.0)
        return {
            "survival_s": float(lived.mean()) / CONTROL_HZ,
            "alive": float(alive.mean()),
            "return_official": float(returns["official"].mean()) / self.frames,
            "return_paper": float(returns["paper"].mean()) / self.frames,
        }


def imitation_options(p: DeepMimicParams) -> ImitationOptions:
    """The environment's options of a training."""
    r = p.reward
    return ImitationOptions(
        rsi=p.rsi, early_termination=p.early_termination, fall_bodies=tuple(p.fall_bodies),
        pose_limit_m=p.pose_limit_m, mirroring=p.mirroring, residual=p.targets == "residual", lead_s=p.lead_s,
        feedforward=p.feedforward, episode_frames=p.episode_frames, version=r.version,
        weights=r.paper if r.version == "paper" else r.official, sharpness=p.sharpness, w_i=r.w_i, w_g=r.w_g,
        goal_speed_m_s=r.goal.speed_m_s, goal_turn_rad=r.goal.turn_rad, goal_frames=r.goal.frames,
    )  # fmt: skip


def make_learner(p: DeepMimicParams, shape: dict[str, Any]) -> Learner:
    """Networks and optimisers from torch's present random state; ``shape``: arguments of `HumanoidPolicy`."""
    policy = HumanoidPolicy(**shape)
    critic = mlp([shape["obs"], *p.ppo.critic_hidden, 1])
    return Learner(
        policy, copy.deepcopy(policy), critic, torch.optim.Adam(policy.parameters(), lr=p.ppo.lr_start),
        torch.optim.Adam(critic.parameters(), lr=p.ppo.critic_lr), RunningNormaliser(shape["obs"]),
    )  # fmt: skip


def train_deepmimic(p: DeepMimicParams, library: MotionLibrary, clip: str, seed: int, out: Path) -> None:
    """Train; writes ``policy.pt``, ``curve.csv``, ``train.json`` to ``out``, checkpoints while running."""
    began, cpu = time.perf_counter(), time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    env_seed, eval_seed, net_seed = np.random.SeedSequence(seed).spawn(3)
    torch.manual_seed(int(net_seed.generate_state(1)[0]))
    rng = np.random.default_rng(env_seed)
    options = imitation_options(p)
    env = HumanoidEnv(p.envs, library, clip, options, rng, p.threads)
    strict = dataclasses.replace(options, rsi=True, early_termination=True, pose_limit_m=p.eval_pose_limit_m)
    check = Check(
        HumanoidEnv(p.eval_episodes, library, clip, strict, np.random.default_rng(eval_seed), p.threads), p.eval_frames
    )
    width = env.observe().shape[1]
    shape = {"obs": width, "hidden": p.hidden, "scale_rad": p.scale_rad, "limit": p.limit}
    learner = make_learner(p, shape)
    per_iteration = p.envs * p.ppo.steps
    iterations = max(1, -(-p.samples // per_iteration))
    # threads are no part of what a run is: results do not depend on them
    expected = {
        "dims": {"obs": width, "hidden": p.hidden, "envs": p.envs},
        "params": {**dataclasses.asdict(p), "threads": 0, "clip": clip, "seed": seed},
    }
    folder, first, spent = out / "checkpoints", 0, [0.0, 0.0]
    found = latest_checkpoint(folder, expected)
    if found is None:
        (out / "curve.csv").unlink(missing_ok=True)
        learner.normaliser.add(torch.from_numpy(env.observe()))
        learner.normaliser.into(learner.policy)
        average_into(learner.average, learner.policy, 1.0)
    else:
        first, data = found.step, found.payload
        learner.policy.load_state_dict(data["weights"]["policy"])
        learner.average.load_state_dict(data["weights"]["average"])
        learner.critic.load_state_dict(data["weights"]["critic"])
        learner.actor_optimiser.load_state_dict(data["optimiser"]["actor"])
        learner.critic_optimiser.load_state_dict(data["optimiser"]["critic"])
        learner.normaliser.restore(data["normaliser"])
        env.restore(data["env"])
        env.batch.warnings = int(data["warnings"])
        spent = list(data["spent"])
        restore_rng(data["rng"], {"env": rng})
        truncate_log(out / "curve.csv", "iteration", first)
    progress = Progress(iterations * per_iteration, first * per_iteration, f"deepmimic {clip}")
    for iteration in range(first, iterations):
        late = max(0.0, iteration / iterations - p.noise_hold) / (1.0 - p.noise_hold)
        std = p.noise_start_rad + (p.noise_end_rad - p.noise_start_rad) * late
        kl_target = p.ppo.kl_start + (p.ppo.kl_end - p.ppo.kl_start) * late
        batch, played = collect(env, learner, std, p)
        stats = update(batch, learner, std, kl_target, p.ppo)
        if iteration * per_iteration < p.normaliser_samples:
            learner.normaliser.add(batch.obs)
            learner.normaliser.into(learner.policy)
        average_into(learner.average, learner.policy, p.average_rate)
        done = iteration + 1
        if done % p.eval_every == 0 or done in (1, iterations):
            row: dict[str, Any] = {"iteration": done, "samples": done * per_iteration}
            row |= {key: f"{number:.6g}" for key, number in {**played, **stats}.items()}
            row["warnings"] = env.batch.warnings
            row |= {key: f"{number:.4f}" for key, number in check.measure(learner.average).items()}
            append_row(out / "curve.csv", row)
        if done % p.checkpoint_every == 0 and done < iterations:
            payload = {
                "weights": {
                    "policy": learner.policy.state_dict(),
                    "average": learner.average.state_dict(),
                    "critic": learner.critic.state_dict(),
                },
                "optimiser": {
                    "actor": learner.actor_optimiser.state_dict(),
                    "critic": learner.critic_optimiser.state_dict(),
                },
                "normaliser": learner.normaliser.state(),
                "rng": capture_rng({"env": rng}),
                "env": env.arrays(),
                "warnings": env.batch.warnings,
                "spent": [spent[0] + time.perf_counter() - began, spent[1] + time.process_time() - cpu],
                **expected,
            }
            save_checkpoint(folder, done, payload)
        progress.update(done * per_iteration, f"reward {played['reward']:.2f}, episode {played['episode_s']:.1f} s")
    progress.close()
    samples = iterations * per_iteration
    facts = policy_facts(p, library, env, clip, seed, samples)
    save_policy(out / "policy.pt", learner.average, {"kind": "humanoid", **shape}, facts)
    write_train_json(
        out, "deepmimic", seed, samples, spent[0] + time.perf_counter() - began, spent[1] + time.process_time() - cpu
    )
    shutil.rmtree(folder, ignore_errors=True)


def policy_facts(
    p: DeepMimicParams, library: MotionLibrary, env: HumanoidEnv, clip: str, seed: int, samples: int
) -> dict[str, object]:
    """What a player or an export must know of a trained policy."""
    control = ImitationControl(
        residual=p.targets == "residual", mirroring=p.mirroring, lead_s=p.lead_s, feedforward=p.feedforward,
        armature_kg_m2=ARMATURE_KG_M2, round_frames=len(env.cycle),
        half_round_frames=env.cycle.half if p.mirroring else 0,
    )  # fmt: skip
    return {
        "method": "deepmimic",
        "clip": clip,
        "goal": p.reward.w_g > 0,
        "mass_kg": float(library.mass_kg),
        "inertia_b": np.asarray(library.inertia_b, np.float64).ravel().tolist(),
        "body_frame": "parent",
        "controller": control_numbers(control, env.batch.model),
        "reference": reference_texts(env.cycle, clip, control, env.batch.model),
        "data_licence": library.licence[env.cycle.clip],
        "params_digest": params_digest(p),
        "seed": seed,
        "samples": samples,
        "obs_samples": torch.from_numpy(env.observe()),
    }


def read_curve(path: Path) -> list[dict[str, float]]:
    """The rows of a ``curve.csv`` as numbers."""
    with open(path, newline="") as file:
        return [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
