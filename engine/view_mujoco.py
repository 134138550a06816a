"""MuJoCo off-screen drawing of a take: the character as mocap bodies over a grid or a height field, ghost, arrows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from engine.character_shapes import FORCE_RGB, GHOST_RGB, PUSH_RGB, Shape, body_rgb, character_shapes
from engine.view import METRES_PER_NEWTON, push_arrow

if TYPE_CHECKING:
    from engine.view import Array, Camera, Frame, GroundHeight, Take

_CELL_M = 0.04
_MARGIN_M = 4.0
_MAX_CELLS = 700
_GHOST_SCALE = 0.97  # a ghost that coincides with the character lies inside it instead of flickering through it


def draw_frames(
    take: Take, reference: Take | None, size: tuple[int, int], ground: GroundHeight | None, camera: Camera
) -> Iterator[Frame]:
    """Yield RGB pictures (height, width, 3); see `engine.view.render_frames`."""
    field = None if ground is None else _sample_ground(take, ground)
    model = mujoco.MjModel.from_xml_string(_scene_xml(size, field, camera.fovy_deg, reference is not None))
    if field is not None:
        _, _, heights = field
        low, high = float(heights.min()), float(heights.max())
        model.hfield_data[:] = ((heights - low) / max(high - low, 1e-6)).ravel()
    data = mujoco.MjData(model)
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FREE
    view.distance, view.azimuth, view.elevation = camera.distance_m, camera.azimuth_deg, camera.elevation_deg
    n_bodies = take.body_pos_w.shape[1]
    with mujoco.Renderer(model, size[1], size[0]) as renderer:
        for t in range(len(take.body_pos_w)):
            data.mocap_pos[:n_bodies], data.mocap_quat[:n_bodies] = take.body_pos_w[t], take.body_quat_w[t]
            if reference is not None:
                data.mocap_pos[n_bodies:], data.mocap_quat[n_bodies:] = (
                    reference.body_pos_w[t],
                    reference.body_quat_w[t],
                )
            view.lookat[:] = camera.lookat_w[t]
            _light(model, camera.lookat_w[t])
            mujoco.mj_kinematics(model, data)
            mujoco.mj_camlight(model, data)
            renderer.update_scene(data, view)
            _add_arrows(renderer.scene, take, t)
            yield renderer.render().copy()


def _sample_ground(take: Take, ground: GroundHeight) -> tuple[Array, Array, Array]:
    """Heights (rows y, columns x) on a grid around the track, its centre (2,) and its half extent (2,) [m]."""
    track = take.body_pos_w[:, 0, :2]
    low, high = track.min(axis=0) - _MARGIN_M, track.max(axis=0) + _MARGIN_M
    counts = np.clip(np.ceil((high - low) / _CELL_M).astype(int) + 1, 2, _MAX_CELLS)
    x, y = np.linspace(low[0], high[0], counts[0]), np.linspace(low[1], high[1], counts[1])
    points = np.stack(np.meshgrid(x, y), axis=-1)
    return (low + high) / 2, (high - low) / 2, ground(points)


def _scene_xml(size: tuple[int, int], field: tuple[Array, Array, Array] | None, fovy: float, ghost: bool) -> str:
    if field is None:
        asset, floor = "", '<geom type="plane" size="0 0 1" material="ground"/>'
    else:
        centre, half, heights = field
        low, high = float(heights.min()), float(heights.max())
        rows, columns = heights.shape
        size_m = _numbers([*half, max(high - low, 1e-6), 1.0])
        asset = f'<hfield name="field" nrow="{rows}" ncol="{columns}" size="{size_m}"/>'
        floor = f'<geom type="hfield" hfield="field" pos="{centre[0]} {centre[1]} {low}" material="ground"/>'
    figures = _figure_xml("body", None) + (_figure_xml("ghost", (*GHOST_RGB, 0.25)) if ghost else "")
    return f"""<mujoco>
  <statistic extent="2" center="0 0 1"/>
  <visual>
    <global offwidth="{size[0]}" offheight="{size[1]}" fovy="{fovy}"/>
    <quality shadowsize="2048" offsamples="4"/>
    <headlight ambient="0.42 0.42 0.44" diffuse="0.32 0.32 0.32" specular="0.05 0.05 0.05"/>
    <map znear="0.05" zfar="40" fogstart="3" fogend="11" shadowclip="2" shadowscale="0.6"/>
    <rgba fog="0.93 0.94 0.96 1"/>
  </visual>
  <asset>
    <texture type="skybox" builtin="gradient" rgb1="0.93 0.94 0.96" rgb2="0.80 0.85 0.92" width="64" height="384"/>
    <texture name="grid" type="2d" builtin="checker" rgb1="0.80 0.82 0.85" rgb2="0.75 0.77 0.81" mark="edge"
             markrgb="0.62 0.65 0.70" width="256" height="256"/>
    <material name="ground" texture="grid" texuniform="true" texrepeat="1 1" specular="0" shininess="0"/>
    {asset}
  </asset>
  <worldbody>
    <light name="sun" pos="0 0 4" dir="-0.35 0.35 -1" directional="true" castshadow="true" diffuse="0.55 0.55 0.53"
           ambient="0 0 0" specular="0.12 0.12 0.12"/>
    {floor}
    {figures}
  </worldbody>
