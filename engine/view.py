"""Pictures of the moving character: frames for a video, and a strip of poses against the reference.

`render_frames` draws with MuJoCo's off-screen renderer where an OpenGL back end works (EGL or OSMesa without a screen,
GLFW on a desktop) and with a plain software drawing of the same shapes (Pillow) otherwise; `pick_renderer` says
which and why. Both share the shapes, the camera and the colours, so pictures differ in finish, not in content.
"""

from __future__ import annotations

import importlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.atomic import write_atomic
from engine.errors import InputError
from engine.rotation import quat_mul, quat_rotate, quat_to_matrix, yaw_of

Array = NDArray[np.float64]
Frame = NDArray[np.uint8]
GroundHeight = Callable[[Array], Array]
METRES_PER_NEWTON = 0.001
RENDERERS = ("auto", "mujoco", "software")
_PROBE = (
    "import mujoco; m = mujoco.MjModel.from_xml_string('<mujoco><worldbody><geom size=\"1\"/></worldbody></mujoco>');"
    "d = mujoco.MjData(m); r = mujoco.Renderer(m, 16, 16); r.update_scene(d); r.render(); print('drawn')"
)


class Take(NamedTuple):
    """What one character did over T frames; world frame.

    Attributes:
        body_pos_w: Body origins [m], shape (T, 15, 3).
        body_quat_w: Body orientations (w, x, y, z), shape (T, 15, 4).
        force_pos_w: Where forces act [m], shape (T, K, 3); None to draw none.
        force_w: Forces on the character [N], shape (T, K, 3).
        push_w: Push on the trunk [N], shape (T, 3); zero where there is none.
        captions: One line for each frame, drawn in the corner.
    """

    body_pos_w: Array
    body_quat_w: Array
    force_pos_w: Array | None = None
    force_w: Array | None = None
    push_w: Array | None = None
    captions: Sequence[str] | None = None

    def select(self, frames: Sequence[int]) -> Take:
        """The same take at the given frames only."""
        index = list(frames)
        arrays = [None if a is None else a[index] for a in self[:5]]
        return Take(*arrays, None if self.captions is None else [self.captions[i] for i in index])  # type: ignore[arg-type]


class Camera(NamedTuple):
    """A following camera: where it looks in each frame, and from where.

    Attributes:
        lookat_w: Point in the middle of the picture [m], shape (T, 3).
        distance_m: Distance to that point.
        azimuth_deg: Direction of view in the ground plane, counter-clockwise from +x.
        elevation_deg: Direction of view against the ground plane, negative looks down.
        fovy_deg: Vertical field of view.
    """

    lookat_w: Array
    distance_m: float
    azimuth_deg: float
    elevation_deg: float
    fovy_deg: float = 40.0


def follow_camera(
    take: Take, ground: GroundHeight | None = None, smoothing_frames: float = 12.0, distance_m: float = 3.6
) -> Camera:
    """Camera beside and a little ahead of the character that follows the root without lag or jitter.

    The root's ground track is smoothed by a centred Gaussian of ``smoothing_frames``; the view stays in one direction
    (125 degrees from the mean heading), so that drift and turning are seen as such.
    """
    root = take.body_pos_w[:, 0, :2]
    n = len(root)
    reach = int(min(n - 1, 3 * smoothing_frames))
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / max(smoothing_frames, 1e-9)) ** 2)
    kernel /= kernel.sum()
    padded = np.concatenate([_extend(root, -reach), root, _extend(root, reach)])
    track = np.stack([np.convolve(padded[:, k], kernel, mode="valid") for k in range(2)], axis=-1)
    height = np.zeros(n) if ground is None else np.convolve(np.pad(ground(root), reach, "edge"), kernel, mode="valid")
    heading = np.rad2deg(np.angle(np.mean(np.exp(1j * yaw_of(quat_to_matrix(take.body_quat_w[:, 0]))))))
    lookat_w = np.column_stack([track, height + 0.82]).astype(np.float64)
    return Camera(lookat_w, distance_m, float(heading) + 125.0, -14.0)


def _extend(track: Array, count: int) -> Array:
    """``abs(count)`` points that continue a track (T, 2) beyond its end (or start, negative), point-mirrored."""
    if count == 0 or len(track) < 2:
        return np.repeat(track[:1], abs(count), axis=0)
    if count > 0:
        return 2 * track[-1] - track[-2 : -2 - count : -1]
    return 2 * track[0] - track[-count:0:-1]


def push_arrow(chest_pos_w: Array, push_w: Array) -> tuple[Array, Array]:
    """Tail and tip [m] of the arrow of a push [N]; the tip touches the trunk from outside."""
    size = max(float(np.linalg.norm(push_w)), 1e-9)
    tip = chest_pos_w + np.array([0.0, 0.0, 0.1]) - 0.14 * push_w / size
    return tip - 2 * METRES_PER_NEWTON * push_w, tip


