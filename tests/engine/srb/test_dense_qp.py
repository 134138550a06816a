"""The dense QP: right answers, refused inputs, and no answer where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import InputError
from engine.srb.dense_qp import SYMMETRY_NOTE, solve_dense_qp

INF = float("inf")
NAN = float("nan")


def test_random_problems_satisfy_their_optimality_conditions():
    rng = np.random.default_rng(0)
    for _ in range(60):
        n, m = rng.integers(1, 8), rng.integers(0, 10)
        B = rng.normal(size=(n, n))
        A, middle = rng.normal(size=(m, n)), rng.normal(size=n)
        width = rng.choice([0.0, 1.0, INF], m, p=[0.1, 0.6, 0.3])
        center = A @ middle
        solution = solve_dense_qp(B @ B.T, rng.normal(size=n), A, center - width, center + rng.choice([1.0, INF], m))
        assert solution.status in ("solved", "unbounded")
        if solution.status == "solved":
            assert solution.x is not None
            assert solution.residuals is not None
            assert max(solution.residuals) < 1e-6


@pytest.mark.parametrize(
    ("arguments", "x"),
    [
        (([[2.0]], [-2.0]), [1.0]),
        (([[2, 0], [0, 2]], [-2, -4], [[1, 0], [0, 1]], [0, 0], [0.5, None]), [0.5, 2.0]),
        (([[2, 0], [0, 2]], [0, 0], [[1, 1]], [1], [1]), [0.5, 0.5]),
        (([[2, 0], [0, 2]], [-2, -2], [[1, 0]], None, [0.25]), [0.25, 1.0]),
        (([[1, 0], [0, 0]], [-1, 0], [[0, 1]], [3], [3]), [1.0, 3.0]),
        (([[0, 0], [0, 0]], [1, 1], [[1, 0], [0, 1]], [-1, -2], [1, 1]), [-1.0, -2.0]),
        (([[1e8, 0], [0, 1e-4]], [-1e8, -1e-4], [[1, 0], [0, 1]], [-10, -10], [10, 10]), [1.0, 1.0]),
        (([[2, 0], [0, 2]], [-2, -4], [], [], []), [1.0, 2.0]),
    ],
)
def test_known_solutions(arguments, x):
    solution = solve_dense_qp(*arguments)
    assert solution.status == "solved"
    assert solution.x is not None
    np.testing.assert_allclose(solution.x, x, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[1, 0], [0, NAN]], [0, 0]), ["P", "nan", "[1, 1]"]),
        (([[1, 0], [0, INF]], [0, 0]), ["P", "inf"]),
        (([[1, 0]], [0, 0]), ["P", "(1, 2)", "(2, 2)"]),
        (([[1, 0], [0]], [0, 0]), ["P"]),
        (([["a"]], [0]), ["P", "a"]),
        ((None, [0]), ["P"]),
        (([[1]], [NAN]), ["q", "nan"]),
        (([[1]], []), ["q"]),
        (([[1]], None), ["q"]),
        (([[-1]], [0]), ["P", "-1"]),
        (([[0, 1], [1, 0]], [0, 0]), ["P", "-1"]),
        (([[1]], [0], [[1, 2]], [0], [1]), ["A", "(1, 2)"]),
        (([[1]], [0], [[NAN]], [0], [1]), ["A", "nan"]),
        (([[1]], [0], [[1]], [0, 1], [1, 1]), ["l", "found 2", "expected 1"]),
        (([[1]], [0], [[1]], [NAN], [1]), ["row 0", "l", "nan"]),
        (([[1]], [0], [[1], [1]], [0, 0], [1, NAN]), ["row 1", "u", "nan"]),
        (([[1]], [0], [[1], [1]], [0, 2], [1, 1]), ["row 1", "2", "1"]),
        (([[1]], [0], [[1]], [INF], [INF]), ["row 0", "inf"]),
        (([[1]], [0], [[1]], [-INF], [-INF]), ["row 0", "inf"]),
        (([[1]], [0], None, [0], None), ["A", "missing"]),
    ],
)
def test_bad_input_is_named_before_any_solver(arguments, words):
    with pytest.raises(InputError) as caught:
        solve_dense_qp(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_infeasible_and_unbounded_problems_have_a_status_and_no_x():
    infeasible = solve_dense_qp([[2, 0], [0, 2]], [0, 0], [[1, 0], [1, 0]], [1, None], [None, 0])
    assert (infeasible.status, infeasible.x, infeasible.objective) == ("infeasible", None, None)
    equalities = solve_dense_qp([[1.0]], [0.0], [[1], [1]], [0, 1], [0, 1])
    assert (equalities.status, equalities.x) == ("infeasible", None)
    for unbounded in (
        solve_dense_qp([[0.0]], [1.0]),
        solve_dense_qp([[0.0]], [1.0], [[1.0]], [None], [5.0]),
    ):
        assert (unbounded.status, unbounded.x) == ("unbounded", None)


def test_symmetric_part_of_P_is_used_and_noted():
    solution = solve_dense_qp([[2, 1], [0, 2]], [-1, -1], [[1, 0], [0, 1]], [0, 0], [9, 9])
    assert solution.x is not None
    np.testing.assert_allclose(solution.x, [0.4, 0.4], atol=1e-8)
    assert solution.notes == (SYMMETRY_NOTE,)
    assert solve_dense_qp([[2, 0.5], [0.5, 2]], [-1, -1]).notes == ()


@pytest.mark.parametrize("size", [1e-8, 1e-3, 1e6, 1e10])
def test_scale_of_the_cost_does_not_matter(size):
    solution = solve_dense_qp([[2 * size, 0], [0, size]], [-2 * size, -4 * size], [[1, 1]], [None], [3.0])
    assert solution.status == "solved"
    assert solution.x is not None
    np.testing.assert_allclose(solution.x, [1 / 3, 8 / 3], rtol=1e-5)
