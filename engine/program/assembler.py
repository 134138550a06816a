"""The memory and the instructions of a policy program while it is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.program.kernels import COLUMNS, GATHER, OUTPUT, REPEAT

CONSTANTS, WEIGHTS = 1 << 40, 1 << 41
"""Where constants and weights lie while a program is made."""
_LINE = 16  # float32 numbers in a line of the processor's cache


class Unknown(Exception):
    """The graph holds something that no instruction does."""


class _Operand(NamedTuple):
    start: int
    size: int


class Assembler:
    """Instructions and memory of a program while it is made.

    A value is an int64 array of its shape with the place of each number. Constants and weights lie at offsets of their
    own (`CONSTANTS`, `WEIGHTS`) until all sizes are known. Each place is written by one instruction, once a row.
    """

    def __init__(self, obs_width: int) -> None:
        """Start with the observation at places 0 to ``obs_width - 1``."""
        self._obs_width = obs_width
        self._size = _aligned(obs_width)
        self._parts: dict[int, list[NDArray[np.float32]]] = {CONSTANTS: [], WEIGHTS: []}
        self._sizes = {CONSTANTS: 0, WEIGHTS: 0}
        self._known: dict[bytes, int] = {}
        self._gathered: dict[bytes, int] = {}
        self._table: list[list[int]] = []
        self._operands: list[_Operand] = []
        self._indices: list[int] = []

    def constant(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        """Places of constant numbers, float32 of any shape; equal numbers share them."""
        key = numbers.tobytes()
        if key not in self._known:
            self._known[key] = self._append(CONSTANTS, numbers)
        return np.arange(self._known[key], self._known[key] + numbers.size).reshape(numbers.shape)

    def constants_at(self, places: NDArray[np.int64]) -> NDArray[np.float32] | None:
        """Numbers at these places, or None where some are computed."""
        return np.concatenate(self._parts[CONSTANTS])[places - CONSTANTS] if (places >= CONSTANTS).all() else None

    def weights(self, matrix: NDArray[Any]) -> NDArray[np.int64]:
        """Places of a matrix (out, in) for `DENSE`; rows of zeros fill it up to a multiple of four."""
        rows = np.zeros((_multiple(len(matrix), 4), matrix.shape[1]), dtype=matrix.dtype)
        rows[: len(matrix)] = matrix
        start = self._append(WEIGHTS, rows)
        return np.arange(start, start + rows.size)

    def _append(self, base: int, numbers: NDArray[Any]) -> int:
        if numbers.dtype != np.float32:
            raise Unknown(f"numbers of type {numbers.dtype}")
        part = np.zeros(_aligned(numbers.size), dtype=np.float32)
        part[: numbers.size] = numbers.ravel()
        self._parts[base].append(part)
        self._sizes[base] += part.size
        return base + self._sizes[base] - part.size

    def emit(
        self, code: int, shape: Sequence[int], operands: Sequence[NDArray[np.int64]], **columns: int
    ) -> NDArray[np.int64]:
        """Append an instruction.

        Args:
            code: What it does.
            shape: Shape of the value that it computes.
            operands: Values for columns a, b, p, brought together where they are no runs.
            columns: Other columns by name.

        Returns:
            The value's places.
        """
        starts = [self._contiguous(operand) for operand in operands]
        self._operands += map(_Operand, starts, (operand.size for operand in operands))
        size = math.prod(shape)
        y, self._size = self._size, self._size + _aligned(size)
        row = dict(zip("abp", starts, strict=False)) | {"code": code, "n": size, "y": y} | columns
        self._table.append([row.get(column, 0) for column in COLUMNS])
        return np.arange(y, y + size).reshape(shape)

    def _contiguous(self, places: NDArray[np.int64]) -> int:
        """Start of a run of these numbers; makes one, which all that want the same places share."""
        flat = places.ravel()
        if not flat.size:
            raise Unknown("a value without numbers")
        if (np.diff(flat) == 1).all():
            return int(flat[0])
        numbers = self.constants_at(flat)
        if numbers is not None:
            return int(self.constant(numbers)[0])
        key = flat.tobytes()
        if key not in self._gathered:
            run = int(np.argmax(np.append(flat, -1) != flat[0]))
            if run > 1 and flat.size % run == 0 and (flat.reshape(-1, run) == flat[::run, None]).all():
                made = self.emit(REPEAT, flat.shape, [flat[::run]], p=run)
            else:
                made = self.emit(GATHER, flat.shape, [], b=len(self._indices))
                self._indices += flat.tolist()
            self._gathered[key] = int(made[0])
        return self._gathered[key]

    def build(self, action: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """End the program with its result; returns table, indices and memory for `run_rows_into`."""
        start = self._contiguous(action)
        self._operands.append(_Operand(start, action.size))
        self._table.append([OUTPUT, action.size, 0, start, 0, 0, 0, 0])
        numbers = np.concatenate(
            [np.zeros(self._size, dtype=np.float32), *self._parts[CONSTANTS], *self._parts[WEIGHTS]]
        )
        raw = np.empty(numbers.size + _LINE, dtype=np.float32)
        first = -(raw.ctypes.data // raw.itemsize) % _LINE
        memory = raw[first : first + numbers.size]
        memory[:] = numbers
        table = self._final(np.array(self._table))
        indices = self._final(np.array([0, *self._indices]))[1:]
        starts, sizes = self._final(np.array(self._operands)).T
        written = table[:-1, 2]
        assert (written >= self._obs_width).all(), "an instruction writes into the observation"
        assert (written + table[:-1, 1] <= self._size).all(), "an instruction writes into the constants"
        assert (starts >= 0).all(), "an operand starts before the memory"
        assert (starts + sizes <= memory.size).all(), "an operand ends after the memory"
        assert ((indices >= 0) & (indices < memory.size)).all(), "an index lies outside the memory"
        return table, indices, memory

    def _final(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places in the built memory; what is no place is smaller than `CONSTANTS` and stays."""
        first = self._size
        places = np.where(places >= WEIGHTS, places - WEIGHTS + first + self._sizes[CONSTANTS], places)
        return np.where(places >= CONSTANTS, places - CONSTANTS + first, places)


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def _aligned(size: int) -> int:
    return _multiple(size, _LINE)
