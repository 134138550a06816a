"""Strict reader of ``params.yaml``: one section into one frozen dataclass, or one line that says what is wrong.

Every program reads its section once, at its start::

    @dataclass(frozen=True)
    class PpoParams:
        gamma: Annotated[float, Range(gt=0, le=1)]
        hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]
        seed: Seed

    params = read_section("params.yaml", "train.unified_paper.ppo", PpoParams)

The dataclasses carry no defaults, so the file is the only place where a value is set: an unknown or a missing key is an
error that names the key and the nearest known one. The file is YAML 1.2 as DVC reads it (``010`` is ten, ``y`` is a
letter, ``1e6`` is a number). A key that is a Python keyword has a field with an underscore behind it (``lambda_``).

Types understood: int, float, bool, str, Literal, list, tuple, dict[str, ...] and nested dataclasses, each optionally in
``typing.Annotated`` with the conditions below. `Range`, `Lower` reach through lists and dicts to each element.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import math
import os
import re
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from engine.errors import InputError

T = TypeVar("T")
_MAX_DEPTH = 100
_INTEGER = re.compile(r"[-+]?(0x[0-9a-f]+|0o[0-7]+|0b[01]+|[0-9]+)$", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Range:
    """Bounds of a number, or of each number in a list or dict."""

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None

    def holds(self, value: float) -> bool:
        return (
            (self.gt is None or value > self.gt)
            and (self.ge is None or value >= self.ge)
            and (self.lt is None or value < self.lt)
            and (self.le is None or value <= self.le)
        )

    def __str__(self) -> str:
        bounds = ((">", self.gt), (">=", self.ge), ("<", self.lt), ("<=", self.le))
        return " and ".join(f"{sign} {bound:g}" for sign, bound in bounds if bound is not None)


@dataclasses.dataclass(frozen=True)
class NotEmpty:
    """A list, dict or text with something in it."""


@dataclasses.dataclass(frozen=True)
class Unique:
    """A list that names nothing twice."""


@dataclasses.dataclass(frozen=True)
class NotAllZero:
    """A dict or dataclass of weights of which at least one is not zero (their sum may be a divisor)."""


@dataclasses.dataclass(frozen=True)
class Lower:
    """Text taken in either case and handed on in lower case."""


Seed = Annotated[int, Range(ge=0, lt=2**32)]
Axis = Annotated[Literal["x", "y", "z"], Lower()]
Positive = Annotated[float, Range(gt=0)]
NonNegative = Annotated[float, Range(ge=0)]
Fraction = Annotated[float, Range(ge=0, le=1)]


def read_section(path: str | os.PathLike[str], section: str, cls: type[T]) -> T:
    """Read one section of a parameter file into a frozen dataclass.

    Args:
        path: The parameter file.
        section: Dotted name of the section, such as ``train.unified``; empty for the whole file.
        cls: Frozen dataclass whose fields are the section's keys.

    Returns:
        An instance of ``cls``.

    Raises:
        InputError: ``FILE:LINE: key: what (found ..., expected ...)`` for whatever does not fit.
    """
    reader = ParamsFile(path)
    node = reader.root
    taken: list[str] = []
    for name in filter(None, section.split(".")):
        entries = reader.entries(node, ".".join(taken))
        taken.append(name)
        if name not in entries:
            reader.fail(node, ".".join(taken), f"missing section{nearest(name, entries)}", listed(entries), name)
        node = entries[name][1]
    return reader.convert(node, cls, ".".join(taken))


def params_digest(params: Any) -> str:
    """Return the sha256 of a parameter dataclass (or plain values) as hex; equal values give equal digests."""
    plain = dataclasses.asdict(params) if dataclasses.is_dataclass(params) and not isinstance(params, type) else params
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


class ParamsFile:
    """The composed nodes of one file; nodes rather than values, since they know their lines."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        try:
            self.text = Path(path).read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = f"not a text file (found byte {error.object[error.start]:#04x}, expected UTF-8)"
            raise InputError.at(path, error.object.count(b"\n", 0, error.start) + 1, message) from None
        except OSError as error:
            reason = (error.strerror or "error").lower()
            raise InputError.at(path, None, f"cannot be read ({reason}, expected a YAML file)") from None
        too_deep = InputError.at(path, None, "nested too deep (expected sections of keys and values)")
        if _depth(self.text) > _MAX_DEPTH:
            raise too_deep
        try:
            root = YAML(pure=True).compose(self.text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = error.problem or error.context or "syntax error"
            message = f"not YAML: {problem} (expected 'key: value' lines)"
            raise InputError.at(path, mark.line + 1 if mark else None, message) from None
        except (YAMLError, ValueError) as error:
            raise InputError.at(path, None, f"not YAML: {error}") from None
        except RecursionError:
            raise too_deep from None
        if root is None or (isinstance(root, ScalarNode) and not root.value):
            raise InputError.at(path, None, "the file is empty (found nothing, expected sections of keys and values)")
        self.root: Node = root

    def fail(self, node: Node, key: str, what: str, expected: str, found: str | None = None) -> NoReturn:
        """Raise the one-line error for ``key`` at ``node``."""
        found = _shown(node) if found is None else found
        place = f"{key}: " if key else ""
        line = node.start_mark.line + 1 if node.start_mark else None
        raise InputError.at(self.path, line, f"{place}{what} (found {found}, expected {expected})")

    def entries(self, node: Node, key: str) -> dict[str, tuple[Node, Node]]:
        """Return a mapping's ``name -> (key node, value node)``; a name that stands twice is an error."""
        if not isinstance(node, MappingNode):
            self.fail(node, key, "not a section", "keys and values")
        found: dict[str, tuple[Node, Node]] = {}
        for name_node, value_node in node.value:
            if not isinstance(name_node, ScalarNode):
                self.fail(name_node, key, "a key that is not a name", "a name")
            name = name_node.value
            dotted = f"{key}.{name}" if key else name
            if name in found:
                first = found[name][0].start_mark.line + 1
                self.fail(name_node, dotted, "duplicate key", f"one; the first is in line {first}", f"{name} twice")
            found[name] = (name_node, value_node)
        return found

    def convert(self, node: Node, kind: Any, key: str, conditions: tuple[Any, ...] = ()) -> Any:
        """Return the node's value as ``kind``, every condition checked."""
        origin = get_origin(kind)
        if origin is Annotated:
            inner, *more = get_args(kind)
            return self.convert(node, inner, key, (*conditions, *more))
        if origin in (Union, types.UnionType):
            raise TypeError(f"{key}: {kind} is not supported: a parameter has one type")
        if isinstance(node, ScalarNode) and _tag(node) == "null":
            self.fail(node, key, "no value", _wanted(kind, conditions), "null")
        if dataclasses.is_dataclass(kind):
            value = self._dataclass(node, kind, key)
        elif origin is dict or kind is dict:
            value_kind = get_args(kind)[1] if get_args(kind) else float
            inner = _for_elements(conditions)
            value = {
                name: self.convert(value_node, value_kind, f"{key}.{name}", inner)
                for name, (_, value_node) in self.entries(node, key).items()
            }
        elif origin in (list, tuple) or kind in (list, tuple):
            value = self._sequence(node, kind, key, conditions)
        else:
            value = self._scalar(node, kind, key, conditions)
        self._check_whole(node, value, key, conditions)
        return value

    def _dataclass(self, node: Node, cls: Any, key: str) -> Any:
        if not isinstance(node, MappingNode):
            self.fail(node, key, "not a section", f"keys {listed(_keys(cls))}")
        entries = self.entries(node, key)
        hints = get_type_hints(cls, include_extras=True)
        fields = dict(zip(_keys(cls), dataclasses.fields(cls), strict=True))
        for name, (name_node, _) in entries.items():
            if name not in fields:
                dotted = f"{key}.{name}" if key else name
                what = f"unknown key{nearest(name, fields)}"
                self.fail(name_node, dotted, what, f"one of {listed(fields)}", name)
        values = {}
        for name, field in fields.items():
            dotted = f"{key}.{name}" if key else name
            if name not in entries:
                wanted = _wanted(hints[field.name], ())
                self.fail(node, dotted, "missing key", wanted, f"only {listed(entries)}")
            values[field.name] = self.convert(entries[name][1], hints[field.name], dotted)
        return cls(**values)

    def _sequence(self, node: Node, kind: Any, key: str, conditions: tuple[Any, ...]) -> Any:
        if not isinstance(node, SequenceNode):
            self.fail(node, key, "not a list", _wanted(kind, conditions))
        kinds = get_args(kind) or (float, ...)
        container = list if (get_origin(kind) or kind) is list else tuple
        if container is tuple and kinds[-1] is not ...:
            if len(node.value) != len(kinds):
                self.fail(node, key, "a list of the wrong length", f"{len(kinds)} items", f"{len(node.value)} items")
        else:
            kinds = (kinds[0],) * len(node.value)
        inner = _for_elements(conditions)
        items = zip(node.value, kinds, strict=True)
        return container(self.convert(item, k, f"{key}[{i}]", inner) for i, (item, k) in enumerate(items))

    def _scalar(self, node: Node, kind: Any, key: str, conditions: tuple[Any, ...]) -> Any:
        wanted = _wanted(kind, conditions)
        tag = _tag(node)
        if kind is bool:
            if tag != "bool":
                self.fail(node, key, "not true or false", wanted)
            return str(node.value).lower() == "true"
        if kind in (int, float):
            if tag not in ("int", "float"):
                self.fail(node, key, "not a number", wanted)
            number = _number(node.value)
            if not math.isfinite(number):
                self.fail(node, key, "not a finite number", wanted)
            if kind is int and number != int(number):
                self.fail(node, key, "not a whole number", wanted)
            number = kind(number)
            for condition in conditions:
                if isinstance(condition, Range) and not condition.holds(number):
                    self.fail(node, key, "out of range", wanted)
            return number
        choices = get_args(kind) if get_origin(kind) is Literal else None
        if choices is not None and all(isinstance(choice, int) for choice in choices):
            value: Any = self._scalar(node, bool if isinstance(choices[0], bool) else int, key, ())
        elif kind is str or choices is not None:
            if tag != "str":
                self.fail(node, key, "not text" if tag in ("map", "seq") else "not text; quote it", wanted)
            value = node.value.lower() if any(isinstance(c, Lower) for c in conditions) else node.value
        else:
            raise TypeError(f"{key}: unsupported parameter type {kind!r}")
        if choices is not None and value not in choices:
            near = nearest(value, [str(c) for c in choices]) if isinstance(value, str) else ""
            self.fail(node, key, f"unknown choice{near}", wanted)
        return value

    def _check_whole(self, node: Any, value: Any, key: str, conditions: tuple[Any, ...]) -> None:
        for condition in conditions:
            if isinstance(condition, NotEmpty) and len(value) == 0:
                self.fail(node, key, "empty", "at least one item", "nothing")
            elif isinstance(condition, Unique):
                seen: list[Any] = []
                for item_node, item in zip(node.value, value, strict=True):
                    if item in seen:
                        self.fail(item_node, key, f"{item} is named twice", "each once")
                    seen.append(item)
            elif isinstance(condition, NotAllZero):
                parts = value if isinstance(value, dict) else dataclasses.asdict(value)
                if not any(parts.values()):
                    self.fail(node, key, "all weights are zero", "at least one that is not", ", ".join(parts))


def _depth(text: str) -> int:
    """Return how deep brackets and dashes nest, counted before the parser, whose time grows with the square of it."""
    depth = deepest = 0
    for token in re.finditer(r"[\[{]|[\]}]|(?:[-?:][ \t]+){8,}", text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        deepest = max(deepest, depth, len(token[0]) // 2)
    return deepest


def _keys(cls: Any) -> list[str]:
    return [field.name.rstrip("_") for field in dataclasses.fields(cls)]


def _for_elements(conditions: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(c for c in conditions if isinstance(c, (Range, Lower)))


def _tag(node: Node) -> str:
    return str(node.tag).rsplit(":", 1)[-1]


def _number(text: str) -> int | float:
    text = text.replace("_", "").lower()
    match = _INTEGER.match(text)
    if match:
        prefix = match[1][:2]
        return int(text, {"0x": 16, "0o": 8, "0b": 2}.get(prefix, 10)) if len(text) < 400 else math.inf
    if text.lstrip("+-") in (".inf", ".nan"):
        return math.nan if text.endswith("nan") else math.inf
    return float(text)


def _shown(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a section"
    if isinstance(node, SequenceNode):
        return f"a list of {len(node.value)}"
    text = node.value if len(node.value) <= 60 else node.value[:57] + "..."
    return f"'{text}'" if _tag(node) == "str" else text or "null"


def listed(names: Iterable[str]) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") if names else "nothing"


def nearest(name: str, known: Iterable[str]) -> str:
    match = difflib.get_close_matches(str(name), [str(k) for k in known], n=1, cutoff=0.5)
    return f", did you mean {match[0]}?" if match else ""


def _wanted(kind: Any, conditions: tuple[Any, ...]) -> str:
    """Say in words what a field takes, such as ``a number > 0 and <= 1``."""
    if get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        return _wanted(inner, (*conditions, *more))
    bounds = " and ".join(str(c) for c in conditions if isinstance(c, Range))
    bounds = f" {bounds}" if bounds else ""
    if dataclasses.is_dataclass(kind):
        return f"a section with {listed(_keys(kind))}"
    origin = get_origin(kind) or kind
    if origin is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(kind))
    if origin in (list, tuple):
        inner = get_args(kind)[0] if get_args(kind) else float
        return f"a list, each {_wanted(inner, _for_elements(conditions))}"
    if origin is dict:
        return f"a section of names, each {_wanted((get_args(kind) or (str, float))[1], _for_elements(conditions))}"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return names.get(kind, str(kind)) + bounds
