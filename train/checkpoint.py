"""Training checkpoints that survive a kill, a full disk and a changed parameter, and resume bit for bit.

A checkpoint is one file ``ckpt_<step>.pt``. It is written to a temporary file in the same folder, forced to the disk
and renamed, so a file of that name is whole; the newest whole one by number is used. It holds all that the next step
depends on:

========== =====================================================================================
weights    state dict of every network
optimiser  state dict of every optimiser and schedule
normaliser running mean, variance and count of the observations
rng        `capture_rng`: states of torch's generator and of the numpy generators in use
dims       widths that the networks were built for (observation, action, hidden ...)
params     the parameters of the run as plain values, with their digest
========== =====================================================================================

Further keys are kept as they are. Equal payloads give equal bytes: texts are interned, tensors copied to the CPU and
made contiguous, and dictionaries keep their order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import pickle
import re
import struct
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from engine.atomic import TEMPORARY_SUFFIX, write_atomic
from engine.errors import InputError
from engine.params import params_digest
from train.log import truncate_log

FORMAT_VERSION = 1
REQUIRED = ("weights", "optimiser", "normaliser", "rng", "dims", "params")
_NAME = re.compile(r"ckpt_([0-9]+)\.pt")
_ARRAY = "__ndarray__"
_BROKEN = (
    RuntimeError, ValueError, LookupError, TypeError, AttributeError, OSError, pickle.UnpicklingError, struct.error
)  # fmt: skip


class Checkpoint(NamedTuple):
    """A checkpoint that was read: where it lies, the step it was taken after, and its payload."""

    path: Path
    step: int
    payload: dict[str, Any]


def save_checkpoint(folder: str | os.PathLike[str], step: int, payload: Mapping[str, Any], keep: int = 3) -> Path:
    """Write a checkpoint and remove the oldest ones.

    Args:
        folder: Folder of this run's checkpoints; made if absent.
        step: Steps done so far, at least 0.
        payload: State dicts, tensors, arrays, numbers, texts and containers of those, with the keys of the module's
            table.
        keep: Checkpoints that stay, this one included, at least 1. Those of later steps (of a run that was taken back)
            are not counted and not removed.

    Returns:
        The file.

    Raises:
        ValueError: A key is missing from ``payload``.
        InputError: The disk is full; the checkpoints that were there are kept.
    """
    missing = [key for key in REQUIRED if key not in payload]
    if missing:
        raise ValueError(f"checkpoint payload lacks {', '.join(missing)}")
    folder = Path(folder)
    content = {
        "format_version": FORMAT_VERSION,
        "step": int(step),
        "params_digest": params_digest(payload["params"]),
        "payload": dict(payload),
    }
    stream = io.BytesIO()
    torch.save(_canonical(content), stream)
    path = folder / f"ckpt_{int(step):09d}.pt"
    write_atomic(path, stream.getvalue())
    older = [(s, p) for s, p in _checkpoints(folder) if s <= step and p != path]
    for _, old in older[: max(0, len(older) - (max(1, keep) - 1))]:
        with contextlib.suppress(FileNotFoundError):
            old.unlink()
    _remove_temporary(folder)
    return path


def latest_checkpoint(folder: str | os.PathLike[str], expected: Mapping[str, Any]) -> Checkpoint | None:
    """Read the newest whole checkpoint of a run; a broken one is named on stderr and passed over.

    Args:
        folder: Folder of this run's checkpoints.
        expected: What the run is now: ``dims`` and ``params`` (any top-level key of the payload). Parameters that may
            change between two starts, such as a longer run, are left out here.

    Returns:
        The checkpoint, or None where there is none at all and the run starts afresh.

    Raises:
        InputError: There are only broken ones, or the newest whole one is of a newer format, lacks its normaliser (or
            another part), or was made with other dimensions or parameters; names what changed.
    """
    folder = Path(folder)
    _remove_temporary(folder)
    _report_pointer(folder)
    found = _checkpoints(folder)
    broken = []
    for step, path in reversed(found):
        content, fault = _read(path)
        if content is None:
            broken.append(path.name)
            print(f"warning: {path}: broken checkpoint passed over ({fault})", file=sys.stderr)
            continue
        return _checked(path, step, content, expected)
    if broken:
        message = (
            f"no usable checkpoint; remove the folder to start afresh (found {len(broken)} broken: "
            f"{', '.join(broken)}, expected a whole one)"
        )
        raise InputError.at(folder, None, message)
    return None


def capture_rng(generators: Mapping[str, np.random.Generator]) -> dict[str, Any]:
    """Return the state of torch's CPU generator and of the numpy generators, by name."""
    return {
        "torch": torch.get_rng_state(),
        "numpy": {name: generator.bit_generator.state for name, generator in generators.items()},
    }


