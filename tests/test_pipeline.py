"""dvc.yaml against params.yaml, git and the programs it calls: DVC notices a fault only after deleting outputs."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from benchmarks.conftest import BenchmarkParams
from benchmarks.evaluate import EvaluateParams
from benchmarks.report import ReportParams
from benchmarks.robustness import RobustnessParams
from engine.ik.mmik import MmikParams
from engine.motion.config import FetchParams, MotionParams
from engine.overrides import override, read_overrides
from engine.params import read_section
from engine.srb.body import SrbParams
from export.__main__ import ExportParams
from train.config import ControlParams, CostWeights, DeepMimicParams, PaperParams, SearchParams, UnifiedParams

REPO = Path(__file__).resolve().parents[1]
PACKAGES = ("engine", "train", "export", "benchmarks")
# Modules that cannot change what a stage computes: reading parameters, wording of errors, writing files.
NO_EFFECT = {
    "engine/__init__.py",
    "engine/errors.py",
    "engine/params.py",
    "engine/overrides.py",
    "engine/atomic.py",
    "train/checkpoint.py",
    "train/log.py",
}
# What builds the library acts through data/library.npz on every stage that reads it.
LIBRARY = "engine/motion/library.py"
SECTIONS: dict[str, type[Any]] = {
    "fetch": FetchParams,
    "motion": MotionParams,
    "srb": SrbParams,
    "srb_paper": SrbParams,
    "mmik": MmikParams,
    "train.control": ControlParams,
    "train.cost": CostWeights,
    "train.no_network": SearchParams,
    "train.unified": UnifiedParams,
    "train.unified_paper": PaperParams,
    "train.deepmimic": DeepMimicParams,
    "export": ExportParams,
    "evaluate": EvaluateParams,
    "robustness": RobustnessParams,
    "benchmark": BenchmarkParams,
    "report": ReportParams,
}
MAY_NOT_BE_IN_GIT = re.compile(r"\bN[CD]\b|NonCommercial|NoDeriv|LaFAN|Bandai|user's own", re.IGNORECASE)


@functools.cache
def load_yaml(name: str) -> dict[str, Any]:
    return YAML(typ="safe", pure=True).load((REPO / name).read_text(encoding="utf-8"))


def lookup(params: Any, dotted: str) -> Any:
    for name in dotted.split("."):
        params = params[name]
    return params


def filled(value: Any, names: dict[str, Any]) -> Any:
    """Return ``value`` with every ``${...}`` replaced, as DVC does it."""
    if isinstance(value, str):
        return re.sub(r"\$\{([^}]+)\}", lambda match: str(lookup(names, match[1])), value)
    if isinstance(value, list):
        return [filled(item, names) for item in value]
    if isinstance(value, dict):
        return {filled(key, names): filled(item, names) for key, item in value.items()}
    return value


def stages() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every stage by name, those over a list once for each of its items."""
    params = load_yaml("params.yaml")
    for name, stage in load_yaml("dvc.yaml")["stages"].items():
        if "matrix" in stage:
            ((axis, values),) = stage["matrix"].items()
            body = {key: value for key, value in stage.items() if key != "matrix"}
            for value in lookup(params, values[2:-1]):
                yield f"{name}@{value}", filled(body, {**params, "item": {axis: value}})
        elif "foreach" in stage:
            for key, item in lookup(params, stage["foreach"][2:-1]).items():
                yield f"{name}@{key}", filled(stage["do"], {**params, "key": key, "item": item})
        else:
            yield name, filled(stage, params)


STAGES = dict(stages())
each_stage = pytest.mark.parametrize("name", STAGES)


