"""Who may import whom, and names that say nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("engine", "train", "export", "benchmarks")
ALLOWED = {
    "engine": ("engine",),
    "train": ("train", "engine"),
    "export": ("export", "train.networks", "train.humanoid_policy", "engine"),
    "benchmarks": ("benchmarks", "engine"),
}
# The run-time must work where no training stack is installed.
FORBIDDEN = {"engine": ("torch", "dvc", "dvclive", "pytest"), "benchmarks": ("torch",)}
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "tools"}


def sources(package: str) -> list[Path]:
    return sorted((REPO / package).rglob("*.py"))


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and full name of every import in a file, also those inside functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(REPO)}:{node.lineno}: relative import; name the module in full"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def within(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_its_layer_allows(package: str) -> None:
    wrong = [
        f"{path.relative_to(REPO)}:{line}: {name}"
        for path in sources(package)
        for line, name in imports_of(path)
        if (within(name, PACKAGES) and not within(name, ALLOWED[package])) or within(name, FORBIDDEN.get(package, ()))
    ]
    assert not wrong, "\n".join(wrong)


def test_benchmark_peers_are_imported_by_benchmarks_and_tests_only() -> None:
    peers = ("daqp", "proxsuite", "osqp", "mink")
    wrong = [
        f"{path.relative_to(REPO)}:{line}: {name}"
        for package in ("engine", "train", "export")
        for path in sources(package)
        for line, name in imports_of(path)
        if within(name, peers)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_file_and_folder_is_named_after_what_it_holds() -> None:
    named = [path for package in (*PACKAGES, "tests") for path in (REPO / package).rglob("*")]
    assert not [path for path in named if path.stem.lower() in EMPTY_NAMES]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_says_what_it_is(package: str) -> None:
    silent = [
        path
        for path in sources(package)
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not silent
