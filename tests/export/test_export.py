"""The exported file: what is inside, that it equals torch's policy, and that nothing is written where it does not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from engine.errors import InputError
from engine.policy import Policy
from engine.policy_checks import check_weights
from engine.policy_layout import rotation_columns, unified_observation
from export import __main__ as command
from export.__main__ import ExportParams, export_policy
from export.metadata import build_metadata, metadata_json, shortest, standing_pose
from export.parity import (
    BATCHES,
    EXTREMES,
    check_parity,
    condition,
    measure_parity,
    parity_json,
    parity_observations,
)
from export.to_onnx import build_graph, model_bytes
from tests.export.conftest import Exported
from tests.export.stand_in import INFO, StandInPolicy


def test_the_file_is_whole_checked_and_names_its_ends(exported: Exported, params: ExportParams) -> None:
    model = onnx.load_model_from_string(exported.data)
    onnx.checker.check_model(model, full_check=True)
    check_weights(exported.path, model)
    for value, name, size in ((model.graph.input[0], "obs", 340), (model.graph.output[0], "action", 169)):
        dims = value.type.tensor_type.shape.dim
        assert value.name == name
        assert dims[0].dim_param == "batch"
        assert dims[1].dim_value == size
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", params.opset)]
    assert {node.domain for node in model.graph.node} == {""}
    assert len(model.functions) == 0


def test_the_file_holds_no_traces_of_where_it_was_made(exported: Exported, repo: Path) -> None:
    for trace in (str(repo), "site-packages", ".py", "torch", "StandInPolicy", "File ", str(Path.home()) + "/"):
        assert trace.encode() not in exported.data, trace
    model = onnx.load_model_from_string(exported.data)
    assert [entry.key for entry in model.metadata_props] == ["gaitforge"]
    assert model.doc_string == model.producer_version == ""
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)


def test_bytes_are_equal_from_another_folder_and_process(exported: Exported, repo: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    for folder in ("engine", "export"):
        shutil.copytree(repo / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.xml"))
    (copy / "stand_in.py").write_bytes((repo / "tests" / "export" / "stand_in.py").read_bytes())
    code = (
        "from export.__main__ import ExportParams, export_policy\n"
        "from stand_in import INFO, StandInPolicy\n"
        "data, _, card = export_policy(StandInPolicy(), INFO, ExportParams(opset=18, seed=0, tolerance=1e-5))\n"
        "open('policy.onnx', 'wb').write(data); open('card.md', 'w').write(card)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=copy, check=True, timeout=300)
    assert (copy / "policy.onnx").read_bytes() == exported.data
    assert (copy / "card.md").read_text() == exported.card


def test_the_engine_loads_it_and_gives_torchs_actions(exported: Exported) -> None:
    policy = Policy.load(exported.path, "unified")
    obs = np.random.default_rng(3).standard_normal((5, 340)).astype(np.float32)
    with torch.no_grad():
        expected = exported.module(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(policy.act(obs), expected, atol=1e-5)
    metadata = policy.metadata
    np.testing.assert_allclose(policy.act(metadata.recorded_obs[None])[0], metadata.recorded_action, atol=1e-5)
    assert metadata.data_licence == "CC0"
    assert dict(metadata.controller) == INFO["controller"]
    np.testing.assert_allclose(metadata.default_pose, standing_pose())


def test_the_normaliser_is_applied_exactly_once(exported: Exported) -> None:
    module = exported.module
    obs = np.random.default_rng(4).standard_normal((2, 340)).astype(np.float32)
    mean, std = module.mean.numpy(), module.std.numpy()
    action = Policy.load(exported.path).act(obs * std + mean)
    bare = StandInPolicy(normalise=False)
    with torch.no_grad():
        expected = bare(torch.from_numpy(obs)).numpy()
    np.testing.assert_allclose(action[:, :30], expected[:, :30], atol=1e-4)
    np.testing.assert_allclose(action[:, 165:], expected[:, 165:], atol=1e-4)


def test_a_graph_without_the_normaliser_is_refused_by_the_loader(exported: Exported) -> None:
    metadata = json.loads(onnx.load_model_from_string(exported.data).metadata_props[0].value)
    graph = build_graph(StandInPolicy(normalise=False), 340, 18)
    with pytest.raises(InputError, match="normaliser"):
        Policy(model_bytes(graph, metadata_json(metadata)), "policy.onnx")


def test_parity_covers_ordinary_and_extreme_rows_at_each_batch(exported: Exported) -> None:
    rows = parity_observations(unified_observation(), 0)
    assert {"random", "wide", "zeros"} <= set(rows)
    assert all(f"{kind} {size:g}" in rows for kind in ("constant", "alternating", "spike") for size in EXTREMES)
    assert all(row.shape == (64, 340) and row.dtype == np.float32 for row in rows.values())
    assert all(np.isfinite(row).all() for row in rows.values())
    np.testing.assert_array_equal(rows["random"], parity_observations(unified_observation(), 0)["random"])
    assert (rows["random"] != parity_observations(unified_observation(), 1)["random"]).any()
    assert set(exported.parity["max_error_by_batch"]) == {str(batch) for batch in BATCHES} == {"1", "4", "64"}
    assert 0.0 < exported.parity["max_error"] < 1e-5
    assert 0.0 < exported.parity["max_abs_error"] < 1e-5


def test_parity_finds_a_changed_weight(exported: Exported, params: ExportParams) -> None:
    other = StandInPolicy()
    with torch.no_grad():
        dict(other.named_parameters())["layers.1.bias"][3] += 1e-3
    result = measure_parity(other, Policy.load(exported.path), seed=0)
    assert result["max_error"] > 1e-5
    with pytest.raises(
        InputError, match=r"parity: torch and onnxruntime differ on .* \(found .*, expected at most 1e-05"
    ):
        check_parity("policy.pt", result, params.tolerance)


def test_parity_json_is_a_metrics_file(exported: Exported) -> None:
    metrics = json.loads(parity_json(exported.parity))
    assert metrics["max_error"] == pytest.approx(exported.parity["max_error"], rel=1e-2)
    assert parity_json(exported.parity).endswith(b"\n")


def test_rows_met_in_training_are_recorded_and_compared(params: ExportParams) -> None:
    samples = np.random.default_rng(9).standard_normal((3, 340)).astype(np.float32)
    data, _, _ = export_policy(StandInPolicy(), {**INFO, "obs_samples": samples}, params)
    np.testing.assert_array_equal(Policy(data, "policy.onnx").metadata.recorded_obs, samples[0])


class _Guarded(StandInPolicy):
    """The direction of a part of the observation; 1e-12 keeps it from dividing zero by zero."""

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        part = obs[:, :169]
        length = torch.sqrt((part * part).sum(dim=1, keepdim=True) + 1e-12)
        return part / length


def test_tiny_guards_of_roots_and_divisions_survive(params: ExportParams) -> None:
    module = _Guarded()
    data, parity, _ = export_policy(module, INFO, params)
    zeros = np.zeros((2, 340), dtype=np.float32)
    np.testing.assert_array_equal(Policy(data, "policy.onnx").act(zeros), np.zeros((2, 169)))
    assert parity["max_error"] < 1e-5


def test_condition_tells_ordinary_rows_from_those_that_rounding_decides() -> None:
    module = _Guarded().double()
    rng = np.random.default_rng(0)
    rows = parity_observations(unified_observation(), 0)
    assert (condition(module, rows["random"], rng) < 10.0).all()
    assert (condition(module, rows["zeros"], rng) > 1e4).all()


def test_random_rows_hold_proper_rotations() -> None:
    columns = rotation_columns(unified_observation())
    assert columns.shape == (36, 6)
    assert columns[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert columns[1].tolist() == [16, 17, 18, 19, 20, 21]
    assert columns[3].tolist() == [38, 39, 40, 41, 42, 43]
    blocks = parity_observations(unified_observation(), 0)["random"][:, columns].astype(np.float64)
    first, second = blocks[..., :3], blocks[..., 3:]
    np.testing.assert_allclose((first**2).sum(-1), 1.0, atol=1e-6)
    np.testing.assert_allclose((second**2).sum(-1), 1.0, atol=1e-6)
    np.testing.assert_allclose((first * second).sum(-1), 0.0, atol=1e-6)


class _NotFinite(StandInPolicy):
    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return torch.log(obs[:, :169])


def test_an_action_that_is_not_finite_stops_the_export(params: ExportParams) -> None:
    with pytest.raises(InputError, match="not finite"):
        export_policy(_NotFinite(), INFO, params)


@pytest.mark.parametrize("key", ["method", "mass_kg", "controller", "params_digest"])
def test_missing_information_is_named(key: str) -> None:
    info = {name: value for name, value in INFO.items() if name != key}
    with pytest.raises(InputError, match=rf"policy.pt: info.{key} missing"):
        build_metadata("policy.pt", info, np.zeros(340, np.float32), np.zeros(169, np.float32))


def test_a_gain_that_is_not_a_number_and_a_wrong_width_are_named() -> None:
    obs, action = np.zeros(340, np.float32), np.zeros(169, np.float32)
    with pytest.raises(InputError, match=r"info.controller.k_p \(found nan"):
        build_metadata("policy.pt", {**INFO, "controller": {"k_p": float("nan")}}, obs, action)
    with pytest.raises(InputError, match=r"action: width \(found \[168\], expected \[169\]\)"):
        build_metadata("policy.pt", INFO, obs, action[:168])


def test_recorded_numbers_read_back_to_the_same_float32() -> None:
    row = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * np.float32(1e-3)
    read = np.array(json.loads(json.dumps(shortest(row))), dtype=np.float32)
    np.testing.assert_array_equal(read, row)


def test_metadata_json_has_sorted_keys_and_no_nan() -> None:
    assert metadata_json({"b": 1, "a": {"d": 1, "c": 2}}) == '{"a":{"c":2,"d":1},"b":1}'
    with pytest.raises(ValueError, match="Out of range"):
        metadata_json({"a": float("nan")})


def test_the_card_says_what_a_user_must_know(exported: Exported) -> None:
    for words in (
        "# Policy card: unified",
        "340 observations to 169 actions",
        "CC0",
        INFO["params_digest"],
        "| 30:165 | bodies | m, rot6 | proj |",
        "| k_p | 120 |",
        "| samples | 1000 |",
        "opset 18",
    ):
        assert words in exported.card, words
    assert all(line == line.rstrip() for line in exported.card.splitlines())


def _arguments(folder: Path) -> list[str]:
    return [
        *(
            "--params",
            str(folder / "params.yaml"),
            "--policy",
            "policy.pt",
            "--out",
            str(folder / "out" / "policy.onnx"),
        ),
        *("--parity", str(folder / "out" / "parity.json"), "--card", str(folder / "out" / "card.md")),
    ]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with parameters, and a stand-in for the loader of trained policies."""
    networks = types.ModuleType("train.networks")
    networks.load_policy_module = lambda path: (StandInPolicy(), dict(INFO))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "train.networks", networks)
    monkeypatch.setattr("train.humanoid_policy.policy_kind", lambda path: "unified")
    (tmp_path / "params.yaml").write_text("export:\n  opset: 18\n  seed: 0\n  tolerance: 1e-5\n")
    return tmp_path


def test_the_command_writes_policy_parity_and_card(stage: Path, exported: Exported) -> None:
    assert command.main(_arguments(stage)) == 0
    written = {path.name: path.read_bytes() for path in (stage / "out").iterdir()}
    assert set(written) == {"policy.onnx", "parity.json", "card.md"}
    assert written["policy.onnx"] == exported.data
    assert written["card.md"].decode() == exported.card


@pytest.mark.parametrize(
    ("change", "words"),
    [("tolerance: 1e-5", "tolerance: 1e-12"), ("opset: 18", "opset: 99"), ("seed: 0", "sed: 0")],
)
def test_the_command_writes_nothing_where_something_is_wrong(stage: Path, change: str, words: str) -> None:
    text = (stage / "params.yaml").read_text()
    (stage / "params.yaml").write_text(text.replace(change, words))
    with pytest.raises(InputError, match=r"expected"):
        command.main(_arguments(stage))
    assert not (stage / "out").exists()
