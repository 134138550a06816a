"""Building a contact-force problem: units, frames, and every bad input named."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from engine.errors import InputError
from engine.srb.force_qp import Contact, build_force_qp, contact_frame
from engine.srb.qp import solve_qp

STAND = {
    "mass": 70.0,
    "com": [0, 0, 0.9],
    "gravity": [0, 0, -9.81],
    "F_des": [0, 0, 0],
    "T_des": [0, 0, 0],
    "contacts": [{"point": [x, y, 0], "normal": [0, 0, 1], "mu": 0.8} for x in (-0.1, 0.1) for y in (-0.1, 0.1)],
}


def _with(path: str, value: object) -> dict:
    problem = copy.deepcopy(STAND)
    *parents, key = path.split("/")
    place: Any = problem
    for parent in parents:
        place = place[int(parent)] if parent.isdigit() else place[parent]
    place[int(key) if key.isdigit() else key] = value
    return problem


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("mass", float("nan"), ["mass", "nan"]),
        ("mass", -3, ["mass", "-3", "> 0"]),
        ("mass", "70", ["mass", "70"]),
        ("mass", None, ["mass", "None"]),
        ("com", [0, 1], ["com", "[0, 1]", "3 numbers"]),
        ("com", "abc", ["com", "abc"]),
        ("com", [0, [1], 2], ["com"]),
        ("gravity", [0, 0, float("inf")], ["gravity", "inf"]),
        ("F_des", [float("nan")] * 3, ["F_des", "nan"]),
        ("T_des", [0, 0, 1e400], ["T_des", "inf"]),
        ("contacts", None, ["contacts", "NoneType"]),
        ("contacts", {"point": [0, 0, 0]}, ["contacts"]),
        ("contacts/2", 5, ["contact 2", "int"]),
        ("contacts/2/mu", -0.1, ["contact 2", "mu", "-0.1"]),
        ("contacts/3/mu", float("inf"), ["contact 3", "mu", "inf"]),
        ("contacts/1/mu", True, ["contact 1", "mu", "True"]),
        ("contacts/1/fmax", -2, ["contact 1", "fmax", "-2"]),
        ("contacts/1/fmax", float("nan"), ["contact 1", "fmax", "nan"]),
        ("contacts/0/normal", [0, 0, 0], ["contact 0", "normal", "[0, 0, 0]"]),
        ("contacts/0/normal", [0, 0, float("nan")], ["contact 0", "normal", "nan"]),
        ("contacts/1/point", [0, 0, float("inf")], ["contact 1", "point", "inf"]),
        ("contacts/1/point", [0, 0], ["contact 1", "point"]),
        ("contacts/1/tangent", [0, 0, 3], ["contact 1", "tangent"]),
        ("contacts/1/friction", 1.0, ["contact 1", "friction"]),
        ("fmax", -1.0, ["fmax", "-1"]),
        ("ridge", 0.0, ["ridge", "0"]),
        ("weights", [1, 1, 1, 1, 1, 0], ["weights", "> 0"]),
        ("weights", [1, 1, 1, 1, 1, -1], ["weights", "-1"]),
        ("cone", "circle", ["cone", "circle", "pyramid"]),
    ],
)
def test_bad_value_is_named_with_what_was_found(path, value, words):
    with pytest.raises(InputError) as caught:
        build_force_qp(**_with(path, value))
    text = str(caught.value)
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_missing_contact_key_is_named():
    problem = copy.deepcopy(STAND)
    del problem["contacts"][1]["mu"]
    with pytest.raises(InputError, match="contact 1: mu is missing"):
        build_force_qp(**problem)


def test_error_names_the_simulation_step():
    with pytest.raises(InputError, match=r"^step 812: F_des"):
        build_force_qp(**_with("F_des", [np.nan, 0, 0]), step=812)


@pytest.mark.parametrize("mass", [1e-12, 1e-6, 1.0, 1e9, 1e20])
def test_answer_scales_with_the_mass(mass):
    solution = solve_qp(build_force_qp(**_with("mass", mass)))
    assert solution.correct
    np.testing.assert_allclose(solution.force[:, 2], mass * 9.81 / 4, rtol=1e-5)
    assert np.max(np.abs(solution.force[:, :2])) < 1e-9 * mass * 9.81


@pytest.mark.parametrize("cone", ["pyramid", "edges"])
def test_answer_turns_with_the_world(cone):
    rng = np.random.default_rng(0)
    base = solve_qp(build_force_qp(**_with("F_des", [300.0, 40.0, 20.0]), cone=cone))
    for _ in range(10):
        R = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        R *= np.sign(np.linalg.det(R))
        problem = _with("F_des", R @ [300.0, 40.0, 20.0])
        for key in ("com", "gravity"):
            problem[key] = R @ problem[key]
        for contact in problem["contacts"]:
            contact["point"] = R @ contact["point"]
            contact["normal"] = 3.7 * (R @ contact["normal"])
            contact["tangent"] = R[:, 0]
        turned = solve_qp(build_force_qp(**problem, cone=cone))
        np.testing.assert_allclose(turned.force, base.force @ R.T, atol=1e-5)


def test_flight_has_no_forces_and_calls_no_solver():
    solution = solve_qp(build_force_qp(**_with("contacts", [])))
    assert solution.status == "flight"
    assert solution.force.shape == (0, 3)
    assert solution.iterations == 0
    np.testing.assert_array_equal(solution.wrench, np.zeros(6))
    assert solve_qp(build_force_qp(**_with("contacts", [])), "clarabel").status == "flight"


def test_weightless_body_at_rest_needs_no_force():
    solution = solve_qp(build_force_qp(**_with("gravity", [0, 0, 0])))
    assert solution.status == "solved"
    np.testing.assert_array_equal(solution.force, np.zeros((4, 3)))


def test_force_bounds_hold_per_contact():
    problem = _with("fmax", 300.0)
    problem["contacts"][0]["fmax"] = 50.0
    problem["contacts"][1]["fmax"] = 0.0
    force = solve_qp(build_force_qp(**problem)).force
    assert force[0, 2] <= 50.0 * (1 + 1e-12)
    np.testing.assert_array_equal(force[1], np.zeros(3))
    assert np.max(force[:, 2]) <= 300.0 * (1 + 1e-12)


def test_asked_torque_is_reached_about_the_centre_of_mass():
    problem = _with("T_des", [5.0, -4.0, 3.0])
    problem["F_des"] = [10.0, 20.0, 30.0]
    solution = solve_qp(build_force_qp(**problem))
    np.testing.assert_allclose(solution.wrench, [10.0, 20.0, 30.0 + 70 * 9.81, 5.0, -4.0, 3.0], atol=0.02)


def test_a_contact_may_be_a_tuple_or_a_mapping():
    as_tuples = [Contact(c["point"], c["normal"], c["mu"]) for c in STAND["contacts"]]
    first, second = solve_qp(build_force_qp(**STAND)), solve_qp(build_force_qp(**{**STAND, "contacts": as_tuples}))
    np.testing.assert_array_equal(first.force, second.force)


def test_contact_frames_are_right_handed_and_orthonormal():
    rng = np.random.default_rng(1)
    for normal in [*np.eye(3), *-np.eye(3), *rng.normal(size=(50, 3))]:
        frame = contact_frame(normal / np.linalg.norm(normal))
        np.testing.assert_allclose(frame @ frame.T, np.eye(3), atol=1e-14)
        assert np.linalg.det(frame) == pytest.approx(1.0)


def test_edge_cone_refuses_a_force_bound():
    with pytest.raises(InputError, match="contact 0: fmax"):
        build_force_qp(**_with("fmax", 100.0), cone="edges")
