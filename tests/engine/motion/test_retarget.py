from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.errors import InputError
from engine.motion.clip import Clip
from engine.motion.name_maps import NAME_MAPS, find_roles, plain_name
from engine.motion.reader import read_motion
from engine.motion.retarget import retarget
from engine.rotation import quat_to_matrix
from engine.skeleton import BODY_NAMES, forward_kinematics
from tests.engine.motion.synthetic import renamed_clip, walk, walk_clip


def test_a_clip_of_the_character_stays_as_it_is() -> None:
    clip = walk_clip()
    motion = retarget(clip)
    assert len(motion) == clip.n_frames
    np.testing.assert_allclose(motion.root_pos_w, clip.root_pos_m, atol=2e-3)
    want, _ = forward_kinematics(clip.root_pos_m, clip.local_quat)
    got, _ = forward_kinematics(motion.root_pos_w, motion.local_quat)
    np.testing.assert_allclose(got, want, atol=2e-3)


@pytest.mark.parametrize("scale", [1.0, 0.6, 1.9])
def test_the_same_body_of_any_size_and_with_any_joint_axes_gives_the_same_motion(scale: float) -> None:
    straight, twisted = retarget(renamed_clip(scale)), retarget(renamed_clip(scale, twist=True))
    want, _ = forward_kinematics(straight.root_pos_w, straight.local_quat)
    got, got_quat = forward_kinematics(twisted.root_pos_w, twisted.local_quat)
    # bone directions are kept to the last bit; the twist of trunk and feet is told from the anatomy
    legs = [9, 10, 11, 12, 13, 14]
    np.testing.assert_allclose(got[:, legs], want[:, legs], atol=0.02)
    assert straight.report["scale"] == pytest.approx(1 / scale, rel=1e-6)
    assert twisted.report["joint_error_m"] < 0.02
    assert np.degrees(np.arccos(quat_to_matrix(got_quat[:, 0])[:, 2, 2])).max() < 12


def test_a_body_of_the_same_shape_comes_through_nearly_exactly() -> None:
    root, _ = walk()
    motion = retarget(renamed_clip())
    assert motion.report["joint_error_m"] < 2e-3
    assert motion.report["ankle_error_m"] < 1e-3
    assert abs(motion.report["ground_offset_m"]) < 5e-3
    np.testing.assert_allclose(motion.root_pos_w, root, atol=6e-3)


def test_knees_and_elbows_are_hinges_and_wrists_fixed() -> None:
    motion = retarget(renamed_clip(1.3, twist=True))
    for name in ("left_knee", "right_knee", "left_elbow", "right_elbow"):
        quat = motion.local_quat[:, BODY_NAMES.index(name)]
        np.testing.assert_allclose(quat[:, [1, 3]], 0.0, atol=1e-9)
    for name in ("left_wrist", "right_wrist"):
        np.testing.assert_allclose(np.abs(motion.local_quat[:, BODY_NAMES.index(name), 0]), 1.0, atol=1e-12)


def test_left_and_right_are_told_by_name() -> None:
    motion = retarget(renamed_clip())
    pos, _ = forward_kinematics(motion.root_pos_w, motion.local_quat)
    assert (pos[:, 14, 1] > pos[:, 11, 1]).all()
    assert (pos[:, 6, 1] > pos[:, 3, 1]).all()


@pytest.mark.parametrize("speed", [0.8, 1.0, 1.25])
def test_the_playing_speed_changes_the_time_and_not_the_way(speed: float) -> None:
    motion = retarget(walk_clip(seconds=2.0), speed)
    assert len(motion) == pytest.approx(60 / speed + 1, abs=1)
    assert motion.root_pos_w[-1, 0] - motion.root_pos_w[0, 0] == pytest.approx(2.0, abs=0.06)


def test_a_loop_is_fitted_to_whole_frames() -> None:
    motion = retarget(walk_clip("wrap", seconds=1.0), 0.93)
    assert motion.root_pos_w[-1, 0] == pytest.approx(1.0, abs=1e-9) or motion.loop == "mirror"
    assert motion.report["speed"] == pytest.approx(0.93, rel=0.05)


