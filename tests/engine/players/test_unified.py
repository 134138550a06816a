"""The run-time loop of the unified family: its parts against torch, and what must hold whatever the policy."""

import dataclasses

import numpy as np
import pytest
import torch

from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.params import read_section
from engine.players.unified import PlayerOptions, SrbCharacters, controller_numbers, controller_params
from engine.rotation import exp_so3, quat_to_matrix, rot_z
from engine.skeleton import OFFSETS, PARENTS
from engine.srb.action import BODY_FRAME_SRB, decode_action_into
from engine.srb.body import SrbParams
from train.networks import Reference, UnifiedPolicy
from train.tracking import observe_srb

CONTROL = {
    "foot_law": [0.2, 0.22, 0.1, 0.15, 0.02, -0.05],
    "residual_scale": [0.3, 0.5, 0.03, 0.1, 0.05, 0.1],
    "error_scale": [0.05, 0.15, 0.3, 0.7, 0.1, 0.05, 0.3, 1.0],
    "body_scale": [0.1, 0.3],
}


@pytest.fixture(scope="module")
def library(repo):
    return MotionLibrary.load(repo / "data" / "library.npz")


@pytest.fixture(scope="module")
def params(repo):
    path = repo / "params.yaml"
    return read_section(path, "srb", SrbParams), read_section(path, "mmik", MmikParams)


def characters(library, params, n, **options):
    srb, mmik = params
    return SrbCharacters(n, library, srb, mmik, library.mass_kg, library.inertia_b, "srb", PlayerOptions(**options))


def started(library, params, n=8, clip="walk", **options):
    chars = characters(library, params, n, **options)
    chars.reset(np.arange(n), np.full(n, library.names.index(clip)), np.arange(n) * 3)
    return chars


def play(chars, policy, frames, push=None):
    act12, command, contact = np.zeros((chars.n, 12)), np.zeros((chars.n, 2, 9)), np.zeros(chars.n, np.int64)
    ground = chars.options.terrain
    for _ in range(frames):
        with torch.no_grad():
            action = policy(torch.from_numpy(chars.observe())).numpy()
        decode_action_into(
            act12, command, contact, action, chars.batch.state, chars.body_frame, ground.shape_params, ground.heights,
            chars._small,
        )  # fmt: skip
        chars.apply(act12, command, contact, action[:, 30:165], push)
    return chars


def test_observation_at_a_start_is_the_reference(library, params):
    chars = started(library, params)
    obs = chars.observe()
    rows = chars.frame
    np.testing.assert_allclose(obs[:, :35], library.ref_srb[rows], atol=2e-5)
    np.testing.assert_allclose(obs[:, 35:170], library.ref_full[rows], atol=2e-5)
    np.testing.assert_allclose(obs[:, 170:205], library.ref_srb[rows + 1], atol=2e-5)
    np.testing.assert_allclose(obs[:, 205:], library.ref_full[rows + 1], atol=2e-5)


def test_torch_observation_equals_the_engine_s(library, params):
    policy = UnifiedPolicy(None, **CONTROL)
    chars = play(started(library, params), policy, 5)
    inverse = torch.from_numpy(np.linalg.inv(library.inertia_b))
    mine = observe_srb(torch.from_numpy(chars.batch.state), torch.from_numpy(chars.batch.stance), inverse)
    np.testing.assert_allclose(mine.numpy(), chars.observe()[:, :35], atol=2e-6)


def test_observation_ignores_where_the_character_is_and_faces(library, params):
    policy = UnifiedPolicy(None, **CONTROL)
    chars = play(started(library, params), policy, 5)
    before = chars.observe().copy()
    turn, shift = rot_z(1.1), np.array([3.0, -7.0, 0.0])
    state = chars.batch.state
    for at in (0, 18, 30):
        state[:, at : at + 3] = state[:, at : at + 3] @ turn.T + shift
    for at in (12, 15):
        state[:, at : at + 3] = state[:, at : at + 3] @ turn.T
    for at in (3, 21, 33):
        state[:, at : at + 9] = (turn @ state[:, at : at + 9].reshape(-1, 3, 3)).reshape(-1, 9)
    half = 0.55
    q = np.array([np.cos(half), 0, 0, np.sin(half)])
    from engine.rotation import quat_mul

    chars.body_pos_w[:] = chars.body_pos_w @ turn.T + shift
    chars.body_quat_w[:] = quat_mul(q, chars.body_quat_w)
    np.testing.assert_allclose(chars.observe(), before, atol=3e-6)


def test_decoded_feet_are_the_policy_s_commands(library, params):
    """The residual in a_SRB is a change of variables: foot(a_full) + r gives back the commanded feet."""
    chars = started(library, params, clip="run")
    policy = UnifiedPolicy(None, **CONTROL)
    obs = torch.from_numpy(chars.observe().copy())
    raw = 0.5 * torch.randn(len(obs), 169, generator=torch.Generator().manual_seed(0))
    ref = Reference(obs)
    with torch.no_grad():
        act12, command, tilt_t = policy.targets(ref, raw)
        body = policy.body(ref, raw)
        residual = (command - policy.feet_of_body(body, tilt_t)).reshape(-1, 18)
        action = torch.cat([act12, residual, body, policy.logits(ref, raw)], 1).numpy()
    out12, out, contact = np.zeros((8, 12)), np.zeros((8, 2, 9)), np.zeros(8, np.int64)
    ground = chars.options.terrain
    decode_action_into(
        out12,
        out,
        contact,
        action,
        chars.batch.state,
        BODY_FRAME_SRB,
        ground.shape_params,
        ground.heights,
        chars._small,
    )
    np.testing.assert_allclose(out, command.numpy(), atol=2e-6)
    np.testing.assert_allclose(out12, act12.numpy(), atol=1e-7)