def overlay_reference(
    reference: Take, take: Take, ground: GroundHeight | None = None, every_frame: bool = True
) -> Take:
    """Move the reference in the ground plane onto the character: same root position and heading, height kept.

    Args:
        reference: Poses at the frames that the take should match, shape as ``take``.
        take: The character.
        ground: Ground height; the ghost is lifted by it.
        every_frame: Align each frame (shows the difference in posture); False: the first frame only (shows drift).
    """
    frames = slice(None) if every_frame else slice(0, 1)
    goal, have = take.body_quat_w[frames, 0], reference.body_quat_w[frames, 0]
    angle = yaw_of(quat_to_matrix(goal)) - yaw_of(quat_to_matrix(have))
    turn = np.stack([np.cos(angle / 2), 0 * angle, 0 * angle, np.sin(angle / 2)], axis=-1)[:, None]
    pivot = reference.body_pos_w[frames, :1] * [1.0, 1.0, 0.0]
    target = take.body_pos_w[frames, :1] * [1.0, 1.0, 0.0]
    pos = quat_rotate(turn, reference.body_pos_w - pivot) + target
    if ground is not None:
        pos[..., 2] += ground(pos[:, 0, :2])[:, None]
    return Take(pos, quat_mul(turn, reference.body_quat_w))


@lru_cache(maxsize=1)
def usable_gl() -> tuple[str | None, str]:
    """MuJoCo's OpenGL back end that draws on this machine (None: none does) and one line that says so.

    Each candidate is tried in a process of its own, because a back end that fails can take the process with it and
    MuJoCo chooses once, at import. ``MUJOCO_GL``, where set, is the only one tried.
    """
    asked = os.environ.get("MUJOCO_GL")
    if asked:
        names = [asked]
    elif sys.platform == "linux":
        names = (["glfw"] if os.environ.get("DISPLAY") else []) + ["egl", "osmesa"]
    else:
        names = ["glfw"]
    for name in names:
        with tempfile.TemporaryDirectory() as folder:  # MuJoCo writes MUJOCO_LOG.TXT where it runs
            environment = {**os.environ, "MUJOCO_GL": name}
            command = [sys.executable, "-c", _PROBE]
            try:
                done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, timeout=60)
            except (OSError, subprocess.TimeoutExpired):
                continue
        if done.returncode == 0 and b"drawn" in done.stdout:
            return name, f"MuJoCo off-screen, OpenGL by {name}"
    tried = ", ".join(names)
    return (
        None,
        f"software drawing (no OpenGL works here: tried {tried}; on Debian/Ubuntu install libegl1 or libosmesa6)",
    )


def pick_renderer(renderer: str = "auto") -> tuple[str, str]:
    """``"mujoco"`` or ``"software"``, and one line that says which and why.

    Raises:
        InputError: MuJoCo is asked for and no OpenGL back end works, or the name is unknown.
    """
    if renderer not in RENDERERS:
        raise InputError(f"renderer: unknown (found {renderer!r}, expected one of {', '.join(RENDERERS)})")
    if renderer == "software":
        return "software", "software drawing (as asked)"
    name, line = usable_gl()
    if name is None and renderer == "mujoco":
        raise InputError(f"renderer: MuJoCo cannot draw here, {line.split('(', 1)[1].rstrip(')')}")
    if name is None:
        return "software", line
    if "mujoco" in sys.modules:
        _choose_again(name)
    else:
        os.environ.setdefault("MUJOCO_GL", name)
    return "mujoco", line


def _choose_again(name: str) -> None:
    """MuJoCo chooses its OpenGL at import; make the same choice where somebody imported it before."""
    from mujoco.rendering.classic import gl_context

    gl_context.GLContext = importlib.import_module(f"mujoco.{name}").GLContext


def render_frames(
    take: Take,
    reference: Take | None = None,
    *,
    size: tuple[int, int] = (640, 480),
    ground: GroundHeight | None = None,
    camera: Camera | None = None,
    renderer: str = "auto",
) -> Iterator[Frame]:
    """Draw a take, frame by frame.

    Args:
        take: The character over T frames.
        reference: Its reference over the same frames, drawn as a translucent ghost; None for none.
        size: Width and height of the picture in pixels, even numbers.
        ground: Ground height [m] at points (..., 2) [m]; None for the plane z = 0.
        camera: None for `follow_camera`.
        renderer: ``"auto"``, ``"mujoco"`` or ``"software"``.

    Yields:
        RGB pictures, uint8, shape (height, width, 3).
    """
    kind, _ = pick_renderer(renderer)
    camera = camera or follow_camera(take, ground)
    if kind == "mujoco":
        from engine.view_mujoco import draw_frames
    else:
        from engine.view_software import draw_frames
    for t, frame in enumerate(draw_frames(take, reference, size, ground, camera)):
        yield frame if take.captions is None else _caption(frame, take.captions[t])


