"""The strict parameter reader: every kind of fault is one line that names file, line, key, what and what was meant."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from engine.errors import InputError
from engine.overrides import main as overrides_main
from engine.overrides import override, read_overrides
from engine.params import Axis, Fraction, Lower, NotAllZero, NotEmpty, Positive, Range, Seed, Unique, params_digest
from engine.params import read_section as read
from tests.collection import cases


@dataclass(frozen=True)
class Motion:
    fps: Positive
    scale: Positive
    up_axis: Axis
    clips: Annotated[list[str], NotEmpty(), Unique()]


@dataclass(frozen=True)
class Sim:
    dt: Positive
    substeps: Annotated[int, Range(ge=1)]


@dataclass(frozen=True)
class Train:
    lr: Positive
    steps: Annotated[int, Range(ge=1)]
    gamma: Annotated[float, Range(gt=0, le=1)]
    hidden: Annotated[list[int], NotEmpty(), Range(ge=1)]
    normalize_obs: bool


@dataclass(frozen=True)
class Reward:
    pose: float
    velocity: float
    end_effector: float
    com: float


@dataclass(frozen=True)
class Style:
    bpm: Positive


@dataclass(frozen=True)
class Example:
    seed: Seed
    motion: Motion
    sim: Sim
    train: Train
    reward: Annotated[Reward, NotAllZero()]
    style: Style


@dataclass(frozen=True)
class Odd:
    lambda_: float
    weights: Annotated[dict[str, float], NotEmpty(), NotAllZero(), Range(ge=0)]
    corner_m: tuple[float, float]
    names: tuple[str, ...]
    mode: Literal["fast", "exact"]
    level: Literal[1, 2]
    rows: list[Sim]
    folder: str


ODD = """\
odd:
  lambda: 0.5
  weights: {walk: 1, run: 2.5}
  corner_m: [0.12, -0.06]
  names: [left, right]
  mode: exact
  level: 2
  rows:
    - {dt: 0.1, substeps: 2}
    - {dt: .5, substeps: 1_000}
  folder: ""
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def message_of(path: Path, section: str, cls: type[Any]) -> str:
    with pytest.raises(InputError) as caught:
        read(path, section, cls)
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith(str(path))
    return text


@pytest.mark.parametrize(("path", "expected"), cases("params"))
def test_every_case_of_the_collection_gives_what_is_expected_of_it(path: Path, expected: dict[str, Any]) -> None:
    if expected["verdict"].startswith("error"):
        text = message_of(path, "", Example)
        assert all(word in text for word in expected["message"])
        assert "expected" in text
        if path.name != "err_empty.yaml":
            assert re.match(rf"{re.escape(str(path))}:\d+: [a-z]", text)
        return
    params = read(path, "", Example)
    for key, value in expected.get("value", {}).items():
        found: Any = params
        for name in key.split("."):
            found = getattr(found, name)
        assert found == value
        assert type(found) is type(value)


