"""The contact-force QP: optimality on random states, agreement with other solvers, warm starts, bad data."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.contact_states import ContactBatch, random_state, stack, walk
from engine.errors import InputError
from engine.srb.force_qp import ForceQP, build_force_qp
from engine.srb.qp import (
    MAX_CONTACTS,
    MAX_GENERATORS,
    QP_BAD_INPUT,
    QP_MAX_ITERATIONS,
    QP_SOLVED,
    dual_hessian_into,
    make_workspace,
    projection_jacobians_into,
    solve_contact_qp,
    solve_generator_qp,
    solve_qp,
)
from engine.srb.qp_clarabel import cone_rows, solve_with_clarabel

RIDGES = (1e-2, 1e-3, 1e-4, 1e-6)


def _states(count: int, seed: int, ridge: float = 1e-3, cone: str = "pyramid") -> list[ForceQP]:
    """Single and double stance in turn, every second pair saturated."""
    rng = np.random.default_rng(seed)
    return [random_state(rng, 1 + k % 2, k % 4 > 1, ridge, cone) for k in range(count)]


def _kernel(batch: ContactBatch, k: int, u: np.ndarray) -> tuple[int, int, float, np.ndarray]:
    f = np.zeros(3 * MAX_CONTACTS)
    code, iterations, residual = solve_contact_qp(
        batch.A[k], batch.n_contacts[k], batch.b[k], batch.mu[k], batch.fmax[k], batch.ridge, u, f, make_workspace()
    )
    return code, iterations, residual, f


@pytest.mark.parametrize("ridge", RIDGES)
def test_kkt_conditions_hold_on_random_states(ridge):
    saturated = 0
    for problem in _states(400, 0, ridge):
        solution = solve_qp(problem)
        assert solution.status == "solved"
        assert solution.correct
        assert solution.residuals.stationarity < (1e-8 if ridge > 1e-5 else 1e-7)  # the dual grows as 1 / ridge
        assert solution.residuals.cone_violation == 0.0
        assert solution.residuals.complementarity < 1e-7
        f = np.linalg.solve(problem.basis_w.reshape(-1, 3, 3).transpose(0, 2, 1), solution.force[:, :, None])[:, :, 0]
        saturated += np.count_nonzero(f[:, 2] / problem.scale_n >= problem.fmax * (1 - 1e-12))
    assert saturated > 50  # caps were met


def test_dual_gives_the_achieved_wrench():
    for problem in _states(40, 1):
        solution = solve_qp(problem)
        root = np.sqrt([1.0, 1.0, 1.0, 10.0, 10.0, 10.0])
        achieved = (problem.b - problem.ridge * solution.dual) * problem.scale_n / root
        np.testing.assert_allclose(solution.wrench, achieved, rtol=0, atol=1e-8 * problem.scale_n)


@pytest.mark.parametrize("ridge", [1e-2, 1e-3, 1e-4])
def test_forces_agree_with_clarabel(ridge):
    for problem in _states(60, 2, ridge):
        ours, reference = solve_qp(problem), solve_qp(problem, "clarabel")
        size = max(float(np.linalg.norm(reference.force)), 1e-3 * problem.scale_n)
        assert np.linalg.norm(ours.force - reference.force) <= 1e-6 * size
        assert ours.objective <= reference.objective * (1 + 1e-12)


def test_forces_agree_with_daqp():
    daqp = pytest.importorskip("daqp")
    for problem in _states(100, 3):
        G, h = cone_rows(problem)
        P = problem.A.T @ problem.A + problem.ridge * np.eye(problem.A.shape[1])
        q = -problem.A.T @ problem.b
        x, _, flag, _ = daqp.solve(P, q, G, h, np.full(len(h), -1e30), np.zeros(len(h), np.int32))
        assert flag == 1
        ours = solve_qp(problem)
        force = (x[:, None] * problem.basis_w).reshape(-1, 3, 3).sum(axis=1) * problem.scale_n
        assert np.linalg.norm(ours.force - force) <= 1e-6 * max(np.linalg.norm(force), 1e-3 * problem.scale_n)


def test_warm_start_gives_the_cold_answer_in_fewer_iterations_along_a_walk():
    problems = walk(480, np.random.default_rng(4))
    warm, warm_iterations, cold_iterations = None, 0, 0
    for problem in problems:
        cold = solve_qp(problem)
        warm = solve_qp(problem, warm=warm)
        assert warm.correct
        np.testing.assert_allclose(warm.force, cold.force, rtol=0, atol=1e-8 * problem.scale_n)
        warm_iterations += warm.iterations
        cold_iterations += cold.iterations
    assert warm_iterations < 0.6 * cold_iterations


def test_warm_start_from_anywhere_gives_the_same_answer():
    rng = np.random.default_rng(5)
    for problem in _states(60, 5):
        cold = solve_qp(problem)
        for size in (1.0, 1e3, 1e6):
            far = solve_qp(problem, warm=rng.normal(0.0, size, 6))
            assert far.status == "solved"
            np.testing.assert_allclose(far.force, cold.force, rtol=0, atol=1e-8 * problem.scale_n)
        again = solve_qp(problem, warm=cold)
        assert again.iterations <= 1


def test_a_start_that_is_not_finite_is_passed_over():
    problem = _states(1, 6)[0]
    cold = solve_qp(problem)
    for bad in (np.nan, np.inf, 1e200):
        warm = solve_qp(problem, warm=np.full(6, bad))
        assert warm.status == "solved"
        np.testing.assert_allclose(warm.force, cold.force, rtol=0, atol=1e-8 * problem.scale_n)


@pytest.mark.parametrize("saturated", [False, True])
@pytest.mark.parametrize("ridge", RIDGES)
def test_iterations_are_bounded(saturated, ridge):
    rng = np.random.default_rng(7)
    most = 0
    for k in range(400):
        solution = solve_qp(random_state(rng, 1 + k % 2, saturated, ridge))
        assert solution.status == "solved"
        most = max(most, solution.iterations)
    assert most <= 100


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field in ("A", "b", "mu", "fmax", "eps")
        for value in (np.nan, np.inf, -np.inf, -1.0)
        if (field, value) not in (("A", -1.0), ("b", -1.0), ("fmax", np.inf))  # legal numbers there
    ],
)
def test_bad_numbers_give_a_status_and_zero_force(field, value):
    batch = stack(_states(4, 8))
    for k in range(4):
        A, b, mu, fmax = (np.copy(a[k]) for a in (batch.A, batch.b, batch.mu, batch.fmax))
        eps = value if field == "eps" else batch.ridge
        if field == "A":
            A[3, 2 * k] = value
        elif field != "eps":
            {"b": b, "mu": mu, "fmax": fmax}[field][k] = value
        u, f = np.ones(6), np.ones(3 * MAX_CONTACTS)
        n = int(batch.n_contacts[k])
        code, iterations, _ = solve_contact_qp(A, n, b, mu, fmax, eps, u, f, make_workspace())
        assert code == QP_BAD_INPUT
        assert iterations == 0
        assert np.all(f[: 3 * n] == 0.0)
        assert np.all(u == 0.0)


def test_counts_outside_the_arrays_are_refused():
    batch = stack(_states(2, 9))
    for n in (-1, MAX_CONTACTS + 1, 10**6):
        u, f = np.zeros(6), np.zeros(3 * MAX_CONTACTS)
        arguments = (batch.b[0], batch.mu[0], batch.fmax[0], 1e-3, u, f, make_workspace())
        assert solve_contact_qp(batch.A[0], n, *arguments)[0] == QP_BAD_INPUT
        assert solve_generator_qp(batch.A[0], 4 * n, batch.b[0], 1e-3, u, f, make_workspace())[0] == QP_BAD_INPUT
    assert solve_contact_qp(batch.A[0], 5, *arguments[:-1], np.zeros(20))[0] == QP_BAD_INPUT


def test_no_contact_leaves_dual_and_force_alone():
    u, f = np.arange(6.0), np.arange(3.0 * MAX_CONTACTS)
    zero = np.zeros(MAX_CONTACTS)
    result = solve_contact_qp(np.zeros((6, 30)), 0, np.ones(6), zero, zero, 1e-3, u, f, make_workspace())
    assert result == (QP_SOLVED, 0, 0.0)
    np.testing.assert_array_equal(u, np.arange(6.0))
    np.testing.assert_array_equal(f, np.arange(3.0 * MAX_CONTACTS))


def test_extreme_scales_end_with_a_status_and_forces_inside_the_cone():
    batch = stack(_states(8, 10))
    codes = set()
    for k in range(8):
        for size in (1e-150, 1e-12, 1e-6, 1e6, 1e12, 1e150):
            for eps in (1e-300, 1e-12, 1.0, 1e300):
                u, f = np.zeros(6), np.zeros(3 * MAX_CONTACTS)
                n = int(batch.n_contacts[k])
                A = size * batch.A[k]
                args = (batch.b[k], batch.mu[k], batch.fmax[k], eps, u, f, make_workspace())
                code, iterations, _ = solve_contact_qp(A, n, *args)
                codes.add(code)
                assert iterations < 20_000
                force = f[: 3 * n].reshape(n, 3)
                assert np.all(np.isfinite(force))
                assert np.all(np.abs(force[:, :2]) <= batch.mu[k, :n, None] * force[:, 2:])
                assert np.all((force[:, 2] >= 0.0) & (force[:, 2] <= batch.fmax[k, :n]))
    assert codes <= {QP_SOLVED, QP_MAX_ITERATIONS, QP_BAD_INPUT}


def test_generator_form_agrees_with_clarabel():
    for problem in _states(80, 11, 1e-3, "edges"):
        ours = solve_qp(problem)
        assert ours.status == "solved"
        assert ours.correct
        f, _, _ = solve_with_clarabel(problem)
        reference = (f[:, None] * problem.basis_w).reshape(-1, 4, 3).sum(axis=1) * problem.scale_n
        size = max(float(np.linalg.norm(reference)), 1e-3 * problem.scale_n)
        assert np.linalg.norm(ours.force - reference) <= 1e-6 * size


@pytest.mark.parametrize("w", [1e-3, 1e-5])
def test_generator_form_obeys_the_dual_identity(w):
    """``lambda = max(0, A^T u)``, ``A lambda = d - w u``, and ``dq/dd = I - (I + A_S A_S^T / w)^-1``."""
    rng = np.random.default_rng(12)
    A = np.zeros((6, MAX_GENERATORS))
    for problem in _states(20, 12, w, "edges"):
        n = problem.A.shape[1]
        A[:, :n] = problem.A
        d = problem.b
        u, f, work = np.zeros(6), np.zeros(MAX_GENERATORS), make_workspace()
        code, _, _ = solve_generator_qp(A, n, d, w, u, f, work)
        assert code == QP_SOLVED
        np.testing.assert_allclose(f[:n], np.maximum(0.0, A[:, :n].T @ u), rtol=0, atol=1e-9)
        np.testing.assert_allclose(A[:, :n] @ f[:n], d - w * u, rtol=0, atol=1e-9)
        active = A[:, :n][:, f[:n] > 0.0]
        derivative = np.eye(6) - np.linalg.inv(np.eye(6) + active @ active.T / w)
        direction = rng.normal(size=6)
        step = 1e-7
        up, down = u.copy(), u.copy()
        solve_generator_qp(A, n, d + step * direction, w, up, f, work)
        solve_generator_qp(A, n, d - step * direction, w, down, f, work)
        difference = direction - w * (up - down) / (2 * step)
        np.testing.assert_allclose(derivative @ direction, difference, rtol=0, atol=1e-4)


def test_solution_derivative_from_the_jacobian_blocks_matches_finite_differences():
    batch = stack(_states(40, 13))
    rng = np.random.default_rng(13)
    blocks, H = np.zeros((MAX_CONTACTS, 3, 3)), np.zeros((6, 6))
    close = 0
    for k in range(40):
        n = int(batch.n_contacts[k])
        u = np.zeros(6)
        _, _, _, f = _kernel(batch, k, u)
        projection_jacobians_into(blocks, batch.A[k], n, batch.mu[k], batch.fmax[k], u)
        dual_hessian_into(H, batch.A[k], n, blocks, batch.ridge)
        db, dA = rng.normal(size=6), np.zeros_like(batch.A[k])
        dA[:, : 3 * n] = rng.normal(size=(6, 3 * n))
        P = np.zeros((3 * n, 3 * n))
        for i in range(n):
            P[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] = blocks[i]
        A, dA_n = batch.A[k][:, : 3 * n], dA[:, : 3 * n]
        du = np.linalg.solve(H, db - dA_n @ f[: 3 * n] - A @ (P @ (dA_n.T @ u)))
        df = P @ (dA_n.T @ u + A.T @ du)
        step = 1e-8
        moved = []
        for sign in (1.0, -1.0):
            other = np.zeros(3 * MAX_CONTACTS)
            solve_contact_qp(
                batch.A[k] + sign * step * dA, n, batch.b[k] + sign * step * db, batch.mu[k], batch.fmax[k],
                batch.ridge, u.copy(), other, make_workspace(),
            )  # fmt: skip
            moved.append(other[: 3 * n])
        difference = (moved[0] - moved[1]) / (2 * step)
        close += np.linalg.norm(df - difference) <= 1e-4 * (1.0 + np.linalg.norm(difference))
    assert close >= 38  # a kink may lie within a difference


def test_contact_problem_beyond_the_kernels_usual_size_is_solved():
    contacts = [{"point": (0.01 * i, 0.1 * (i % 3), 0.0), "normal": (0, 0, 1), "mu": 0.7} for i in range(60)]
    solution = solve_qp(build_force_qp(45.0, (0.3, 0.1, 0.9), (0, 0, -9.81), (10, 0, 0), (0, 0, 0), contacts))
    assert solution.status == "solved"
    np.testing.assert_allclose(solution.wrench[:3], (10.0, 0.0, 45 * 9.81), atol=1e-2)


def test_unknown_backend_and_wrong_warm_start_are_named():
    problem = _states(1, 14)[0]
    with pytest.raises(InputError, match=r"backend.*found 'qpoases'.*newton"):
        solve_qp(problem, "qpoases")
    with pytest.raises(InputError, match=r"warm.*found \(5,\).*\(6,\)"):
        solve_qp(problem, warm=np.zeros(5))
