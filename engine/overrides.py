"""Change single values of a parameter file: small runs for tests, and whole runs on other data, from one pipeline.

Run as ``python -m engine.overrides params.yaml --set train.unified.samples=1e4 --set "seeds=[0, 1]"`` or with
``--file small.yaml``, a flat list of the same keys. Comments and order of the file stay.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from engine.errors import InputError, run_main
from engine.params import ParamsFile, listed, nearest


def override(
    path: str | os.PathLike[str], values: Mapping[str, Any], out: str | os.PathLike[str] | None = None
) -> None:
    """Rewrite a parameter file with some values changed.

    Args:
        path: The parameter file.
        values: Dotted key to new value; text is read as YAML, so ``"1e3"`` and ``"[walk, run]"`` mean what they say.
        out: Where to write; the file itself if None.

    Raises:
        InputError: A key is not in the file (values change, keys are never invented), or a value is not YAML.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    document = yaml.load(ParamsFile(path).text)
    for dotted, value in values.items():
        names = dotted.split(".")
        place = document
        for depth, name in enumerate(names):
            if not isinstance(place, Mapping) or name not in place:
                known = list(place) if isinstance(place, Mapping) else []
                key = ".".join(names[: depth + 1])
                message = f"{key}: unknown key{nearest(name, known)} (found {name}, expected one of {listed(known)})"
                raise InputError.at(path, None, message)
            if depth < len(names) - 1:
                place = place[name]
        place[names[-1]] = _value(path, dotted, value) if isinstance(value, str) else value
    target = Path(path if out is None else out)
    temporary = target.with_name(target.name + ".tmp")
    with open(temporary, "w", encoding="utf-8") as stream:
        yaml.dump(document, stream)
    os.replace(temporary, target)


def read_overrides(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the ``dotted key -> value`` lines of an override file."""
    file = ParamsFile(path)
    file.entries(file.root, "")
    return dict(YAML(typ="safe", pure=True).load(file.text))


def _value(path: str | os.PathLike[str], dotted: str, text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        raise InputError.at(
            path, None, f"{dotted}: not a YAML value (found {text!r}, expected such as 3 or [a, b])"
        ) from None


def main(argv: list[str]) -> None:
    """Command line: see the module's text."""
    parser = argparse.ArgumentParser(
        prog="python -m engine.overrides", description="Change values of a parameter file."
    )
    parser.add_argument("params", type=Path, help="the parameter file")
    parser.add_argument("--file", type=Path, help="YAML file of 'dotted.key: value' lines")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one value; may be repeated")
    parser.add_argument("--out", type=Path, help="where to write (default: the file itself)")
    args = parser.parse_args(argv)
    values = read_overrides(args.file) if args.file else {}
    for text in args.set:
        key, equals, value = text.partition("=")
        if not equals:
            parser.error(f"--set takes KEY=VALUE, not {text!r}")
        values[key.strip()] = value
    override(args.params, values, args.out)


if __name__ == "__main__":
    run_main(main)
