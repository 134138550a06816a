"""Method `unified_paper`: the policy, losses, reward and termination as the paper states them, trained by PPO.

What the paper leaves open is filled from its public ancestor (docs/methods/unified.md). The budget is far below the
paper's 2e8 steps; the learning curve says how far it came.
"""

from __future__ import annotations

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.params import params_digest
from engine.srb.action import decode_action_into
from engine.srb.body import SrbParams
from train.checkpoint import capture_rng, latest_checkpoint, restore_rng, save_checkpoint
from train.config import PaperParams
from train.envs.paper_reward import RewardHistory, paper_reward
from train.envs.srb_env import Disturbance, SrbEnv
from train.files import policy_info, write_train_json
from train.log import truncate_log
from train.networks import ACTION, PaperPolicy, UnifiedNetwork, save_policy
from train.ppo import Batch, RolloutBuffer, update
from train.rollout import Evaluation, Progress, append_row, mlp

GAUSSIAN = ACTION - 4  # a_SRB and a_full are Gaussian, the contact class is categorical


class Actor:
    """The policy as a distribution: Gaussian of fixed deviation over 165 outputs, categorical over the class."""

    def __init__(self, policy: PaperPolicy, p: PaperParams) -> None:
        self.policy, self.p = policy, p
        self.std = float(np.exp(p.ppo.log_std))
        # the deviation is that of the network's own output: an action scaled by 0.1 is explored 0.1 as widely
        self.spread = policy.out_scale[:GAUSSIAN] * self.std
        self.constant = -torch.log(self.spread).sum() - 0.5 * GAUSSIAN * float(np.log(2 * np.pi))

    def log_prob(self, mean: Tensor, action: Tensor) -> Tensor:
        """log pi(action) (B,); the last column of ``action`` (B, 166) is the class."""
        z = (action[:, :GAUSSIAN] - mean[:, :GAUSSIAN]) / self.spread
        log_class = torch.log_softmax(mean[:, GAUSSIAN:], dim=1)
        chosen = log_class.gather(1, action[:, GAUSSIAN:].long())[:, 0]
        return self.constant - 0.5 * (z * z).sum(1) + chosen

    def sample(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """A random action (B, 166) and its log-probability."""
        with torch.no_grad():
            mean = self.policy(obs)
            gaussian = mean[:, :GAUSSIAN] + self.spread * torch.randn(len(obs), GAUSSIAN)
            chosen = torch.multinomial(torch.softmax(mean[:, GAUSSIAN:], dim=1), 1)
            action = torch.cat([gaussian, chosen.float()], dim=1)
            return action, self.log_prob(mean, action)

    def evaluate(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probability, entropy of the class, and the paper's losses (eq. 1)."""
        mean, w = self.policy(obs), self.p.loss
        log_class = torch.log_softmax(mean[:, GAUSSIAN:], dim=1)
        entropy = -(log_class.exp() * log_class).sum(1)
        contact = torch.nn.functional.nll_loss(log_class, obs[:, 201:205].argmax(1))
        body = ((mean[:, 30:165] - obs[:, 205:340]) ** 2).mean()
        residual = (mean[:, 12:30] ** 2).mean()
        return self.log_prob(mean, action), entropy, w.w_cs * contact + w.w_b * body + w.w_r * residual


def collect(
    env: SrbEnv, history: RewardHistory, actor: Actor, value: torch.nn.Module, p: PaperParams
) -> tuple[Batch, float]:
    """Play ``p.ppo.steps`` steps with exploration; the batch and the mean reward."""
    chars, ground = env.characters, env.characters.options.terrain
    steps, n = p.ppo.steps, env.n
    buffer = RolloutBuffer(steps, n, 340, GAUSSIAN + 1)
    act12, command, contact = np.zeros((n, 12)), np.zeros((n, 2, 9)), np.zeros(n, np.int64)
    full = np.zeros((n, ACTION), np.float32)
    obs = torch.from_numpy(chars.observe().copy())
    for t in range(steps):
        action, buffer.log_prob[t] = actor.sample(obs)
        buffer.obs[t], buffer.action[t] = obs, action
        full[:, :GAUSSIAN] = action[:, :GAUSSIAN].numpy()
        full[:, GAUSSIAN:] = np.eye(4, dtype=np.float32)[action[:, GAUSSIAN].long().numpy()]
        decode_action_into(
            act12, command, contact, full, chars.batch.state, chars.body_frame, ground.shape_params, ground.heights,
            chars._small,
        )  # fmt: skip
        chars.apply(act12, command, contact, full[:, 30:165])
        history.push()
        fell, over = env.ends()
        next_obs = torch.from_numpy(chars.observe().copy())
        earned = paper_reward(
            history, next_obs[:, :35].double().numpy(), full[:, 30:165].astype(np.float64), contact, p.reward
        )
        buffer.reward[t] = torch.from_numpy(np.where(np.isfinite(earned), earned, 0.0))
        with torch.no_grad():
            buffer.value[t] = value(_normalised(actor.policy, obs))[:, 0]
            buffer.next_value[t] = value(_normalised(actor.policy, torch.nan_to_num(next_obs)))[:, 0]
        buffer.fell[t], buffer.over[t] = torch.from_numpy(fell), torch.from_numpy(over)
        done = np.flatnonzero(fell | over)
        if len(done):
            env.restart(done)
            history.begin(done)
            next_obs = torch.from_numpy(chars.observe().copy())
        obs = next_obs
    return buffer.batch(p.ppo.gamma, p.ppo.lambda_), float(buffer.reward.mean())


def _normalised(policy: PaperPolicy, obs: Tensor) -> Tensor:
    return torch.clamp((obs - policy.obs_mean) / policy.obs_std, -5.0, 5.0)


def train_unified_paper(p: PaperParams, srb: SrbParams, mmik: MmikParams, library: MotionLibrary, out: Path) -> None:
    """Train; writes ``policy.pt``, ``curve.csv``, ``train.json`` to ``out``, checkpoints while running."""
    began, cpu = time.perf_counter(), time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    env_seed, eval_seed, net_seed = np.random.SeedSequence(p.seed).spawn(3)
    torch.manual_seed(int(net_seed.generate_state(1)[0]))
    rng = np.random.default_rng(env_seed)
    noise = Disturbance(p.velocity_noise_m_s, p.rotation_noise_rad)
    env = SrbEnv(p.envs, library, srb, mmik, "proj", p.episode_frames, noise, rng, p.threads, refine=False)
    calm = Disturbance(0.0, 0.0)
    check = Evaluation(
        SrbEnv(p.eval_episodes, library, srb, mmik, "proj", p.eval_frames, calm, np.random.default_rng(eval_seed),
               p.threads, refine=False),
        p.eval_frames,
    )  # fmt: skip
    network = dataclasses.asdict(p.network)
    policy = PaperPolicy(UnifiedNetwork(**network), p.foot_residual_scale)
    policy.fit_normaliser(torch.from_numpy(library.ref_srb).float(), torch.from_numpy(library.ref_full).float())
    value = mlp([340, *p.ppo.value_hidden, 1])
    actor = Actor(policy, p)
    parameters = [*policy.parameters(), *value.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=p.ppo.lr_start)
    history = RewardHistory(env.characters)
    history.begin(np.arange(p.envs))
    per_iteration = p.envs * p.ppo.steps
    iterations = max(1, -(-p.samples // per_iteration))
    expected = {
        "dims": {"obs": 340, "action": 169, **network, "envs": p.envs},
        "params": {**dataclasses.asdict(p), "srb": dataclasses.asdict(srb)},
    }
    folder, first, spent = out / "checkpoints", 0, [0.0, 0.0]
    found = latest_checkpoint(folder, expected)
    if found is None:
        (out / "curve.csv").unlink(missing_ok=True)
    else:
        first, data = found.step, found.payload
        policy.load_state_dict(data["weights"]["policy"])
        value.load_state_dict(data["weights"]["value"])
        optimiser.load_state_dict(data["optimiser"])
        env.restore(data["env"])
        history.pos, history.rot, history.length = (data["history"][k] for k in ("pos", "rot", "length"))
        spent = list(data["spent"])
        restore_rng(data["rng"], {"env": rng})
        truncate_log(out / "curve.csv", "iteration", first)
    progress = Progress(iterations * per_iteration, first * per_iteration, "unified_paper")
    for iteration in range(first, iterations):
        share = iteration / max(iterations - 1, 1)
        for group in optimiser.param_groups:
            group["lr"] = p.ppo.lr_start * (p.ppo.lr_end / p.ppo.lr_start) ** share
        batch, mean_reward = collect(env, history, actor, value, p)
        stats = update(batch, actor.evaluate, value, lambda o: _normalised(policy, o), parameters, optimiser, p.ppo)
        done = iteration + 1
        if done % p.eval_every == 0 or done in (1, iterations):
            survival = check.survival_s(policy)
            row: dict[str, Any] = {"iteration": done, "samples": done * per_iteration, "reward": f"{mean_reward:.6f}"}
            row |= {key: f"{number:.6f}" for key, number in stats.items()}
            row["survival_s"] = f"{np.mean(list(survival.values())):.4f}"
            row |= {f"survival_{kind}_s": f"{s:.4f}" for kind, s in survival.items()}
            append_row(out / "curve.csv", row)
        if done % p.checkpoint_every == 0 and done < iterations:
            payload = {
                "weights": {"policy": policy.state_dict(), "value": value.state_dict()},
                "optimiser": optimiser.state_dict(),
                "normaliser": {"obs_mean": policy.obs_mean, "obs_std": policy.obs_std},
                "rng": capture_rng({"env": rng}),
                "env": env.arrays(),
                "history": {"pos": history.pos, "rot": history.rot, "length": history.length},
                "spent": [spent[0] + time.perf_counter() - began, spent[1] + time.process_time() - cpu],
                **expected,
            }
            save_checkpoint(folder, done, payload)
        progress.update(done * per_iteration, f"reward {mean_reward:.2f}")
    progress.close()
    build = {"kind": "paper", "network": network, "foot_residual_scale": p.foot_residual_scale}
    info = policy_info(
        "unified_paper", library, srb, mmik, "proj", params_digest(p), p.seed, iterations * per_iteration
    )
    save_policy(out / "policy.pt", policy, build, info)
    write_train_json(
        out, "unified_paper", p.seed, iterations * per_iteration, spent[0] + time.perf_counter() - began,
        spent[1] + time.process_time() - cpu,
    )  # fmt: skip
    shutil.rmtree(folder, ignore_errors=True)
