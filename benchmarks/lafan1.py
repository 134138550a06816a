"""The whole comparison on LaFAN1 files of the user: ``python -m benchmarks.lafan1 --data FOLDER --params params.yaml``.

LaFAN1 (CC BY-NC-ND 4.0) lets neither its clips nor anything derived from them into a repository. So the library, the
policies and the report with its pictures stay in a work folder, and only tables of numbers leave it. The programs
are those of the pipeline, in its order, each a process of its own; a step whose result is already there is passed over,
so an interrupted run goes on where it was.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from benchmarks.episodes import identify
from engine.errors import InputError, run_main
from engine.overrides import override, read_overrides

NUMBERS = (".csv", ".json")


@dataclass(frozen=True)
class Step:
    """One program to run.

    Attributes:
        command: Arguments after ``python -m``.
        result: File (within the work folder) that is there once it is done.
    """

    command: list[str]
    result: str


def plan(policies: dict[str, str], work: Path) -> list[Step]:
    """The pipeline's programs for these policies (name -> folder under ``models``), in order.

    Args:
        policies: As in params.yaml.
        work: Where everything is made.
    """
    params, library = f"{work}/params.yaml", f"{work}/data/library.npz"
    tuned = f"{work}/models/no_network/tuned.json"
    steps = [
        Step(["engine.motion.fetch", "--params", params, "--out", f"{work}/data/raw"], "data/raw"),
        Step(
            [
                *("engine.motion.library", "--params", params, "--raw", f"{work}/data/raw"),
                *("--out", library, "--report", f"{work}/results/motion_quality.csv"),
            ],
            "data/library.npz",
        ),
    ]
    for folder in policies.values():
        out = f"{work}/models/{folder}"
        method, seed = identify(Path(folder) / "policy.onnx")
        train = ["train", "--method", method, "--seed", str(seed), "--params", params, "--library", library]
        steps.append(Step([*train, "--tuned", tuned, "--out", out], f"models/{folder}/policy.pt"))
    for name, folder in policies.items():
        out = f"{work}/models/{folder}"
        export = ["export", "--params", params, "--policy", f"{out}/policy.pt", "--out", f"{out}/policy.onnx"]
        play = ["--params", params, "--policy", f"{out}/policy.onnx", "--library", library]
        steps += [
            Step(
                [*export, "--parity", f"{out}/parity.json", "--card", f"{out}/card.md"], f"models/{folder}/policy.onnx"
            ),
            Step(
                [
                    *("benchmarks.evaluate", *play, "--out", f"{work}/data/episodes/{name}.parquet"),
                    *("--pooled", f"{work}/data/eval/{name}.csv"),
                ],
                f"data/eval/{name}.csv",
            ),
            Step(
                ["benchmarks.robustness", *play, "--out", f"{work}/data/robustness/{name}.parquet"],
                f"data/robustness/{name}.parquet",
            ),
        ]
    report = ["benchmarks.report", "--params", params, "--models", f"{work}/models", "--library", library]
    report += ["--evaluation", f"{work}/data/eval", "--robustness", f"{work}/data/robustness"]
    steps.append(Step([*report, "--runtime", f"{work}/data/runtime.json", "--out", f"{work}/results"], ""))
    return steps


def prepare(params: Path, changes: Path, data: Path, work: Path) -> dict[str, str]:
    """Write the work folder's params.yaml; returns its ``policies``.

    Raises:
        InputError: The data folder is not there, or a key of ``changes`` is not in ``params``.
    """
    if not data.exists():
        raise InputError.at(data, None, "no such file or folder (expected the LaFAN1 BVH files or their zip)")
    work.mkdir(parents=True, exist_ok=True)
    values = {**read_overrides(changes), "fetch.lafan1.path": str(data.resolve())}
    override(params, values, work / "params.yaml")
    document = YAML(typ="safe", pure=True).load((work / "params.yaml").read_text(encoding="utf-8"))
    return {str(name): str(folder) for name, folder in document["policies"].items()}


def copy_numbers(results: Path, out: Path) -> list[str]:
    """Copy the tables of numbers (never poses, pictures or policies) that hold any; returns their names.

    Times are not measured here, so the tables of times have a header only.
    """
    out.mkdir(parents=True, exist_ok=True)
    names = sorted(p.name for p in results.iterdir() if p.suffix in NUMBERS and len(p.read_text().split("\n")) > 2)
    for name in names:
        shutil.copyfile(results / name, out / name)
    return names


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lafan1", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder or zip with LaFAN1 BVH files")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"), help="parameter file to start from")
    parser.add_argument(
        "--changes", type=Path, default=Path("lafan1.yaml"), help="its values that differ: clips, split"
    )
    parser.add_argument("--work", type=Path, default=Path("build/lafan1"), help="folder for all that must not leave")
    parser.add_argument("--out", type=Path, default=Path("results/lafan1"), help="folder for the numbers")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these policies of params.yaml only")
    parser.add_argument("--dry-run", action="store_true", help="print the commands and stop")
    args = parser.parse_args(argv)
    policies = prepare(args.params, args.changes, args.data, args.work)
    if args.only:
        missing = [name for name in args.only if name not in policies]
        if missing:
            raise InputError(f"--only: unknown policy (found {missing[0]}, expected some of {', '.join(policies)})")
        policies = {name: policies[name] for name in policies if name in args.only}
    for step in plan(policies, args.work):
        print("python -m " + shlex.join(step.command), flush=True)
        if args.dry_run:
            continue
        if step.result and (args.work / step.result).exists():
            print(f"  {step.result} is there: passed over", flush=True)
            continue
        done = subprocess.run(
            [sys.executable, "-m", *step.command], env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
        if done.returncode:
            raise InputError(
                f"{step.command[0]}: stopped with exit status {done.returncode}; run again to go on from here"
            )
    if not args.dry_run:
        names = copy_numbers(args.work / "results", args.out)
        print(f"{args.out}: {', '.join(names)}")


if __name__ == "__main__":
    run_main(main)
