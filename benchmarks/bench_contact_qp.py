"""The contact-force QP alone: six-dimensional dual Newton against general QP solvers, in one run.

Group ``contact QP, walk``: a 120 Hz walk, 20 % double and 80 % single stance, solved in order (the Newton kernel warm,
as in the simulation). Groups ``cold double`` and ``saturated double``: independent states on both feet. Times are of a
pass over all problems; ``calls`` divides them. Our answers must all be right; a peer's wrong ones (the wanted wrench
missed by more than its tolerance, say "infeasible" where zero force is feasible) are counted in the row's note.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from benchmarks.contact_states import ContactBatch, random_state, stack, walk
from engine.srb.dual_newton import MAX_CONTACTS, QP_SOLVED, make_workspace, solve_contact_qp
from engine.srb.force_qp import ForceQP
from engine.srb.qp import solve_qp
from engine.srb.qp_clarabel import cone_rows

PROBLEMS = 200
SETS = ("walk", "cold double", "saturated double")
WRONG_PEER_SHARE = 0.05
Solver = Callable[[int], np.ndarray]


@cache
def problem_set(name: str) -> list[ForceQP]:
    """The problems of a group."""
    rng = np.random.default_rng(1)
    if name == "walk":
        return walk(PROBLEMS, rng)
    return [random_state(rng, 2, name.startswith("saturated")) for _ in range(PROBLEMS)]


@cache
def reference(name: str) -> list[np.ndarray]:
    """Scaled contact wrenches by the Newton solver from Python, each proven by its residuals."""
    wrenches = []
    for problem in problem_set(name):
        solution = solve_qp(problem)
        assert solution.correct
        wrenches.append(problem.b - problem.ridge * solution.dual)
    return wrenches


@njit(cache=True, error_model="numpy")
def solve_all(A, counts, b, mu, fmax, ridge, warm, u, forces, work):
    """Solve a batch in order inside compiled code; returns the number of failures and Newton steps."""
    failures = 0
    steps = 0
    for k in range(len(counts)):
        if not warm:
            u[:] = 0.0
        code, iterations, _ = solve_contact_qp(A[k], counts[k], b[k], mu[k], fmax[k], ridge, u, forces[k], work)
        steps += iterations
        if code != QP_SOLVED:
            failures += 1
    return failures, steps


def count_wrong(name: str, forces: list[np.ndarray], tolerance: float) -> int:
    """Number of problems whose scaled wrench is not within ``tolerance`` of the proven one, relative to the wanted."""
    wrong = 0
    for problem, f, wrench in zip(problem_set(name), forces, reference(name), strict=True):
        error = np.linalg.norm(problem.A @ f[: problem.A.shape[1]] - wrench)
        wrong += not error <= tolerance * max(1.0, float(np.linalg.norm(problem.b)))
    return wrong


def describe(benchmark, name: str, row: str, note: str) -> None:
    """Fill the extra information of a row."""
    contacts = float(np.mean([problem.n_contacts for problem in problem_set(name)]))
    benchmark.group = f"contact QP, {name}"
    benchmark.extra_info.update(
        row=row, method=row, calls=PROBLEMS, n_characters=1, contacts=round(contacts, 2), threads=1, note=note
    )


@pytest.mark.parametrize("name", SETS)
def test_newton_in_kernel(benchmark, name):
    batch = stack(problem_set(name))
    u, forces, work = np.zeros(6), np.zeros((PROBLEMS, 3 * MAX_CONTACTS)), make_workspace()
    warm = name == "walk"

    def run() -> tuple[int, int]:
        u[:] = 0.0
        return solve_all(batch.A, batch.n_contacts, batch.b, batch.mu, batch.fmax, batch.ridge, warm, u, forces, work)

    run()
    failures, steps = benchmark(run)
    assert failures == 0
    assert count_wrong(name, list(forces), 1e-8) == 0
    start = "warm" if warm else "cold"
    describe(benchmark, name, f"Newton dual, {start}, compiled loop", f"{steps / PROBLEMS:.2f} Newton steps a solve")


@pytest.mark.parametrize("name", SETS)
def test_newton_from_python(benchmark, name):
    batch: ContactBatch = stack(problem_set(name))
    u, forces, work = np.zeros(6), np.zeros((PROBLEMS, 3 * MAX_CONTACTS)), make_workspace()
    warm = name == "walk"
    rows = [
        (batch.A[k], int(batch.n_contacts[k]), batch.b[k], batch.mu[k], batch.fmax[k], batch.ridge, u, forces[k], work)
        for k in range(PROBLEMS)
    ]

    def run() -> int:
        failures = 0
        u[:] = 0.0
        for row in rows:
            if not warm:
                u[:] = 0.0
            failures += solve_contact_qp(*row)[0] != QP_SOLVED
        return failures

    run()
    assert benchmark(run) == 0
    assert count_wrong(name, list(forces), 1e-8) == 0
    start = "warm" if warm else "cold"
    describe(benchmark, name, f"Newton dual, {start}, called from Python", "one call a solve")


def _dense(problem: ForceQP) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    P = problem.A.T @ problem.A + problem.ridge * np.eye(problem.A.shape[1])
    return P, -problem.A.T @ problem.b, *cone_rows(problem)


def clarabel_rebuilt(problems: list[ForceQP]) -> Solver:
    clarabel = pytest.importorskip("clarabel")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    data = []
    for problem in problems:
        P, q, G, h = _dense(problem)
        data.append((sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(G), h, [clarabel.NonnegativeConeT(len(h))]))
    return lambda k: np.array(clarabel.DefaultSolver(*data[k], settings).solve().x)


def clarabel_updated(problems: list[ForceQP]) -> Solver:
    """One Clarabel solver for each number of contacts; only the numbers are exchanged."""
    clarabel = pytest.importorskip("clarabel")
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.presolve_enable = False
    data, solvers = [], {}
    for problem in problems:
        P, q, G, h = _dense(problem)
        upper = np.tril(np.ones(P.shape, dtype=bool))  # all of the upper triangle, column by column
        values, G = P.T[upper], sp.csc_matrix(G)
        if problem.n_contacts not in solvers:
            full = sp.csc_matrix(np.triu(np.ones_like(P)))
            full.data = values.copy()
            cones = [clarabel.NonnegativeConeT(len(h))]
            solvers[problem.n_contacts] = clarabel.DefaultSolver(full, q, G, h, cones, settings)
        data.append((values, q, G.data, h, problem.n_contacts))

    def solve(k: int) -> np.ndarray:
        values, q, rows, h, n = data[k]
        solvers[n].update(P=values, q=q, A=rows, b=h)
        return np.array(solvers[n].solve().x)

    return solve


def daqp_cold(problems: list[ForceQP]) -> Solver:
    daqp = pytest.importorskip("daqp")
    data = []
    for problem in problems:
        P, q, G, h = _dense(problem)
        data.append((P, q, G, h, np.full(len(h), -1e30), np.zeros(len(h), np.int32)))
    return lambda k: daqp.solve(*data[k])[0]


def proxqp_updated(problems: list[ForceQP]) -> Solver:
    proxsuite = pytest.importorskip("proxsuite")
    data, solvers = [], {}
    for problem in problems:
        P, q, G, h = _dense(problem)
        low = np.full(len(h), -1e20)
        data.append((P, q, G, low, h, problem.n_contacts))
        if problem.n_contacts not in solvers:
            solver = proxsuite.proxqp.dense.QP(len(q), 0, len(h))
            solver.settings.eps_abs = 1e-7
            solver.init(P, q, None, None, G, low, h)
            solvers[problem.n_contacts] = solver

    def solve(k: int) -> np.ndarray:
        P, q, G, low, h, n = data[k]
        solvers[n].update(H=P, g=q, C=G, l=low, u=h)
        solvers[n].solve()
        return np.array(solvers[n].results.x)

    return solve


def osqp_rebuilt(problems: list[ForceQP]) -> Solver:
    osqp = pytest.importorskip("osqp")
    data = []
    for problem in problems:
        P, q, G, h = _dense(problem)
        data.append((sp.csc_matrix(np.triu(P)), q, sp.csc_matrix(G), np.full(len(h), -np.inf), h))

    def solve(k: int) -> np.ndarray:
        solver = osqp.OSQP()
        solver.setup(*data[k], verbose=False, eps_abs=1e-7, eps_rel=1e-7, polishing=True, max_iter=20000)
        return np.array(solver.solve(raise_error=False).x)

    return solve


PEERS = {
    "Clarabel, rebuilt": (clarabel_rebuilt, 1e-3, "default tolerances"),
    "Clarabel, updated": (clarabel_updated, 1e-3, "default tolerances, presolve off"),
    "DAQP": (daqp_cold, 1e-6, "default tolerances"),
    "ProxQP, updated": (proxqp_updated, 1e-2, "eps_abs 1e-7, warm start"),
    "OSQP, rebuilt": (osqp_rebuilt, 1e-3, "1e-7, polished"),
}


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", SETS)
def test_peer(benchmark, name, peer):
    make, tolerance, note = PEERS[peer]
    problems = problem_set(name)
    solve = make(problems)
    forces = benchmark.pedantic(lambda: [solve(k) for k in range(PROBLEMS)], rounds=3, warmup_rounds=1)
    wrong = count_wrong(name, forces, tolerance)
    assert wrong <= WRONG_PEER_SHARE * PROBLEMS
    describe(benchmark, name, peer, f"{note}; {wrong} of {PROBLEMS} wrong" if wrong else note)
