"""`inspect_motion`: what it says about real files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.inspect_file import inspect_motion


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "phrases"),
    [
        (
            "lafan1_original/aiming1_subject1.bvh",
            [
                "BVH",
                "joints: 22",
                "7184 at 30 fps",
                "up axis y",
                "unit cm",
                "75 at the start (2.50 s)",
                "22 at the end",
            ],
        ),
        ("bandai_namco/dataset-2_walk_normal_001.bvh", ["extra root 'joint_Root' dropped", "bone lengths: constant"]),
        ("fair_mocap/adult_walking.bvh", ["119.88 fps", "frame time 0.008342 s as written", "up axis z", "unit inch"]),
        ("cmu_asfamc/01_01.amc.gz", ["Acclaim", "2751 at 120 fps", "5.644 cm (stated by the file", "height 1.62 m"]),
        (
            "deepmimic/humanoid3d_walk.txt",
            ["DeepMimic", "39 at 30 fps", "loop: wrap, does NOT close", "right_shoulder"],
        ),
        ("deepmimic/humanoid3d_jump.txt", ["107 at 60 fps", "warning: quaternions renormalised"]),
    ],
)
def test_report_says_what_matters(shared_dir: Path, name: str, phrases: list[str]) -> None:
    text = "\n".join(inspect_motion(shared_dir / "motion" / name))
    for phrase in phrases:
        assert phrase in text


@pytest.mark.shared
def test_skeleton_and_motion_may_be_given_both(shared_dir: Path) -> None:
    folder = shared_dir / "motion/cmu_asfamc"
    assert inspect_motion(folder / "11.asf", folder / "11_01.amc") == inspect_motion(folder / "11_01.amc")


@pytest.mark.shared
def test_moving_bones_are_measured(shared_dir: Path) -> None:
    lines = inspect_motion(shared_dir / "cases/bvh/sem_contact_30hz_cm.bvh")
    assert any("bone lengths: 1 vary, most 'LeftFoot'" in line for line in lines)


@pytest.mark.shared
def test_what_is_wrong_is_one_warning_line(shared_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("warn_centimetres.json", "warn_quat_not_unit.json"):
        lines = inspect_motion(shared_dir / "cases/deepmimic" / name)
        assert sum(line.startswith("warning:") for line in lines) == 1
    assert not caplog.records, "said in the report, not logged again"
