"""One call for every motion file: picks the reader, brings the clip to metres and z up, warns once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.errors import InputError
from engine.motion.acclaim import CMU_FPS, parse_acclaim
from engine.motion.bvh import parse_bvh
from engine.motion.clip import Clip
from engine.motion.deepmimic import parse_deepmimic
from engine.motion.text_file import excerpt, log_notes, read_text
from engine.motion.trim import fold_extra_root
from engine.motion.units import convert_units_and_axes, metres_per_unit

MOTION_SUFFIXES = (".bvh", ".amc", ".json", ".txt")
"""File name endings that `read_motion` takes as motion, each also with ``.gz``."""


def motion_format(path: str | Path) -> str:
    """Format of a motion file, 'bvh', 'amc' or 'deepmimic': by its ending, else by its first line.

    Raises:
        InputError: Neither says so.
    """
    path = Path(path)
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    by_suffix = {".bvh": "bvh", ".amc": "amc", ".json": "deepmimic", ".txt": "deepmimic"}
    if suffix in by_suffix:
        return by_suffix[suffix]
    if suffix == ".asf":
        raise InputError.at(
            path, None, "a skeleton without motion (found .asf, expected its .amc: the .asf is found beside it)"
        )
    first = next(line.strip() for line in read_text(path).split("\n") if line.strip())
    if first.upper() == "HIERARCHY":
        return "bvh"
    if first.startswith("{"):
        return "deepmimic"
    if first.startswith(("#!OML:ASF", ":FULLY")):
        return "amc"
    raise InputError.at(
        path,
        1,
        f"not a motion file "
        f"(found {excerpt(first)!r}, expected BVH (HIERARCHY), AMC (:FULLY-SPECIFIED) or DeepMimic JSON)",
    )


def find_asf(amc_path: str | Path) -> Path:
    """The skeleton of an AMC file in its folder: same name, the subject's name (``01_02.amc``: 01), or the only one.

    Raises:
        InputError: None, or several and no name fits.
    """
    amc = Path(amc_path)
    if not amc.is_file():
        raise InputError.at(amc, None, "cannot be read (no such file)")
    stem = amc.name.lower().removesuffix(".gz").removesuffix(".amc")
    found = sorted(p for p in amc.parent.iterdir() if p.name.lower().removesuffix(".gz").endswith(".asf"))
    for wanted in (stem, stem.split("_")[0]):
        for candidate in found:
            if candidate.name.lower().removesuffix(".gz").removesuffix(".asf") == wanted:
                return candidate
    if len(found) == 1:
        return found[0]
    names = ", ".join(p.name for p in found) or "none"
    raise InputError.at(amc, None, f"skeleton not found in the same folder (found {names}, expected {stem}.asf)")


def read_motion(
    path: str | Path,
    *,
    up: str | None = None,
    unit: str | float | None = None,
    fps: float | None = None,
    asf: str | Path | None = None,
    licence: str = "",
    fold_root: bool = True,
) -> Clip:
    """Read a BVH, Acclaim or DeepMimic file into a clip in metres with z up.

    Args:
        path: Motion file; ``.gz`` is unpacked.
        up: 'y' or 'z' of the file; None decides (`engine.motion.units.guess_up`).
        unit: Name in `engine.motion.units.UNITS_M` or metres per file unit; None decides by the skeleton's height.
        fps: Frames per second of an AMC file (default 120, as CMU); other formats state theirs, and it replaces that.
        asf: Skeleton of an AMC file; None finds it (`find_asf`).
        licence: Kept in the clip.
        fold_root: Drop a root above the hips (`engine.motion.trim.fold_extra_root`).

    Returns:
        The clip. Warnings are in ``notes`` and ONE line of the logger ``engine.motion``; ``report`` says what was
        decided.

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``.
    """
    if fps is not None and not 0 < fps < 1e5:
        raise InputError.at(path, None, f"frame rate out of range (found {fps:g} fps, expected 0 to 1e5)")
    kind = motion_format(path)
    if kind == "amc":
        clip = parse_acclaim(asf or find_asf(path), path, fps or CMU_FPS)
    else:
        clip = parse_bvh(path) if kind == "bvh" else parse_deepmimic(path)
        if fps is not None:
            clip = replace(
                clip, fps=fps, times_s=clip.times_s[:0], report=[*clip.report, f"frame rate {fps:g} fps (given)"]
            )
    if kind == "deepmimic":
        clip = _rescale_root(clip, unit)
    else:
        clip = convert_units_and_axes(clip, up, unit)
    if fold_root:
        clip = fold_extra_root(clip)
    log_notes(path, clip.notes)
    return replace(clip, licence=licence)


def _rescale_root(clip: Clip, unit: str | float | None) -> Clip:
    """DeepMimic bodies have their own size: a given unit rescales the root's path only."""
    if unit is None:
        return clip
    metres = metres_per_unit(unit, clip.source)
    notes = [n for n in clip.notes if not n.startswith("root height")]
    return replace(
        clip, root_pos_m=clip.root_pos_m * metres, notes=notes, report=[*clip.report, f"root path unit {unit} (given)"]
    )
