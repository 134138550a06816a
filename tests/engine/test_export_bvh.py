"""BVH export: the file restores the poses through the project's own reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import skeleton
from engine.export_bvh import END_SITES, bvh_text, write_bvh
from engine.motion.bvh import read_bvh
from engine.motion.reader import read_motion
from engine.rotation import quat_exp, quat_from_axis_angle
from tests.engine.playback import walk_poses

Poses = tuple[np.ndarray, np.ndarray]


def _random_poses(frames: int = 40) -> Poses:
    random = np.random.default_rng(3)
    local = quat_exp(random.normal(size=(frames, 15, 3)))
    return skeleton.forward_kinematics(random.normal(size=(frames, 3)), local)


@pytest.mark.parametrize("poses", [walk_poses(), _random_poses()], ids=["walk", "random"])
def test_raw_file_is_in_centimetres_with_y_up(tmp_path: Path, poses: Poses) -> None:
    pos, quat = poses
    path = tmp_path / "clip.bvh"
    assert write_bvh(path, pos, quat) < 1e-9
    clip = read_bvh(path)
    assert clip.joint_names == [skeleton.BODY_NAMES[b] for b in _depth_first()]
    assert clip.fps == pytest.approx(30.0)
    file_pos, _ = clip.world()
    x, y, z = np.moveaxis(file_pos / 100.0, -1, 0)
    ours = np.stack([x, -z, y], axis=-1)
    order = [clip.joint_names.index(name) for name in skeleton.BODY_NAMES]
    assert np.abs(ours[:, order] - pos).max() < 1e-4


def test_walk_round_trips_through_the_motion_reader(tmp_path: Path) -> None:
    pos, quat = walk_poses()
    path = tmp_path / "clip.bvh"
    write_bvh(path, pos, quat)
    clip = read_motion(path)
    back, _ = clip.world()
    order = [clip.joint_names.index(name) for name in skeleton.BODY_NAMES]
    assert np.abs(back[:, order] - pos).max() < 1e-4


def test_every_leaf_has_an_end_site() -> None:
    leaves = {name for b, name in enumerate(skeleton.BODY_NAMES) if b not in set(skeleton.PARENTS)}
    assert set(END_SITES) == leaves
    text, _ = bvh_text(*walk_poses(2))
    assert text.count("End Site") == len(leaves)
    assert text.count("JOINT") == 14


def test_bodies_that_are_not_joined_are_rejoined_and_the_distance_is_told() -> None:
    pos, quat = walk_poses(5)
    pos[:, 5] += [0.0, 0.0, 0.03]
    _, moved = bvh_text(pos, quat)
    assert moved == pytest.approx(0.03, abs=1e-9)


def test_angle_curves_have_no_jumps_over_a_full_turn() -> None:
    turn = quat_from_axis_angle(np.array([0.0, 0.0, 1.0]), np.linspace(0.0, 4 * np.pi, 120))
    local = np.zeros((120, 15, 4))
    local[..., 0] = 1.0
    local[:, 0] = turn
    text, _ = bvh_text(*skeleton.forward_kinematics(np.zeros((120, 3)), local))
    rows = np.array([[float(v) for v in line.split()] for line in text.splitlines()[-120:]])
    assert np.abs(np.diff(rows[:, 3:6], axis=0)).max() < 10.0


def test_a_refused_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clip.bvh"
    path.write_text("old")

    def refuse(*_: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr("engine.atomic.os.replace", refuse)
    with pytest.raises(OSError, match="Permission denied"):
        write_bvh(path, *walk_poses(3))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def _depth_first(body: int = 0) -> list[int]:
    children = [c for c, parent in enumerate(skeleton.PARENTS) if parent == body]
    return [body, *(b for child in children for b in _depth_first(child))]