def test_feed_forward_target_is_the_next_reference_frame(library, params):
    """With a zero residual and no error the target is the reference's next state, up to its own acceleration."""
    chars = started(library, params)
    policy = UnifiedPolicy(None, **CONTROL)
    with torch.no_grad():
        act12, command, _ = policy.targets(Reference(torch.from_numpy(chars.observe())), torch.zeros(8, 169))
    rot = chars.batch.state[:, 3:12].reshape(-1, 3, 3)
    target = chars.batch.state[:, :3] + np.einsum("nij,nj->ni", rot, act12[:, 6:9].numpy())
    ahead = chars.frame + 1
    np.testing.assert_allclose(target, library.com_pos_w[ahead], atol=0.01)
    turned = rot @ exp_so3(act12[:, 9:12].double().numpy())
    np.testing.assert_allclose(turned, quat_to_matrix(library.srb_quat_w[ahead]), atol=0.03)
    assert np.isfinite(command.numpy()).all()


def test_played_bones_keep_their_lengths(library, params):
    chars = play(started(library, params, clip="run"), UnifiedPolicy(None, **CONTROL), 30)
    for child, parent in enumerate(PARENTS):
        if parent >= 0:
            length = np.linalg.norm(chars.body_pos_w[:, child] - chars.body_pos_w[:, parent], axis=-1)
            np.testing.assert_allclose(length, np.linalg.norm(OFFSETS[child]), atol=1e-9)


def test_stance_feet_do_not_move(library, params):
    policy = UnifiedPolicy(None, **CONTROL)
    chars = started(library, params)
    for _ in range(40):
        before, standing = chars.batch.state[:, 18:42].copy(), chars.batch.stance.copy()
        play(chars, policy, 1)
        kept = (standing == 1) & (chars.batch.stance == 1)
        for k in range(2):
            rows = kept[:, k]
            assert np.array_equal(
                chars.batch.state[rows, 18 + 12 * k : 30 + 12 * k], before[rows, 12 * k : 12 * k + 12]
            )


def test_two_threads_give_the_bytes_of_one(library, params):
    policy = UnifiedPolicy(None, **CONTROL)
    one, two = (play(started(library, params, threads=t), policy, 20) for t in (1, 2))
    assert np.array_equal(one.batch.state, two.batch.state)
    assert np.array_equal(one.body_pos_w, two.body_pos_w)


def test_a_foot_that_the_clip_sets_on_its_toe_or_heel_carries_there_alone(library, params):
    srb, mmik = params
    heel, toe = library.heel_toe[..., 0], library.heel_toe[..., 1]
    rows = np.flatnonzero((library.contact == 1) & toe[:, 0] & ~heel[:, 0])
    i = next(
        i for i in range(len(library.names)) if np.any((rows > library.start[i]) & (rows < library.start[i] + 300))
    )
    row = rows[rows > library.start[i]][0]
    loaded = {}
    for partial in (False, True):
        chars = characters(library, (dataclasses.replace(srb, heel_toe=partial), mmik), 1)
        chars.reset(np.array([0]), np.array([i]), np.array([row - 1 - library.start[i]]))
        play(chars, UnifiedPolicy(None, **CONTROL), 1)
        loaded[partial] = int(np.sum(np.linalg.norm(chars.batch.forces[0], axis=1) > 0))
        ahead = (chars.batch.points[0, : loaded[partial]] - chars.foot_pos_w[0, 0]) @ quat_to_matrix(
            chars.foot_quat_w[0, 0]
        )
        assert not partial or (ahead[:, 0] > 0).all()
    assert loaded[True] == 2
    assert loaded[False] > 2


def test_heavier_body_sinks_and_a_push_moves_it(library, params):
    policy = UnifiedPolicy(None, **CONTROL)
    light, heavy = (play(started(library, params, clip="stand", mass_scale=s), policy, 30) for s in (1.0, 1.2))
    assert np.all(heavy.batch.state[:, 2] < light.batch.state[:, 2] - 1e-4)
    pushed = play(started(library, params, clip="stand"), policy, 3, push=np.tile([200.0, 0.0, 0.0], (8, 1)))
    assert np.all(pushed.batch.state[:, 12] > 0.05)


def test_state_that_is_not_a_number_counts_as_a_fall(library, params):
    chars = started(library, params)
    chars.batch.state[3, 0] = np.nan
    play(chars, UnifiedPolicy(None, **CONTROL), 1)
    assert not chars.alive[3]
    assert chars.alive[[0, 1, 2, 4]].all()


def test_controller_numbers_survive_the_metadata(params):
    srb, mmik = params
    assert controller_params(controller_numbers(srb, mmik), "policy.onnx") == (srb, mmik)