def paths(stage: dict[str, Any], *kinds: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind in kinds:
        for item in stage.get(kind, []):
            found |= {item: {}} if isinstance(item, str) else {key: value or {} for key, value in item.items()}
    return found


def outputs(stage: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return paths(stage, "outs", "metrics", "plots")


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=REPO, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"not a git repository: {done.stderr.strip()}")
    return done.stdout.splitlines()


@each_stage
def test_every_parameter_that_a_stage_names_is_there(name: str) -> None:
    params = load_yaml("params.yaml")
    for dotted in STAGES[name].get("params", []):
        lookup(params, dotted)


@each_stage
def test_every_dependency_is_in_git_or_made_by_another_stage(name: str) -> None:
    tracked = set(git("ls-files", "--cached", "--others", "--exclude-standard"))
    made = {path for stage in STAGES.values() for path in outputs(stage)}
    for path in paths(STAGES[name], "deps"):
        known = path in made | tracked or any(file.startswith(path.rstrip("/") + "/") for file in made | tracked)
        assert known, f"{name}: {path} is neither in git nor an output of a stage"


def test_no_two_stages_make_the_same_file() -> None:
    made = [path for stage in STAGES.values() for path in outputs(stage)]
    assert len(made) == len(set(made))


def commands(stage: dict[str, Any]) -> list[str]:
    """A stage's commands; ``cmd`` is one or a list."""
    return [stage["cmd"]] if isinstance(stage["cmd"], str) else list(stage["cmd"])


@each_stage
def test_every_output_or_its_folder_is_named_in_the_command(name: str) -> None:
    words = set(re.split(r"[\s=]+", " ".join(commands(STAGES[name]))))
    for path in outputs(STAGES[name]):
        assert words & {path, *map(str, PurePosixPath(path).parents)}, f"{name}: {path}"


@each_stage
def test_git_ignores_the_outputs_in_the_cache_and_no_other(name: str) -> None:
    for path, options in outputs(STAGES[name]).items():
        ignored = subprocess.run(["git", "check-ignore", "-q", path], cwd=REPO, check=False).returncode == 0
        assert ignored == options.get("cache", True), f"{path}: ignored by git: {ignored}"


def test_every_section_of_the_parameters_is_read_by_a_stage() -> None:
    named = {dotted.split(".")[0] for stage in STAGES.values() for dotted in stage.get("params", [])}
    text = (REPO / "dvc.yaml").read_text(encoding="utf-8")
    interpolated = {name.split(".")[0] for name in re.findall(r"\$\{([^}]+)\}", text)}
    assert set(load_yaml("params.yaml")) == named | (interpolated - {"item", "key"})


def test_the_policies_are_those_that_the_training_stages_make() -> None:
    made = {path for stage in STAGES.values() for path in outputs(stage)}
    policies = list(load_yaml("params.yaml")["policies"].values())
    assert {f"models/{policy}/policy.pt" for policy in policies} == {p for p in made if p.endswith("/policy.pt")}
    assert len(policies) == len(set(policies))


def imported(module: str, seen: set[str], stop_at: str | None) -> None:
    """Collect the files of the project that a module imports, at whatever depth but behind ``stop_at``."""
    base = REPO.joinpath(*module.split("."))
    package = base / "__init__.py"
    file = base.with_suffix(".py") if base.with_suffix(".py").is_file() else package
    if module.split(".")[0] not in PACKAGES or not file.is_file():
        return
    relative = file.relative_to(REPO).as_posix()
    if relative in seen:
        return
    seen.add(relative)
    if relative == stop_at:
        return
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported(alias.name, seen, stop_at)
        elif isinstance(node, ast.ImportFrom) and node.module:
            imported(node.module, seen, stop_at)
            for alias in node.names:
                imported(f"{node.module}.{alias.name}", seen, stop_at)


@each_stage
def test_a_stage_depends_on_every_file_that_its_program_imports(name: str) -> None:
    # of several commands the last one makes the outputs; those before it fetch what it reads
    program = re.match(r"python -m (\S+)(?: --method (\S+))?", commands(STAGES[name])[-1])
    assert program, f"{name}: expected python -m PROGRAM"
    module = f"{program[1]}.{program[2]}" if program[2] else program[1]
    seen: set[str] = set()
    listed = [path.rstrip("/") for path in paths(STAGES[name], "deps")]
    stop_at = LIBRARY if "data/library.npz" in listed else None
    imported(module, seen, stop_at)
    imported(f"{module}.__main__", seen, stop_at)
    missing = sorted(
        file
        for file in seen - NO_EFFECT
        if not file.endswith("/__init__.py") and not any(file == path or file.startswith(path + "/") for path in listed)
    )
    assert not missing, f"{name} reads code that it does not depend on: {', '.join(missing)}"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_section_is_what_its_program_reads(section: str) -> None:
    read_section(REPO / "params.yaml", section, SECTIONS[section])


def test_no_section_is_left_out_of_that_test() -> None:
    sections = {name.split(".")[0] for name in SECTIONS}
    assert sections | {"seeds", "policies"} == set(load_yaml("params.yaml"))


@pytest.mark.parametrize("name", [".ci/small.yaml", "lafan1.yaml"])
def test_an_override_file_changes_only_values_that_are_there(name: str, tmp_path: Path) -> None:
    override(REPO / "params.yaml", read_overrides(REPO / name), tmp_path / "params.yaml")
    for section, cls in SECTIONS.items():
        read_section(tmp_path / "params.yaml", section, cls)


def test_no_motion_is_in_git_whose_licence_forbids_it() -> None:
    if not git("ls-files", "data/library.npz"):
        pytest.skip("data/library.npz is not in git")
    with np.load(REPO / "data" / "library.npz") as library:
        licences = {str(name): str(text) for name, text in zip(library["names"], library["licence"], strict=True)}
    bad = {name: text for name, text in licences.items() if MAY_NOT_BE_IN_GIT.search(text)}
    assert not bad, f"restore data/library.npz before committing, or keep this work out of git: {bad}"


def test_motion_files_themselves_are_never_in_git() -> None:
    suffixes = (".bvh", ".amc", ".asf", ".c3d", ".fbx")
    assert not [f for f in git("ls-files") if f.lower().endswith(suffixes) and not f.startswith("tests/")]
