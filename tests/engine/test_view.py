"""Pictures: both renderers show the same thing in the same place, videos are written whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import view
from engine.character_shapes import FORCE_RGB, PUSH_RGB, character_shapes
from engine.errors import InputError
from engine.rotation import quat_from_axis_angle, quat_mul, quat_rotate
from engine.srb.terrain import Terrain
from engine.view_software import _SUPERSAMPLE, _Projector
from tests.engine.playback import walk_poses

SIZE = (192, 144)


@pytest.fixture(params=["software", "mujoco"])
def renderer(request: pytest.FixtureRequest) -> str:
    if request.param == "mujoco" and view.usable_gl()[0] is None:
        pytest.skip(view.usable_gl()[1])
    return request.param


def _take(frames: int = 3) -> view.Take:
    return view.Take(*walk_poses(frames))


def _shifted(take: view.Take, by: float) -> view.Take:
    return view.Take(take.body_pos_w + np.array([by, 0.0, 0.0]), take.body_quat_w)


def test_frames_have_the_asked_size_and_show_the_character(renderer: str) -> None:
    frames = list(view.render_frames(_take(), size=SIZE, renderer=renderer))
    assert len(frames) == 3
    for frame in frames:
        assert frame.shape == (SIZE[1], SIZE[0], 3)
        assert frame.dtype == np.uint8
        red, _, blue = (frame[..., k].astype(int) for k in range(3))
        assert (blue - red > 60).sum() > 100  # right side
        assert (red - blue > 60).sum() > 100  # left side


@pytest.mark.parametrize("terrain", ["flat", "slope:10", "steps:10", "rough:5"])
def test_character_stands_out_on_every_ground(renderer: str, terrain: str) -> None:
    ground = None if terrain == "flat" else Terrain.parse(terrain).height
    take = _take(1)
    if ground is not None:
        take.body_pos_w[..., 2] += ground(take.body_pos_w[:, 0, :2])[:, None]
    (frame,) = view.render_frames(take, size=SIZE, ground=ground, renderer=renderer)
    red, blue = frame[..., 0].astype(int), frame[..., 2].astype(int)
    assert (blue - red > 60).sum() > 80


def test_ghost_changes_the_picture_where_it_differs(renderer: str) -> None:
    take = _take(1)
    (alone,) = view.render_frames(take, size=SIZE, renderer=renderer)
    (beside,) = view.render_frames(take, _shifted(take, 0.5), size=SIZE, renderer=renderer)
    assert (np.abs(alone.astype(int) - beside.astype(int)).max(axis=-1) > 12).sum() > 200


@pytest.mark.parametrize("kind", ["force", "push"])
def test_arrows_end_where_the_vector_ends(renderer: str, kind: str) -> None:
    """The tip of an arrow, seen from the side, lies at its projection to within a few pixels."""
    size = (480, 360)
    pos, quat = walk_poses(1)
    start = np.array([0.5, -0.6, 0.6])
    if kind == "force":
        take = view.Take(pos, quat, start[None, None], np.array([[[0.0, 0.0, 600.0]]]))
        tip, rgb = start + np.array([0.0, 0.0, 0.6]), FORCE_RGB
    else:
        take = view.Take(pos, quat, push_w=np.array([[0.0, 0.0, -250.0]]))
        start = pos[0, 1] + [0.0, 0.0, 0.1 + 0.14 + 0.5]
        tip, rgb = start, PUSH_RGB
    camera = view.follow_camera(take)
    (frame,) = view.render_frames(take, size=size, camera=camera, renderer=renderer)
    (plain,) = view.render_frames(take._replace(force_w=None, push_w=None), size=size, camera=camera, renderer=renderer)
    changed = np.abs(frame.astype(int) - plain).max(axis=-1) > 40
    hue = frame.astype(float) / np.maximum(frame.max(axis=-1, keepdims=True), 1)
    like = np.abs(hue - np.array(rgb) / max(rgb)).max(axis=-1) < 0.3
    rows, columns = np.nonzero(changed & like)
    project = _Projector(camera, camera.lookat_w[0], *(s * _SUPERSAMPLE for s in size))
    expected = project(tip)[0] / _SUPERSAMPLE
    assert rows.min() == pytest.approx(expected[1], abs=6)
    assert columns[rows.argmin()] == pytest.approx(expected[0], abs=8)


def test_both_renderers_draw_the_character_in_the_same_place() -> None:
    if view.usable_gl()[0] is None:
        pytest.skip(view.usable_gl()[1])
    masks = []
    for renderer in ("software", "mujoco"):
        (frame,) = view.render_frames(_take(1), size=(320, 240), renderer=renderer)
        red, blue = frame[..., 0].astype(int), frame[..., 2].astype(int)
        masks.append(np.abs(red - blue) > 60)
    overlap = (masks[0] & masks[1]).sum() / (masks[0] | masks[1]).sum()
    assert overlap > 0.75


def test_overlay_removes_place_and_heading_but_keeps_height_and_posture() -> None:
    pos, quat = walk_poses(5)
    turn = quat_from_axis_angle(np.array([0.0, 0.0, 1.0]), np.array(1.1))
    moved = view.Take(quat_rotate(turn, pos) + np.array([3.0, -2.0, 0.0]), quat_mul(turn, quat))
    ghost = view.overlay_reference(view.Take(pos, quat), moved)
    assert np.abs(ghost.body_pos_w - moved.body_pos_w).max() < 1e-12


def test_ghost_aligned_at_the_start_shows_drift() -> None:
    pos, quat = walk_poses(30)
    slower = view.Take(*walk_poses(30, speed=0.5))
    ghost = view.overlay_reference(view.Take(pos, quat), slower, every_frame=False)
    assert np.allclose(ghost.body_pos_w[0], slower.body_pos_w[0])
    assert ghost.body_pos_w[-1, 0, 0] - slower.body_pos_w[-1, 0, 0] == pytest.approx(0.5 * 29 / 30)


def test_camera_follows_without_lag_or_jitter() -> None:
    pos, quat = walk_poses(90, speed=1.5)
    camera = view.follow_camera(view.Take(pos, quat))
    assert np.abs(camera.lookat_w[:, 0] - pos[:, 0, 0]).max() < 1e-6  # steady walk: no lag, at the ends either
    assert np.abs(np.diff(camera.lookat_w[:, 1], n=2)).max() < 1e-3


@pytest.mark.parametrize("frames", [1, 2, 7])
def test_camera_works_on_short_takes(frames: int) -> None:
    assert view.follow_camera(_take(frames)).lookat_w.shape == (frames, 3)


def test_strip_is_a_row_of_panels(renderer: str) -> None:
    take = _take(30)
    picture = view.strip(take, take, count=4, panel=(96, 128), renderer=renderer)
    assert picture.shape == (128, 4 * 96, 3)
    few = view.strip(take, frames=[0, 29], panel=(96, 128), labels=["a", "b"], renderer=renderer)
    assert few.shape == (128, 2 * 96, 3)


@pytest.mark.parametrize("kind", [".mp4", ".gif"])
def test_video_is_readable_and_complete(tmp_path: Path, kind: str) -> None:
    import imageio.v2 as imageio

    path = tmp_path / f"clip{kind}"
    frames = list(view.render_frames(_take(6), size=SIZE, renderer="software"))
    assert view.write_video(path, frames) == 6
    back = imageio.mimread(path)
    assert len(back) == (6 if kind == ".mp4" else 3)
    assert back[0].shape[:2] == (SIZE[1], SIZE[0])
    assert np.abs(back[0][..., :3].astype(int) - frames[0]).mean() < 12
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", [".mp4", ".gif"])
def test_interrupted_video_leaves_the_old_file_and_nothing_else(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"clip{kind}"
    path.write_bytes(b"old")

    def broken() -> object:
        yield from view.render_frames(_take(2), size=SIZE, renderer="software")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        view.write_video(path, broken())  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_unknown_video_type_and_empty_video_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.avi: unknown video type \(found \.avi, expected \.mp4 or \.gif\)"):
        view.write_video(tmp_path / "a.avi", [])
    with pytest.raises(InputError, match="no frame to write"):
        view.write_video(tmp_path / "a.gif", [])
    assert not list(tmp_path.iterdir())


def test_without_opengl_the_software_drawing_is_taken_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "no_such_backend")
    view.usable_gl.cache_clear()
    try:
        kind, line = view.pick_renderer("auto")
        assert kind == "software"
        assert "no OpenGL works here: tried no_such_backend" in line
        with pytest.raises(InputError, match="MuJoCo cannot draw here, no OpenGL works"):
            view.pick_renderer("mujoco")
    finally:
        view.usable_gl.cache_clear()


def test_unknown_renderer_is_refused() -> None:
    with pytest.raises(InputError, match="renderer: unknown"):
        view.pick_renderer("vulkan")


def test_each_body_has_its_own_shape_and_feet_have_no_trim() -> None:
    shapes = character_shapes()
    assert [s.body for s in shapes[:15]] == list(range(15))
    assert [s.kind for s in shapes if s.body in (11, 14)] == ["box", "box"]
