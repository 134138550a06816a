"""Acclaim skeleton files (ASF): bones with direction, length, axis and channels, and which hangs on which."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.errors import InputError
from engine.motion.clip import Array
from engine.motion.text_file import excerpt, parse_float, read_text

INCH_M = 0.0254
MAX_NAME = 200
_SECTIONS = ("version", "name", "units", "documentation", "root", "bonedata", "hierarchy", "skin")
_DOF = ("rx", "ry", "rz", "tx", "ty", "tz")


@dataclass
class Bone:
    """One bone: unit direction (3,), length, axis angles [deg] with their order, channel names."""

    name: str
    line: int
    direction: Array = field(default_factory=lambda: np.zeros(3))
    length: float = 0.0
    axis: Array = field(default_factory=lambda: np.zeros(3))
    axis_order: str = "xyz"
    dof: list[str] = field(default_factory=list)
    parent: int = -1


@dataclass
class AcclaimSkeleton:
    """The skeleton of an ASF file: bone 0 is the root, parents first, angles in degrees, lengths as in the file."""

    bones: list[Bone]
    root_position: Array
    unit_m: float | None
    degrees: bool


def read_asf(path: str | Path) -> AcclaimSkeleton:
    """Read an Acclaim skeleton.

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``.
    """
    path = Path(path)
    sections = _sections(path)
    unit_m, degrees = _read_units(path, sections.get("units", []))
    root, position = _read_root(path, sections["root"])
    to_degrees = 1.0 if degrees else float(np.rad2deg(1.0))
    bones = {"root": root, **_read_bones(path, sections["bonedata"])}
    for bone in bones.values():
        bone.axis = bone.axis * to_degrees
    return AcclaimSkeleton(_order(path, bones, sections["hierarchy"]), position, unit_m, degrees)


def _sections(path: Path) -> dict[str, list[tuple[int, list[str]]]]:
    """Lines of each ``:section``, as (line number, words); comments and blank lines left out."""
    sections: dict[str, list[tuple[int, list[str]]]] = {}
    current: list[tuple[int, list[str]]] | None = None
    for number, text in enumerate(read_text(path).split("\n"), 1):
        words = text.split("#", 1)[0].split()
        if not words:
            continue
        if words[0].startswith(":"):
            key = words[0][1:].lower()
            if key not in _SECTIONS:
                raise InputError.at(
                    path, number, f"unknown section (found {excerpt(words[0])}, expected :{', :'.join(_SECTIONS)})"
                )
            if key in sections:
                raise InputError.at(path, number, f"section given twice (found :{key} again, expected it once)")
            current = sections.setdefault(key, [])
            current.append((number, words[1:]))
        elif current is None:
            raise InputError.at(path, number, f"not an ASF file (found {excerpt(text)!r}, expected :version)")
        else:
            current.append((number, words))
    for key in ("root", "bonedata", "hierarchy"):
        if key not in sections:
            found = ", ".join(f":{k}" for k in sections) or "no section"
            raise InputError.at(
                path, None, f"section :{key} is missing: cut off or no ASF file (found {found}, expected :{key})"
            )
    return sections


def _numbers(path: Path, line: int, what: str, words: list[str], count: int) -> Array:
    if len(words) != count:
        raise InputError.at(path, line, f"{what} has the wrong length (found {len(words)} values, expected {count})")
    try:
        return np.array([parse_float(w) for w in words])
    except ValueError as error:
        raise InputError.at(path, line, f"{what}: {error}") from None


def _read_units(path: Path, lines: list[tuple[int, list[str]]]) -> tuple[float | None, bool]:
    unit_m, degrees = None, True
    for number, words in lines[1:]:
        if words[0].lower() == "length":
            value = _numbers(path, number, "length", words[1:], 1)[0]
            if value <= 0:
                raise InputError.at(path, number, f"length unit is not positive (found {words[1]}, expected > 0)")
            unit_m = INCH_M / float(value)
        elif words[0].lower() == "angle":
            if len(words) != 2 or words[1].lower()[:3] not in ("deg", "rad"):
                raise InputError.at(
                    path, number, f"angle unit (found {excerpt(' '.join(words[1:]))!r}, expected deg or rad)"
                )
            degrees = words[1].lower().startswith("deg")
    return unit_m, degrees


def _order_string(path: Path, line: int, word: str) -> str:
    if sorted(word.lower()) != ["x", "y", "z"]:
        raise InputError.at(path, line, f"axis order (found {excerpt(word)!r}, expected XYZ in some order)")
    return word.lower()


def _dof(path: Path, line: int, words: list[str]) -> list[str]:
    names = [w.lower() for w in words]
    for i, name in enumerate(names):
        if name not in _DOF or name in names[:i]:
            problem = "channel given twice" if name in names[:i] else "channel not read"
            raise InputError.at(
                path, line, f"{problem} (found {excerpt(words[i])}, expected each of {' '.join(_DOF)} at most once)"
            )
    return names


def _read_root(path: Path, lines: list[tuple[int, list[str]]]) -> tuple[Bone, Array]:
    root, position = Bone("root", lines[0][0]), np.zeros(3)
    for number, words in lines[1:]:
        key = words[0].lower()
        if key == "order":
            root.dof = _dof(path, number, words[1:])
        elif key == "axis":
            root.axis_order = _order_string(path, number, words[1] if len(words) == 2 else "")
        elif key == "position":
            position = _numbers(path, number, "root position", words[1:], 3)
        elif key == "orientation":
            root.axis = _numbers(path, number, "root orientation", words[1:], 3)
        else:
            raise InputError.at(
                path,
                number,
                f"unknown root field (found {excerpt(words[0])}, expected order, axis, position, orientation)",
            )
    return root, position


def _read_bones(path: Path, lines: list[tuple[int, list[str]]]) -> dict[str, Bone]:
    bones: dict[str, Bone] = {}
    bone: Bone | None = None
    last = lines[0][0]
    for number, words in lines[1:]:
        last, key, rest = number, words[0].lower(), words[1:]
        if key == "begin":
            if bone is not None:
                raise InputError.at(path, number, f"bone {bone.name!r} is not closed (found begin, expected end)")
            bone = Bone("", number)
        elif bone is None:
            raise InputError.at(path, number, f"text outside a bone (found {excerpt(words[0])!r}, expected begin)")
        elif key == "end":
            _check_bone(path, number, bone, bones)
            bones[bone.name], bone = bone, None
        elif key == "name":
            bone.name = _bone_name(path, number, rest)
        elif key == "direction":
            bone.direction = _numbers(path, number, f"direction of {bone.name!r}", rest, 3)
        elif key == "length":
            bone.length = float(_numbers(path, number, f"length of {bone.name!r}", rest, 1)[0])
        elif key == "axis":
            bone.axis = _numbers(path, number, f"axis of {bone.name!r}", rest[:3], 3)
            bone.axis_order = _order_string(
                path, number, rest[3] if len(rest) == 4 else "xyz" if len(rest) == 3 else ""
            )
        elif key == "dof":
            bone.dof = _dof(path, number, rest)
        elif key not in ("id", "limits", "bodymass", "cofmass") and not words[0].startswith("("):
            raise InputError.at(
                path, number, f"unknown bone field (found {excerpt(words[0])!r}, expected name, direction ...)"
            )
    if bone is not None:
        raise InputError.at(path, last, f"bone {bone.name!r} is not closed (found the end of :bonedata, expected end)")
    return bones


def _bone_name(path: Path, line: int, words: list[str]) -> str:
    name = " ".join(words)
    if not 0 < len(name) <= MAX_NAME:
        raise InputError.at(path, line, f"bone name (found {len(name)} characters, expected 1 to {MAX_NAME})")
    return name


def _check_bone(path: Path, line: int, bone: Bone, bones: dict[str, Bone]) -> None:
    if not bone.name:
        raise InputError.at(path, line, "bone without a name (found end, expected name)")
    if bone.name in bones or bone.name == "root":
        raise InputError.at(path, line, f"two bones named {bone.name!r} (found again, expected unique names)")
    if bone.length < 0:
        raise InputError.at(path, line, f"length of {bone.name!r} is negative (found {bone.length:g}, expected >= 0)")
    norm = float(np.linalg.norm(bone.direction))
    if norm == 0.0 and bone.length > 0:
        raise InputError.at(
            path, line, f"direction of {bone.name!r} is missing or zero (found 0 0 0, expected a direction)"
        )
    bone.direction = bone.direction / norm if norm > 0 else bone.direction


def _order(path: Path, bones: dict[str, Bone], lines: list[tuple[int, list[str]]]) -> list[Bone]:
    """Bones in an order with parents first, as the hierarchy lists them."""
    index, ordered = {"root": 0}, [bones["root"]]
    for number, words in lines[1:]:
        if words[0].lower() in ("begin", "end"):
            continue
        if words[0] not in index:
            raise InputError.at(
                path, number, f"parent not connected yet (found {excerpt(words[0])!r}, expected a bone named above)"
            )
        for name in words[1:]:
            if name not in bones or name in index:
                what = "bone has two parents" if name in index else "unknown bone"
                raise InputError.at(
                    path, number, f"{what} (found {excerpt(name)!r}, expected each bone of :bonedata once)"
                )
            index[name] = len(ordered)
            bones[name].parent = index[words[0]]
            ordered.append(bones[name])
    missing = [n for n in bones if n not in index]
    if missing:
        raise InputError.at(
            path, lines[-1][0], f"bones without a parent (found {', '.join(missing[:5])}, expected all in :hierarchy)"
        )
    return ordered