</mujoco>"""


def _figure_xml(prefix: str, rgba: tuple[float, ...] | None) -> str:
    shapes: dict[int, list[Shape]] = {}
    for shape in character_shapes():
        shapes.setdefault(shape.body, []).append(shape)
    bodies = []
    for body in range(15):
        colour = rgba or (*body_rgb(body), 1.0)
        scale = 1.0 if rgba is None else _GHOST_SCALE
        geoms = "".join(
            f'<geom type="{s.kind}" size="{_numbers(s.size * scale)}" pos="{_numbers(s.pos_b)}" '
            f'quat="{_numbers(s.quat_b)}" rgba="{_numbers(colour)}" contype="0" conaffinity="0"/>'
            for s in shapes.get(body, [])
        )
        bodies.append(f'<body name="{prefix}{body}" mocap="true">{geoms}</body>')
    return "\n".join(bodies)


def _numbers(values: object) -> str:
    return " ".join(f"{v:.9g}" for v in np.asarray(values, np.float64))


def _light(model: mujoco.MjModel, lookat: Array) -> None:
    """Keep the sun over the character, so that its shadow map stays sharp on a long walk."""
    model.light_pos[0] = lookat + np.array([1.2, -1.2, 3.4])


def _add_arrows(scene: mujoco.MjvScene, take: Take, t: int) -> None:
    if take.force_w is not None and take.force_pos_w is not None:
        for point, force in zip(take.force_pos_w[t], take.force_w[t], strict=True):
            _add_arrow(scene, point, point + force * METRES_PER_NEWTON, FORCE_RGB, 0.012)
    if take.push_w is not None and np.any(take.push_w[t]):
        _add_arrow(scene, *push_arrow(take.body_pos_w[t, 1], take.push_w[t]), PUSH_RGB, 0.03)


def _add_arrow(scene: mujoco.MjvScene, start: Array, end: Array, rgb: tuple[float, float, float], width: float) -> None:
    if scene.ngeom >= scene.maxgeom or np.linalg.norm(end - start) < 0.01:
        return
    geom = scene.geoms[scene.ngeom]  # MuJoCo draws an arrow half as long as its connector, hence the doubled end
    rgba = np.array([*rgb, 1.0], np.float32)
    mujoco.mjv_initGeom(geom, mujoco.mjtGeom.mjGEOM_ARROW, np.zeros(3), np.zeros(3), np.eye(3).ravel(), rgba)
    mujoco.mjv_connector(geom, mujoco.mjtGeom.mjGEOM_ARROW, width, np.asarray(start), 2 * np.asarray(end) - start)
    scene.ngeom += 1
