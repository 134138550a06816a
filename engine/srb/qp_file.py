"""Solve a QP written in a JSON file: ``python -m engine.srb.qp_file FILE``.

``kind: contact`` holds ``mass, com, gravity, F_des, T_des, contacts`` (each ``point, normal, mu`` and optionally
``fmax, tangent``) and optionally ``fmax``; ``kind: raw`` holds ``P, q, A, l, u`` of `engine.srb.dense_qp`. A key
``form`` (a remark) is passed over.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.errors import InputError, run_main
from engine.srb.dense_qp import DenseSolution, solve_dense_qp
from engine.srb.force_qp import build_force_qp
from engine.srb.qp import QPSolution, solve_qp

_CONTACT_KEYS = ("mass", "com", "gravity", "F_des", "T_des", "contacts")
_RAW_KEYS = ("P", "q")
_OPTIONAL_KEYS = {"contact": ("fmax", "weights", "ridge", "cone"), "raw": ("A", "l", "u")}
_LARGEST_FILE = 16 * 2**20


def solve_qp_file(path: str | Path, backend: str = "newton") -> QPSolution | DenseSolution:
    """Read and solve one problem file.

    Args:
        path: JSON file.
        backend: Solver of a contact problem, see `engine.srb.qp.solve_qp`.

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``.
        OSError: The file cannot be read.
    """
    path = Path(path)
    size = path.stat().st_size
    if size > _LARGEST_FILE:
        raise InputError.at(path, None, f"the file is too large (found {size} bytes, expected {_LARGEST_FILE} at most)")
    try:
        text = path.read_text(encoding="utf-8")
        fields = json.loads(text)
    except UnicodeDecodeError as error:
        raise InputError.at(
            path, None, f"not text (found byte {error.object[error.start]:#x}, expected UTF-8)"
        ) from None
    except json.JSONDecodeError as error:
        raise InputError.at(path, error.lineno, f"not JSON: {error.msg} (found column {error.colno})") from None
    except RecursionError:
        raise InputError.at(path, None, "not a problem (found very deep nesting, expected one object)") from None
    try:
        return _solve(fields, backend)
    except InputError as error:
        raise InputError.at(path, _line_of(text, str(error)), str(error)) from None


def _solve(fields: Any, backend: str) -> QPSolution | DenseSolution:
    if not isinstance(fields, Mapping):
        raise InputError(f"not a problem (found {type(fields).__name__}, expected an object)")
    kind = fields.get("kind")
    if kind not in _OPTIONAL_KEYS:
        raise InputError(f"kind is unknown (found {kind!r}, expected 'contact' or 'raw')")
    required = _CONTACT_KEYS if kind == "contact" else _RAW_KEYS
    allowed = (*required, *_OPTIONAL_KEYS[kind])
    for key in required:
        if key not in fields:
            raise InputError(f"{key} is missing (found {', '.join(sorted(fields))}, expected {', '.join(required)})")
    given = {key: value for key, value in fields.items() if key not in ("kind", "form")}
    for key in given:
        if key not in allowed:
            raise InputError(f"{key} is not a key of a {kind} problem (expected {', '.join(allowed)})")
    if kind == "raw":
        return solve_dense_qp(**given)
    return solve_qp(build_force_qp(**given), backend)


def _line_of(text: str, message: str) -> int | None:
    """Line of the field that a message names, where the text has it."""
    match = re.match(r"(?:contact (\d+): )?(\w+)", message)
    if match is None:
        return None
    name = "l" if match[2] == "row" else match[2]
    key = re.compile(rf'"{re.escape(name)}"\s*:')
    if match[1] is None:
        place = key.search(text)
        return None if place is None else text.count("\n", 0, place.start()) + 1
    points = [m.start() for m in re.finditer(r'\{[^{}]*"(?:point|normal|mu)"\s*:[^{}]*\}', text)]
    index = int(match[1])
    place = key.search(text, points[index]) if index < len(points) else None
    return None if place is None else text.count("\n", 0, place.start()) + 1


def describe(solution: QPSolution | DenseSolution) -> str:
    """The solution as JSON."""
    fields = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in solution._asdict().items()}
    if solution.residuals is not None:
        fields["residuals"] = solution.residuals._asdict()
    if isinstance(solution, QPSolution):
        fields["total_force"] = solution.wrench[:3].tolist()
    return json.dumps(fields, indent=1)


def main(argv: list[str]) -> int:
    """Solve the files named; exit status 1 where one has no solution."""
    if not argv or argv[0].startswith("-"):
        print("usage: python -m engine.srb.qp_file FILE...", file=sys.stderr)
        return 2
    status = 0
    for path in argv:
        solution = solve_qp_file(path)
        print(describe(solution))
        if solution.status not in ("solved", "flight"):
            status = 1
    return status


if __name__ == "__main__":
    run_main(main)
