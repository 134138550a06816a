"""The policy loader: what it accepts, what it refuses and in which words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from engine.errors import InputError
from engine.policy import Policy
from engine.policy_layout import slices, unified_action, unified_observation, width
from engine.skeleton import BODY_NAMES
from tests.engine.policy_file import (
    BIAS,
    METADATA,
    OBS,
    action_of,
    changed_metadata,
    in_other_body_order,
    policy_model,
)


def write(folder: Path, model: ModelProto | bytes) -> Path:
    path = folder / "policy.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return path


def refusal(path: Path, method: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        Policy.load(path, method)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    assert re.search(r"\(found.*expected.*\)$", text)
    return text


def test_a_good_file_loads_and_acts_for_any_batch(tmp_path: Path) -> None:
    policy = Policy.load(write(tmp_path, policy_model()), "unified")
    for n in (0, 1, 4, 6):
        action = policy.act(OBS[:n])
        assert action.dtype == np.float32
        assert action.shape == (n, 169)
        np.testing.assert_allclose(action, action_of(OBS[:n]), atol=1e-5)


def test_act_into_equals_act_for_reused_and_new_arrays(tmp_path: Path) -> None:
    policy = Policy.load(write(tmp_path, policy_model()))
    obs, out = OBS[:2].copy(), np.zeros((2, 169), dtype=np.float32)
    for _ in range(3):
        policy.act_into(out, obs)
        np.testing.assert_array_equal(out, policy.act(obs))
        obs += 0.5
    other = np.zeros((6, 169), dtype=np.float32)
    policy.act_into(other, OBS)
    np.testing.assert_array_equal(other, policy.act(OBS))
    policy.act_into(out, obs)
    np.testing.assert_array_equal(out, policy.act(obs))
    policy.act_into(other[:0], OBS[:0])


def test_metadata_is_typed_frozen_and_complete(tmp_path: Path) -> None:
    metadata = Policy.load(write(tmp_path, policy_model())).metadata
    assert (metadata.method, metadata.control_hz, metadata.physics_hz) == ("unified", 30.0, 120.0)
    assert metadata.body_names == BODY_NAMES
    assert (metadata.mass_kg, metadata.body_frame, metadata.controller["k_p"]) == (45.0, "proj", 120.0)
    assert metadata.inertia_b.shape == (3, 3)
    assert metadata.default_pose.shape == (15, 7)
    assert width(metadata.observation) == 340
    with pytest.raises(AttributeError):
        metadata.mass_kg = 1.0  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        metadata.inertia_b[0, 0] = 1.0


def test_layout_is_that_of_the_specification() -> None:
    observation = slices(unified_observation())
    assert observation["com_height"] == slice(0, 1)
    assert observation["left_foot"] == slice(13, 22)
    assert observation["contact"] == slice(31, 35)
    assert observation["bodies"] == slice(35, 170)
    assert observation["ref_com_height"] == slice(170, 171)
    assert observation["ref_bodies"] == slice(205, 340)
    action = slices(unified_action("srb"))
    assert action["com_delta"] == slice(6, 9)
    assert action["left_foot_residual"] == slice(12, 21)
    assert action["bodies"] == slice(30, 165)
    assert action["contact_logits"] == slice(165, 169)


@pytest.mark.parametrize(
    "data", [b"", b"hello world\n", b"<html>no</html>", b"\n\n\n", b"\x00" * 4096, b"\xff" * 100, b"# params\na: 1\n"]
)
def test_an_empty_or_other_file_is_refused(tmp_path: Path, data: bytes) -> None:
    text = refusal(write(tmp_path, data))
    assert "the file is empty" in text if not data else "not an ONNX file" in text


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.5, 0.9, 0.9999])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    data = policy_model().SerializeToString()
    refusal(write(tmp_path, data[: int(share * len(data))]))


def test_a_file_cut_off_between_its_parts_is_refused(tmp_path: Path) -> None:
    model = policy_model(metadata=None)
    assert "metadata 'gaitforge' missing" in refusal(write(tmp_path, model))
    del model.opset_import[:]
    assert "cut off after the graph" in refusal(write(tmp_path, model))


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.onnx")
    assert "is a directory" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        ({"obs_width": 339}, ["obs: width", "found 339", "expected 340"]),
        ({"action_width": 170}, ["action: width", "found 170", "expected 169"]),
        ({"elem_type": TensorProto.FLOAT16}, ["obs", "found float16", "expected float (32 bit)"]),
        ({"elem_type": TensorProto.DOUBLE}, ["obs", "found double", "expected float (32 bit)"]),
        ({"batch": 1}, ["batch axis is fixed", "found 1"]),
    ],
)
def test_a_graph_of_another_shape_or_type_is_refused(tmp_path: Path, graph: dict[str, Any], words: list[str]) -> None:
    text = refusal(write(tmp_path, policy_model(**graph)))
    assert all(word in text for word in words), text


def test_an_action_width_that_only_running_shows_is_refused(tmp_path: Path) -> None:
    model = policy_model(action_width=170)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "m"
    assert "found [1, 170], expected [1, 169]" in refusal(write(tmp_path, model))


def test_other_names_of_inputs_are_refused(tmp_path: Path) -> None:
    model = policy_model()
    model.graph.input[0].name = model.graph.node[0].input[0] = "state"
    assert "found state, expected one, 'obs'" in refusal(write(tmp_path, model))
    model.graph.input.append(helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["b", 340]))
    assert "found state, obs, expected one" in refusal(write(tmp_path, model))


def test_unknown_operators_are_named(tmp_path: Path) -> None:
    model = policy_model()
    model.graph.node[1].op_type = "Frobnicate"
    assert "unknown operator 'Frobnicate'" in refusal(write(tmp_path, model))
    model.graph.node[1].domain = "com.acme"
    model.opset_import.append(helper.make_opsetid("com.acme", 1))
    assert "unknown operator 'com.acme:Frobnicate'" in refusal(write(tmp_path, model))


def test_a_newer_format_says_what_to_upgrade(tmp_path: Path) -> None:
    model = policy_model()
    model.ir_version = 99
    text = refusal(write(tmp_path, model))
    assert "ir_version" in text
    assert "upgrade onnxruntime" in text
    assert "found 99, expected at most" in text
    model.ir_version = 10
    model.opset_import[0].version = 99
    text = refusal(write(tmp_path, model))
    assert "upgrade onnxruntime or export with a lower export.opset" in text
    assert "found 99, expected at most" in text


def test_a_broken_graph_is_refused_in_one_line(tmp_path: Path) -> None:
    model = policy_model()
    model.graph.node[2].input[0] = "nothing of that name"
    assert "onnxruntime" in refusal(write(tmp_path, model))


@pytest.mark.parametrize(
    ("location", "state"),
    [
        ("missing.bin", "missing"),
        ("there.bin", "there, but apart"),
        ("../outside.bin", "outside"),
        ("/etc/passwd", "outside"),
        ("link/outside.bin", "outside"),
    ],
)
def test_external_weights_are_refused(tmp_path: Path, location: str, state: str) -> None:
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "there.bin").write_bytes(b"\0" * 4 * 340)
    (tmp_path / "outside.bin").write_bytes(b"\0" * 4 * 340)
    (folder / "link").symlink_to(tmp_path)
    model = policy_model()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    text = refusal(write(folder, model))
    assert "mean: weights must be inside the policy file" in text
    assert location in text
    assert state in text


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path: Path, bad: float) -> None:
    model = policy_model()
    bias = BIAS.copy()
    bias[7] = bad
    model.graph.initializer[3].CopyFrom(numpy_helper.from_array(bias, "bias"))
    assert f"bias: weights are not finite (found {bad} in 1 of 169" in refusal(write(tmp_path, model))


def test_a_constant_inside_the_graph_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    model = policy_model()
    bias = model.graph.initializer.pop(3)
    value = numpy_helper.from_array(np.full(169, np.nan, dtype=np.float32))
    assert bias.name == "bias"
    model.graph.node.insert(0, helper.make_node("Constant", [], ["bias"], name="constant", value=value))
    assert "constant.value: weights are not finite" in refusal(write(tmp_path, model))


def test_a_tensor_that_claims_more_than_it_holds_is_refused(tmp_path: Path) -> None:
    model = policy_model()
    model.graph.initializer[3].dims[0] = 10**12
    assert "bias: tensor cannot be read" in refusal(write(tmp_path, model))


def _swap(index: int, **changes: Any) -> Callable[[], list[dict[str, Any]]]:
    def make() -> list[dict[str, Any]]:
        rows = [dict(row) for row in METADATA["observation"]]
        rows[index].update(changes)
        return rows

    return make


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format_version": None}, ["format_version missing"]),
        ({"format_version": 2}, ["format_version", "upgrade gaitforge", "found 2, expected 1"]),
        ({"format_version": 0}, ["format_version", "export the policy again", "found 0, expected 1"]),
        ({"format_version": "1"}, ["format_version", "found '1', expected 1"]),
        ({"method": None}, ["method missing"]),
        ({"body_names": list(BODY_NAMES[:14])}, ["body_names: number of joints", "found 14, expected 15"]),
        ({"body_names": ["pelvis", *BODY_NAMES[1:]]}, ["body_names[0]: unknown joint", "found 'pelvis'", "root"]),
        ({"body_names": ["chest", *BODY_NAMES[1:]]}, ["body_names[1]: joint named twice", "'chest'"]),
        ({"body_names": 15}, ["body_names", "expected a list of names"]),
        ({"control_hz": 0}, ["control_hz", "expected a number > 0"]),
        ({"control_hz": True}, ["control_hz", "found True"]),
        ({"physics_hz": 100}, ["physics_hz", "whole multiple"]),
        ({"mass_kg": -1.0}, ["mass_kg", "found -1.0"]),
        ({"mass_kg": "45"}, ["mass_kg", "found '45'"]),
        ({"inertia_b": [1.0] * 8}, ["inertia_b", "found 8 values", "9 numbers"]),
        ({"inertia_b": [1, 0, 0, 0, 1, 0, 0, 0, -1]}, ["inertia_b", "positive definite"]),
        ({"default_pose": [[0.0] * 7] * 14}, ["default_pose", "found 98 values", "105 numbers"]),
        ({"controller": {"k_p": "fast"}}, ["controller.k_p", "found 'fast'"]),
        ({"controller": [1]}, ["controller", "an object of numbers"]),
        ({"body_frame": "world"}, ["body_frame", "found 'world'"]),
        ({"data_licence": ""}, ["data_licence", "expected text"]),
        ({"recorded": None}, ["recorded missing"]),
        ({"recorded": {"obs": METADATA["recorded"]["obs"]}}, ["recorded.action missing"]),
        ({"recorded": {"obs": [0.0], "action": [0.0]}}, ["recorded.obs", "found 1 values", "340 numbers"]),
        ({"observation": _swap(0, size=2)()}, ["observation: width of the layout", "found 341", "expected 340"]),
        ({"observation": _swap(2, unit="cm/s")()}, ["observation[2]", "cm/s", "m/s"]),
        ({"observation": _swap(7, frame="srb")()}, ["observation[7]", "in srb", "in proj"]),
        ({"observation": _swap(0, size=None)()}, ["observation[0].size", "found None"]),
        ({"observation": []}, ["observation", "a list of pieces"]),
        ({"method": "unified", "body_frame": "srb"}, ["action[6]", "in proj", "in srb"]),
    ],
)
def test_metadata_that_does_not_match_is_refused(tmp_path: Path, changes: dict[str, Any], words: list[str]) -> None:
    text = refusal(write(tmp_path, policy_model(changed_metadata(changes))))
    assert all(word in text for word in words), text


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"mass_kg": NaN}', "[" * 100000])
def test_metadata_that_is_not_a_json_object_is_refused(tmp_path: Path, text: str) -> None:
    assert "metadata" in refusal(write(tmp_path, policy_model(text)))


def test_another_method_than_asked_for_is_refused(tmp_path: Path) -> None:
    assert "method (found 'unified', expected 'amp')" in refusal(write(tmp_path, policy_model()), "amp")


def test_bodies_in_another_order_are_mapped_by_name(tmp_path: Path) -> None:
    names = [BODY_NAMES[index] for index in np.random.default_rng(1).permutation(15)]
    policy = Policy.load(write(tmp_path, in_other_body_order(names)))
    np.testing.assert_allclose(policy.act(OBS), action_of(OBS), atol=1e-5)
    out = np.zeros((6, 169), dtype=np.float32)
    policy.act_into(out, OBS)
    np.testing.assert_array_equal(out, policy.act(OBS))
    assert policy.metadata.body_names == BODY_NAMES
    np.testing.assert_allclose(policy.metadata.default_pose, METADATA["default_pose"])
    np.testing.assert_allclose(policy.metadata.recorded_obs, OBS[0])
    np.testing.assert_allclose(policy.metadata.recorded_action, action_of(OBS[:1])[0], rtol=1e-6, atol=1e-6)


def test_another_order_that_cannot_be_mapped_is_refused(tmp_path: Path) -> None:
    rows = [{"name": "joint_targets", "size": 169, "unit": "rad", "frame": "-"}]
    obs = [{"name": "state", "size": 340, "unit": "1", "frame": "-"}]
    same = changed_metadata({"method": "other", "observation": obs, "action": rows})
    assert Policy.load(write(tmp_path, policy_model(same))).metadata.method == "other"
    names = [BODY_NAMES[1], BODY_NAMES[0], *BODY_NAMES[2:]]
    text = refusal(write(tmp_path, policy_model({**same, "body_names": names})))
    assert "body_names[0]: other order" in text


def test_a_policy_exported_without_its_normaliser_is_refused(tmp_path: Path) -> None:
    text = refusal(write(tmp_path, policy_model(normalise=False)))
    assert "recorded: the graph does not give the recorded action" in text
    assert "normaliser" in text


def test_observations_of_another_shape_are_refused(tmp_path: Path) -> None:
    policy = Policy.load(write(tmp_path, policy_model()))
    for obs in (OBS[0], OBS[:, :339], OBS[None]):
        with pytest.raises(InputError, match="obs: shape"):
            policy.act(obs)
    out = np.zeros((6, 169), dtype=np.float32)
    for bad_out, bad_obs in ((out[:5], OBS), (out, OBS.astype(np.float64)), (out.astype(np.float64), OBS)):
        with pytest.raises(InputError, match="array"):
            policy.act_into(bad_out, bad_obs)
    with pytest.raises(InputError, match="strided"):
        policy.act_into(out, np.asfortranarray(OBS))


def test_loading_prints_nothing_and_needs_no_torch(tmp_path: Path, repo: Path) -> None:
    good = write(tmp_path, policy_model())
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(policy_model(normalise=False).SerializeToString()[:-3])
    code = (
        "import sys\n"
        "from engine.policy import Policy\n"
        "from engine.errors import run_main\n"
        "run_main(lambda argv: (Policy.load(argv[0]), sys.exit(3 if 'torch' in sys.modules else 0))[1])\n"
    )
    for path, status in ((good, 0), (bad, 2)):
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], cwd=repo, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == status, done.stderr
        assert len(done.stderr.splitlines()) == (1 if status else 0)
        assert done.stdout == ""


def test_written_metadata_is_read_whatever_its_key_order(tmp_path: Path) -> None:
    shuffled = json.dumps(dict(reversed(METADATA.items())))
    assert Policy.load(write(tmp_path, policy_model(shuffled))).metadata.method == "unified"
