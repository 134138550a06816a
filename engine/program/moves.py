"""What only moves numbers in a graph: attributes, places of the first input, other inputs -> places."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.program.assembler import Unknown


class Value(NamedTuple):
    """A value of the graph: numbers of a constant, otherwise the place of each number."""

    array: NDArray[Any]
    constant: bool


def ints(value: Value | None) -> list[int]:
    if value is None or not value.constant or value.array.dtype.kind != "i":
        raise Unknown("indices that are not constant")
    return [int(number) for number in value.array.ravel()]


def axes_of(rest: Sequence[Value | None], at: int, default: Sequence[int]) -> list[int]:
    return ints(rest[at]) if len(rest) > at and rest[at] is not None else list(default)


def pad(
    attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None], filler: NDArray[np.int64]
) -> NDArray[np.int64]:
    if attrs.get("mode", b"constant") != b"constant":
        raise Unknown("Pad by copies")
    axes = axes_of(rest, 2, range(x.ndim))
    pads = ints(rest[0])
    widths = [(0, 0)] * x.ndim
    for axis, before, after in zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True):
        widths[axis] = (before, after)
    return np.pad(x, widths, constant_values=filler.item())


def _slice(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    starts, ends = ints(rest[0]), ints(rest[1])
    axes, steps = axes_of(rest, 2, range(len(starts))), axes_of(rest, 3, [1] * len(starts))
    parts = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        parts[axis] = slice(*bounds)
    return x[tuple(parts)]


def _reshape(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    shape = ints(rest[0])
    if not attrs.get("allowzero", 0):
        shape = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return x.reshape(shape)


def _gather(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    (indices,) = rest
    if indices is None or not indices.constant:
        raise Unknown("Gather by computed indices")
    return np.take(x, indices.array, axis=attrs.get("axis", 0))


def _gather_nd(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    (indices,) = rest
    if attrs.get("batch_dims", 0) or indices is None or not indices.constant:
        raise Unknown("GatherND in batches or by computed indices")
    return x[tuple(np.moveaxis(indices.array, -1, 0))]


def _expand(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(ints(rest[0]))))


def _squeeze(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    return x.squeeze(tuple(axes_of(rest, 0, [axis for axis, size in enumerate(x.shape) if size == 1])))


def _flatten(attrs: dict[str, Any], x: NDArray[np.int64], rest: Sequence[Value | None]) -> NDArray[np.int64]:
    axis = attrs.get("axis", 1)
    first = math.prod(x.shape[: axis + x.ndim if axis < 0 else axis])
    return x.reshape(first, x.size // first)


MOVES: dict[str, Callable[[dict[str, Any], NDArray[np.int64], Sequence[Value | None]], NDArray[np.int64]]] = {
    "Identity": lambda attrs, x, rest: x,
    "Slice": _slice,
    "Reshape": _reshape,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Expand": _expand,
    "Squeeze": _squeeze,
    "Unsqueeze": lambda attrs, x, rest: np.expand_dims(x, tuple(ints(rest[0]))),
    "Transpose": lambda attrs, x, rest: x.transpose(attrs.get("perm")),
    "Flatten": _flatten,
}
