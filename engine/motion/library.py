"""The motion library: every clip of params.yaml on the character, repeated to episode length, with all its features.

Run ``python -m engine.motion.library --params params.yaml --raw data/raw --out data/library.npz --report
results/motion_quality.csv``. Per clip: read, retarget, cut, repair jumps, close the cycle, repeat, label contacts,
filter the height, compute features. Nothing here is random, and equal inputs give equal bytes.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from engine.errors import InputError, run_main
from engine.motion.build import BuiltClip, build_clip, standing_motion
from engine.motion.config import ClipParams, MotionParams
from engine.motion.features import full_features, mean_inertia_b, srb_features, srb_motion
from engine.motion.loops import cut
from engine.motion.mirror import mirror
from engine.motion.quality import clip_quality
from engine.motion.reader import read_motion
from engine.motion.retarget import FPS, CharacterMotion, retarget
from engine.params import read_section
from engine.rotation import quat_normalise
from engine.skeleton import TOTAL_MASS, forward_kinematics

Array = NDArray[np.float64]
#: Raised when the meaning of a field changes.
FORMAT_VERSION = 3
#: Frame arrays, in the order of `BuiltClip`.
FRAME_FIELDS = (
    "com_pos_w",
    "srb_quat_w",
    "com_vel_w",
    "ang_vel_w",
    "foot_pos_w",
    "foot_quat_w",
    "contact",
    "heel_toe",
    "body_pos_w",
    "body_quat_w",
    "root_pos_w",
    "local_quat",
    "ref_srb",
    "ref_full",
)
TEXT_FIELDS = ("names", "kind", "split", "licence")
#: Stored of each frame; everything else follows from these and is computed on loading.
STORED_FRAME_FIELDS = ("root_pos_w", "local_quat", "srb_quat_w", "contact", "heel_toe")


@dataclass(frozen=True)
class MotionLibrary:
    """All clips end to end; F frames in n clips, 30 frames a second, z up, feet left first.

    Attributes:
        com_pos_w: Centre of mass [m] (F, 3).
        srb_quat_w: Orientation of the single rigid body: the pelvis's, filtered (F, 4).
        com_vel_w: Velocity of the centre of mass [m/s] (F, 3); before a flight that of the flight.
        ang_vel_w: Angular velocity of the single rigid body, world axes [rad/s] (F, 3); before a flight likewise.
        foot_pos_w: Sole centres [m] (F, 2, 3); z 0 in stance.
        foot_quat_w: Foot orientations (F, 2, 4).
        contact: Contact class, 0 none, 1 left, 2 right, 3 both (F,) int64.
        heel_toe: Standing heels and toes (F, 2, 2) bool, [foot, heel or toe].
        body_pos_w: Body origins [m] (F, 15, 3).
        body_quat_w: Body orientations (F, 15, 4).
        root_pos_w: Pelvis position [m] (F, 3).
        local_quat: Rotations to the parent body (F, 15, 4).
        ref_srb: Reference single-rigid-body features (F, 35), srb.md 1.4.
        ref_full: Reference full-body features (F, 135), srb.md 1.4.
        names: Clip names.
        kind: Kind of motion of each clip: walk, run, jump, stand, aim, turn or other.
        split: ``train`` or ``heldout`` of each clip.
        licence: Licence of each clip's data.
        start: First frame of each clip (n,) int64.
        length: Frames of each clip (n,) int64.
        period: Frames of one repetition in each clip (n,) int64.
        mass_kg: Mass of the character.
        inertia_b: Mean composite inertia over the training frames, about the centre of mass, rigid-body axes (3, 3).
    """

    com_pos_w: Array
    srb_quat_w: Array
    com_vel_w: Array
    ang_vel_w: Array
    foot_pos_w: Array
    foot_quat_w: Array
    contact: NDArray[np.int64]
    heel_toe: NDArray[np.bool_]
    body_pos_w: Array
    body_quat_w: Array
    root_pos_w: Array
    local_quat: Array
    ref_srb: Array
    ref_full: Array
    names: list[str]
    kind: list[str]
    split: list[str]
    licence: list[str]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    period: NDArray[np.int64]
    mass_kg: float
    inertia_b: Array

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def from_clips(cls, clips: list[BuiltClip]) -> MotionLibrary:
        """Join built clips; at least one must be for training."""
        length = np.array([len(c.contact) for c in clips], np.int64)
        train = [c for c in clips if c.split == "train"]
        if not train:
            raise InputError("motion.clips: no clip to train on (found only held-out clips, expected split: train)")
        body_pos = np.concatenate([c.body_pos_w for c in train])
        body_quat = np.concatenate([c.body_quat_w for c in train])
        srb_quat = np.concatenate([c.srb_quat_w for c in train])
        return cls(
            **{name: np.concatenate([getattr(c, name) for c in clips]) for name in FRAME_FIELDS},
            names=[c.name for c in clips],
            kind=[c.kind for c in clips],
            split=[c.split for c in clips],
            licence=[c.licence for c in clips],
            start=np.concatenate([[0], np.cumsum(length)[:-1]]).astype(np.int64),
            length=length,
            period=np.array([c.period for c in clips], np.int64),
            mass_kg=TOTAL_MASS,
            inertia_b=mean_inertia_b(body_pos, body_quat, srb_quat),
        )

    def frames(self, clip: int | str) -> slice:
        """The frames of a clip, by index or name."""
        i = self.names.index(clip) if isinstance(clip, str) else clip
        return slice(int(self.start[i]), int(self.start[i] + self.length[i]))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one npz; equal libraries give equal bytes, and the file appears whole or not at all.

        Of each frame only the pose (rotations in float32: 1e-7 rad) and the contacts are stored.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(path.name + ".tmp")
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
            values: dict[str, Any] = {"format_version": np.int64(FORMAT_VERSION)}
            derived = set(FRAME_FIELDS) - set(STORED_FRAME_FIELDS)
            values |= {f.name: getattr(self, f.name) for f in fields(self) if f.name not in derived}
            values |= {name: np.asarray(getattr(self, name), np.float32) for name in ("local_quat", "srb_quat_w")}
            for name, value in values.items():
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, np.asarray(value), allow_pickle=False)
                entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, buffer.getvalue(), compresslevel=3)
        os.replace(temporary, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MotionLibrary:
        """Read a library.

        Raises:
            InputError: The file is missing, is no motion library, or of another format version.
        """
        try:
            with np.load(path, allow_pickle=False) as stored:
                data = {name: stored[name] for name in stored.files}
        except FileNotFoundError:
            raise InputError.at(
                path, None, "no such file (expected a motion library; `dvc repro motion` makes it)"
            ) from None
        except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
            raise InputError.at(path, None, f"not a motion library ({error}; expected an npz file)") from None
        version = int(data.pop("format_version", np.int64(-1)))
        wanted = {f.name for f in fields(cls)} - (set(FRAME_FIELDS) - set(STORED_FRAME_FIELDS))
        if version != FORMAT_VERSION or set(data) != wanted:
            missing = ", ".join(sorted(wanted - set(data))) or "nothing missing"
            raise InputError.at(
                path,
                None,
                f"not this version's motion library (found version {version}, {missing}; expected {FORMAT_VERSION})",
            )
        for name in TEXT_FIELDS:
            data[name] = [str(x) for x in data[name]]
        data["mass_kg"] = float(data["mass_kg"])
        try:
            data |= _derive_frames(data)
        except (ValueError, IndexError, TypeError) as error:
            raise InputError.at(path, None, f"not a motion library ({error}; expected arrays of one length)") from None
        return cls(**data)


def _derive_frames(data: dict[str, Any]) -> dict[str, Array]:
    """Every frame array that follows from the stored pose and contacts, clip by clip (derivatives stop at the ends)."""
    root, local = data["root_pos_w"].astype(np.float64), quat_normalise(data["local_quat"].astype(np.float64))
    srb_quat = quat_normalise(data["srb_quat_w"].astype(np.float64))
    parts: dict[str, list[Array]] = {}
    for start, length in zip(data["start"], data["length"], strict=True):
        rows = slice(int(start), int(start + length))
        contact = data["contact"][rows]
        body_pos, body_quat = forward_kinematics(root[rows], local[rows])
        srb = srb_motion(body_pos, body_quat, srb_quat[rows], contact, FPS)
        frames = {
            "root_pos_w": root[rows],
            "local_quat": local[rows],
            "body_pos_w": body_pos,
            "body_quat_w": body_quat,
            "ref_srb": srb_features(srb, contact),
            "ref_full": full_features(srb.com_pos_w, srb.srb_quat_w, body_pos, body_quat),
            **srb._asdict(),
        }
        for name, value in frames.items():
            parts.setdefault(name, []).append(value)
    return {name: np.concatenate(values) for name, values in parts.items()}


def build_library(params: MotionParams, raw: Path) -> tuple[MotionLibrary, pl.DataFrame]:
    """Build the library from raw files.

    Args:
        params: The ``motion`` section.
        raw: Folder with one folder a source, as `engine.motion.fetch` leaves it.

    Returns:
        The library and its quality report, one row a clip, also of files that could not be used (``error``
        says why).

    Raises:
        InputError: A clip's only file is missing or bad, a name is used twice, or no clip is left.
    """
    clips: list[BuiltClip] = []
    rows: list[dict[str, Any]] = []
    motions: dict[tuple[Path, float], CharacterMotion] = {}
    for entry in params.clips:
        paths = _matching(raw, entry)
        for path in paths:
            name = entry.name if len(paths) == 1 else f"{entry.name}_{path.stem}"
            try:
                key = (path, entry.speed)
                if key not in motions:
                    motions[key] = _read(path, entry.speed, raw / entry.source)
                motion = cut(motions[key], entry.from_s / entry.speed, entry.to_s / entry.speed)
                motion.name = name
                for version in [motion, mirror(motion)] if entry.mirror else [motion]:
                    clips.append(build_clip(version, entry.kind, entry.split, params))
                    rows.append(clip_quality(clips[-1]))
            except InputError as error:
                if len(paths) == 1:
                    raise
                rows.append({"clip": name, "error": str(error)})
    if params.standing:
        clips.append(build_clip(standing_motion(params), "stand", "train", params))
        rows.append(clip_quality(clips[-1]))
    names = [c.name for c in clips]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"motion.clips: two clips of one name (found {name} twice, expected each once)")
    if not clips:
        raise InputError.at(raw, None, "no usable clip (found only bad files, expected one that loads)")
    return MotionLibrary.from_clips(clips), pl.DataFrame(rows, infer_schema_length=None)


def quality_report(library: MotionLibrary) -> pl.DataFrame:
    """Quality of a stored library's clips: what can be told from the library alone (see `clip_quality`)."""
    rows = []
    for i in range(len(library)):
        part = library.frames(i)
        clip = BuiltClip(
            name=library.names[i],
            kind=library.kind[i],
            split=library.split[i],
            licence=library.licence[i],
            period=int(library.period[i]),
            report={},
            **{name: getattr(library, name)[part] for name in FRAME_FIELDS},
        )
        rows.append(clip_quality(clip))
    return pl.DataFrame(rows, infer_schema_length=None)


