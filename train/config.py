"""Sections ``train.*`` of params.yaml as frozen dataclasses without defaults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from engine.params import NonNegative, NotAllZero, NotEmpty, Positive, Range, Seed

Unit = Annotated[float, Range(ge=0, le=1)]
Count = Annotated[int, Range(ge=1)]


@dataclass(frozen=True)
class NetworkParams:
    """Shape of `train.networks.UnifiedNetwork`."""

    hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]
    latent: Count
    gate: Count
    experts: Count
    last_std: Positive


@dataclass(frozen=True)
class SearchParams:
    """Section ``train.no_network``: CMA-ES over the foot law and the QP's gains and weights."""

    seed: Seed
    generations: Count
    population: Count
    episodes: Count
    frames: Count
    sigma: Positive
    push_max_n: NonNegative
    friction_min: Positive
    fall_cost: Positive
    threads: Count


@dataclass(frozen=True)
class ControlParams:
    """Scales of the controller around the network (docs/methods/unified.md)."""

    residual_scale: Annotated[list[float], NotEmpty(), Range(gt=0)]
    error_scale: Annotated[list[float], NotEmpty(), Range(gt=0)]
    body_scale: Annotated[list[float], NotEmpty(), Range(gt=0)]


@dataclass(frozen=True)
class CostWeights:
    """Tracking cost of the analytic training: scales of one unit of error, and weights."""

    height_m: Positive
    tilt: Positive
    velocity_m_s: Positive
    spin_rad_s: Positive
    foot_m: Positive
    swing_m: Positive
    w_foot: NonNegative
    w_swing: NonNegative
    w_effort: NonNegative
    w_rate: NonNegative
    saturation: NonNegative
    fall: NonNegative


@dataclass(frozen=True)
class LossWeights:
    """Table 1, supervised losses."""

    w_cs: NonNegative
    w_b: NonNegative
    w_r: NonNegative


@dataclass(frozen=True)
class UnifiedParams:
    """Section ``train.unified``."""

    samples: Count
    envs: Count
    horizon: Count
    episode_frames: Count
    gamma: Annotated[float, Range(gt=0, lt=1)]
    td_lambda: Unit
    lr_start: Positive
    lr_end: Positive
    critic_lr: Positive
    critic_hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]
    critic_epochs: Count
    critic_batch: Count
    target_rate: Unit
    average_rate: Unit
    clip_norm: Positive
    velocity_noise_m_s: NonNegative
    rotation_noise_rad: NonNegative
    push_rate: Unit
    push_frames: Count
    push_max_n: NonNegative
    friction_min: Positive
    friction_max: Positive
    mass_min: Positive
    mass_max: Positive
    calm_share: Unit
    path_share: Unit
    eval_episodes: Count
    eval_frames: Count
    eval_every: Count
    checkpoint_every: Count
    threads: Count
    network: NetworkParams
    control: ControlParams
    loss: LossWeights
    cost: CostWeights


@dataclass(frozen=True)
class PaperReward:
    """Table 1 under its symbols; w_s and w_m scale the sum (not in the paper, see docs/methods/unified.md)."""

    w_p: NonNegative
    w_e: NonNegative
    w_ct: NonNegative
    w_f: NonNegative
    w_p1: NonNegative
    w_p2: NonNegative
    w_p3: NonNegative
    w_p4: NonNegative
    w_s: NonNegative
    w_m: NonNegative
    stance_alpha: NonNegative
    swing_alpha: NonNegative


@dataclass(frozen=True)
class PpoParams:
    """Proximal policy optimisation."""

    steps: Count
    batch: Count
    epochs: Count
    lr_start: Positive
    lr_end: Positive
    gamma: Annotated[float, Range(gt=0, le=1)]
    lambda_: Unit
    clip: Positive
    entropy: NonNegative
    value: NonNegative
    clip_norm: Positive
    log_std: float
    value_hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]


@dataclass(frozen=True)
class PaperParams:
    """Section ``train.unified_paper``."""

    seed: Seed
    samples: Count
    envs: Count
    episode_frames: Count
    velocity_noise_m_s: NonNegative
    rotation_noise_rad: NonNegative
    foot_residual_scale: Positive
    eval_episodes: Count
    eval_frames: Count
    eval_every: Count
    checkpoint_every: Count
    threads: Count
    network: NetworkParams
    loss: LossWeights
    reward: Annotated[PaperReward, NotAllZero()]
    ppo: PpoParams


@dataclass(frozen=True)
class TermWeights:
    """Weights of DeepMimic's imitation terms under its symbols (w_r: the official version's root term).

    Attributes:
        w_p: Pose. w_v: Velocity. w_e: End effectors. w_r: Root. w_c: Centre of mass.
    """

    w_p: NonNegative
    w_v: NonNegative
    w_e: NonNegative
    w_r: NonNegative
    w_c: NonNegative


@dataclass(frozen=True)
class GoalParams:
    """DeepMimic's target heading: speed wanted along a direction that changes every ``frames``."""

    speed_m_s: NonNegative
    turn_rad: NonNegative
    frames: Count


@dataclass(frozen=True)
class ImitationRewardParams:
    """Which of the two versions, the weights of each, and w^I and w^G."""

    version: Literal["paper", "official"]
    paper: Annotated[TermWeights, NotAllZero()]
    official: Annotated[TermWeights, NotAllZero()]
    w_i: NonNegative
    w_g: NonNegative
    goal: GoalParams


@dataclass(frozen=True)
class AdaptivePpoParams:
    """Clipped PPO with an own optimiser for the critic and a learning rate that keeps the KL divergence."""

    steps: Count
    batch: Count
    epochs: Count
    gamma: Annotated[float, Range(gt=0, lt=1)]
    lambda_: Unit
    clip: Positive
    lr_start: Positive
    lr_min: Positive
    lr_max: Positive
    kl_start: Positive
    kl_end: Positive
    critic_lr: Positive
    clip_norm: Positive
    critic_hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]


@dataclass(frozen=True)
class DeepMimicParams:
    """Section ``train.deepmimic``."""

    samples: Count
    envs: Count
    episode_frames: Count
    rsi: bool
    early_termination: bool
    fall_bodies: list[str]
    pose_limit_m: Positive
    mirroring: bool
    targets: Literal["residual", "absolute"]
    lead_s: NonNegative
    feedforward: NonNegative
    scale_rad: Positive
    limit: Positive
    noise_start_rad: Positive
    noise_end_rad: Positive
    noise_hold: Annotated[float, Range(ge=0, lt=1)]
    noise_correlation: Annotated[float, Range(ge=0, lt=1)]
    average_rate: Annotated[float, Range(gt=0, le=1)]
    sharpness: Positive
    normaliser_samples: Count
    hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]
    eval_episodes: Count
    eval_frames: Count
    eval_pose_limit_m: Positive
    eval_every: Count
    checkpoint_every: Count
    threads: Count
    reward: ImitationRewardParams
    ppo: AdaptivePpoParams
