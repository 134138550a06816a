"""``python -m engine``: play a policy, look into a motion or policy file, list the library's clips."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from engine.errors import InputError, run_main

LIBRARY = "data/library.npz"

_PLAY_EXAMPLES = """examples:
  python -m engine play models/unified/seed0/policy.onnx --clip walk
  python -m engine play POLICY --clip run --push 400,left,2.0 --push 400,180,5.0 --out run.mp4
  python -m engine play POLICY --clip walk --terrain slope:10 --friction 0.6 --out walk.gif --out walk.bvh
  python -m engine play POLICY --clip jump --no-mmik --no-ghost --out jump.glb
  python -m engine play POLICY --clip walk --live

a push is FORCE,DIRECTION,TIME[,DURATION]: newtons; degrees counter-clockwise from the heading, or forward, left,
backward, right (where it pushes to); seconds; seconds (default 0.2).

exit status: 0 played (a fall is reported, not an error), 2 wrong input (one line on stderr)."""

_INSPECT_EXAMPLES = """examples:
  python -m engine inspect walk1_subject5.bvh
  python -m engine inspect 01.asf 01_01.amc
  python -m engine inspect models/unified/seed0/policy.onnx

exit status: 0 usable (warnings are listed), 2 unusable (the reason is on stderr)."""


def build_parser() -> argparse.ArgumentParser:
    """The command line of ``python -m engine``."""
    parser = argparse.ArgumentParser(
        prog="python -m engine", description="Play a policy, look into a file, list clips."
    )
    parser.add_argument("--debug", action="store_true", help="show a traceback with an error")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    play = commands.add_parser(
        "play",
        help="run a policy on a clip; write video, BVH or glTF, or open a live page",
        description="Run a policy on one clip of the library and write what the character does.",
        epilog=_PLAY_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    play.add_argument("policy", metavar="POLICY", help="policy.onnx made by python -m export")
    play.add_argument("--clip", required=True, help="clip of the library, by name or a unique part of it")
    play.add_argument(
        "--frames", type=int, help="control steps to run, 30 a second (default: 300, or to the clip's end)"
    )
    play.add_argument("--start", type=int, default=0, metavar="F", help="first frame within the clip (default: 0)")
    play.add_argument("--push", action="append", default=[], metavar="F,DIR,T", help="push the trunk; repeatable")
    play.add_argument("--terrain", default="flat", metavar="KIND", help="flat, slope:DEG, steps:CM or rough:CM")
    play.add_argument("--friction", type=float, metavar="MU", help="friction coefficient (default: the policy's own)")
    play.add_argument("--seed", type=int, default=0, help="seed of the rough terrain (default: 0)")
    play.add_argument("--no-mmik", action="store_true", help="show the network's raw full-body pose, without MMIK")
    play.add_argument("--path-following", action="store_true", help="steer back to the clip's path in the world")
    play.add_argument(
        "--out", action="append", default=[], metavar="FILE", help=".mp4, .gif, .bvh or .glb; repeatable (CLIP.mp4)"
    )
    ghost = play.add_mutually_exclusive_group()
    ghost.add_argument("--no-ghost", action="store_true", help="do not draw the reference")
    ghost.add_argument(
        "--world-ghost", action="store_true", help="draw the reference where the clip goes, to show drift"
    )
    play.add_argument("--size", default="640x480", metavar="WxH", help="video size in pixels, even (default: 640x480)")
    play.add_argument("--renderer", default="auto", choices=("auto", "mujoco", "software"), help="default: auto")
    play.add_argument(
        "--live", action="store_true", help="open a page in the browser instead (pip install gaitforge[live])"
    )
    play.add_argument("--port", type=int, default=8080, help="port of the live page (default: 8080)")
    _library_argument(play)
    play.set_defaults(run=_play)

    inspect = commands.add_parser(
        "inspect",
        help="what a motion or policy file is, and what is wrong with it",
        description="Say what a motion file (BVH, ASF/AMC, DeepMimic) or a policy (ONNX) is and what is wrong with it.",
        epilog=_INSPECT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    inspect.add_argument("files", metavar="FILE", nargs="+", help="the file; for ASF/AMC the skeleton, then the motion")
    inspect.set_defaults(run=_inspect)

    clips = commands.add_parser("clips", help="list the clips of the library", description="List the library's clips.")
    clips.add_argument("--kind", help="only clips of this kind, such as walk")
    clips.add_argument("--split", choices=("train", "heldout"), help="only clips of this split")
    _library_argument(clips)
    clips.set_defaults(run=_clips)
    return parser


def main(argv: list[str]) -> int | None:
    """Run one command; returns the exit status."""
    arguments = build_parser().parse_args(argv)
    return arguments.run(arguments)


def _library_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--library", default=LIBRARY, metavar="FILE", help=f"motion library (default: {LIBRARY})")


def _load_library(path: str) -> Any:
    if not Path(path).is_file():
        raise InputError.at(path, None, "no motion library (found no such file, expected one from `dvc repro motion`)")
    from engine.motion.library import MotionLibrary

    return MotionLibrary.load(path)


def _load_player(policy: str, **options: Any) -> Any:
    from engine import players

    return players.load(policy, **options)


def _play(arguments: argparse.Namespace) -> int:
    from engine import play

    play.check_outputs(arguments.out)
    pushes = [play.Push.parse(text) for text in arguments.push]
    size = _parse_size(arguments.size)
    terrain = play.parse_terrain(arguments.terrain, arguments.seed)
    if arguments.friction is not None and not 0 < arguments.friction < 10:
        raise InputError(f"--friction: out of range (found {arguments.friction:g}, expected more than 0, less than 10)")
    library = _load_library(arguments.library)
    clip = play.find_clip(library, arguments.clip)
    outputs = arguments.out or [f"{library.names[clip]}.mp4"]
    last = int(library.length[clip]) - 2
    if not 0 <= arguments.start <= last:
        raise InputError(f"--start: outside the clip (found {arguments.start}, expected 0 to {last})")
    frames = arguments.frames if arguments.frames is not None else min(300, last + 1 - arguments.start)
    if not 1 <= frames <= last + 1 - arguments.start:
        expected = f"1 to {last + 1 - arguments.start} from frame {arguments.start}"
        raise InputError(f"--frames: outside the clip (found {frames}, expected {expected})")

    options: dict[str, Any] = {
        "mmik": not arguments.no_mmik,
        "path_following": arguments.path_following,
        "terrain": terrain,
    }
    if arguments.friction is not None:
        options["friction"] = arguments.friction
    if arguments.live:
        from engine.live import serve

        serve(arguments.policy, library, clip, options, arguments.port, arguments.start)
        return 0
    player = _load_player(arguments.policy, n=1, library=library, **options)
    recording = play.record(player, library, clip, arguments.start, frames, pushes, progress=True)
    ghost = "none" if arguments.no_ghost else "world" if arguments.world_ghost else "overlay"
    lines = play.write_outputs(
        outputs,
        recording,
        ghost=ghost,
        ground=play.ground_of(terrain),
        size=size,
        renderer=arguments.renderer,
        progress=True,
    )
    print("\n".join([_describe_run(library, clip, arguments.start, frames, recording), *lines]))
    return 0


def _describe_run(library: Any, clip: int, start: int, frames: int, recording: Any) -> str:
    fell = recording.fell_frame
    fate = (
        f"kept going for {frames / 30:.1f} s" if fell is None else f"fell after {fell / 30:.1f} of {frames / 30:.1f} s"
    )
    return (
        f"{library.names[clip]} from frame {start}: {fate}; joints {100 * recording.joint_error_m:.2f} cm from the "
        f"reference (root aligned), root {100 * recording.drift_m:.0f} cm off its path at the end"
    )


def _parse_size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().partition("x")
    if width.isdecimal() and height.isdecimal():
        size = int(width), int(height)
        if all(64 <= s <= 4096 and s % 2 == 0 for s in size):
            return size
    raise InputError(f"--size: cannot use it (found {text!r}, expected WxH, even numbers from 64 to 4096)")


def _inspect(arguments: argparse.Namespace) -> int:
    paths = [Path(p) for p in arguments.files]
    if len(paths) > 2:
        raise InputError(f"inspect: too many files (found {len(paths)}, expected one, or an .asf and an .amc)")
    for path in paths:
        if not path.exists():
            raise InputError.at(path, None, "no such file (found nothing, expected a motion or policy file)")
    if paths[0].suffix.lower() == ".onnx":
        from engine.inspect_policy import inspect_policy

        report = inspect_policy(paths[0])
        print(report.text())
        if report.problems:
            raise InputError(report.problems[0])
        return 0
    from engine.inspect_file import inspect_motion

    print("\n".join(inspect_motion(*paths)))
    return 0


def _clips(arguments: argparse.Namespace) -> int:
    library = _load_library(arguments.library)
    rows = [
        (name, kind, split, str(int(length)), f"{length / 30:.1f}", f"{period / 30:.2f}", licence)
        for name, kind, split, length, period, licence in zip(
            library.names,
            library.kind,
            library.split,
            library.length,
            library.period,
            _each(library.licence, len(library.names)),
            strict=True,
        )
        if (arguments.kind is None or kind == arguments.kind) and (arguments.split is None or split == arguments.split)
    ]
    if not rows:
        kinds = ", ".join(sorted(set(library.kind)))
        raise InputError.at(arguments.library, None, f"no such clip (found 0 of this kind and split, expected {kinds})")
    header = ("clip", "kind", "split", "frames", "seconds", "period_s", "licence")
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    for row in (header, *rows):
        cells = [c.rjust(w) if 3 <= k <= 5 else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        print("  ".join(cells).rstrip())
    return 0


def _each(values: Any, count: int) -> list[str]:
    return [values] * count if isinstance(values, str) else list(values)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    run_main(main)