def _matching(raw: Path, entry: ClipParams) -> list[Path]:
    folder = raw / entry.source
    paths = sorted(p for p in folder.glob(entry.file) if p.is_file() and p.suffix.lower() != ".asf")
    if not paths:
        found = ", ".join(sorted(p.name for p in folder.iterdir())[:12]) if folder.is_dir() else "no such folder"
        raise InputError.at(
            folder,
            None,
            f"no file for clip {entry.name} (found {found}; expected {entry.file}; run engine.motion.fetch)",
        )
    return paths


def _read(path: Path, speed: float, folder: Path) -> CharacterMotion:
    motion = retarget(read_motion(path), speed)
    licence = folder / "LICENCE.txt"
    if licence.is_file():
        motion.licence = licence.read_text(encoding="utf-8").strip()
    motion.report["file"] = path.name
    return motion


def main(argv: list[str]) -> int:
    """Command line: build the library and its report."""
    parser = argparse.ArgumentParser(prog="python -m engine.motion.library", description=__doc__)
    parser.add_argument("--params", default="params.yaml", help="parameter file")
    parser.add_argument("--raw", default="data/raw", type=Path, help="folder that engine.motion.fetch filled")
    parser.add_argument("--out", default="data/library.npz", type=Path, help="library to write")
    parser.add_argument("--report", default="results/motion_quality.csv", type=Path, help="quality report to write")
    args = parser.parse_args(argv)
    library, report = build_library(read_section(args.params, "motion", MotionParams), args.raw)
    library.save(args.out)
    args.report.parent.mkdir(parents=True, exist_ok=True)
    report.write_csv(args.report, float_precision=4)
    bad = report.filter(pl.col("error") != "") if "error" in report.columns else report.clear()
    for message in bad["error"]:
        print(f"skipped: {message}", file=sys.stderr)
    frames = int(library.length.sum())
    print(f"{args.out}: {len(library)} clips, {frames} frames ({frames / 30:.0f} s), {len(bad)} files skipped")
    return 0


if __name__ == "__main__":
    run_main(main)
