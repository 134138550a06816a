"""The script of docs/standalone.md runs as printed, with onnxruntime and numpy alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

from engine.skeleton import BODY_NAMES
from tests.export.conftest import Exported


def script(repo: Path) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (repo / "docs" / "standalone.md").read_text(), flags=re.DOTALL)
    return code


def test_the_script_evaluates_the_file_and_names_each_piece(exported: Exported, repo: Path, tmp_path: Path) -> None:
    (tmp_path / "evaluate.py").write_text(script(repo))
    done = subprocess.run(
        [sys.executable, "-I", "evaluate.py", str(exported.path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    header = re.fullmatch(r"unified: 340 observations -> 169 actions, error (\S+)", lines[0])
    assert header
    assert float(header[1]) < 1e-5
    for piece in ("com_vel [m/s] in srb", "com_delta [m] in srb", "bodies [m, rot6] in proj", "contact_logits"):
        assert any(line.startswith(piece) for line in lines), piece
    assert [line.split(":")[0].strip() for line in lines if line.startswith("  ")] == list(BODY_NAMES)


def test_the_script_is_short_and_imports_nothing_else(repo: Path) -> None:
    code = script(repo)
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {alias.name for node in imports for alias in node.names}
    assert names == {"json", "sys", "numpy", "onnxruntime"}
