"""Software drawing of a take with Pillow: the fallback where no OpenGL works. Same camera, shapes and colours.

Spheres and capsules are drawn as the hull of two discs, boxes as the hull of their corners, far to near; shadows are
the shapes projected along the sun onto the ground and blurred. No depth buffer, so touching shapes may overlap by a
pixel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from engine.character_shapes import FORCE_RGB, GHOST_RGB, PUSH_RGB, body_rgb, character_shapes
from engine.rotation import quat_rotate
from engine.view import METRES_PER_NEWTON, push_arrow

if TYPE_CHECKING:
    from engine.view import Array, Camera, Frame, GroundHeight, Take

_SUPERSAMPLE = 2
_SUN_W = np.array([-0.35, 0.35, -1.0])
_SKY, _FLOOR, _LINE = (238, 240, 245), (205, 209, 216), (160, 167, 178)
_CORNERS = np.array([[i, j, k] for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)], np.float64)
_CIRCLE = np.stack([np.cos(np.arange(24) * np.pi / 12), np.sin(np.arange(24) * np.pi / 12)], axis=-1)


class _Projector:
    """Pinhole camera looking at one point; pixels of the supersampled picture."""

    def __init__(self, camera: Camera, lookat_w: Array, width: int, height: int) -> None:
        azimuth, elevation = np.deg2rad(camera.azimuth_deg), np.deg2rad(camera.elevation_deg)
        forward = np.array(
            [np.cos(azimuth) * np.cos(elevation), np.sin(azimuth) * np.cos(elevation), np.sin(elevation)]
        )
        right = np.array([np.sin(azimuth), -np.cos(azimuth), 0.0])
        self.axes = np.stack([right, -np.cross(right, forward), forward])  # rows: picture right, picture down, depth
        self.eye_w = lookat_w - camera.distance_m * forward
        self.focal = 0.5 * height / np.tan(0.5 * np.deg2rad(camera.fovy_deg))
        self.middle = np.array([width / 2, height / 2])

    def __call__(self, points_w: Array) -> tuple[Array, Array]:
        """Pixels (..., 2) and depths (...) [m] of world points (..., 3)."""
        local = (points_w - self.eye_w) @ self.axes.T
        depth = local[..., 2]
        return self.middle + self.focal * local[..., :2] / np.maximum(depth, 0.05)[..., None], depth


def draw_frames(
    take: Take, reference: Take | None, size: tuple[int, int], ground: GroundHeight | None, camera: Camera
) -> Iterator[Frame]:
    """Yield RGB pictures (height, width, 3); see `engine.view.render_frames`."""
    width, height = size[0] * _SUPERSAMPLE, size[1] * _SUPERSAMPLE
    for t in range(len(take.body_pos_w)):
        project = _Projector(camera, camera.lookat_w[t], width, height)
        image = Image.new("RGB", (width, height), _SKY)
        _draw_ground(image, project, camera.lookat_w[t], ground)
        _draw_shadow(image, project, take, t, ground)
        if reference is not None:
            layer = image.copy()
            _draw_figure(layer, project, reference, t, GHOST_RGB)
            image = Image.blend(image, layer, 0.38)
        _draw_figure(image, project, take, t, None)
        _draw_arrows(image, project, take, t)
        yield np.asarray(image.resize(size, Image.Resampling.LANCZOS))


def _draw_ground(image: Image.Image, project: _Projector, lookat_w: Array, ground: GroundHeight | None) -> None:
    """Metre grid for the plane; shaded quads of 12.5 cm, far to near, for a terrain."""
    draw = ImageDraw.Draw(image)
    if ground is None:
        reach = 8
        corner = np.floor(lookat_w[:2])
        square = np.array([[-reach, -reach], [reach, -reach], [reach, reach], [-reach, reach]], np.float64) + corner
        _fill_ground(draw, project, square, _FLOOR)
        steps = np.arange(-reach, reach + 1)
        fine = np.linspace(-reach, reach, 129)
        for s in steps:
            for line in (np.column_stack([0 * fine + s, fine]), np.column_stack([fine, 0 * fine + s])):
                pixels, depth = project(np.column_stack([line + corner, np.zeros(len(line))]))
                seen = depth > 0.2
                if seen.sum() > 1:
                    draw.line([tuple(p) for p in pixels[seen]], fill=_LINE, width=_SUPERSAMPLE)
        return
    cell, count = 0.125, 56
    start = np.floor(lookat_w[:2] / cell) * cell - cell * count / 2
    ticks = np.arange(count + 1) * cell
    points = np.stack(np.meshgrid(ticks + start[0], ticks + start[1], indexing="ij"), axis=-1)
    vertices = np.concatenate([points, ground(points)[..., None]], axis=-1)
    pixels, depth = project(vertices)
    order = np.argsort(-(depth[:-1, :-1] + depth[1:, 1:]).ravel())
    slope = np.cross(vertices[1:, :-1] - vertices[:-1, :-1], vertices[:-1, 1:] - vertices[:-1, :-1])
    slope /= np.linalg.norm(slope, axis=-1, keepdims=True)
    light = np.clip(slope @ (-_SUN_W / np.linalg.norm(_SUN_W)), 0.0, 1.0)
    metre = np.floor(points[:-1, :-1] + 1e-9).sum(axis=-1) % 2
    for flat in order:
        i, j = divmod(int(flat), count)
        if depth[i : i + 2, j : j + 2].min() < 0.3:
            continue
        quad = [tuple(pixels[a, b]) for a, b in ((i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1))]
        shade = (0.45 + 0.58 * light[i, j]) * (1.0 - 0.07 * metre[i, j])
        draw.polygon(quad, fill=tuple(int(min(255, c * shade)) for c in _FLOOR))


def _fill_ground(draw: ImageDraw.ImageDraw, project: _Projector, square: Array, colour: tuple[int, int, int]) -> None:
    edge = np.concatenate([np.linspace(square[k], square[(k + 1) % 4], 64, endpoint=False) for k in range(4)])
    pixels, depth = project(np.column_stack([edge, np.zeros(len(edge))]))
    seen = pixels[depth > 0.2]
    if len(seen) > 2:
        bottom = np.array([[seen[:, 0].min(), 4 * project.middle[1]], [seen[:, 0].max(), 4 * project.middle[1]]])
        draw.polygon([tuple(p) for p in _hull(np.concatenate([seen, bottom]))], fill=colour)


def _outlines(take: Take, t: int) -> list[tuple[int, Array, float]]:
    """(body, points (P, 3), radius) of every shape: a capsule is two points with a radius, a box eight with none."""
    result = []
    for shape in character_shapes():
        if shape.kind == "box":
            local, radius = _CORNERS * shape.size, 0.0
        else:
            half = shape.size[1] if shape.kind == "capsule" else 0.0
            local, radius = np.array([[0.0, 0.0, -half], [0.0, 0.0, half]]), float(shape.size[0])
        in_body = shape.pos_b + quat_rotate(shape.quat_b, local)
        points = take.body_pos_w[t, shape.body] + quat_rotate(take.body_quat_w[t, shape.body], in_body)
        result.append((shape.body, points, radius))
    return result


def _draw_shadow(image: Image.Image, project: _Projector, take: Take, t: int, ground: GroundHeight | None) -> None:
    mask = Image.new("L", image.size, 0)
    draw = ImageDraw.Draw(mask)
    for _, points, radius in _outlines(take, t):
        level = np.zeros(len(points)) if ground is None else ground(points[:, :2])
        flat = points + _SUN_W * (points[:, 2] - level)[:, None]
        if ground is not None:
            flat[:, 2] = ground(flat[:, :2])
        around = flat[:, None] + np.column_stack([_CIRCLE * radius, np.zeros(len(_CIRCLE))])
        pixels, depth = project(around.reshape(-1, 3))
        if depth.min() > 0.2:
            draw.polygon([tuple(p) for p in _hull(pixels)], fill=105)
    image.paste((40, 44, 56), mask=mask.filter(ImageFilter.GaussianBlur(2.0 * _SUPERSAMPLE)))


def _draw_figure(
    image: Image.Image, project: _Projector, take: Take, t: int, rgb: tuple[float, float, float] | None
) -> None:
    draw = ImageDraw.Draw(image)
    outlines = [(body, points, radius, *project(points)) for body, points, radius in _outlines(take, t)]
    for body, _, radius, pixels, depth in sorted(outlines, key=lambda item: -float(item[4].mean())):
        if depth.min() < 0.2:
            continue
        base = np.array(rgb or body_rgb(body)) * 255
        if radius == 0.0:
            draw.polygon([tuple(p) for p in _hull(pixels)], fill=_tint(base, 0.8), outline=_tint(base, 0.5))
            continue
        size = radius * project.focal / depth
        for shrink, shift, shade in ((1.0, 0.0, 0.52), (0.93, 0.0, 0.76), (0.72, 0.16, 0.90), (0.36, 0.34, 1.02)):
            centres = pixels - shift * size[:, None] * np.array([0.55, 0.85])
            rim = centres[:, None] + _CIRCLE * (shrink * size)[:, None, None]
            draw.polygon([tuple(p) for p in _hull(rim.reshape(-1, 2))], fill=_tint(base, shade))


def _draw_arrows(image: Image.Image, project: _Projector, take: Take, t: int) -> None:
    draw = ImageDraw.Draw(image)
    if take.force_w is not None and take.force_pos_w is not None:
        for point, force in zip(take.force_pos_w[t], take.force_w[t], strict=True):
            _arrow(draw, project, point, point + force * METRES_PER_NEWTON, FORCE_RGB, 3)
    if take.push_w is not None and np.any(take.push_w[t]):
        _arrow(draw, project, *push_arrow(take.body_pos_w[t, 1], take.push_w[t]), PUSH_RGB, 6)


def _arrow(
    draw: ImageDraw.ImageDraw,
    project: _Projector,
    start: Array,
    end: Array,
    rgb: tuple[float, float, float],
    width: int,
) -> None:
    (a, b), depth = project(np.stack([start, end]))
    length = float(np.linalg.norm(b - a))
    if depth.min() < 0.2 or length < 3:
        return
    along = (b - a) / length
    across = np.array([-along[1], along[0]])
    head = min(3.2 * width * _SUPERSAMPLE, 0.6 * length)
    colour = _tint(np.array(rgb) * 255, 1.0)
    draw.line([tuple(a), tuple(b - along * head * 0.8)], fill=colour, width=width * _SUPERSAMPLE)
    draw.polygon([tuple(b), *(tuple(b - along * head + s * across * head * 0.45) for s in (1, -1))], fill=colour)


def _tint(rgb: Array, factor: float) -> tuple[int, int, int]:
    r, g, b = np.clip(rgb * factor, 0, 255).astype(int).tolist()
    return r, g, b


def _hull(points: Array) -> Array:
    """Convex hull of points (P, 2), in order (Andrew's monotone chain)."""
    ordered = points[np.lexsort((points[:, 1], points[:, 0]))].tolist()
    halves = []
    for sequence in (ordered, ordered[::-1]):
        chain: list[list[float]] = []
        for p in sequence:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], p) <= 0:
                chain.pop()
            chain.append(p)
        halves += chain[:-1]
    return np.array(halves)


def _turn(a: list[float], b: list[float], c: list[float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
