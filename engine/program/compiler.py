"""A policy's graph as a flat program for one small kernel: at a few rows, most of onnxruntime's time is its nodes.

The graph is read once, with one row as its batch. A value is known by an integer array of its shape that holds the
place of each number in the program's memory, so what only moves numbers (slices, reshapes, transposes, gathers,
concatenations, padding) moves these integers while compiling and costs nothing later. Shapes and constants are
evaluated here. What is left computes, on runs of the memory, row after row (`engine.program.kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, helper, numpy_helper

from engine.program import kernels
from engine.program.assembler import Assembler, Unknown
from engine.program.moves import MOVES, Value, ints, pad

DENSE_SIZE = 256
"""A constant matrix of at least so many numbers is laid out for the SIMD product."""

_OPSET_MIN = 13  # before, axes and softmax meant something else
_FLOAT_MAX = float(np.finfo(np.float32).max)
_DOMAINS = ("", "ai.onnx")
_ELEMENTWISE = {
    "Add": kernels.ADD,
    "Sub": kernels.SUB,
    "Mul": kernels.MUL,
    "Div": kernels.DIV,
    "Min": kernels.MIN,
    "Max": kernels.MAX,
    "Neg": kernels.NEG,
    "Abs": kernels.ABS,
    "Sqrt": kernels.SQRT,
    "Reciprocal": kernels.RECIPROCAL,
    "Exp": kernels.EXP,
    "Log": kernels.LOG,
    "Sin": kernels.SIN,
    "Cos": kernels.COS,
    "Atan": kernels.ATAN,
    "Tanh": kernels.TANH,
    "Sigmoid": kernels.SIGMOID,
    "Relu": kernels.RELU,
}


class Program:
    """A compiled policy graph. Use `Program.compile`. Its memory is its own: one call at a time."""

    def __init__(
        self, table: NDArray[np.int64], indices: NDArray[np.int64], memory: NDArray[np.float32], obs_width: int
    ) -> None:
        """Take over the arrays of `engine.program.kernels.run_rows_into`."""
        self._arrays = (table, indices, memory)
        self.obs_width, self.action_width = obs_width, int(table[-1, 1])

    @classmethod
    def compile(cls, model: onnx.ModelProto) -> Program | None:
        """Compile a graph with one float32 input (batch, O) and one output (batch, A).

        Rows are taken to be independent of each other; a graph that mixes them compiles and gives other numbers.

        Args:
            model: A graph that onnxruntime accepts; left unchanged.

        Returns:
            The program, or None where the graph holds an operator, type, attribute or shape that it does not know.
        """
        try:
            with np.errstate(all="ignore"):
                return _Compiler(model).program()
        except Exception:  # whatever is odd about a graph, onnxruntime still runs it
            return None

    @property
    def instructions(self) -> int:
        """How many instructions a row takes."""
        return len(self._arrays[0])

    def run_into(self, out: NDArray[np.float32], obs: NDArray[np.float32]) -> None:
        """Evaluate rows one after the other.

        Args:
            out: Receives the action rows, float32, C-contiguous, shape (n, action_width).
            obs: Observation rows, float32, C-contiguous, shape (n, obs_width).

        Raises:
            ValueError: The arrays have other shapes. Their types and layout are the caller's to check.
        """
        # A read-only array is another type to Numba, for which it would compile the kernel again.
        kernels.run_rows_into(out, obs if obs.flags.writeable else obs.copy(), *self._arrays, self.obs_width)


class _Compiler:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._opset = next((entry.version for entry in model.opset_import if entry.domain in _DOMAINS), 0)
        if self._opset < _OPSET_MIN:
            raise Unknown(f"opset {self._opset}")
        self._graph = model.graph
        self._values = {tensor.name: Value(numpy_helper.to_array(tensor), True) for tensor in model.graph.initializer}
        (source,) = (value for value in model.graph.input if value.name not in self._values)
        tensor = source.type.tensor_type
        if tensor.elem_type != onnx.TensorProto.FLOAT or len(tensor.shape.dim) != 2:
            raise Unknown("input is not float32 (batch, width)")
        self._obs_width = tensor.shape.dim[1].dim_value
        self._values[source.name] = Value(np.arange(self._obs_width)[None], False)
        self._code = Assembler(self._obs_width)

    def program(self) -> Program:
        for node in _live_nodes(self._graph):
            if node.domain not in _DOMAINS or len(node.output) != 1:
                raise Unknown(node.op_type)
            inputs = [self._values[name] if name else None for name in node.input]
            self._values[node.output[0]] = self._value(node, inputs)
        (result,) = self._graph.output
        action = self._places(self._values[result.name])
        if action.ndim != 2 or len(action) != 1:
            raise Unknown(f"output of shape {action.shape}")
        return Program(*self._code.build(action), self._obs_width)

    def _value(self, node: NodeProto, inputs: Sequence[Value | None]) -> Value:
        op, attrs = node.op_type, {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        if op == "Shape" and inputs[0] is not None:
            shape = np.array(inputs[0].array.shape, dtype=np.int64)
            return Value(shape[attrs.get("start", 0) : attrs.get("end")], True)
        if all(value is None or value.constant for value in inputs):
            return Value(_fold(node, self._opset, inputs), True)
        if op == "Concat":
            return Value(np.concatenate([self._places(value) for value in inputs], axis=attrs["axis"]), False)
        if op == "Pad":
            filler = inputs[2] if len(inputs) > 2 and inputs[2] is not None else _number(0.0)
            return Value(pad(attrs, self._places(inputs[0]), inputs[1:], self._places(filler)), False)
        if op in MOVES:
            if inputs[0] is None or inputs[0].constant:
                raise Unknown(f"{op} by computed numbers")
            return Value(MOVES[op](attrs, inputs[0].array, inputs[1:]), False)
        return Value(self._computed(op, attrs, inputs), False)

    def _computed(self, op: str, attrs: dict[str, Any], inputs: Sequence[Value | None]) -> NDArray[np.int64]:
        if op == "MatMul":
            return self._matmul(inputs[0], inputs[1])
        if op == "Gemm":
            return self._gemm(attrs, *inputs)
        if op in ("ReduceSum", "ReduceMean"):
            return self._reduce(op, attrs, self._places(inputs[0]), inputs[1:])
        x = self._places(inputs[0])
        if op in _ELEMENTWISE:
            if len(inputs) == 1:
                return x if op in ("Min", "Max") else self._elementwise(op, x)
            for value in inputs[1:]:
                x = self._elementwise(op, x, self._places(value))
            return x
        if op == "Elu":
            return self._code.emit(kernels.ELU, x.shape, [x, self._places(_number(attrs.get("alpha", 1.0)))])
        if op == "Clip":
            low, high = [*inputs[1:], None, None][:2]
            bounds = [self._places(low or _number(-_FLOAT_MAX)), self._places(high or _number(_FLOAT_MAX))]
            return self._code.emit(kernels.CLIP, x.shape, [x, *(bound.reshape(1) for bound in bounds)])
        if op == "Softmax" and attrs.get("axis", -1) in (-1, x.ndim - 1):
            return self._code.emit(kernels.SOFTMAX, x.shape, [x], p=x.shape[-1])
        raise Unknown(op)

    def _elementwise(self, op: str, *operands: NDArray[np.int64]) -> NDArray[np.int64]:
        operands = np.broadcast_arrays(*operands)
        if op == "Mul":
            for one, other in (operands, operands[::-1]):
                numbers = self._code.constants_at(one)
                if numbers is not None and (numbers == 1.0).all():
                    return other
        return self._code.emit(_ELEMENTWISE[op], operands[0].shape, operands)

    def _reduce(
        self, op: str, attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]
    ) -> NDArray[np.int64]:
        given = ints(rest[0]) if rest and rest[0] is not None else attrs.get("axes", [])
        if not given and attrs.get("noop_with_empty_axes", 0):
            return x
        axes = sorted({axis % x.ndim for axis in given}) or list(range(x.ndim))
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        inner = 1
        if axes == list(range(axes[0], axes[-1] + 1)):
            inner = math.prod(x.shape[axes[-1] + 1 :])
        else:
            x = x.transpose(*(axis for axis in range(x.ndim) if axis not in axes), *axes)
        count = x.size // math.prod(shape)
        result = self._code.emit(kernels.SUM, shape, [x], p=count, q=inner)
        if op == "ReduceMean":
            result = self._elementwise("Div", result, self._places(_number(count)))
        return result if attrs.get("keepdims", 1) else result.squeeze(tuple(axes))

    def _gemm(
        self, attrs: dict[str, Any], a: Value | None, b: Value | None, c: Value | None = None
    ) -> NDArray[np.int64]:
        if a is None or b is None:
            raise Unknown("input left out")
        a = Value(a.array.T, a.constant) if attrs.get("transA", 0) else a
        b = Value(b.array.T, b.constant) if attrs.get("transB", 0) else b
        b = self._scaled(b, attrs.get("alpha", 1.0))
        if c is None:
            return self._matmul(a, b)
        c = self._scaled(c, attrs.get("beta", 1.0))
        if c.constant and _is_dense(b) and len(a.array) == 1:
            return self._matmul(a, b, np.broadcast_to(c.array, (1, b.array.shape[1]))[0])
        return self._elementwise("Add", self._matmul(a, b), self._places(c))

    def _scaled(self, value: Value, factor: float) -> Value:
        if factor == 1.0:
            return value
        if value.constant:
            return Value(value.array * np.float32(factor), True)
        return Value(self._elementwise("Mul", value.array, self._places(_number(factor))), False)

    def _matmul(self, a: Value | None, b: Value | None, bias: NDArray[Any] | None = None) -> NDArray[np.int64]:
        left = self._places(a)
        if b is not None and _is_dense(b):
            return self._dense(left, b.array, bias)
        right = self._places(b)
        rows, columns = left.ndim > 1, right.ndim > 1
        left = left if rows else left[None]
        right = right if columns else right[:, None]
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
        shape = (*batch, left.shape[-2], right.shape[-1])
        if right.ndim == 2:  # one matrix for all: no copies of it
            left = left.reshape(-1, left.shape[-1])
        else:
            left = np.broadcast_to(left, batch + left.shape[-2:])
            right = np.broadcast_to(right, batch + right.shape[-2:])
        if left.shape[-1] != right.shape[-2]:
            raise Unknown(f"product of {left.shape} and {right.shape}")
        sizes = {"p": left.shape[-2], "q": left.shape[-1], "r": right.shape[-1]}
        result = self._code.emit(kernels.MATMUL, shape, [left, right], **sizes)
        result = result if rows else result[..., 0, :]
        return result if columns else result[..., 0]

    def _dense(self, x: NDArray[np.int64], matrix: NDArray[Any], bias: NDArray[Any] | None) -> NDArray[np.int64]:
        inner, width = matrix.shape
        weights = self._code.weights(matrix.T)
        addend = np.zeros(weights.size // inner, dtype=np.float32)
        if bias is not None:
            addend[:width] = bias
        places = self._code.constant(addend)
        rows = [
            self._code.emit(kernels.DENSE, addend.shape, [row, weights, places], q=inner)[:width]
            for row in x.reshape(-1, inner)
        ]
        return np.stack(rows).reshape(*x.shape[:-1], width)

    def _places(self, value: Value | None) -> NDArray[np.int64]:
        if value is None:
            raise Unknown("input left out")
        return self._code.constant(value.array) if value.constant else value.array


def _number(value: float) -> Value:
    return Value(np.array([value], dtype=np.float32), True)


def _is_dense(value: Value) -> bool:
    return value.constant and value.array.ndim == 2 and value.array.size >= DENSE_SIZE


def _live_nodes(graph: onnx.GraphProto) -> list[NodeProto]:
    wanted = {value.name for value in graph.output}
    live = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            live.append(node)
    return live[::-1]


def _fold(node: NodeProto, opset: int, inputs: Sequence[Value | None]) -> NDArray[Any]:
    """Evaluate a node of constants by ONNX's own reference."""
    from onnx.reference import ReferenceEvaluator  # takes long to import and is not always needed

    feeds = {name: value.array for name, value in zip(node.input, inputs, strict=True) if value is not None}
    known = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph([node], "fold", known, [helper.make_empty_tensor_value_info(node.output[0])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    (result,) = ReferenceEvaluator(model).run(None, feeds)
    return np.asarray(result)
