r"""Contact-force QP: solving, with the proof in the result.

Kernels for the simulation loop (no allocation, usable inside Numba code) are `solve_contact_qp` and
`solve_generator_qp` of `engine.srb.dual_newton`; `solve_qp` solves one problem of `engine.srb.force_qp` from Python and
measures the optimality of what came back, whichever back end computed it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.errors import InputError
from engine.srb.cone import (
    dual_hessian_into,
    project_pyramid,
    projection_jacobian,
    projection_jacobians_into,
    pyramid_project,
)
from engine.srb.dual_newton import (
    MAX_CONTACTS,
    MAX_GENERATORS,
    QP_BAD_INPUT,
    QP_MAX_ITERATIONS,
    QP_SOLVED,
    QP_STATUS_NAMES,
    WORK_SIZE,
    make_workspace,
    solve_contact_qp,
    solve_generator_qp,
)
from engine.srb.force_qp import ForceQP

__all__ = [
    "MAX_CONTACTS",
    "MAX_GENERATORS",
    "QP_BAD_INPUT",
    "QP_MAX_ITERATIONS",
    "QP_SOLVED",
    "QP_STATUS_NAMES",
    "WORK_SIZE",
    "KktResiduals",
    "QPSolution",
    "dual_hessian_into",
    "kkt_residuals",
    "make_workspace",
    "project_pyramid",
    "projection_jacobian",
    "projection_jacobians_into",
    "solve_contact_qp",
    "solve_generator_qp",
    "solve_qp",
]

BACKENDS = ("newton", "clarabel")
#: A solution counts as correct when every residual is below this.
CORRECT_TOLERANCE = 1e-6


class KktResiduals(NamedTuple):
    """Distance from optimality, for forces scaled by ``scale_n``; all zero exactly at the solution."""

    stationarity: float
    """Largest component of ``f - Proj_K(f - gradient)``."""
    cone_violation: float
    """Largest violation of a cone inequality."""
    complementarity: float
    """Largest |product of a force and its multipliers| over the contacts."""

    def worst(self) -> float:
        """The largest of the three."""
        return max(self)


class QPSolution(NamedTuple):
    """Contact forces and the proof that they are right."""

    force: NDArray[np.float64]
    """Force on the body at each contact, world frame [N], shape (n, 3)."""
    wrench: NDArray[np.float64]
    """Sum of the contact forces [N] and their torque about the centre of mass [N m], world frame, shape (6,)."""
    status: str
    """``solved``, ``flight`` (no contact, nothing to solve), ``inaccurate`` (the back end claims success, the residuals
    deny it), ``max_iterations`` or ``bad_input``."""
    iterations: int
    residuals: KktResiduals
    objective: float
    """``1/2 |error|^2`` in the metric [N^2] plus the ridge."""
    dual: NDArray[np.float64]
    """Warm start for the next problem, shape (6,): ``(b - A f) / ridge``."""

    @property
    def correct(self) -> bool:
        """Whether the residuals prove the solution, whatever the status says."""
        return self.residuals.worst() <= CORRECT_TOLERANCE


def kkt_residuals(problem: ForceQP, f: NDArray[np.float64]) -> KktResiduals:
    """Measure the optimality of scaled force variables ``f``, shape (columns,), from ``f`` alone."""
    gradient = problem.A.T @ (problem.A @ f - problem.b) + problem.ridge * f
    if problem.cone == "edges":
        stationarity = f - np.maximum(f - gradient, 0.0)
        violation = np.maximum(-f, 0.0)
        gap = f * gradient
    else:
        force = f.reshape(-1, 3)
        slope = gradient.reshape(-1, 3)
        stationarity = force - pyramid_project(force - slope, problem.mu, problem.fmax)
        side = problem.mu[:, None] * force[:, 2:]
        cap = np.maximum(force[:, 2] - problem.fmax, 0.0)
        violation = np.concatenate([(np.abs(force[:, :2]) - side).ravel(), -force[:, 2], cap, [0.0]])
        # -gradient = normals of the sides + multiplier of the cap; the cap's is what the sides cannot explain.
        multiplier = np.maximum(problem.mu * np.abs(slope[:, :2]).sum(axis=1) - slope[:, 2], 0.0)
        capped = np.isfinite(problem.fmax)
        gap = np.sum(force * slope, axis=1) + np.where(capped, multiplier * np.where(capped, problem.fmax, 0.0), 0.0)
    return KktResiduals(
        float(np.max(np.abs(stationarity), initial=0.0)),
        max(float(np.max(violation, initial=0.0)), 0.0),
        float(np.max(np.abs(gap), initial=0.0)),
    )


def solve_qp(
    problem: ForceQP, backend: str = "newton", warm: QPSolution | NDArray[np.float64] | None = None
) -> QPSolution:
    """Solve a contact-force problem.

    Args:
        problem: From `engine.srb.force_qp.build_force_qp`.
        backend: ``"newton"`` (dual semismooth Newton, exact to rounding) or ``"clarabel"`` (reference, slow).
        warm: Start for ``newton``: an earlier solution or its ``dual``; the contacts may differ. A start that is not
            finite is passed over.

    Returns:
        The solution. Look at ``correct``, not only at ``status``. A failed solve holds forces inside the cone.

    Raises:
        InputError: Unknown ``backend`` or a warm start that is not six numbers.
    """
    if backend not in BACKENDS:
        raise InputError(f"backend is unknown (found {backend!r}, expected one of {', '.join(BACKENDS)})")
    dual = np.zeros(6)
    if warm is not None:
        start = np.asarray(warm.dual if isinstance(warm, QPSolution) else warm, dtype=np.float64)
        if start.shape != (6,):
            raise InputError(f"warm has the wrong shape (found {start.shape}, expected (6,))")
        dual[:] = start
    if problem.n_contacts == 0:
        objective = 0.5 * float(problem.b @ problem.b) * problem.scale_n**2
        return QPSolution(np.zeros((0, 3)), np.zeros(6), "flight", 0, KktResiduals(0.0, 0.0, 0.0), objective, dual)

    columns = problem.A.shape[1]
    f = np.zeros(columns)
    if backend == "clarabel":
        from engine.srb.qp_clarabel import solve_with_clarabel

        f, found, iterations = solve_with_clarabel(problem)
        status = "solved" if found else "max_iterations"
        dual = (problem.b - problem.A @ f) / problem.ridge
    else:
        work = make_workspace(columns)
        A, b, ridge = problem.A, problem.b, problem.ridge
        if problem.cone == "edges":
            code, iterations, _ = solve_generator_qp(A, columns, b, ridge, dual, f, work)
        else:
            code, iterations, _ = solve_contact_qp(
                A, problem.n_contacts, b, problem.mu, problem.fmax, ridge, dual, f, work
            )
        status = QP_STATUS_NAMES[code]
    if not np.all(np.isfinite(f)):
        f = np.zeros(columns)
        status = "bad_input"
    residuals = kkt_residuals(problem, f)
    if status == "solved" and residuals.worst() > CORRECT_TOLERANCE:
        status = "inaccurate"
    elif status == "max_iterations" and residuals.worst() <= 0.01 * CORRECT_TOLERANCE:
        status = "solved"  # stopped at the limit of the arithmetic, a proven solution all the same
    error = problem.A @ f - problem.b
    objective = 0.5 * float(error @ error + problem.ridge * (f @ f)) * problem.scale_n**2
    force = (f[:, None] * problem.basis_w).reshape(problem.n_contacts, -1, 3).sum(axis=1) * problem.scale_n
    torque = np.cross(problem.point_w, force).sum(axis=0)
    wrench = np.concatenate([force.sum(axis=0), torque])
    return QPSolution(force, wrench, status, int(iterations), residuals, objective, dual)