def strip(
    take: Take,
    reference: Take | None = None,
    *,
    frames: Sequence[int] | None = None,
    count: int = 8,
    panel: tuple[int, int] = (200, 300),
    ground: GroundHeight | None = None,
    labels: Sequence[str] | None = None,
    renderer: str = "auto",
) -> Frame:
    """A row of poses against the reference, for a report.

    Args:
        take: The character.
        reference: Drawn as a ghost behind it.
        frames: Which frames; None for ``count`` evenly spread ones.
        count: Number of panels where ``frames`` is None.
        panel: Width and height of a panel in pixels.
        ground: Ground height, see `render_frames`.
        labels: A short text under each panel; None for the time at 30 Hz.
        renderer: See `render_frames`.

    Returns:
        RGB picture, uint8, shape (panel height, panels * panel width, 3).
    """
    total = len(take.body_pos_w)
    chosen = (
        list(frames)
        if frames is not None
        else np.linspace(0, total - 1, min(count, total)).round().astype(int).tolist()
    )
    full = follow_camera(take, ground, smoothing_frames=2.0, distance_m=3.3)
    camera = full._replace(lookat_w=full.lookat_w[chosen], azimuth_deg=full.azimuth_deg - 20.0, elevation_deg=-8.0)
    part = take.select(chosen)._replace(captions=None)
    ghost = None if reference is None else reference.select(chosen)
    texts = list(labels) if labels is not None else [f"{i / 30:.2f} s" for i in chosen]
    panels = render_frames(part, ghost, size=panel, ground=ground, camera=camera, renderer=renderer)
    return np.concatenate([_caption(p, text, bottom=True) for p, text in zip(panels, texts, strict=True)], axis=1)


def write_video(path: str | os.PathLike[str], frames: Iterable[Frame], fps: float = 30.0) -> int:
    """Write frames as ``.mp4`` (H.264) or ``.gif``; a temporary file takes the name once it is complete.

    Returns:
        The number of frames written.

    Raises:
        InputError: Unknown file type, or no frame.
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".mp4", ".gif"):
        raise InputError.at(path, None, f"unknown video type (found {kind or 'no extension'}, expected .mp4 or .gif)")
    import imageio.v2 as imageio

    partial = path.with_name(f".{path.stem}.partial{kind}")
    options = {"fps": fps, "codec": "libx264", "quality": 8, "macro_block_size": 2, "ffmpeg_log_level": "error"}
    count = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = imageio.get_writer(partial, **options) if kind == ".mp4" else _GifWriter(partial, fps)
        try:
            for frame in frames:
                writer.append_data(frame)
                count += 1
        finally:
            writer.close()
        if count == 0:
            raise InputError.at(path, None, "no frame to write (found 0, expected at least 1)")
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def write_png(path: str | os.PathLike[str], picture: Frame) -> None:
    """Write one RGB picture; a temporary file takes the name once it is complete."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(picture).save(content, "png", optimize=True)
    write_atomic(path, content.getvalue())


class _GifWriter:
    """Collects frames and writes a looping GIF on close, about 15 a second (browsers play faster ones slowly)."""

    def __init__(self, path: Path, fps: float) -> None:
        self.path, self.fps, self.frames, self.count = path, fps, [], 0

    def append_data(self, frame: Frame) -> None:
        from PIL import Image

        every = max(1, round(self.fps / 15.0))
        if self.count % every == 0:
            self.frames.append(Image.fromarray(frame).quantize(128, dither=Image.Dither.NONE))
        self.count += 1

    def close(self) -> None:
        if self.frames:
            every = max(1, round(self.fps / 15.0))
            delay_ms = round(1000.0 * every / self.fps / 10.0) * 10
            self.frames[0].save(self.path, save_all=True, append_images=self.frames[1:], duration=delay_ms, loop=0)


def _caption(frame: Frame, text: str, bottom: bool = False) -> Frame:
    """Write one line into the upper left corner (or centred at the bottom) of a picture."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(frame)
    draw = ImageDraw.Draw(image)
    size = max(11, image.height // 30)
    font = ImageFont.load_default(size=size)
    width = draw.textlength(text, font=font)
    place = ((image.width - width) / 2, image.height - 1.9 * size) if bottom else (0.6 * size, 0.5 * size)
    draw.text(place, text, font=font, fill=(40, 44, 52), stroke_width=1, stroke_fill=(245, 246, 248))
    return np.asarray(image)
