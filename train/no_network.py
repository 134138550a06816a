"""Method `no_network`: reference feed-forward and a linear foot law, twelve numbers found by CMA-ES.

The controller is `train.networks.UnifiedPolicy` without its network. The search plays every candidate at once: each
character has its own foot law and its own controller row. It is a row of the tables, and the base of `unified`.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import time
from pathlib import Path

import cma
import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.params import params_digest
from engine.srb.body import KD_LIN, KP_LIN, W_ANG_XY, W_ANG_Z, W_LIN_XY, W_LIN_Z, SrbParams
from train.config import ControlParams, CostWeights, SearchParams
from train.envs.srb_env import Disturbance, SrbEnv
from train.files import policy_info, read_tuned, write_train_json
from train.networks import Reference, UnifiedPolicy, save_policy
from train.tracking import tracking_cost

# Where the search starts, and one standard deviation of each number: foot law K_v, K_t, K_w (forward, sideways), then
# the logarithms of the QP's square-root weights and of the linear gains.
START = np.array([0.2, 0.2, 0.1, 0.1, 0.0, -0.05, 0.3, np.log(4.0), 0.1, -0.1, np.log(260.0), np.log(150.0)])
UNIT = np.array([0.06, 0.06, 0.12, 0.12, 0.04, 0.04, 0.25, 0.25, 0.25, 0.25, 0.2, 0.2])


def tuned_params(x: NDArray[np.float64], srb: SrbParams) -> tuple[list[float], SrbParams]:
    """Foot law (6,) and controller of a point of the search."""
    w = np.exp(x[6:])
    tuned = dataclasses.replace(
        srb,
        weight_linear_xy=float(w[0]),
        weight_linear_z=float(w[1]),
        weight_angular_xy=float(w[2]),
        weight_angular_z=float(w[3]),
        kp_linear=float(w[4]),
        kd_linear=float(w[5]),
    )
    return [float(v) for v in x[:6]], tuned


def search_cost(
    points: NDArray[np.float64], env: SrbEnv, policy: UnifiedPolicy, params: SearchParams, cost: CostWeights, seed: int
) -> NDArray[np.float64]:
    """Cost of each candidate (p, 12): falls and tracking error over the same episodes; (p,)."""
    per = env.n // len(points)
    laws = torch.tensor(np.repeat(points[:, :6], per, axis=0), dtype=torch.float32)
    ctrl = env.characters.batch.ctrl
    weights = np.repeat(np.exp(points[:, 6:]), per, axis=0)
    for column, at in enumerate((W_LIN_XY, W_LIN_Z, W_ANG_XY, W_ANG_Z, KP_LIN, KD_LIN)):
        ctrl[:, at] = weights[:, column]
    _same_starts(env, per, seed)
    rng = np.random.default_rng(seed)
    total, lived = np.zeros(env.n), np.zeros(env.n)
    push = np.zeros((env.n, 3))
    begin = rng.integers(10, max(11, params.frames - 20), per)
    angle, size = rng.uniform(-np.pi, np.pi, per), rng.uniform(0, params.push_max_n, per)
    force = np.stack([size * np.cos(angle), size * np.sin(angle), 0 * size], axis=1)
    chars = env.characters
    for t in range(params.frames):
        with torch.no_grad():
            obs = torch.from_numpy(chars.observe())
            ref = Reference(obs)
            raw = policy.raw(obs)
            act12, command, _ = policy.targets(ref, raw, laws)
            body = policy.body(ref, raw)
            contact = obs[:, 201:205].argmax(1).numpy()
            error = tracking_cost(obs[:, :35], torch.from_numpy(chars.ref_rows[chars.frame, :35]), cost)
        total += np.where(chars.alive, error.numpy(), 0.0)
        on = (t >= begin) & (t < begin + 6)
        push[:] = np.tile(np.where(on[:, None], force, 0.0), (len(points), 1))
        chars.apply(act12.double().numpy(), command.double().numpy(), contact, body.numpy(), push)
        lived += chars.alive
    fallen = 1.0 - lived / params.frames
    per_episode = total / np.maximum(lived, 1.0) + params.fall_cost * fallen
    return per_episode.reshape(len(points), per).mean(axis=1)


def _same_starts(env: SrbEnv, per: int, seed: int) -> None:
    """Give every candidate the same episodes."""
    env.rng = np.random.default_rng(seed)
    env.kind = np.tile(np.arange(per) % len(env.clips_of_kind), env.n // per)
    env.restart(np.arange(per))
    b, c = env.characters.batch, env.characters
    for block in range(1, env.n // per):
        rows = slice(block * per, (block + 1) * per)
        for array in (b.state, b.stance, b.mu_scale, c.frame, c.last, c.body_pos_w, c.body_quat_w):
            array[rows] = array[:per]
    b.lift[:], b.warm[:], c.alive[:] = 0, 0.0, True


def train_no_network(
    params: SearchParams, control: ControlParams, cost: CostWeights, srb: SrbParams, mmik: MmikParams,
    library: MotionLibrary, out: Path,
) -> None:  # fmt: skip
    """Search, then write ``policy.pt``, ``tuned.json``, ``curve.csv`` and ``train.json`` to ``out``."""
    began, cpu = time.perf_counter(), time.process_time()
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    disturbance = Disturbance(0.05, 0.05, friction=(params.friction_min, 1.0))
    env = SrbEnv(
        params.population * params.episodes, library, srb, mmik, "srb", params.frames, disturbance,
        np.random.default_rng(params.seed), params.threads, refine=False,
    )  # fmt: skip
    policy = UnifiedPolicy(None, [0.0] * 6, **dataclasses.asdict(control))
    options = {"seed": params.seed + 1, "popsize": params.population, "verbose": -9, "CMA_stds": UNIT}
    search = cma.CMAEvolutionStrategy(START, params.sigma, options)
    rows, samples = [], 0
    seeds = np.random.SeedSequence(params.seed).generate_state(params.generations)
    for generation in tqdm(range(params.generations), desc="no_network", disable=None):
        points = np.array(search.ask())
        costs = search_cost(points, env, policy, params, cost, int(seeds[generation]))
        search.tell(list(points), list(costs))
        samples += env.n * params.frames
        rows.append(
            {
                "generation": generation,
                "samples": samples,
                "cost": f"{costs.min():.6f}",
                "mean_cost": f"{costs.mean():.6f}",
            }
        )
    law, tuned = tuned_params(np.asarray(search.result.xfavorite), srb)
    with open(out / "curve.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    rounded = {
        "foot_law": [round(v, 6) for v in law],
        "srb": {
            k: round(v, 6) if isinstance(v, float) and v > 1e-3 else v for k, v in dataclasses.asdict(tuned).items()
        },
    }
    (out / "tuned.json").write_text(json.dumps(rounded, indent=1) + "\n")
    law, tuned = read_tuned(out / "tuned.json")
    build = {"kind": "unified", "network": None, "foot_law": law, **dataclasses.asdict(control)}
    policy = UnifiedPolicy(None, law, **dataclasses.asdict(control))
    info = policy_info("no_network", library, tuned, mmik, "srb", params_digest(params), params.seed, samples)
    save_policy(out / "policy.pt", policy, build, info)
    write_train_json(out, "no_network", params.seed, samples, time.perf_counter() - began, time.process_time() - cpu)
