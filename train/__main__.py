"""``python -m train --method METHOD``: train one method on a motion library."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one thread of BLAS: reproducible, and the cores belong to the engine

from engine.errors import run_main
from engine.ik.mmik import MmikParams
from engine.motion.library import MotionLibrary
from engine.params import read_section
from engine.srb.body import SrbParams
from train.config import ControlParams, CostWeights, DeepMimicParams, PaperParams, SearchParams, UnifiedParams

METHODS = ("no_network", "unified", "unified_paper", "deepmimic")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m train",
        description=(
            "Train a policy. An interrupted training resumes from its newest checkpoint; a finished one removes them."
        ),
    )
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--params", default="params.yaml", help="parameter file (sections srb, mmik, train.METHOD)")
    parser.add_argument("--library", default="data/library.npz", help="motion library made by engine.motion.library")
    parser.add_argument(
        "--tuned", default="models/no_network/tuned.json", help="foot law and gains that `unified` builds on"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of `unified` and `deepmimic`")
    parser.add_argument("--clip", default="walk", help="clip of the library that `deepmimic` imitates")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of policy.pt, curve.csv, train.json, checkpoints/"
    )
    args = parser.parse_args(argv)
    if args.method == "deepmimic":
        from train.deepmimic import train_deepmimic

        imitation = read_section(args.params, "train.deepmimic", DeepMimicParams)
        train_deepmimic(imitation, MotionLibrary.load(args.library), args.clip, args.seed, args.out)
        return
    srb = read_section(args.params, "srb", SrbParams)
    mmik = read_section(args.params, "mmik", MmikParams)
    library = MotionLibrary.load(args.library)
    if args.method == "no_network":
        from train.no_network import train_no_network

        params = read_section(args.params, "train.no_network", SearchParams)
        control = read_section(args.params, "train.control", ControlParams)
        cost = read_section(args.params, "train.cost", CostWeights)
        train_no_network(params, control, cost, srb, mmik, library, args.out)
    elif args.method == "unified":
        from train.unified import train_unified

        unified = read_section(args.params, "train.unified", UnifiedParams)
        train_unified(unified, mmik, library, Path(args.tuned), args.seed, args.out)
    else:
        from train.unified_paper import train_unified_paper

        paper = read_section(args.params, "train.unified_paper", PaperParams)
        preset = read_section(args.params, "srb_paper", SrbParams)
        train_unified_paper(paper, preset, mmik, library, args.out)


if __name__ == "__main__":
    run_main(main)
