"""The metadata of a policy file: what it says about itself, read strictly."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from onnx import ModelProto

from engine.errors import InputError
from engine.policy_layout import (
    Piece,
    humanoid_action,
    humanoid_observation,
    unified_action,
    unified_observation,
    width,
)
from engine.skeleton import BODY_NAMES

METADATA_KEY = "gaitforge"
FORMAT_VERSION = 1
_UNIFIED = ("unified", "unified_paper", "no_network")


@dataclass(frozen=True, eq=False)
class PolicyMetadata:
    """What a policy file says about itself; bodies are in the order of `engine.skeleton.BODY_NAMES`.

    Attributes:
        format_version: Version of the metadata.
        method: Method the policy was trained with, such as ``unified``.
        control_hz: Policy steps a second [Hz].
        physics_hz: Physics steps a second [Hz], a whole multiple of ``control_hz``.
        observation: Pieces of an observation row.
        action: Pieces of an action row.
        body_names: Names of the bodies.
        default_pose: Standing pose, position relative to the root [m] and quaternion (w,x,y,z), world axes, shape
            (n_bodies, 7).
        mass_kg: Mass of the single rigid body [kg].
        inertia_b: Its inertia about the centre of mass, body axes [kg m^2], shape (3, 3).
        controller: Numbers the engine's step takes, such as gains, by name.
        body_frame: Frame of the action's bodies, ``srb`` or ``proj``; of its joints, ``parent``.
        reference: Texts that bind the policy to its motion and body, by name; empty for the unified family.
        data_licence: Licence of the motion data behind the policy.
        params_digest: Digest of the parameters it was trained with.
        recorded_obs: An observation row whose action is known, shape (n_obs,).
        recorded_action: The action that training's network gave for it, shape (n_action,).
    """

    format_version: int
    method: str
    control_hz: float
    physics_hz: float
    observation: tuple[Piece, ...]
    action: tuple[Piece, ...]
    body_names: tuple[str, ...]
    default_pose: np.ndarray
    mass_kg: float
    inertia_b: np.ndarray
    controller: Mapping[str, float]
    body_frame: str
    reference: Mapping[str, str]
    data_licence: str
    params_digest: str
    recorded_obs: np.ndarray
    recorded_action: np.ndarray


def refuse(path: str | os.PathLike[str], what: str, found: Any, expected: Any) -> NoReturn:
    """Raise the one-line error ``FILE: what (found ..., expected ...)``."""
    raise InputError.at(path, None, f"{what} (found {found}, expected {expected})")


def read_metadata(path: str | os.PathLike[str], model: ModelProto) -> tuple[PolicyMetadata, np.ndarray]:
    """Read and check the metadata of a policy.

    Returns:
        The metadata in the file's own order of bodies, and the order: which of the file's bodies stands in each place
        of `engine.skeleton.BODY_NAMES`, shape (n_bodies,).

    Raises:
        InputError: A key is missing or does not fit; names the key, what was found and what was expected.
    """
    texts = {entry.key: entry.value for entry in model.metadata_props}
    if METADATA_KEY not in texts:
        refuse(path, f"metadata '{METADATA_KEY}' missing", ", ".join(sorted(texts)) or "no metadata", "a policy export")
    try:
        raw = json.loads(texts[METADATA_KEY], parse_constant=_not_a_number)
    except (ValueError, RecursionError) as error:
        refuse(path, f"metadata is not JSON: {error}", f"{len(texts[METADATA_KEY])} characters", "a JSON object")
    if not isinstance(raw, dict):
        refuse(path, "metadata", type(raw).__name__, "a JSON object")
    reader = _MetadataReader(path, raw)
    version = reader.value("format_version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        newer = isinstance(version, int) and version > FORMAT_VERSION
        advice = "upgrade gaitforge" if newer else "export the policy again"
        refuse(path, f"format_version: {advice}", repr(version), FORMAT_VERSION)
    names, order = reader.bodies()
    n_bodies = len(names)
    method, body_frame = reader.text("method"), reader.text("body_frame")
    observation, action = reader.pieces("observation"), reader.pieces("action")
    _check_layout(path, method, body_frame, observation, action, n_bodies)
    _check_order(path, observation + action, names, order)
    recorded = reader.value("recorded")
    pair = _MetadataReader(path, recorded if isinstance(recorded, dict) else {}, "recorded.")
    metadata = PolicyMetadata(
        format_version=FORMAT_VERSION,
        method=method,
        control_hz=reader.positive("control_hz"),
        physics_hz=reader.positive("physics_hz"),
        observation=observation,
        action=action,
        body_names=names,
        default_pose=reader.numbers("default_pose", (n_bodies, 7)),
        mass_kg=reader.positive("mass_kg"),
        inertia_b=reader.numbers("inertia_b", (3, 3)),
        controller=reader.controller(),
        body_frame=body_frame,
        reference=reader.texts("reference"),
        data_licence=reader.text("data_licence"),
        params_digest=reader.text("params_digest"),
        recorded_obs=pair.numbers("obs", (width(observation),)).astype(np.float32),
        recorded_action=pair.numbers("action", (width(action),)).astype(np.float32),
    )
    _check_physics(path, metadata)
    return metadata, order


def check_method(path: str | os.PathLike[str], metadata: PolicyMetadata, method: str | None) -> None:
    """Refuse a policy of another method than the one asked for (None: any)."""
    if method is not None and metadata.method != method:
        refuse(path, "method", f"'{metadata.method}'", f"'{method}'")


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _check_physics(path: str | os.PathLike[str], metadata: PolicyMetadata) -> None:
    ratio = metadata.physics_hz / metadata.control_hz
    if ratio < 1 or abs(ratio - round(ratio)) > 1e-9:
        refuse(path, "physics_hz", metadata.physics_hz, f"a whole multiple of control_hz {metadata.control_hz:g}")
    inertia = metadata.inertia_b
    if not np.allclose(inertia, inertia.T, atol=1e-9) or np.linalg.eigvalsh(inertia)[0] <= 0:
        refuse(path, "inertia_b", inertia.ravel().tolist(), "a symmetric, positive definite 3 x 3 matrix")


def _check_layout(
    path: str | os.PathLike[str],
    method: str,
    body_frame: str,
    observation: tuple[Piece, ...],
    action: tuple[Piece, ...],
    n_bodies: int,
) -> None:
    if method in _UNIFIED:
        if body_frame not in ("srb", "proj"):
            refuse(path, "body_frame", f"'{body_frame}'", "'srb' or 'proj'")
        layouts = unified_observation(n_bodies), unified_action(body_frame, n_bodies)
    elif method == "deepmimic":
        if body_frame != "parent":
            refuse(path, "body_frame", f"'{body_frame}'", "'parent'")
        layouts = humanoid_observation(), humanoid_action()
    else:
        return
    for key, found, expected in (("observation", observation, layouts[0]), ("action", action, layouts[1])):
        if width(found) != width(expected):
            refuse(path, f"{key}: width of the layout", width(found), f"{width(expected)} for {method}")
        for index, (have, want) in enumerate(zip(found, expected, strict=False)):
            if have != want:
                refuse(path, f"{key}[{index}]", _shown(have), _shown(want))
        if len(found) != len(expected):
            refuse(path, f"{key}: number of pieces", len(found), len(expected))


def _check_order(
    path: str | os.PathLike[str], pieces: tuple[Piece, ...], names: tuple[str, ...], order: np.ndarray
) -> None:
    """Bodies in another order can be mapped only where pieces are laid out by body."""
    n_bodies = len(names)
    for piece in pieces:
        if piece.per_body and piece.size % n_bodies:
            refuse(path, f"{piece.name}: size", piece.size, f"a multiple of the {n_bodies} bodies")
    if not any(piece.per_body for piece in pieces) and (order != np.arange(n_bodies)).any():
        first = int(np.argmax(order != np.arange(n_bodies)))
        what = f"body_names[{first}]: other order, and no piece is laid out by body to map by name"
        refuse(path, what, f"'{names[first]}'", f"'{BODY_NAMES[first]}'")


def _shown(piece: Piece) -> str:
    return f"{piece.name} {piece.size} [{piece.unit}] in {piece.frame}"


class _MetadataReader:
    """Values of one JSON object by key, checked."""

    def __init__(self, path: str | os.PathLike[str], raw: dict[str, Any], prefix: str = "") -> None:
        self.path, self.raw, self.prefix = path, raw, prefix

    def refuse(self, key: str, found: Any, expected: Any) -> NoReturn:
        refuse(self.path, f"{self.prefix}{key}", found, expected)

    def value(self, key: str) -> Any:
        if key not in self.raw:
            refuse(self.path, f"{self.prefix}{key} missing", ", ".join(sorted(self.raw)) or "nothing", f"'{key}'")
        return self.raw[key]

    def text(self, key: str) -> str:
        value = self.value(key)
        if not isinstance(value, str) or not value.strip():
            self.refuse(key, repr(value), "text")
        return value

    def texts(self, key: str) -> dict[str, str]:
        """An object of texts, empty where the key is absent."""
        table = self.raw.get(key, {})
        if not isinstance(table, dict):
            self.refuse(key, type(table).__name__, "an object of texts")
        for name, value in table.items():
            if not isinstance(value, str):
                self.refuse(f"{key}.{name}", repr(value)[:60], "text")
        return dict(table)

    def positive(self, key: str) -> float:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e12:
            self.refuse(key, repr(value)[:60], "a number > 0")
        return float(value)

    def numbers(self, key: str, shape: tuple[int, ...]) -> np.ndarray:
        value = self.value(key)
        try:
            array = np.asarray(value)
        except ValueError:
            self.refuse(key, "lists of unequal length", f"numbers of shape {list(shape)}")
        if array.dtype.kind not in "iuf" or array.size != np.prod(shape):
            found = f"{array.size} values of type {array.dtype}"
            self.refuse(key, found, f"{np.prod(shape)} numbers, shape {list(shape)}")
        array = array.astype(np.float64).reshape(shape)
        if not (np.abs(array) < 1e30).all():
            self.refuse(key, "a number that is not finite or huge", "finite numbers")
        array.setflags(write=False)
        return array

    def pieces(self, key: str) -> tuple[Piece, ...]:
        rows = self.value(key)
        if not isinstance(rows, list) or not rows:
            self.refuse(key, type(rows).__name__ if rows else "nothing", "a list of pieces")
        pieces = []
        for index, row in enumerate(rows):
            place = _MetadataReader(self.path, row if isinstance(row, dict) else {}, f"{self.prefix}{key}[{index}].")
            size = place.positive("size")
            if size != int(size):
                place.refuse("size", size, "a whole number")
            pieces.append(Piece(place.text("name"), int(size), place.text("unit"), place.text("frame")))
        return tuple(pieces)

    def controller(self) -> dict[str, float]:
        table = self.value("controller")
        if not isinstance(table, dict):
            self.refuse("controller", type(table).__name__, "an object of numbers")
        for name, value in table.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e30:
                self.refuse(f"controller.{name}", repr(value)[:60], "a finite number")
        return {name: float(value) for name, value in table.items()}

    def bodies(self) -> tuple[tuple[str, ...], np.ndarray]:
        names = self.value("body_names")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self.refuse("body_names", type(names).__name__, "a list of names")
        if len(names) != len(BODY_NAMES):
            self.refuse("body_names: number of joints", len(names), len(BODY_NAMES))
        for index, name in enumerate(names):
            if name not in BODY_NAMES:
                self.refuse(f"body_names[{index}]: unknown joint", f"'{name}'", f"one of {', '.join(BODY_NAMES)}")
            if name in names[:index]:
                self.refuse(f"body_names[{index}]: joint named twice", f"'{name}'", "each once")
        return tuple(names), np.array([names.index(name) for name in BODY_NAMES])
