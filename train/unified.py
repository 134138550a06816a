"""Method `unified`: one policy for all motions, by back-propagation through the body and its contact forces.

Short windows of simulation are differentiated exactly (`engine.srb.adjoint`), a critic stands for what lies beyond the
window (short-horizon actor-critic, Xu et al. 2022), and the paper's supervised losses train the contact and full-body
heads beside it. Read `train_unified` from the top; docs/methods/unified.md says what was chosen and why.
"""

from __future__ import annotations

import copy
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
from train.checkpoint import capture_rng, latest_checkpoint, restore_rng, save_checkpoint
from train.config import UnifiedParams
from train.envs.srb_env import Disturbance, SrbEnv
from train.files import policy_info, read_tuned, write_train_json
from train.log import truncate_log
from train.networks import UnifiedNetwork, UnifiedPolicy, save_policy
from train.rollout import Evaluation, Progress, append_row, mlp
from train.window import Window, roll_window, td_targets


def train_unified(
    p: UnifiedParams, mmik: MmikParams, library: MotionLibrary, tuned: Path, seed: int, out: Path
) -> None:
    """Train one seed; writes ``policy.pt``, ``curve.csv``, ``train.json`` to ``out``, checkpoints while running."""
    began, cpu = time.perf_counter(), time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    foot_law, srb = read_tuned(tuned)
    env_seed, eval_seed, net_seed = np.random.SeedSequence(seed).spawn(3)
    torch.manual_seed(int(net_seed.generate_state(1)[0]))
    noise = Disturbance(
        p.velocity_noise_m_s, p.rotation_noise_rad, p.push_rate, p.push_frames, p.push_max_n,
        (p.friction_min, p.friction_max), (p.mass_min, p.mass_max), p.calm_share, p.path_share,
    )  # fmt: skip
    rng = np.random.default_rng(env_seed)
    env = SrbEnv(p.envs, library, srb, mmik, "srb", p.episode_frames, noise, rng, p.threads)
    calm = Disturbance(0.0, 0.0)
    check = Evaluation(
        SrbEnv(
            p.eval_episodes, library, srb, mmik, "srb", p.eval_frames, calm, np.random.default_rng(eval_seed), p.threads
        ),
        p.eval_frames,
    )
    network = dataclasses.asdict(p.network)
    policy = UnifiedPolicy(UnifiedNetwork(**network), foot_law, **dataclasses.asdict(p.control))
    policy.fit_normaliser(torch.from_numpy(library.ref_srb).float(), torch.from_numpy(library.ref_full).float())
    average = copy.deepcopy(policy)  # what is evaluated and kept: the mean of the last windows' policies
    critic = mlp([340, *p.critic_hidden, 1])
    target = copy.deepcopy(critic)
    actor_opt = torch.optim.Adam(policy.parameters(), lr=p.lr_start, betas=(0.8, 0.99))
    critic_opt = torch.optim.Adam(critic.parameters(), lr=p.critic_lr, betas=(0.8, 0.99))
    inverse_b = torch.from_numpy(np.linalg.inv(library.inertia_b))
    previous = torch.zeros(p.envs, len(policy.live))
    per_window = p.envs * p.horizon
    windows = max(1, -(-p.samples // per_window))
    modules = {"policy": policy, "average": average, "critic": critic, "target": target}
    optimisers: dict[str, torch.optim.Optimizer] = {"actor": actor_opt, "critic": critic_opt}
    expected = {
        "dims": {"obs": 340, "action": 169, **network, "envs": p.envs},
        "params": {**dataclasses.asdict(p), "seed": seed, "foot_law": foot_law, "srb": dataclasses.asdict(srb)},
    }
    folder = out / "checkpoints"
    first, spent = 0, [0.0, 0.0]
    found = latest_checkpoint(folder, expected)
    if found is None:
        (out / "curve.csv").unlink(missing_ok=True)
    else:
        first, data = found.step, found.payload
        for name, module in modules.items():
            module.load_state_dict(data["weights"][name])
        for name, optimiser in optimisers.items():
            optimiser.load_state_dict(data["optimiser"][name])
        env.restore(data["env"])
        previous, spent = data["previous"], list(data["spent"])
        restore_rng(data["rng"], {"env": rng})
        truncate_log(out / "curve.csv", "window", first)
    progress = Progress(windows * per_window, first * per_window, f"unified seed {seed}")
    for window in range(first, windows):
        share = window / max(windows - 1, 1)
        for group in actor_opt.param_groups:
            group["lr"] = p.lr_start * (p.lr_end / p.lr_start) ** share
        w, previous = roll_window(env, policy, target, p, inverse_b, previous)
        actor_opt.zero_grad()
        (w.actor + w.supervised).backward()
        norm = torch.nn.utils.clip_grad_norm_(policy.parameters(), p.clip_norm)
        if bool(torch.isfinite(norm)):
            actor_opt.step()
        _follow(average, policy, max(p.average_rate, 1.0 / (window + 1)))
        critic_loss = _fit_critic(w, policy, critic, target, critic_opt, p)
        _log_and_save(
            window + 1, windows, per_window, p, out, check, average, w, critic_loss, float(norm), modules, optimisers,
            env, rng, previous, expected,
            [spent[0] + time.perf_counter() - began, spent[1] + time.process_time() - cpu],
        )  # fmt: skip
        progress.update((window + 1) * per_window, f"cost {w.mean_cost:.3f}")
    progress.close()
    build = {"kind": "unified", "network": network, "foot_law": foot_law, **dataclasses.asdict(p.control)}
    info = policy_info("unified", library, srb, mmik, "srb", params_digest(p), seed, windows * per_window)
    save_policy(out / "policy.pt", average, build, info)
    wall, used = spent[0] + time.perf_counter() - began, spent[1] + time.process_time() - cpu
    write_train_json(out, "unified", seed, windows * per_window, wall, used)
    shutil.rmtree(folder, ignore_errors=True)


def _fit_critic(
    w: Window, policy: UnifiedPolicy, critic: torch.nn.Module, target: torch.nn.Module,
    optimiser: torch.optim.Optimizer, p: UnifiedParams,
) -> float:  # fmt: skip
    """Regress the critic on TD(lambda), then let the target follow; returns the last loss."""
    with torch.no_grad():
        flat = policy.features(torch.cat(w.obs))
        ahead = target(policy.features(torch.cat(w.next_obs)))[:, 0].reshape(len(w.cost), -1)
        goal = td_targets(w, ahead, p.gamma, p.td_lambda).reshape(-1)
    loss = torch.zeros(())
    for _ in range(p.critic_epochs):
        for rows in torch.randperm(len(flat)).split(p.critic_batch):
            loss = ((critic(flat[rows])[:, 0] - goal[rows]) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 10.0)
            optimiser.step()
    _follow(target, critic, p.target_rate)
    return float(loss.detach())


def _follow(slow: torch.nn.Module, fast: torch.nn.Module, rate: float) -> None:
    """Move the weights of ``slow`` towards those of ``fast``."""
    with torch.no_grad():
        for a, b in zip(slow.parameters(), fast.parameters(), strict=True):
            a.lerp_(b, rate)


def _log_and_save(
    done: int, windows: int, per_window: int, p: UnifiedParams, out: Path, check: Evaluation, policy: UnifiedPolicy,
    w: Window, critic_loss: float, norm: float, modules: dict[str, torch.nn.Module],
    optimisers: dict[str, torch.optim.Optimizer], env: SrbEnv, rng: np.random.Generator, previous: Tensor,
    expected: dict[str, Any], spent: list[float],
) -> None:  # fmt: skip
    """A row of the learning curve and a checkpoint, each at its own interval and at the end."""
    if done % p.eval_every == 0 or done == windows or done == 1:
        survival = check.survival_s(policy)
        row: dict[str, object] = {"window": done, "samples": done * per_window, "cost": f"{w.mean_cost:.6f}"}
        row["supervised"] = f"{float(w.supervised.detach()):.6f}"
        row["critic_loss"], row["gradient"] = f"{critic_loss:.6f}", f"{norm:.6f}"
        row["survival_s"] = f"{np.mean(list(survival.values())):.4f}"
        row |= {f"survival_{kind}_s": f"{value:.4f}" for kind, value in survival.items()}
        append_row(out / "curve.csv", row)
    if done % p.checkpoint_every == 0 and done < windows:
        payload = {
            "weights": {name: module.state_dict() for name, module in modules.items()},
            "optimiser": {name: optimiser.state_dict() for name, optimiser in optimisers.items()},
            "normaliser": {"obs_mean": policy.obs_mean, "obs_std": policy.obs_std},
            "rng": capture_rng({"env": rng}),
            "env": env.arrays(),
            "previous": previous,
            "spent": spent,
            **expected,
        }
        save_checkpoint(out / "checkpoints", done, payload)
