"""Second back end of the contact-force QP: the interior-point solver Clarabel, as an independent reference.

Only the relative accuracy differs: at its default tolerances Clarabel's forces are right to about 1e-3 (the ridge makes
them flat, the wrench is better); at ``REFERENCE_TOLERANCE`` they agree with the Newton kernel to about 1e-9.
"""

from __future__ import annotations

import clarabel
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from engine.srb.force_qp import ForceQP

REFERENCE_TOLERANCE = 1e-13


def cone_rows(problem: ForceQP) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The cone as inequalities ``G f <= h`` on the scaled force variables, shapes (rows, columns) and (rows,)."""
    columns = problem.A.shape[1]
    if problem.cone == "edges":
        return -np.eye(columns), np.zeros(columns)
    rows, bounds = [], []
    for i, (mu, fmax) in enumerate(zip(problem.mu, problem.fmax, strict=True)):
        for axis in (0, 1):
            for sign in (1.0, -1.0):
                row = np.zeros(columns)
                row[3 * i + axis] = sign
                row[3 * i + 2] = -mu
                rows.append(row)
                bounds.append(0.0)
        row = np.zeros(columns)
        row[3 * i + 2] = -1.0
        rows.append(row)
        bounds.append(0.0)
        if np.isfinite(fmax):
            rows.append(-row)
            bounds.append(fmax)
    return np.array(rows).reshape(-1, columns), np.array(bounds)


def solve_with_clarabel(
    problem: ForceQP, tolerance: float | None = REFERENCE_TOLERANCE
) -> tuple[NDArray[np.float64], bool, int]:
    """Solve by Clarabel, built anew from sparse matrices.

    Args:
        problem: The problem; at least one contact.
        tolerance: Gap and feasibility tolerance; None for Clarabel's defaults.

    Returns:
        Scaled force variables, whether Clarabel says it solved the problem, and its iterations.
    """
    columns = problem.A.shape[1]
    G, h = cone_rows(problem)
    P = problem.A.T @ problem.A + problem.ridge * np.eye(columns)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    if tolerance is not None:
        settings.tol_gap_abs = tolerance
        settings.tol_gap_rel = tolerance
        settings.tol_feas = tolerance
    solver = clarabel.DefaultSolver(
        sp.csc_matrix(np.triu(P)),
        -problem.A.T @ problem.b,
        sp.csc_matrix(G),
        h,
        [clarabel.NonnegativeConeT(len(h))],
        settings,
    )
    solution = solver.solve()
    found = solution.status == clarabel.SolverStatus.Solved
    return np.array(solution.x, dtype=np.float64), found, int(solution.iterations)
