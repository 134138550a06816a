"""The policies' own algebra: what a zero network means, how experts blend, in which frames poses stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from engine.motion.library import MotionLibrary
from engine.rotation import exp_so3, log_so3, matrix_to_6d, quat_from_matrix, quat_to_matrix, rot_z, yaw_matrix
from train import rotation6
from train.networks import (
    PaperPolicy,
    Reference,
    UnifiedNetwork,
    UnifiedPolicy,
    load_policy_module,
    save_policy,
)

SHAPE = {"hidden": [16], "latent": 8, "gate": 8, "experts": 3, "last_std": 1.0}
CONTROL = {
    "foot_law": [0.2, 0.22, 0.1, 0.15, 0.02, -0.05],
    "residual_scale": [0.3, 0.5, 0.03, 0.1, 0.05, 0.1],
    "error_scale": [0.05, 0.15, 0.3, 0.7, 0.1, 0.05, 0.3, 1.0],
    "body_scale": [0.1, 0.3],
}


@pytest.fixture
def network() -> UnifiedNetwork:
    torch.manual_seed(0)
    return UnifiedNetwork(**SHAPE)


@pytest.fixture(scope="module")
def rows(library: MotionLibrary) -> np.ndarray:
    return np.random.default_rng(0).integers(0, library.length[0] - 2, 32)


def observations(library: MotionLibrary, rows: np.ndarray, noise: float = 0.0) -> torch.Tensor:
    """States on the reference, with noise on what is no rotation, before the next reference frame."""
    ref = np.concatenate([library.ref_srb, library.ref_full], axis=1)
    obs = np.concatenate([ref[rows], ref[rows + 1]], axis=1)
    obs[:, [0, *range(7, 16), *range(22, 25)]] += np.random.default_rng(1).normal(0, noise, (len(rows), 13))
    return torch.from_numpy(obs.astype(np.float32))


def test_a_zero_network_is_the_feed_forward_controller(
    library: MotionLibrary, rows: np.ndarray, network: UnifiedNetwork
) -> None:
    torch.nn.init.zeros_(network.decoder.weight)
    obs = observations(library, rows, noise=0.1)
    with torch.no_grad():
        found, expected = UnifiedPolicy(network, **CONTROL)(obs), UnifiedPolicy(None, **CONTROL)(obs)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_blended_experts_equal_experts_with_blended_parameters(network: UnifiedNetwork) -> None:
    x = torch.randn(5, 340)
    act = torch.nn.functional.elu
    with torch.no_grad():
        z = act(network.extractor(x))
        for layer in network.encoder:
            z = act(layer(z))
        y = torch.cat([x[:, :170], z], dim=1)
        gate = torch.softmax(network.gate[2](act(network.gate[1](act(network.gate[0](y))))), dim=1)
        weight = network.decoder.weight.reshape(3, 169, -1)
        bias = torch.randn(3, 169)
        network.decoder.bias.copy_(bias.reshape(-1))
        expected = torch.stack([
            torch.einsum("e,eij->ij", g, weight) @ row + g @ bias for g, row in zip(gate, y, strict=True)
        ])  # fmt: skip
        torch.testing.assert_close(network(x), expected, rtol=1e-4, atol=1e-4)


def test_body_without_a_residual_is_the_reference_s_in_its_srb_frame(library: MotionLibrary, rows: np.ndarray) -> None:
    policy = UnifiedPolicy(None, **CONTROL)
    obs = observations(library, rows, noise=0.1)
    body = policy.body(Reference(obs), torch.zeros(len(rows), 169)).numpy().reshape(-1, 15, 9)
    rot = quat_to_matrix(library.srb_quat_w[rows + 1])[:, None]
    offset = library.body_pos_w[rows + 1] - library.com_pos_w[rows + 1, None]
    np.testing.assert_allclose(body[..., :3], np.einsum("nkji,nkj->nki", rot, offset), atol=1e-5)
    turn = np.swapaxes(rot, -1, -2) @ quat_to_matrix(library.body_quat_w[rows + 1])
    np.testing.assert_allclose(body[..., 3:], matrix_to_6d(turn), atol=1e-5)


def test_target_on_the_reference_is_the_reference_s_motion(library: MotionLibrary, rows: np.ndarray) -> None:
    """Velocity, spin and height of frame t + 1, displacement along the new velocity, in the present SRB frame."""
    policy = UnifiedPolicy(None, **CONTROL)
    action = policy(observations(library, rows)).numpy()
    rot = quat_to_matrix(library.srb_quat_w[rows])
    turn = np.swapaxes(yaw_matrix(rot), -1, -2) @ rot  # tilt of frame t
    new = quat_to_matrix(library.srb_quat_w[rows + 1])
    ahead = rot_z(library.ang_vel_w[rows + 1, 2] / 30.0) @ np.swapaxes(yaw_matrix(new), -1, -2)
    for part, vector in ((0, library.com_vel_w), (3, library.ang_vel_w)):
        wanted = np.einsum("nji,njk,nk->ni", turn, ahead, vector[rows + 1])
        np.testing.assert_allclose(action[:, part : part + 3], wanted, atol=1e-4)
    wanted = np.einsum("nji,njk,nk->ni", turn, ahead, library.com_vel_w[rows + 1] / 30.0 * [1.0, 1.0, 0.0])
    rise = library.com_pos_w[rows + 1, 2] - library.com_pos_w[rows, 2]
    np.testing.assert_allclose(action[:, 6:9], wanted + rise[:, None] * turn[:, 2], atol=1e-4)
    wanted = log_so3(np.swapaxes(turn, -1, -2) @ ahead @ new)
    np.testing.assert_allclose(action[:, 9:12], wanted, atol=2e-4)


def test_foot_law_moves_both_feet_against_the_velocity_error(library: MotionLibrary, rows: np.ndarray) -> None:
    policy = UnifiedPolicy(None, **CONTROL)
    obs = observations(library, rows)
    slow = obs.clone()
    slow[:, 7:9] = obs[:, 177:179]
    slow[:, 10:13] = obs[:, 180:183]
    fast = slow.clone()
    fast[:, 7] += 0.5
    raw = torch.zeros(len(rows), 169)
    step = policy.targets(Reference(fast), raw)[1] - policy.targets(Reference(slow), raw)[1]
    expected = torch.zeros(len(rows), 2, 9)
    expected[:, :, 0] = 0.2 * 0.5
    torch.testing.assert_close(step, expected, rtol=0, atol=1e-5)


def test_contact_class_is_the_reference_s_until_the_network_says_otherwise(
    library: MotionLibrary, rows: np.ndarray
) -> None:
    policy = UnifiedPolicy(None, **CONTROL)
    ref = Reference(observations(library, rows))
    raw = torch.zeros(len(rows), 169)
    np.testing.assert_array_equal(policy.logits(ref, raw).argmax(1).numpy(), library.contact[rows + 1])
    raw[:, 165] = 6.5
    assert (policy.logits(ref, raw).argmax(1) == 0).all()


def test_the_normaliser_of_the_state_part_is_its_error_against_the_reference(library: MotionLibrary) -> None:
    policy = UnifiedPolicy(None, **CONTROL)
    policy.fit_normaliser(torch.from_numpy(library.ref_srb).float(), torch.from_numpy(library.ref_full).float())
    obs = observations(library, np.arange(8))
    obs[:, :35] = obs[:, 170:205]
    obs[:, 0] += 0.05  # one unit of height
    features = policy.features(obs)
    torch.testing.assert_close(features[:, 0], torch.ones(8), rtol=0, atol=1e-4)
    assert features[:, 1:35].abs().max() == 0.0


def test_a_tilt_of_the_body_with_its_srb_does_not_show_in_the_body_part_of_the_features(library: MotionLibrary) -> None:
    """s_full tells of the limbs; the tilt and height that it shares with the SRB stand in the SRB part alone."""
    policy = UnifiedPolicy(None, **CONTROL)
    policy.fit_normaliser(torch.from_numpy(library.ref_srb).float(), torch.from_numpy(library.ref_full).float())
    obs = observations(library, np.arange(8))
    obs[:, :170] = obs[:, 170:]
    torch.testing.assert_close(policy.features(obs)[:, :170], torch.zeros(8, 170), rtol=0, atol=2e-4)
    pitch = 0.2  # about y, so that the heading stays
    turn = torch.tensor([[np.cos(pitch), 0, -np.sin(pitch)], [0, 1, 0], [np.sin(pitch), 0, np.cos(pitch)]]).float()
    tilted, height = obs.clone(), obs[:, 0].clone()
    tilted[:, 0] += 0.03
    columns = tilted[:, 1:7].reshape(-1, 2, 3) @ turn
    heading = torch.atan2(columns[:, 0, 1], columns[:, 0, 0])[:, None, None]
    one, zero = torch.ones_like(heading), torch.zeros_like(heading)
    c, s = torch.cos(heading), torch.sin(heading)
    level = torch.cat([torch.cat(r, 2) for r in ([c, -s, zero], [s, c, zero], [zero, zero, one])], 1)
    tilted[:, 1:7] = (columns @ level).reshape(-1, 6)
    rows = tilted[:, 35:170].reshape(-1, 15, 3, 3).clone()
    rows[:, :, 0, 2] -= height[:, None]
    rows = rows @ turn @ level[:, None]
    rows[:, :, 0, 2] += height[:, None] + 0.03
    tilted[:, 35:170] = rows.reshape(-1, 135)
    features = policy.features(tilted)
    assert features[:, 1:7].abs().amax(1).min() > 0.5
    torch.testing.assert_close(features[:, 35:170], torch.zeros(8, 135), rtol=0, atol=2e-4)


def test_the_paper_s_policy_starts_at_the_mean_pose_and_scales_the_feet(library: MotionLibrary) -> None:
    torch.manual_seed(0)
    policy = PaperPolicy(UnifiedNetwork(**SHAPE), foot_residual_scale=0.1)
    policy.fit_normaliser(torch.from_numpy(library.ref_srb).float(), torch.from_numpy(library.ref_full).float())
    obs = observations(library, np.arange(8))
    with torch.no_grad():
        raw = policy.network(torch.clamp((obs - policy.obs_mean) / policy.obs_std, -5, 5))
        action = policy(obs)
    torch.testing.assert_close(action[:, 12:30], 0.1 * raw[:, 12:30].clamp(-3.14, 3.14))
    mean = torch.from_numpy(library.ref_full).float().mean(0)
    torch.testing.assert_close(action[:, 30:165] - raw[:, 30:165], mean.expand(8, -1), rtol=0, atol=1e-5)
    torch.testing.assert_close(action[:, 165:], raw[:, 165:])


def test_a_saved_policy_acts_as_before(library: MotionLibrary, network: UnifiedNetwork, tmp_path: Path) -> None:
    policy = UnifiedPolicy(network, **CONTROL)
    policy.fit_normaliser(torch.from_numpy(library.ref_srb).float(), torch.from_numpy(library.ref_full).float())
    save_policy(tmp_path / "policy.pt", policy, {"kind": "unified", "network": SHAPE, **CONTROL}, {"method": "unified"})
    loaded, info = load_policy_module(tmp_path / "policy.pt")
    obs = observations(library, np.arange(8), noise=0.1)
    with torch.no_grad():
        torch.testing.assert_close(loaded(obs), policy(obs), rtol=0, atol=0)
    assert info == {"method": "unified"}


def rotation_vectors(size: float, n: int = 64) -> np.ndarray:
    v = np.random.default_rng(3).normal(size=(n, 3))
    return size * v / np.linalg.norm(v, axis=1, keepdims=True)


@pytest.mark.parametrize("angle", [1e-4, 0.1, 1.0, 2.5])
def test_logarithm_equals_the_engine_s(angle: float) -> None:
    m = exp_so3(rotation_vectors(angle))
    np.testing.assert_allclose(rotation6.log_so3(torch.from_numpy(m)).numpy(), log_so3(m), atol=1e-7 + 1e-6 * angle)


@pytest.mark.parametrize("angle", [1e-3, 0.1, 0.3])
def test_small_rotation_is_the_exponential_to_third_order(angle: float) -> None:
    v = rotation_vectors(angle)
    m = np.swapaxes(rotation6.small_rotation_t(torch.from_numpy(v)).numpy(), -1, -2)
    np.testing.assert_allclose(m @ np.swapaxes(m, -1, -2), np.tile(np.eye(3), (64, 1, 1)), atol=1e-6)
    error = np.linalg.norm(log_so3(m) - v, axis=1)
    assert error.max() <= angle**3 / 12 + 1e-7


def test_frames_equal_the_engine_s() -> None:
    m = exp_so3(rotation_vectors(0.8))
    m_t = torch.from_numpy(np.ascontiguousarray(np.swapaxes(m, -1, -2)))
    tilt = np.swapaxes(yaw_matrix(m), -1, -2) @ m
    np.testing.assert_allclose(rotation6.yaw_free_t(m_t).numpy(), np.swapaxes(tilt, -1, -2), atol=1e-6)
    columns = matrix_to_6d(m).reshape(-1, 2, 3)
    np.testing.assert_allclose(
        rotation6.matrix_rows(torch.from_numpy(quat_from_matrix(m))).numpy(), columns, atol=1e-12
    )
    whole = rotation6.with_third_row(torch.from_numpy(columns))
    np.testing.assert_allclose(whole.numpy(), np.swapaxes(m, -1, -2), atol=1e-6)
    angle = np.linspace(-3, 3, 7)
    turn = rotation6.turn_z_t(torch.from_numpy(angle)[:, None]).numpy()
    np.testing.assert_allclose(turn, np.swapaxes(rot_z(angle), -1, -2), atol=1e-6)
