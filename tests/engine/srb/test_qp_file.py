"""Every small case of the collection gives what its expected.json says; the command line keeps its promises."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from engine.errors import InputError
from engine.srb.dense_qp import DenseSolution
from engine.srb.qp import QPSolution
from engine.srb.qp_file import describe, solve_qp_file
from tests.collection import cases


@pytest.mark.parametrize(("path", "expected"), cases("qp"))
@pytest.mark.parametrize("backend", ["newton", "clarabel"])
def test_case(path, expected, backend):
    verdict = expected["verdict"]
    if verdict == "error":
        with pytest.raises(InputError) as caught:
            solve_qp_file(path, backend)
        text = str(caught.value)
        assert text.startswith(str(path))
        assert "\n" not in text
        assert "found" in text
        assert all(word in text.removeprefix(str(path)) for word in expected["message"])
        return
    solution = solve_qp_file(path, backend)
    if verdict == "infeasible":
        assert solution.status == "infeasible"
        assert isinstance(solution, DenseSolution)
        assert solution.x is None
        return
    if isinstance(solution, DenseSolution):
        assert solution.status == "solved"
        assert solution.x is not None
        if "x" in expected:
            np.testing.assert_allclose(solution.x, expected["x"], atol=expected["tol"])
        if "x0" in expected:
            assert solution.x[0] == pytest.approx(expected["x0"], abs=expected["tol"])
            assert solution.objective == pytest.approx(-0.5e8 - 0.5e-4, rel=1e-8)
        return
    assert isinstance(solution, QPSolution)
    assert solution.correct
    assert solution.status in ("solved", "flight")
    assert all(word in solution.status for word in expected["message"])
    total = solution.force.sum(axis=0)
    if "total_force" in expected:
        np.testing.assert_allclose(total, expected["total_force"], atol=expected.get("tol", 0.0))
    if "n_forces" in expected:
        assert len(solution.force) == expected["n_forces"]
    if "each_normal" in expected:
        tolerance = {"rtol": expected["rel_tol"]} if "rel_tol" in expected else {"atol": expected["tol"]}
        np.testing.assert_allclose(solution.force[:, 1], expected["each_normal"], **tolerance)
    if "tangential_max" in expected:
        assert np.max(np.abs(solution.force[:, [0, 2]])) <= expected["tangential_max"]
        assert total[0] == pytest.approx(expected["total_x"], abs=expected["tol"])


def _contact(**changes) -> dict:
    contact = {"point": [0, 0, 0], "normal": [0, 0, 1], "mu": 0.8}
    problem = {"kind": "contact", "mass": 1.0, "com": [0, 0, 1], "gravity": [0, 0, -9.81]}
    return {**problem, "F_des": [0, 0, 0], "T_des": [0, 0, 0], "contacts": [contact, contact], **changes}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, ["not JSON"]),
        ('{"kind": "contact",\n "mass": }', 2, ["not JSON"]),
        ("[1, 2]", None, ["not a problem", "list"]),
        ('{"kind": "lp"}', 1, ["kind", "lp"]),
        ('{"mass": 1}', None, ["kind", "None"]),
        ('{"kind": "raw", "P": [[1]]}', None, ["q is missing"]),
        (json.dumps(_contact(speed=3), indent=1), None, ["speed"]),
        ("[" * 100_000, None, ["nesting"]),
    ],
)
def test_bad_file_is_one_line_with_its_place(tmp_path, text, line, words):
    path = tmp_path / "problem.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        solve_qp_file(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{line}: " if line else str(path))
    assert "\n" not in message
    assert all(word in message for word in words), message


def test_error_points_at_the_line_of_the_contact(tmp_path):
    problem = _contact()
    problem["contacts"] = [dict(problem["contacts"][0]) for _ in range(3)]
    problem["contacts"][2]["mu"] = -1
    text = json.dumps(problem, indent=1)
    path = tmp_path / "problem.json"
    path.write_text(text)
    line = text[: text.index('"mu": -1')].count("\n") + 1
    with pytest.raises(InputError, match=f":{line}: contact 2: mu"):
        solve_qp_file(path)


def test_binary_file_is_refused(tmp_path):
    path = tmp_path / "problem.json"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(InputError, match="UTF-8"):
        solve_qp_file(path)


def test_description_is_json(tmp_path):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(_contact()))
    fields = json.loads(describe(solve_qp_file(path)))
    assert fields["status"] == "solved"
    assert fields["total_force"][2] == pytest.approx(9.81, rel=1e-4)


def test_command_line_prints_one_line_and_exits_with_2(tmp_path, repo):
    path = tmp_path / "problem.json"
    path.write_text(json.dumps(_contact(mass=-2.0)))
    command = [sys.executable, "-m", "engine.srb.qp_file", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=repo, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "mass" in done.stderr
    assert "-2" in done.stderr
