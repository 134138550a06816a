"""The ``HIERARCHY`` part of a BVH file: joints, offsets and channels, read statement by statement without recursion.

Braces may stand anywhere, keywords in any case, names may hold blanks, colons, dots and letters of any script. What the
format does not allow is an error with its line: two roots, a name twice, unknown or repeated channels, missing braces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from engine.errors import InputError
from engine.motion.text_file import excerpt, parse_float, parse_int

CHANNELS = {f"{axis}{kind}".lower(): (kind, i) for i, axis in enumerate("XYZ") for kind in ("position", "rotation")}
"""Channel name in lower case -> (kind, axis)."""

MAX_NAME = 200
_BRACE = re.compile(r"(?:(?<=\s)|^)[{}]")


@dataclass
class BvhJoint:
    """A joint as written: index of its parent, line, OFFSET, channel names in order, OFFSET of its End Site."""

    name: str
    parent: int
    line: int
    offset: list[float] | None = None
    channels: list[str] | None = None
    tip: list[float] | None = None


@dataclass
class _Open:
    """An open block: a joint (``tip`` False) or an End Site of it."""

    joint: int
    tip: bool
    line: int
    offset: bool = False


@dataclass
class BvhHierarchy:
    """Joints, parents first; ``end`` is the index of the line after MOTION."""

    joints: list[BvhJoint] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    end: int = 0


def _statements(lines: list[str], start: int) -> Iterator[tuple[int, str]]:
    """Yield (line number, statement): braces are statements of their own, wherever they stand on a line."""
    for number in range(start, len(lines)):
        rest = lines[number].strip()
        while rest:
            brace = _BRACE.search(rest)
            if brace is None:
                yield number + 1, rest
                break
            if rest[: brace.start()].strip():
                yield number + 1, rest[: brace.start()].strip()
            yield number + 1, rest[brace.start()]
            rest = rest[brace.end() :].strip()


def parse_hierarchy(path: Path, lines: list[str]) -> BvhHierarchy:
    """Read from HIERARCHY to MOTION.

    Raises:
        InputError: ``FILE:LINE: what is wrong (found, expected)``.
    """
    first = next(i for i, line in enumerate(lines) if line.strip())
    if lines[first].strip().upper() != "HIERARCHY":
        raise InputError.at(path, first + 1, f"not a BVH file (found {excerpt(lines[first])!r}, expected HIERARCHY)")
    tree = BvhHierarchy()
    seen: dict[str, int] = {}
    stack: list[_Open] = []
    pending: _Open | None = None  # block announced, its "{" not yet seen
    last = first + 1
    for line, statement in _statements(lines, first + 1):
        last = line
        words = statement.split()
        key = words[0].upper()
        if pending is not None:
            if statement != "{":
                raise InputError.at(path, line, f"block not opened (found {excerpt(statement)!r}, expected {{)")
            stack.append(pending)
            pending = None
        elif statement == "{":
            raise InputError.at(path, line, "brace out of place (found {, expected ROOT, JOINT or End Site before it)")
        elif statement == "}":
            if not stack:
                raise InputError.at(path, line, "one closing brace too many (found }, expected MOTION)")
            _check_closed(path, line, stack.pop(), tree)
        elif key in ("ROOT", "JOINT"):
            pending = _open_joint(path, line, key, statement, tree, seen, stack)
        elif (key == "END" and len(words) > 1 and words[1].upper() == "SITE") or key == "ENDSITE":
            if not stack or stack[-1].tip:
                raise InputError.at(
                    path, line, "End Site out of place (found it outside a joint, expected JOINT or MOTION)"
                )
            pending = _Open(stack[-1].joint, True, line)
        elif key == "OFFSET":
            _read_offset(path, line, words[1:], tree, stack)
        elif key == "CHANNELS":
            _read_channels(path, line, words[1:], tree, stack)
        elif key == "MOTION":
            _check_end(path, line, tree, stack)
            tree.end = line
            return tree
        else:
            expected = (
                "ROOT" if not tree.joints else "MOTION" if not stack else "OFFSET, CHANNELS, JOINT, End Site or }"
            )
            raise InputError.at(path, line, f"unknown statement (found {excerpt(statement)!r}, expected {expected})")
    if not tree.joints:
        raise InputError.at(path, last, "no skeleton (found the end of the file, expected ROOT)")
    open_name = f" inside {tree.joints[stack[-1].joint].name!r}" if stack else ""
    raise InputError.at(
        path, last, f"the file is cut off (found its end{open_name}, expected {'}' if stack else 'MOTION'})"
    )


def _open_joint(
    path: Path, line: int, key: str, statement: str, tree: BvhHierarchy, seen: dict[str, int], stack: list[_Open]
) -> _Open:
    name = statement[len(key) :].strip()
    if not name:
        raise InputError.at(path, line, f"{key} without a name (found nothing, expected a name)")
    if len(name) > MAX_NAME:
        raise InputError.at(path, line, f"name too long (found {len(name)} characters, expected at most {MAX_NAME})")
    if key == "ROOT" and tree.joints:
        raise InputError.at(
            path, line, f"a second ROOT {name!r} (found 2 roots, expected 1: one character a file, split the file)"
        )
    if key == "JOINT" and (not stack or stack[-1].tip):
        expected = "ROOT" if not tree.joints else "JOINT inside a joint"
        raise InputError.at(path, line, f"JOINT {name!r} out of place (found it outside a joint, expected {expected})")
    if name in seen:
        raise InputError.at(
            path, line, f"two joints named {name!r} (found again, first on line {seen[name]}; expected unique names)"
        )
    seen[name] = line
    tree.joints.append(BvhJoint(name, stack[-1].joint if stack else -1, line))
    return _Open(len(tree.joints) - 1, False, line)


def _read_offset(path: Path, line: int, words: list[str], tree: BvhHierarchy, stack: list[_Open]) -> None:
    if not stack:
        raise InputError.at(path, line, "OFFSET out of place (found it outside a joint, expected ROOT or MOTION)")
    block, joint = stack[-1], tree.joints[stack[-1].joint]
    if block.offset:
        raise InputError.at(path, line, f"OFFSET given twice for {joint.name!r} (found 2, expected 1)")
    if len(words) not in (3, 6):  # some exporters add the rest rotation as three more numbers
        raise InputError.at(
            path, line, f"OFFSET of {joint.name!r} has the wrong length (found {len(words)} numbers, expected 3)"
        )
    try:
        values = [parse_float(w) for w in words][:3]
    except ValueError as error:
        raise InputError.at(path, line, f"OFFSET of {joint.name!r}: {error}") from None
    block.offset = True
    if not block.tip:
        joint.offset = values
    elif joint.tip is None:
        joint.tip = values
    else:
        tree.notes.append(f"line {line}: joint {joint.name!r} has a second End Site, the first is used")


def _read_channels(path: Path, line: int, words: list[str], tree: BvhHierarchy, stack: list[_Open]) -> None:
    if not stack or stack[-1].tip:
        raise InputError.at(path, line, "CHANNELS out of place (found it outside a joint, expected it inside one)")
    joint = tree.joints[stack[-1].joint]
    if joint.channels is not None:
        raise InputError.at(path, line, f"CHANNELS given twice for {joint.name!r} (found 2, expected 1)")
    if not words:
        raise InputError.at(
            path, line, f"CHANNELS of {joint.name!r} without a count (found nothing, expected a number)"
        )
    try:
        count = parse_int(words[0])
    except ValueError as error:
        raise InputError.at(path, line, f"CHANNELS of {joint.name!r}: {error}") from None
    names = words[1:]
    for i, name in enumerate(names):
        if name.lower() not in CHANNELS:
            raise InputError.at(
                path,
                line,
                f"unknown channel (found {excerpt(name)!r}, expected Xposition ... Zposition, Xrotation ... Zrotation)",
            )
        if name.lower() in (n.lower() for n in names[:i]):
            raise InputError.at(
                path, line, f"channel given twice for {joint.name!r} (found {name} twice, expected once)"
            )
    if count != len(names):
        raise InputError.at(
            path, line, f"CHANNELS count of {joint.name!r} is wrong (found {len(names)} names, expected {count})"
        )
    joint.channels = names


def _check_closed(path: Path, line: int, block: _Open, tree: BvhHierarchy) -> None:
    joint = tree.joints[block.joint]
    what = f"End Site of {joint.name!r}" if block.tip else f"joint {joint.name!r}"
    if not block.offset:
        raise InputError.at(path, line, f"{what} (line {block.line}) has no OFFSET (found }}, expected OFFSET)")
    if not block.tip and joint.channels is None:
        raise InputError.at(path, line, f"{what} (line {block.line}) has no CHANNELS (found }}, expected CHANNELS)")


def _check_end(path: Path, line: int, tree: BvhHierarchy, stack: list[_Open]) -> None:
    if not tree.joints:
        raise InputError.at(path, line, "no skeleton (found MOTION, expected ROOT)")
    if stack:
        name = tree.joints[stack[-1].joint].name
        raise InputError.at(
            path,
            line,
            f"{len(stack)} closing brace(s) missing, innermost block of {name!r} (found MOTION, expected }})",
        )
