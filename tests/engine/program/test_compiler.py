"""The policy program: the numbers of onnxruntime from one kernel, operator by operator and for every trained policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from engine import policy
from engine.policy import PROGRAM_ROWS, Policy
from engine.program.assembler import Assembler
from engine.program.compiler import Program
from tests.conftest import REPO
from tests.engine.policy_file import OBS, action_of, policy_model

TRAINED = sorted((REPO / "models").glob("**/policy.onnx"))
WIDTH = 48
RNG = np.random.default_rng(3)
VECTOR = RNG.standard_normal(WIDTH).astype(np.float32)
MATRIX = RNG.standard_normal((WIDTH, 30)).astype(np.float32)
SMALL = RNG.standard_normal((4, 3)).astype(np.float32)


def node(op: str, inputs: str, output: str, **attrs: Any) -> NodeProto:
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, [output], **attrs)


def graph(nodes: Sequence[NodeProto], constants: dict[str, Any], width: int = WIDTH) -> ModelProto:
    """A model whose last value, flattened to rows, is the action."""
    last = nodes[-1].output[0]
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    tensors = [
        numpy_helper.from_array(array.astype(np.float32 if array.dtype.kind == "f" else np.int64), name)
        for name, array in arrays.items()
    ]
    made = helper.make_graph(
        [*nodes, node("Flatten", last, "action", axis=1)],
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, ["batch", width])],
        [helper.make_tensor_value_info("action", TensorProto.FLOAT, ["batch", None])],
        tensors,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def by_onnxruntime(model: ModelProto, obs: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.concatenate([np.asarray(session.run(None, {"obs": row[None]})[0]) for row in obs])


def by_program(model: ModelProto, obs: np.ndarray) -> np.ndarray:
    program = Program.compile(model)
    assert program is not None
    out = np.full((len(obs), program.action_width), 7.0, dtype=np.float32)
    program.run_into(out, obs)
    return out


def rows_of(width: int = WIDTH, count: int = 3) -> np.ndarray:
    return (2.0 * np.random.default_rng(8).standard_normal((count, width))).astype(np.float32)


CUBE = node("Reshape", "obs cube_shape", "cube")  # (batch, 4, 4, 3)
SHAPES = {"cube_shape": [-1, 4, 4, 3], "tall_shape": [-1, 16, 3]}
MOVES: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    "slice of columns": ([node("Slice", "obs a b axes", "y")], {"a": [-9], "b": [2**62], "axes": [-1]}),
    "slice with steps": (
        [CUBE, node("Slice", "cube a b axes steps", "y")],
        {"a": [0, -1], "b": [4, -(2**62)], "axes": [1, -1], "steps": [2, -1]},
    ),
    "transpose": ([CUBE, node("Transpose", "cube", "y", perm=[0, 3, 1, 2])], {}),
    "reshape with a copied size": ([CUBE, node("Reshape", "cube s", "y")], {"s": [0, -1, 6]}),
    "unsqueeze and squeeze": (
        [node("Unsqueeze", "obs u", "v"), node("Squeeze", "v s", "y")],
        {"u": [1, -1], "s": [-1]},
    ),
    "flatten": ([CUBE, node("Flatten", "cube", "y", axis=2), node("Reshape", "y s", "z")], {"s": [1, -1]}),
    "identity": ([node("Identity", "obs", "y")], {}),
    "expand": (
        [CUBE, node("Slice", "cube a b c", "v"), node("Expand", "v s", "y")],
        {"a": [1], "b": [2], "c": [2], "s": [1, 4, 5, 3]},
    ),
    "concatenation on the last axis": ([CUBE, node("Concat", "cube cube", "y", axis=-1)], {}),
    "concatenation on a middle axis with a constant": (
        [CUBE, node("Concat", "cube k cube", "y", axis=1)],
        {"k": SMALL.reshape(1, 1, 4, 3)},
    ),
    "padding with zeros": ([CUBE, node("Pad", "cube p", "y")], {"p": [0, 1, 0, 2, 0, 0, 1, 1]}),
    "padding of one axis with a number": ([CUBE, node("Pad", "cube p v a", "y")], {"p": [2, 0], "v": 1.5, "a": [-2]}),
    "gather of one": ([CUBE, node("Gather", "cube i", "y", axis=2)], {"i": -3}),
    "gather of many": ([CUBE, node("Gather", "cube i", "y", axis=-1)], {"i": [[2, 0], [-1, 1]]}),
    "gather of points": (
        [CUBE, node("Transpose", "cube", "v", perm=[1, 2, 0, 3]), node("GatherND", "v i", "w"),
         node("Transpose", "w", "y", perm=[1, 0, 2])],
        {"i": [[0, 3], [-1, 1], [2, 2]]},
    ),
    "shape arithmetic": (
        [node("Shape", "obs", "n", end=1), node("Concat", "n t", "s", axis=0), node("Reshape", "obs s", "y")],
        {"t": [3, -1]},
    ),
}  # fmt: skip
UNARY = ["Neg", "Cos", "Sin", "Atan", "Tanh", "Sigmoid", "Exp", "Abs", "Relu", "Elu", "Reciprocal"]
COMPUTED: dict[str, tuple[list[NodeProto], dict[str, Any]]] = {
    **{op: ([node(op, "obs", "y")], {}) for op in UNARY},
    **{op: ([node("Abs", "obs", "v"), node(op, "v", "y")], {}) for op in ("Sqrt", "Log")},
    **{op: ([node(op, "obs k", "y")], {"k": VECTOR}) for op in ("Add", "Sub", "Mul", "Div", "Min", "Max")},
    **{
        f"{op} of a column and a row": (
            [node("Reshape", "obs tall_shape", "v"), node("Slice", "v a b c", "w"), node("Slice", "v a b d", "x"),
             node(op, "w x", "y")],
            {"a": [1], "b": [2], "c": [1], "d": [2]},
        )
        for op in ("Add", "Sub", "Mul", "Div")
    },
    "elu with another slope": ([node("Elu", "obs", "y", alpha=0.3)], {}),
    "product with ones": ([node("Mul", "one obs", "v"), node("Add", "v obs", "y")], {"one": np.ones((1, 1, 1))}),
    "maximum of three": ([node("Neg", "obs", "v"), node("Max", "obs k v", "y")], {"k": 0.5}),
    "clip": ([node("Clip", "obs lo hi", "y")], {"lo": -0.5, "hi": 1.0}),
    "clip from above": ([node("Clip", "obs _ hi", "y")], {"hi": 0.25}),
    "clip from below": ([node("Clip", "obs lo", "y")], {"lo": 0.25}),
    "softmax": ([CUBE, node("Softmax", "cube", "y", axis=-1)], {}),
    "sum of the last axis": ([CUBE, node("ReduceSum", "cube a", "y", keepdims=1)], {"a": [-1]}),
    "sum of a middle axis": ([CUBE, node("ReduceSum", "cube a", "y", keepdims=0)], {"a": [1]}),
    "sum of two separate axes": ([CUBE, node("ReduceSum", "cube a", "y", keepdims=1)], {"a": [1, 3]}),
    "sum of no axes": ([node("ReduceSum", "obs", "y", noop_with_empty_axes=1)], {}),
    "mean of two axes": ([CUBE, node("ReduceMean", "cube a", "y", keepdims=0)], {"a": [-2, -1]}),
    "product with a constant matrix": ([node("MatMul", "obs m", "y")], {"m": MATRIX}),
    "product of several rows with a constant matrix": (
        [CUBE, node("Reshape", "cube s", "v"), node("MatMul", "v m", "y")],
        {"s": [1, 2, 24], "m": MATRIX[:24]},
    ),
    "product with a small matrix": ([CUBE, node("MatMul", "cube m", "y")], {"m": SMALL.T}),
    "product with a vector": ([CUBE, node("MatMul", "cube m", "y")], {"m": SMALL[0]}),
    "product of a vector and matrices": ([CUBE, node("MatMul", "m cube", "y")], {"m": SMALL.T[0]}),
    "product of batches": (
        [CUBE, node("Transpose", "cube", "v", perm=[0, 1, 3, 2]), node("MatMul", "cube v", "y")],
        {},
    ),
    "product of one matrix with a batch": (
        [CUBE, node("Slice", "cube a b c", "v"), node("Transpose", "cube", "w", perm=[0, 1, 3, 2]),
         node("MatMul", "v w", "y")],
        {"a": [0], "b": [1], "c": [1]},
    ),
    "affine": ([node("Gemm", "obs m k", "y")], {"m": MATRIX, "k": MATRIX[0]}),
    "affine of a transposed and scaled matrix": (
        [node("Gemm", "obs m k", "y", transB=1, alpha=0.5, beta=2.0)],
        {"m": MATRIX.T, "k": MATRIX[0]},
    ),
    "affine without an addend": ([node("Gemm", "obs m", "y", alpha=0.5)], {"m": MATRIX}),
    "affine of a column": (
        [node("Reshape", "obs s", "v"), node("Gemm", "v m k", "y", transA=1)],
        {"s": [-1, 1], "m": MATRIX, "k": 0.5},
    ),
    "affine with a computed addend": (
        [node("MatMul", "obs m", "v"), node("Gemm", "obs m v", "y", beta=0.5)],
        {"m": MATRIX},
    ),
    "affine of computed matrices": (
        [node("Reshape", "obs s", "v"), node("Gemm", "v v", "w", transB=1), node("Reshape", "w t", "y")],
        {"s": [12, 4], "t": [1, -1]},
    ),
    "constants alone": (
        [node("Mul", "k k", "v"), node("Exp", "v", "w"), node("Add", "obs w", "y")],
        {"k": VECTOR},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*MOVES, *COMPUTED])
def test_each_operator_gives_what_onnxruntime_gives(name: str) -> None:
    nodes, constants = (MOVES | COMPUTED)[name]
    model = graph(nodes, SHAPES | constants)
    expected = by_onnxruntime(model, rows_of())
    np.testing.assert_allclose(by_program(model, rows_of()), expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("name", ["slice of columns", "identity", "unsqueeze and squeeze", "flatten"])
def test_what_moves_a_run_of_numbers_costs_no_instruction(name: str) -> None:
    nodes, constants = MOVES[name]
    program = Program.compile(graph(nodes, SHAPES | constants))
    assert program is not None
    assert program.instructions == 1


@pytest.mark.parametrize("op", [*UNARY, "Sqrt", "Log", "Clip", "Min", "Max", "Softmax", "Add"])
def test_numbers_that_are_not_finite_go_the_way_of_onnxruntime(op: str) -> None:
    obs = np.resize(np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 100.0, -100.0, -0.0], dtype=np.float32), (1, WIDTH))
    model = graph([node(op, "obs k" if op in ("Min", "Max", "Add") else "obs", "y")], {"k": 1.0})
    trig = op in ("Sin", "Cos")  # of 1e30 libraries differ in the last bits
    np.testing.assert_allclose(by_program(model, obs), by_onnxruntime(model, obs), rtol=1e-6, atol=1e-6 if trig else 0)


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.parent.relative_to(REPO / "models").as_posix())
def test_every_trained_policy_gives_what_onnxruntime_gives(path: Path) -> None:
    loaded = Policy.load(path)
    assert loaded.executor == "numba and onnxruntime"
    model = onnx.load(path)
    random = rows_of(loaded.obs_width, 4)
    recorded = loaded.metadata.recorded_obs[None].astype(np.float32)
    for obs in (random, recorded, np.zeros_like(recorded), 10.0 * random, 10.0 * recorded):
        expected = by_onnxruntime(model, obs)
        limit = 1e-5 * np.maximum(1.0, np.abs(expected).max(axis=1, keepdims=True))
        for n in (1, 3, PROGRAM_ROWS):
            rows = np.ascontiguousarray(np.resize(obs, (n, obs.shape[1])))
            target = np.resize(expected, (n, expected.shape[1]))
            found, out = by_program(model, rows), np.zeros_like(target)
            loaded.act_into(out, rows)
            for action in (found, out, loaded.act(rows)):
                assert (np.abs(action - target) <= np.resize(limit, (n, 1))).all()


def test_a_row_that_is_not_a_number_leaves_the_others_alone() -> None:
    model = onnx.load(TRAINED[0])
    program = Program.compile(model)
    assert program is not None
    obs = rows_of(program.obs_width)
    good = by_program(model, obs)
    obs[1] = np.nan
    bad = by_program(model, obs)
    assert np.isnan(bad[1]).any()
    np.testing.assert_array_equal(np.isnan(bad), np.isnan(by_onnxruntime(model, obs)))
    np.testing.assert_array_equal(bad[[0, 2]], good[[0, 2]])


def test_the_callers_array_is_written_in_place_and_read_only_rows_are_read() -> None:
    loaded = Policy(policy_model().SerializeToString(), "made.onnx")
    block = np.full((5, 169), 7.0, dtype=np.float32)
    obs = OBS[1 : 1 + PROGRAM_ROWS].copy()
    obs.flags.writeable = False
    loaded.act_into(block[1 : 1 + PROGRAM_ROWS], obs)
    np.testing.assert_allclose(block[1 : 1 + PROGRAM_ROWS], action_of(obs), atol=1e-5)
    assert (block[0] == 7.0).all()
    assert (block[1 + PROGRAM_ROWS :] == 7.0).all()


def test_rows_of_another_width_or_number_are_refused() -> None:
    program = Program.compile(policy_model())
    assert program is not None
    assert (program.obs_width, program.action_width) == (340, 169)
    for out, obs in (((1, 168), (1, 340)), ((1, 169), (1, 341)), ((1, 169), (2, 340))):
        with pytest.raises(ValueError, match="width or number"):
            program.run_into(np.zeros(out, dtype=np.float32), np.zeros(obs, dtype=np.float32))


def _with_unknown_operator(model: ModelProto) -> ModelProto:
    model.graph.node[2].output[0] = "before"
    model.graph.node.append(helper.make_node("HardSwish", ["before"], ["swished"]))
    model.graph.node.append(helper.make_node("Sub", ["before", "before"], ["nothing"]))
    model.graph.node.append(helper.make_node("Mul", ["swished", "nothing"], ["none"]))
    model.graph.node.append(helper.make_node("Add", ["before", "none"], ["action"]))
    return model


def test_a_graph_with_an_unknown_operator_runs_in_onnxruntime() -> None:
    model = _with_unknown_operator(policy_model())
    assert Program.compile(model) is None
    loaded = Policy(model.SerializeToString(), "made.onnx")
    assert loaded.executor == "onnxruntime"
    np.testing.assert_allclose(loaded.act(OBS[:1]), action_of(OBS[:1]), atol=1e-5)


@pytest.mark.parametrize(
    ("nodes", "constants"),
    [
        ([node("Cast", "obs", "v", to=TensorProto.INT64), node("Gather", "k v", "y")], {"k": VECTOR}),
        ([CUBE, node("Pad", "cube p", "y", mode="edge")], {"p": [0, 1, 0, 0, 0, 0, 0, 0]}),
        ([CUBE, node("Softmax", "cube", "y", axis=1)], {}),
        ([CUBE, node("GatherND", "cube i", "y", batch_dims=1)], {"i": [[0]]}),
        ([node("NonZero", "obs", "v"), node("Cast", "v", "y", to=TensorProto.FLOAT)], {}),
        ([node("Mul", "obs empty", "y")], {"empty": np.zeros((0, 1))}),
    ],
)
def test_what_the_compiler_does_not_know_gives_none(nodes: list[NodeProto], constants: dict[str, Any]) -> None:
    assert Program.compile(graph(nodes, SHAPES | constants)) is None


def test_places_outside_the_memory_are_found_when_a_program_is_built() -> None:
    for places, words in ((np.arange(30, 50), "operand ends"), (np.array([3, 1, 500]), "index lies")):
        with pytest.raises(AssertionError, match=words):
            Assembler(20).build(places)


def test_older_operator_sets_give_none() -> None:
    model = policy_model()
    model.opset_import[0].version = 12
    assert Program.compile(model) is None


def test_a_program_that_disagrees_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Program.run_into

    def wrong(self: Program, out: np.ndarray, obs: np.ndarray) -> None:
        right(self, out, obs)
        out += np.float32(1e-3)

    monkeypatch.setattr(Program, "run_into", wrong)
    loaded = Policy(policy_model().SerializeToString(), "made.onnx")
    assert loaded.executor == "onnxruntime"
    np.testing.assert_allclose(loaded.act(OBS[:1]), action_of(OBS[:1]), atol=1e-5)


def test_a_graph_whose_rows_depend_on_each_other_is_not_run_row_by_row() -> None:
    model = policy_model()
    model.graph.node[2].output[0] = "before"
    model.graph.node.append(helper.make_node("ReduceMean", ["before", "first"], ["mean_row"], keepdims=1))
    model.graph.node.append(helper.make_node("Sub", ["before", "mean_row"], ["difference"]))
    model.graph.node.append(helper.make_node("Add", ["before", "difference"], ["action"]))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "first"))
    assert Program.compile(model) is not None
    assert Policy(model.SerializeToString(), "made.onnx").executor == "onnxruntime"


def test_more_rows_than_the_program_takes_run_in_onnxruntime(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Policy(policy_model().SerializeToString(), "made.onnx")
    counts: list[int] = []
    right = Program.run_into

    def counted(self: Program, out: np.ndarray, obs: np.ndarray) -> None:
        counts.append(len(obs))
        right(self, out, obs)

    monkeypatch.setattr(Program, "run_into", counted)
    for n in range(policy.PROGRAM_ROWS + 2):
        out = np.zeros((n, 169), dtype=np.float32)
        loaded.act_into(out, OBS[:n].copy())
        np.testing.assert_array_equal(out, loaded.act(OBS[:n]))
    assert counts == sorted(2 * list(range(1, policy.PROGRAM_ROWS + 1)))
