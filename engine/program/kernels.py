"""The small machine that runs a policy program (`engine.program.compiler`): one kernel for every policy, no compilation
of its own for any of them.

A program is a table of instructions over one float32 memory ``[values | constants | weights]``. A row of the table is
``code, n, y, a, b, p, q, r``: what to do, how many numbers to write, where to, and where the operands start. Operands
are contiguous: a compiler that wants anything else puts `GATHER` or `REPEAT` in front. Only `DENSE` may sum in another
order than written (``reassoc``), which a SIMD reduction needs; numbers that are not finite keep their meaning.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from engine.srb.frames import NJIT

COLUMNS = ("code", "n", "y", "a", "b", "p", "q", "r")
"""Numbers of an instruction."""

(
    OUTPUT,  # action = memory[a : a + n]
    GATHER,  # y[i] = memory[indices[b + i]]
    REPEAT,  # y[i] = a[i // p]
    DENSE,  # y = W a + bias; W at b, row after row, n a multiple of 4; bias at p; q numbers in a
    MATMUL,  # y = a b for matrices (p, q) and (q, r), as many as fill y
    SUM,  # y[o, i] = sum_k a[o, k, i]; p numbers along k, q along i
    SOFTMAX,  # over groups of p numbers
    CLIP,  # between memory[b] and memory[p]
    ELU,  # memory[b] is alpha
    ADD,
    SUB,
    MUL,
    DIV,
    MIN,
    MAX,
    NEG,
    ABS,
    SQRT,
    RECIPROCAL,
    EXP,
    LOG,
    SIN,
    COS,
    ATAN,
    TANH,
    SIGMOID,
    RELU,
) = range(27)

_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)
_LOG2_E, _LN2_HIGH, _LN2_LOW = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.12194440e-4)
_E2, _E3, _E4 = np.float32(5.0000001201e-1), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_E5, _E6, _E7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
_EXP_LOW = np.float32(-87.0)


@njit(fastmath={"reassoc", "nsz", "contract"}, **NJIT)
def _dense(y, w, x, bias):
    """y = W x + bias, four rows at a time: each number of x is loaded once for four products."""
    k = x.shape[0]
    for j in range(0, y.shape[0], 4):
        w0, w1 = w[j * k : j * k + k], w[j * k + k : j * k + 2 * k]
        w2, w3 = w[j * k + 2 * k : j * k + 3 * k], w[j * k + 3 * k : j * k + 4 * k]
        s0 = s1 = s2 = s3 = _ZERO
        for i in range(k):
            v = x[i]
            s0 += w0[i] * v
            s1 += w1[i] * v
            s2 += w2[i] * v
            s3 += w3[i] * v
        y[j] = s0 + bias[j]
        y[j + 1] = s1 + bias[j + 1]
        y[j + 2] = s2 + bias[j + 2]
        y[j + 3] = s3 + bias[j + 3]


@njit(**NJIT)
def _matmul(y, a, b, rows, inner, columns):
    for g in range(y.shape[0] // (rows * columns)):
        bg = b[g * inner * columns : (g + 1) * inner * columns]
        for i in range(rows):
            ai = a[(g * rows + i) * inner : (g * rows + i + 1) * inner]
            yi = y[(g * rows + i) * columns : (g * rows + i + 1) * columns]
            for j in range(columns):
                s = ai[0] * bg[j]
                for k in range(1, inner):
                    s += ai[k] * bg[k * columns + j]
                yi[j] = s


@njit(**NJIT)
def _sum(y, a, count, inner):
    for o in range(y.shape[0] // inner):
        yo = y[o * inner : (o + 1) * inner]
        yo[:] = _ZERO
        for k in range(count):
            ak = a[(o * count + k) * inner : (o * count + k + 1) * inner]
            for i in range(inner):
                yo[i] += ak[i]


@njit(**NJIT)
def _softmax(y, a, width):
    for o in range(0, y.shape[0], width):
        top = a[o]
        for i in range(o + 1, o + width):
            if a[i] > top:
                top = a[i]
        total = _ZERO
        for i in range(o, o + width):
            y[i] = math.exp(a[i] - top)
            total += y[i]
        for i in range(o, o + width):
            y[i] /= total


@njit(**NJIT)
def _elu(y, a, alpha, bits):
    """``a`` where positive, else ``alpha (exp(a) - 1)``; exp by Cephes' polynomial, without a branch, so it is SIMD.

    ``bits`` are those of ``y``: they hold ``2^k`` of ``exp(a) = 2^k exp(a - k ln 2)`` between the two loops.
    """
    n = y.shape[0]
    for i in range(n):
        x = a[i] if a[i] > _EXP_LOW else _EXP_LOW
        x = x if x < _ZERO else _ZERO
        bits[i] = (np.int32(np.floor(x * _LOG2_E + _HALF)) + np.int32(127)) << np.int32(23)
    for i in range(n):
        x = a[i] if a[i] > _EXP_LOW else _EXP_LOW
        x = x if x < _ZERO else _ZERO
        k = np.floor(x * _LOG2_E + _HALF)
        f = x - k * _LN2_HIGH - k * _LN2_LOW
        poly = ((((_E7 * f + _E6) * f + _E5) * f + _E4) * f + _E3) * f + _E2
        below = alpha * (y[i] * (poly * f * f + f + _ONE) - _ONE)
        y[i] = below if a[i] < _ZERO else a[i]


@njit(**NJIT)
def _binary(code, y, a, b):
    n = y.shape[0]
    if code == ADD:
        for i in range(n):
            y[i] = a[i] + b[i]
    elif code == SUB:
        for i in range(n):
            y[i] = a[i] - b[i]
    elif code == MUL:
        for i in range(n):
            y[i] = a[i] * b[i]
    elif code == DIV:
        for i in range(n):
            y[i] = a[i] / b[i]
    elif code == MIN:
        for i in range(n):
            y[i] = a[i] if a[i] < b[i] or a[i] != a[i] else b[i]
    else:
        for i in range(n):
            y[i] = a[i] if a[i] > b[i] or a[i] != a[i] else b[i]


@njit(**NJIT)
def _unary(code, y, a):
    n = y.shape[0]
    if code == NEG:
        for i in range(n):
            y[i] = -a[i]
    elif code == ABS:
        for i in range(n):
            y[i] = abs(a[i])
    elif code == SQRT:
        for i in range(n):
            y[i] = math.sqrt(a[i])
    elif code == RECIPROCAL:
        for i in range(n):
            y[i] = _ONE / a[i]
    elif code == EXP:
        for i in range(n):
            y[i] = math.exp(a[i])
    elif code == LOG:
        for i in range(n):
            y[i] = math.log(a[i])
    elif code == SIN:
        for i in range(n):
            y[i] = math.sin(a[i])
    elif code == COS:
        for i in range(n):
            y[i] = math.cos(a[i])
    elif code == ATAN:
        for i in range(n):
            y[i] = math.atan(a[i])
    elif code == TANH:
        for i in range(n):
            y[i] = math.tanh(a[i])
    elif code == SIGMOID:
        for i in range(n):
            y[i] = _ONE / (_ONE + math.exp(-a[i]))
    else:
        for i in range(n):
            y[i] = _ZERO if a[i] < _ZERO else a[i]


@njit(**NJIT)
def run_rows_into(out, obs, table, indices, memory, width):
    """Run a program for each row.

    Args:
        out: Receives the action rows, float32, C-contiguous, shape (n, A).
        obs: Observation rows, float32, C-contiguous, shape (n, O); go to ``memory[:O]``.
        table: Instructions, int64, shape (m, 8); the last one, and only it, is `OUTPUT`. Every place it names must lie
            in the arrays: nothing is checked here.
        indices: Places in the memory for `GATHER`, int64, flat.
        memory: Values, constants and weights, float32, flat; the values are overwritten.
        width: O.

    Raises:
        ValueError: ``out`` or ``obs`` has another shape.
    """
    if obs.shape[1] != width or out.shape[1] != table[-1, 1] or out.shape[0] != obs.shape[0]:
        raise ValueError("rows of another width or number than the program's")
    bits = memory.view(np.int32)
    for row in range(obs.shape[0]):
        memory[: obs.shape[1]] = obs[row]
        for t in range(table.shape[0]):
            code, n, at, a, b = table[t, 0], table[t, 1], table[t, 2], table[t, 3], table[t, 4]
            p, q, r = table[t, 5], table[t, 6], table[t, 7]
            y = memory[at : at + n]
            if code >= NEG:
                _unary(code, y, memory[a : a + n])
            elif code >= ADD:
                _binary(code, y, memory[a : a + n], memory[b : b + n])
            elif code == GATHER:
                places = indices[b : b + n]
                for i in range(n):
                    y[i] = memory[places[i]]
            elif code == REPEAT:
                for i in range(n // p):
                    y[i * p : (i + 1) * p] = memory[a + i]
            elif code == DENSE:
                _dense(y, memory[b : b + n * q], memory[a : a + q], memory[p : p + n])
            elif code == MATMUL:
                count = n // (p * r)
                _matmul(y, memory[a : a + count * p * q], memory[b : b + count * q * r], p, q, r)
            elif code == SUM:
                _sum(y, memory[a : a + n * p], p, q)
            elif code == SOFTMAX:
                _softmax(y, memory[a : a + n], p)
            elif code == ELU:
                _elu(y, memory[a : a + n], memory[b], bits[at : at + n])
            elif code == CLIP:
                low, high = memory[b], memory[p]
                x = memory[a : a + n]
                for i in range(n):
                    v = low if x[i] < low else x[i]
                    y[i] = high if v > high else v
            else:
                out[row] = memory[a : a + n]