def restore_rng(state: Mapping[str, Any], generators: Mapping[str, np.random.Generator]) -> None:
    """Put back what `capture_rng` returned; the generators must have the same names.

    Raises:
        ValueError: A generator is missing on one side.
    """
    if set(state["numpy"]) != set(generators):
        raise ValueError(f"generators {sorted(state['numpy'])} in the checkpoint, {sorted(generators)} here")
    torch.set_rng_state(state["torch"])
    for name, generator in generators.items():
        generator.bit_generator.state = state["numpy"][name]


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return the folder's checkpoints by rising step; the number counts, not the name."""
    if not folder.is_dir():
        return []
    matches = ((_NAME.fullmatch(path.name), path) for path in folder.iterdir())
    return sorted((int(match[1]), path) for match, path in matches if match)


def _remove_temporary(folder: Path) -> None:
    for path in folder.glob(f"ckpt_*.pt{TEMPORARY_SUFFIX}") if folder.is_dir() else ():
        with contextlib.suppress(OSError):
            path.unlink()


def _report_pointer(folder: Path) -> None:
    """Name a ``latest`` file or link (other trainers write one) that leads nowhere; files count, pointers do not."""
    for pointer in (folder / "latest", folder / "latest.pt", folder / "latest.txt"):
        if pointer.is_symlink():
            name = os.readlink(pointer)
        elif pointer.is_file() and pointer.stat().st_size < 4096:
            name = pointer.read_bytes().decode("utf-8", errors="replace").strip()
        else:
            continue
        if "\0" in name or not (folder / name).is_file():
            print(f"warning: {pointer}: points to a missing checkpoint, ignored (found {name[:80]!r})", file=sys.stderr)


def _read(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the content of a checkpoint, or None and what is wrong with the file."""
    try:
        if path.stat().st_size == 0:
            return None, "empty file"
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged:
            return None, f"checksum of {damaged} does not match"
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return None, "link to a missing file"
    except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError):
        return None, "cut off or not a checkpoint"
    except _BROKEN as error:
        return None, " ".join(str(error).split())[:160] or type(error).__name__
    if not isinstance(content, dict) or "format_version" not in content:
        return None, "not a checkpoint of this program"
    return content, ""


def _checked(path: Path, step: int, content: dict[str, Any], expected: Mapping[str, Any]) -> Checkpoint:
    version = content["format_version"]
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        advice = "of a newer program, upgrade gaitforge" if newer else "not known, remove the folder to start afresh"
        raise InputError.at(path, None, f"format_version: {advice} (found {version!r}, expected {FORMAT_VERSION})")
    if content.get("step") != step:
        message = f"step: file name and content differ (found {content.get('step')}, expected {step})"
        raise InputError.at(path, None, message)
    payload = _restored(content.get("payload"))
    for key in REQUIRED:
        empty = key in ("weights", "normaliser") and isinstance(payload, dict) and payload.get(key) == {}
        if not isinstance(payload, dict) or payload.get(key) is None or empty:
            message = f"{key}: no {key} inside (found nothing, expected what training saved)"
            raise InputError.at(path, None, message)
    for key, value in expected.items():
        changes = list(_differences(key, payload.get(key), _restored(_canonical(value))))
        if changes:
            shown = "; ".join(f"{name}: {old} in the checkpoint, {new} now" for name, old, new in changes[:5])
            more = f" and {len(changes) - 5} more" if len(changes) > 5 else ""
            message = (
                f"made with other {key}, change it back or remove the folder to start afresh "
                f"(found {shown}{more}, expected the same)"
            )
            raise InputError.at(path, None, message)
    return Checkpoint(path, step, payload)


def _differences(name: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}, key=str):
            yield from _differences(f"{name}.{key}", old.get(key, "nothing"), new.get(key, "nothing"))
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{name}[{index}]", a, b)
    elif isinstance(old, (np.ndarray, torch.Tensor)) or isinstance(new, (np.ndarray, torch.Tensor)):
        if not np.array_equal(np.asarray(old), np.asarray(new)):
            yield name, "an array", "another"
    elif isinstance(old, (list, tuple)) is not isinstance(new, (list, tuple)) or old != new:
        yield name, str(old)[:60], str(new)[:60]


def _canonical(value: Any) -> Any:
    """Return plain, equal-bytes values: what stays after a save and a load pickles like what was never saved."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True).contiguous()
    if isinstance(value, np.ndarray):
        return {_ARRAY: torch.from_numpy(np.array(value, order="C"))}
    if isinstance(value, np.generic):
        return _canonical(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _canonical(dataclasses.asdict(value))
    if isinstance(value, str):
        return sys.intern(str(value))
    if isinstance(value, Mapping):
        return {_canonical(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_canonical(item) for item in value)
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return value[_ARRAY].numpy()
        return {key: _restored(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_restored(item) for item in value)
    return value


__all__ = [
    "Checkpoint",
    "capture_rng",
    "latest_checkpoint",
    "restore_rng",
    "save_checkpoint",
    "truncate_log",
]


def restore_arrays(current: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
    """Write the arrays of a checkpoint into those of an environment, in place.

    Raises:
        InputError: An array has another shape.
    """
    for key, value in current.items():
        if value.shape != kept[key].shape:
            raise InputError(f"checkpoint: {key} (found shape {kept[key].shape}, expected {value.shape})")
        value[...] = kept[key]