def test_a_file_with_every_kind_of_value_is_read(tmp_path: Path) -> None:
    odd = read(write(tmp_path, ODD), "odd", Odd)
    assert odd == Odd(0.5, {"walk": 1.0, "run": 2.5}, (0.12, -0.06), ("left", "right"), "exact", 2,
                      [Sim(0.1, 2), Sim(0.5, 1000)], "")  # fmt: skip
    assert isinstance(odd.weights["walk"], float)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("lambda: 0.5", "lambda: .nan", 2, ["odd.lambda", "finite", ".nan"]),
        ("lambda: 0.5", "lambda: -.inf", 2, ["odd.lambda", "finite"]),
        ("lambda: 0.5", "lambda: 1e999", 2, ["odd.lambda", "finite", "1e999"]),
        ("lambda: 0.5", "lambda: " + "9" * 5000, 2, ["odd.lambda", "finite"]),
        ("lambda: 0.5", "lambda: true", 2, ["odd.lambda", "not a number", "true"]),
        ("lambda: 0.5", "lambda: '0.5'", 2, ["odd.lambda", "'0.5'", "a number"]),
        ("lambda: 0.5", "lambda: [0.5]", 2, ["odd.lambda", "a list of 1"]),
        ("lambda: 0.5", "lambda: ~", 2, ["odd.lambda", "null"]),
        ("lambda: 0.5", "lamda: 0.5", 2, ["odd.lamda", "did you mean lambda?"]),
        ("  lambda: 0.5\n", "", 2, ["odd.lambda", "missing key", "a number"]),
        ("{walk: 1, run: 2.5}", "{}", 3, ["odd.weights", "empty"]),
        ("{walk: 1, run: 2.5}", "{walk: 0, run: 0.0}", 3, ["odd.weights", "zero", "walk"]),
        ("{walk: 1, run: 2.5}", "{walk: 1, run: -2.5}", 3, ["odd.weights.run", "-2.5", ">= 0"]),
        ("{walk: 1, run: 2.5}", "{walk: 1, walk: 2.5}", 3, ["odd.weights.walk", "duplicate key"]),
        ("{walk: 1, run: 2.5}", "3", 3, ["odd.weights", "not a section"]),
        ("[0.12, -0.06]", "[0.12]", 4, ["odd.corner_m", "1 items", "2 items"]),
        ("[0.12, -0.06]", "[0.12, x]", 4, ["odd.corner_m[1]", "'x'"]),
        ("[left, right]", "[left, 010]", 5, ["odd.names[1]", "quote it"]),
        ("[left, right]", "left, right", 5, ["odd.names", "not a list"]),
        ("mode: exact", "mode: exat", 6, ["odd.mode", "did you mean exact?", "fast, exact"]),
        ("mode: exact", "mode: Exact", 6, ["odd.mode"]),
        ("level: 2", "level: 3", 7, ["odd.level", "3", "1, 2"]),
        ("substeps: 1_000", "substeps: 1.5", 10, ["odd.rows[1].substeps", "whole number", "1.5"]),
        ("substeps: 1_000", "substep: 1", 10, ["odd.rows[1].substep", "did you mean substeps?"]),
        ("    - {dt: .5, substeps: 1_000}", "    - 5", 10, ["odd.rows[1]", "dt, substeps"]),
        ("folder: \"\"", "folder: 5", 11, ["odd.folder", "not text"]),
        ("folder: \"\"", "folder: \"\"\n  mode: fast", 12, ["odd.mode", "duplicate key", "line 6"]),
    ],
)  # fmt: skip
def test_a_fault_names_its_line_key_and_value(tmp_path: Path, old: str, new: str, line: int, words: list[str]) -> None:
    assert old in ODD
    path = write(tmp_path, ODD.replace(old, new, 1))
    text = message_of(path, "odd", Odd)
    assert text.startswith(f"{path}:{line}: ")
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", ["empty"]),
        (b"# only a comment\n", ["empty"]),
        (b"---\n", ["empty"]),
        (b"just words\n", ["not a section", "'just words'"]),
        (b"- 1\n- 2\n", ["not a section", "a list of 2"]),
        (b"odd: [1, 2\n", [":2:", "not YAML"]),
        (b"odd:\n\tlambda: 1\n", [":2:", "not YAML"]),
        (b"odd: {a: 1}\n---\nodd: {a: 2}\n", ["not YAML", "document"]),
        (b"odd:\n  folder: \xff\xfe\n", [":2:", "0xff", "UTF-8"]),
        (b"[" * 20000, ["nested too deep"]),
        (b"odd: " + b"{a: " * 20000, ["nested too deep"]),
        (b"- " * 20000, ["nested too deep"]),
        (b"od: {}\n", ["odd", "missing section", "did you mean od?"]),
    ],
)
def test_a_file_that_is_no_parameter_file_is_refused(tmp_path: Path, text: bytes, words: list[str]) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(text)
    message = message_of(path, "odd", Odd)
    assert all(word in message for word in words), message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "no such file" in message_of(tmp_path / "none.yaml", "odd", Odd)


@pytest.mark.parametrize(
    ("text", "value"),
    [("010", 10), ("1e6", 1_000_000), ("0x10", 16), ("0o17", 15), ("1_000", 1000), ("+7", 7), ("3.0", 3), ("08", 8)],
)
def test_whole_numbers_are_read_as_yaml_1_2(tmp_path: Path, text: str, value: int) -> None:
    params = read(write(tmp_path, f"sim:\n  dt: 0.1\n  substeps: {text}\n"), "sim", Sim)
    assert params.substeps == value
    assert type(params.substeps) is int


