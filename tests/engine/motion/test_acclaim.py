"""Acclaim reader: against the same motion as BVH, and faults of each kind with their line."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from engine.errors import InputError
from engine.motion.acclaim import read_acclaim
from engine.motion.bvh import read_bvh
from engine.motion.units import normalise_units_and_axes
from tests.engine.motion.damage import assert_read_or_refused

ASF = """# a skeleton
:version 1.10
:name test
:units
  mass 1.0
  length 0.45
  angle deg
:documentation
  free text
:root
  order TX TY TZ RX RY RZ
  axis XYZ
  position 0 0 0
  orientation 0 0 0
:bonedata
  begin
    id 1
    name hip
    direction 0 -1 0
    length 7.0
    axis 0 0 20 XYZ
    dof rx ry rz
    limits (-160.0 20.0)
           (-70.0 70.0)
           (-60.0 70.0)
  end
  begin
    id 2
    name knee
    direction 0 -1 7.62852e-016
    length 8.0
    axis 0 0 20 XYZ
    dof rx
    limits (-10.0 170.0)
  end
  begin
    id 3
    name toe
    direction 0 0 1
    length 2.0
    axis 0 0 0 XYZ
  end
:hierarchy
  begin
    root hip
    hip knee
    knee toe
  end
"""
AMC = """#!OML:ASF test
:FULLY-SPECIFIED
:DEGREES
1
root 1 17 2 0 0 0
hip 0 0 0
knee 7.62852e-015
2
root 1 17 2 0 90 0
hip 0 0 0
knee 0
"""


@pytest.fixture
def read(tmp_path: Path):
    def read_text(asf: str = ASF, amc: str = AMC):
        (tmp_path / "x.asf").write_text(asf)
        (tmp_path / "x.amc").write_text(amc)
        return read_acclaim(tmp_path / "x.asf", tmp_path / "x.amc")

    return read_text


def test_bones_hang_end_to_end_and_tips_close_the_chain(read) -> None:
    clip = read()
    pos, _ = clip.world()
    np.testing.assert_allclose(pos[0], [[1, 17, 2], [1, 17, 2], [1, 10, 2], [1, 2, 2]], atol=1e-9)
    np.testing.assert_allclose(clip.world_end_sites()["toe"], [[1, 2, 4], [3, 2, 2]], atol=1e-9)
    assert (clip.fps, clip.up, clip.units) == (120.0, "y", "file")


def test_a_bone_turns_about_its_own_axes(read) -> None:
    clip = read(amc=AMC.replace("knee 7.62852e-015", "knee 90"))
    axis = np.array([np.cos(np.deg2rad(20)), np.sin(np.deg2rad(20)), 0.0])  # x axis of the bone, turned 20 deg about z
    along = axis * (axis @ [0, -1, 0])
    turned = along + np.cross(axis, [0, -1, 0])
    np.testing.assert_allclose(clip.world()[0][0, 3] - [1, 10, 2], 8 * turned, atol=1e-9)


def test_radians_flag_gives_the_same_motion_as_degrees(read) -> None:
    degrees = read(amc=AMC.replace("hip 0 0 0", "hip 30 -20 10"))
    rad = " ".join(f"{np.deg2rad(v):.12g}" for v in (30, -20, 10))
    radians = read(
        amc=AMC.replace(":DEGREES", ":RADIANS")
        .replace("hip 0 0 0", f"hip {rad}")
        .replace("0 90 0", f"0 {np.pi / 2:.12g} 0")
    )
    np.testing.assert_allclose(radians.world()[0], degrees.world()[0], atol=1e-8)
    of_asf = read(ASF.replace("angle deg", "angle rad").replace("0 0 20 XYZ", f"0 0 {np.deg2rad(20):.12g} XYZ"))
    np.testing.assert_allclose(of_asf.world()[0], read().world()[0], atol=1e-8)


def test_crlf_changes_nothing(read) -> None:
    found = read(ASF.replace("\n", "\r\n"), AMC.replace("\n", "\r\n"))
    np.testing.assert_array_equal(found.world()[0], read().world()[0])


@pytest.mark.shared
def test_cmu_motion_is_the_same_as_its_bvh_conversion(shared_dir: Path) -> None:
    folder = shared_dir / "motion"
    acclaim = read_acclaim(folder / "cmu_asfamc/01.asf", folder / "cmu_asfamc/01_01.amc.gz")
    bvh = read_bvh(folder / "cmu_bvh/01_01.bvh")  # begins with one T-pose frame
    assert acclaim.n_frames == 2751 == bvh.n_frames - 1
    found, wanted = acclaim.world()[0], bvh.world()[0][1:]
    for ours, theirs in (("lfemur", "LeftUpLeg"), ("ltibia", "LeftLeg"), ("rfoot", "RightFoot"), ("thorax", "Spine1")):
        gap = found[:, acclaim.index(ours)] - wanted[:, bvh.index(theirs)]
        assert np.abs(gap).max() < 1e-3, ours
    clip = normalise_units_and_axes(acclaim)
    assert clip.root_pos_m[:, 2].mean() == pytest.approx(1.016, abs=0.01)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("length 0.45", "length 0", 6, ["length", "0"]),
        ("angle deg", "angle gon", 7, ["gon"]),
        (":units", ":unit", 4, [":unit"]),
        ("order TX TY TZ RX", "order TX TY TZ RX RX", 11, ["RX", "twice"]),
        ("dof rx ry rz", "dof rx ry l", 22, ["l"]),
        ("axis XYZ", "axis XYY", 12, ["XYY"]),
        ("length 7.0", "length seven", 20, ["hip", "seven"]),
        ("length 7.0", "length -7", 26, ["hip", "negative"]),
        ("direction 0 -1 0", "direction 0 0 0", 26, ["hip", "direction"]),
        ("name knee", "name hip", 35, ["hip"]),
        ("  end\n  begin\n    id 2", "  begin\n    id 2", 26, ["hip", "end"]),
        ("    hip knee\n", "    hip ankle\n", 46, ["ankle"]),
        ("    hip knee\n", "    foot knee\n", 46, ["foot"]),
        ("    knee toe\n", "", 47, ["toe"]),
        ("    knee toe\n", "    knee toe hip\n", 47, ["hip"]),
    ],
)
def test_skeleton_fault_names_its_line(read, old: str, new: str, line: int, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read(asf=ASF.replace(old, new, 1))
    assert f"x.asf:{line}: " in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_missing_section_is_named(read) -> None:
    with pytest.raises(InputError, match=r"x\.asf: section :hierarchy is missing"):
        read(asf=ASF[: ASF.index(":hierarchy")])


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("hip 0 0 0\n", "", 4, ["frame 1", "hip"]),
        ("hip 0 0 0\n", "hip 0 0\n", 6, ["hip", "2", "3"]),
        ("hip 0 0 0\n", "hip 0 0 0x\n", 6, ["0x"]),
        ("hip 0 0 0\n", "hip 0 0 inf\n", 6, ["inf"]),
        ("hip 0 0 0\n", "hip 0 0 1e400\n", 6, ["1e400"]),
        ("hip 0 0 0\n", "hip 0 0 0\nhip 0 0 0\n", 7, ["hip", "twice"]),
        ("hip 0 0 0\n", "hips 0 0 0\n", 6, ["hips"]),
        ("\n2\n", "\n4\n", 8, ["4", "2"]),
        ("\n1\n", "\n", 4, ["root"]),
    ],
)
def test_motion_fault_names_its_line(read, old: str, new: str, line: int, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        read(amc=AMC.replace(old, new, 1))
    assert f"x.amc:{line}: " in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_damaged_files_never_give_anything_but_an_input_error(read) -> None:
    draw = random.Random(2)
    junk = ["nan", "1e400", "", "\0", ":root", "begin", "end", "#", "9" * 5000, "root", "-"]
    for _ in range(300):
        texts = [ASF, AMC]
        which = draw.randrange(2)
        words = texts[which].split(" ")
        words[draw.randrange(len(words))] = draw.choice(junk)
        texts[which] = " ".join(words)[: draw.choice([None, draw.randrange(1, len(texts[which]))])]
        assert_read_or_refused(lambda texts=texts: read(*texts))