def test_unknown_names_are_listed_with_near_ones() -> None:
    clip = renamed_clip()
    clip.joint_names[clip.joint_names.index("LeftLeg")] = "LeftLegg"
    with pytest.raises(InputError, match="left_knee") as error:
        retarget(clip)
    text = str(error.value)
    assert text.startswith("walk.bvh: unknown joint names")
    assert "LeftLegg" in text
    assert "\n" not in text


def test_a_clip_of_one_frame_is_an_error() -> None:
    clip = walk_clip().cut(0, 1)
    with pytest.raises(InputError, match="too short"):
        retarget(clip)


@pytest.mark.parametrize("prefix", ["mixamorig:", "mixamorig7:", "mixamorig12_", "MIXAMORIG1:", "rig:", ""])
def test_any_namespace_is_taken_off(prefix: str) -> None:
    assert plain_name(f"{prefix}LeftUpLeg") == "leftupleg"
    names = [prefix + n for n in renamed_clip().joint_names]
    _, roles = find_roles(names)
    assert names[roles["left_knee"]] == prefix + "LeftLeg"


def test_every_family_finds_its_own_first_names() -> None:
    for family, roles in NAME_MAPS.items():
        names = list(dict.fromkeys(alternatives[0] for alternatives in roles.values()))
        _, found = find_roles(names, family)
        for role in ("hips", "left_upleg", "right_elbow"):
            assert names[found[role]] == roles[role][0], family


REAL = {
    "lafan1_original/aiming1_subject1.bvh": 0.035,
    "lafan1_reconstructed/walk1_subject5_g1recon_f877-3577.bvh": 0.03,
    "cmu_asfamc/11_01.amc": 0.04,
    "cmu_bvh/02_01.bvh": 0.07,
    "cmu_bvh/131_01.bvh": 0.06,
    "cmu_bvh/08_02_from_fbx_blender.bvh": 0.06,
    "fair_mocap/adult_walking.bvh": 0.05,
    "bandai_namco/dataset-1_walk_normal_001.bvh": 0.08,
    "dialects/mixamo_names_colon_crlf.bvh": 0.04,
    "dialects/games105_walk60_metres_xyz.bvh": 0.09,
    "dialects/woody_walk_turn_int_offsets.bvh": 0.08,
}


@pytest.mark.parametrize("file", REAL)
def test_real_files_stand_upright_face_forward_and_follow_their_source(shared_dir: Path, file: str) -> None:
    clip: Clip = read_motion(shared_dir / "motion" / file)
    motion = retarget(clip.cut(0, min(clip.n_frames, 1500)))
    report = motion.report
    assert report["joint_error_m"] < REAL[file]
    assert report["ankle_error_m"] < 0.01
    assert report["limit_violations"] < 0.1
    r = quat_to_matrix(motion.local_quat[:, 0])
    assert r[:, 2, 2].mean() > 0.95  # the pelvis is upright
    pos, _ = forward_kinematics(motion.root_pos_w, motion.local_quat)
    assert 0.7 < pos[:, 0, 2].mean() < 0.95
    ahead = np.sum(np.diff(pos[:, 0, :2], axis=0) * r[1:, :2, 0], axis=-1)
    assert ahead.sum() > -0.1  # whoever walks, walks forward
    left = pos[:, 12] - pos[:, 9]
    assert (np.sum(left * r[..., 1], -1) > 0.1).all()
    knees = 2 * np.arctan2(motion.local_quat[:, [13, 10], 2], motion.local_quat[:, [13, 10], 0])
    knees = (knees + np.pi) % (2 * np.pi) - np.pi
    assert (knees > -1e-9).all()
    assert (knees < 2.7).all()


def test_the_t_pose_at_the_ends_of_lafan1_is_cut(shared_dir: Path) -> None:
    motion = retarget(read_motion(shared_dir / "motion/lafan1_original/aiming1_subject1.bvh"))
    assert 2.0 < motion.report["cut_s"] < 6.0
    assert motion.start_s > 1.0
