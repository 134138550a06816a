"""The closed-form projection onto a capped friction pyramid, and its Jacobian."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import scipy.sparse as sp

from engine.srb.cone import (
    FACE_APEX,
    FACE_CAP,
    dual_hessian_into,
    project_pyramid,
    projection_jacobian,
    projection_jacobians_into,
)


def _matrix(packed: tuple[float, ...]) -> np.ndarray:
    xx, xy, xz, yy, yz, zz = packed
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _by_clarabel(v: np.ndarray, mu: float, fmax: float) -> np.ndarray:
    G = np.array([[1, 0, -mu], [-1, 0, -mu], [0, 1, -mu], [0, -1, -mu], [0, 0, -1], [0, 0, 1]], dtype=float)
    h = np.array([0, 0, 0, 0, 0, fmax], dtype=float)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    cones = [clarabel.NonnegativeConeT(6)]
    solver = clarabel.DefaultSolver(sp.csc_matrix(np.eye(3)), -v, sp.csc_matrix(G), h, cones, settings)
    return np.array(solver.solve().x)


def test_projection_is_the_nearest_point_by_an_independent_solver():
    rng = np.random.default_rng(0)
    for _ in range(400):
        v = rng.normal(0.0, 2.0, 3)
        mu, fmax = rng.choice([0.0, 0.3, 0.8, 2.0]), rng.choice([0.2, 1.0, 5.0])
        np.testing.assert_allclose(project_pyramid(*v, mu, fmax)[:3], _by_clarabel(v, mu, fmax), atol=2e-6)


def test_projection_is_idempotent_and_inside_the_cone():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        mu, fmax = rng.uniform(0.0, 2.0), rng.choice([0.5, np.inf])
        x, y, z, _ = project_pyramid(*rng.normal(0.0, 3.0, 3), mu, fmax)
        assert abs(x) <= mu * z
        assert abs(y) <= mu * z
        assert 0.0 <= z <= fmax
        np.testing.assert_allclose(project_pyramid(x, y, z, mu, fmax)[:3], (x, y, z), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize(
    ("v", "mu", "fmax", "expected"),
    [
        ((0.0, 0.0, 0.0), 0.8, 1.0, (0.0, 0.0, 0.0)),
        ((0.1, -0.1, 0.5), 0.8, 1.0, (0.1, -0.1, 0.5)),
        ((3.0, 4.0, 5.0), 0.0, 1.0, (0.0, 0.0, 1.0)),  # ice
        ((0.0, 0.0, -2.0), 0.8, 1.0, (0.0, 0.0, 0.0)),
        ((9.0, -9.0, 9.0), 0.5, 2.0, (1.0, -1.0, 2.0)),  # corner
        ((1.0, 1.0, 1.0), 0.5, 0.0, (0.0, 0.0, 0.0)),  # no force allowed
        ((2.0, 0.0, 0.0), 1.0, np.inf, (1.0, 0.0, 1.0)),  # onto a side
    ],
)
def test_projection_of_known_points(v, mu, fmax, expected):
    np.testing.assert_allclose(project_pyramid(*v, mu, fmax)[:3], expected, atol=1e-15)


def test_jacobian_matches_finite_differences_and_is_an_orthogonal_projection():
    rng = np.random.default_rng(2)
    h = 1e-6
    checked, faces = 0, set()
    for _ in range(3000):
        v = rng.normal(0.0, 1.5, 3)
        mu, fmax = rng.uniform(0.0, 1.5), rng.choice([0.4, 1.0, 4.0])
        P = _matrix(projection_jacobian(*v, mu, fmax))
        np.testing.assert_allclose(P @ P, P, atol=1e-12)
        moved = [project_pyramid(*(v + s * h * e), mu, fmax) for e in np.eye(3) for s in (1.0, -1.0)]
        if len({m[3] for m in moved}) > 1:
            continue  # a kink within the difference
        faces.add(moved[0][3])
        difference = np.array([np.subtract(moved[2 * k][:3], moved[2 * k + 1][:3]) / (2 * h) for k in range(3)]).T
        np.testing.assert_allclose(P, difference, atol=1e-7)
        checked += 1
    assert checked > 2900
    assert {0, FACE_APEX, FACE_CAP, 1, 2, 3, 5, 6, 7} <= faces


def test_newton_matrix_is_the_derivative_of_the_dual_gradient():
    rng = np.random.default_rng(3)
    n, eps = 4, 0.01
    A, u = rng.normal(size=(6, 3 * n)), rng.normal(size=6)
    mu, fmax = rng.uniform(0.3, 1.0, n), rng.uniform(0.5, 2.0, n)
    blocks, H = np.zeros((n, 3, 3)), np.zeros((6, 6))
    projection_jacobians_into(blocks, A, n, mu, fmax, u)
    dual_hessian_into(H, A, n, blocks, eps)

    def gradient(u):
        v = (A.T @ u).reshape(n, 3)
        return eps * u + A @ np.ravel([project_pyramid(*v[i], mu[i], fmax[i])[:3] for i in range(n)])

    h = 1e-6
    difference = np.array([(gradient(u + h * e) - gradient(u - h * e)) / (2 * h) for e in np.eye(6)]).T
    np.testing.assert_allclose(H, difference, atol=1e-6)
    np.testing.assert_allclose(H, H.T, atol=1e-13)