def test_line_ends_and_byte_order_mark_of_other_systems_are_read(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_bytes(b"\xef\xbb\xbfsim:\r\n  dt: 0.1\r\n  substeps: 4\r\n")
    assert read(path, "sim", Sim) == Sim(0.1, 4)


def test_anchors_may_be_used_and_y_is_a_letter(tmp_path: Path) -> None:
    path = write(tmp_path, "a: &a 0.5\nmotion: {fps: 30, scale: *a, up_axis: y, clips: [y, n]}\n")
    assert read(path, "motion", Motion) == Motion(30.0, 0.5, "y", ["y", "n"])


def test_other_sections_are_not_looked_into(tmp_path: Path) -> None:
    path = write(tmp_path, "train:\n  sim: {dt: 0.1, substeps: 4}\n  other: {anything: [1, two]}\n")
    assert read(path, "train.sim", Sim) == Sim(0.1, 4)


def test_a_field_with_two_types_is_a_fault_of_the_program(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Loose:
        dt: int | None

    Loose.__annotations__["dt"] = int | None
    with pytest.raises(TypeError, match="one type"):
        read(write(tmp_path, "dt: 1\n"), "", Loose)


def test_conditions_reach_each_element_of_a_list(tmp_path: Path) -> None:
    path = write(tmp_path, "shares: [0.1, 1.1]\naxes: [X, y]\n")
    with pytest.raises(InputError, match=r"shares\[1\]: out of range \(found 1\.1"):
        read(path, "", Shares)
    override(path, {"shares": "[0.1, 1]"})
    assert read(path, "", Shares) == Shares([0.1, 1.0], ["x", "y"])


@dataclass(frozen=True)
class Shares:
    shares: list[Fraction]
    axes: Annotated[list[str], Lower()]


def test_equal_parameters_have_equal_digests_and_others_do_not() -> None:
    first = Sim(0.1, 4)
    assert params_digest(first) == params_digest(Sim(0.1, 4))
    assert params_digest(first) != params_digest(replace(first, substeps=5))
    assert len(params_digest(first)) == 64
    assert params_digest({"b": 1, "a": [1.5]}) == params_digest({"a": [1.5], "b": 1})


def test_an_override_changes_the_value_and_keeps_comments(tmp_path: Path) -> None:
    path = write(tmp_path, "sim:  # physics\n  dt: 0.1  # seconds\n  substeps: 4\nclips: [a, b]\n")
    out = tmp_path / "small.yaml"
    override(path, {"sim.substeps": "1e3", "clips": "[walk]", "sim.dt": 0.5}, out)
    assert read(out, "sim", Sim) == Sim(0.5, 1000)
    assert "# physics" in out.read_text()
    assert "# seconds" in out.read_text()
    assert read(path, "sim", Sim) == Sim(0.1, 4)
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["params.yaml", "small.yaml"]


def test_an_override_never_invents_a_key(tmp_path: Path) -> None:
    path = write(tmp_path, "sim:\n  dt: 0.1\n  substeps: 4\n")
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"sim\.substep: unknown key, did you mean substeps\?"):
        override(path, {"sim.dt": "1", "sim.substep": "5"})
    with pytest.raises(InputError, match=r"sim\.dt\.x: unknown key"):
        override(path, {"sim.dt.x": "5"})
    with pytest.raises(InputError, match="not a YAML value"):
        override(path, {"sim.dt": "[5"})
    assert path.read_bytes() == before


def test_overrides_are_read_from_a_file_and_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path, "sim:\n  dt: 0.1\n  substeps: 4\n")
    small = tmp_path / "small.yaml"
    small.write_text("sim.dt: 0.25\nsim.substeps: 2\n", encoding="utf-8")
    assert read_overrides(small) == {"sim.dt": 0.25, "sim.substeps": 2}
    overrides_main([str(path), "--file", str(small), "--set", "sim.substeps=3"])
    assert read(path, "sim", Sim) == Sim(0.25, 3)
