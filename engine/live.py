"""A live page in the browser (viser): the character, its reference, pushes, clips, ground and friction.

Needs the optional extra ``live``. One thread runs the player at 30 Hz (times the speed slider) and sends poses; the
controls only set values which that thread reads at its next step, so no simulation state is shared.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.character_shapes import FORCE_RGB, GHOST_RGB, PUSH_RGB, body_rgb, character_shapes, shape_mesh
from engine.errors import InputError
from engine.play import CONTACT_NAMES, CONTROL_HZ, PUSH_DURATION_S, forces_by_foot, ground_of, parse_terrain
from engine.rotation import quat_to_matrix, rot_z, yaw_of
from engine.skeleton import BODY_NAMES
from engine.srb.terrain import Terrain
from engine.view import METRES_PER_NEWTON, Take, overlay_reference, push_arrow

Array = NDArray[np.float64]

TERRAINS = ("flat", "slope:5", "slope:10", "slope:15", "steps:5", "steps:10", "steps:15", "rough:3", "rough:6")
_PUSH_STEPS = round(PUSH_DURATION_S * CONTROL_HZ)


class Wanted(NamedTuple):
    """What the controls ask for; the running thread rebuilds or restarts when it changes."""

    clip: int
    terrain: str
    friction: float | None
    mmik: bool
    path_following: bool


class LivePage:
    """The page and the thread behind it; use as a context manager, or `start` and `stop`.

    Args:
        make_player: Builds a player of one character from options (``terrain``, ``friction``, ``mmik``, ...).
        library: The motion library.
        clip: Clip to begin with.
        options: First options of the player.
        port: Port of the page; the next free one is taken where it is in use.
        host: Address to listen on; only this machine by default.
        start: Frame within the clip at which every run begins.
    """

    def __init__(
        self,
        make_player: Callable[[dict[str, Any]], Any],
        library: Any,
        clip: int,
        options: dict[str, Any] | None = None,
        port: int = 8080,
        host: str = "127.0.0.1",
        start: int = 0,
    ) -> None:
        viser = _import_viser()
        options = dict(options or {})
        self._make_player, self._library, self._start = make_player, library, start
        terrain = options.pop("terrain", None) or Terrain.flat()
        self._terrains = {name: parse_terrain(name, 0) for name in TERRAINS} | {terrain.name: terrain}
        self._wanted = Wanted(
            clip,
            terrain.name,
            options.pop("friction", None),
            bool(options.pop("mmik", True)),
            bool(options.pop("path_following", False)),
        )
        self._options = options
        self._restart, self._stop = threading.Event(), threading.Event()
        self._push_steps, self._push_w = 0, np.zeros(3)
        self._heading = 0.0
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._player = self._build(self._wanted)  # before the page opens, so that a bad policy is an error at once
        self.server = viser.ViserServer(host=host, port=port, label="gaitforge", verbose=False)
        self._scene()
        self._controls()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://localhost:{self.server.get_port()}"

    @property
    def running(self) -> bool:
        """Whether the thread behind the page is at work."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> LivePage:
        """Begin to run the player; returns itself."""
        self._thread = threading.Thread(target=self._run, name="gaitforge-live", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End the thread and close the page; raises what ended the thread early, if anything did."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)
        self.server.stop()
        if self._error is not None:
            raise self._error

    def __enter__(self) -> LivePage:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def wait(self) -> None:
        """Return when the thread has ended."""
        while self.running:
            time.sleep(0.2)

    def push(self, force_n: float, direction_deg: float) -> None:
        """Push the character for 0.2 s, direction counter-clockwise from its heading now."""
        self._push_w = force_n * rot_z(self._heading + math.radians(direction_deg))[:, 0]
        self._push_steps = _PUSH_STEPS

    def _scene(self) -> None:
        scene = self.server.scene
        scene.set_up_direction("+z")
        scene.configure_default_lights(enabled=True, cast_shadow=True)
        self._root = scene.add_frame("/follow", show_axes=False)
        self._bodies, self._ghost = [], []
        for body, name in enumerate(BODY_NAMES):
            vertices, faces = _body_mesh(body)
            colour = tuple(int(255 * c) for c in body_rgb(body))
            self._bodies.append(scene.add_mesh_simple(f"/character/{name}", vertices, faces, color=colour))
            ghost = tuple(int(255 * c) for c in GHOST_RGB)
            self._ghost.append(
                scene.add_mesh_simple(f"/ghost/{name}", vertices, faces, color=ghost, opacity=0.3, cast_shadow=False)
            )
        self._ground_mesh: Any = None
        self._draw_ground(np.zeros(2))

    def _draw_ground(self, middle: Array) -> None:
        """An endless grid on flat ground, a mesh of 30 m around ``middle`` otherwise."""
        scene, ground = self.server.scene, ground_of(self._terrains[self._wanted.terrain])
        if self._ground_mesh is not None:
            self._ground_mesh.remove()
        self._ground_middle = middle
        if ground is None:
            self._ground_mesh = scene.add_grid(
                "/ground",
                infinite_grid=True,
                cell_size=0.5,
                section_size=1.0,
                plane_color=(222, 225, 230),
                plane_opacity=1.0,
            )
            return
        ticks = np.linspace(-15.0, 15.0, 301)
        points = np.stack(np.meshgrid(ticks + middle[0], ticks + middle[1], indexing="ij"), axis=-1)
        vertices = np.concatenate([points, ground(points)[..., None]], axis=-1).reshape(-1, 3)
        corner = (np.arange(300)[:, None] * 301 + np.arange(300)).ravel()
        faces = np.concatenate(
            [np.stack([corner, corner + 301, corner + 302], -1), np.stack([corner, corner + 302, corner + 1], -1)]
        )
        self._ground_mesh = scene.add_mesh_simple("/ground", vertices, faces, color=(205, 209, 216), flat_shading=True)

    def _controls(self) -> None:
        gui, wanted = self.server.gui, self._wanted
        self._status = gui.add_markdown("starting")
        names = list(self._library.names)
        self._clip = gui.add_dropdown("Clip", names, initial_value=names[wanted.clip])
        self._terrain = gui.add_dropdown("Ground", list(self._terrains), initial_value=wanted.terrain)
        self._own_friction = gui.add_checkbox("Friction of the policy", wanted.friction is None)
        self._friction = gui.add_slider("Friction", 0.1, 1.5, 0.05, float(np.clip(wanted.friction or 0.8, 0.1, 1.5)))
        self._mmik = gui.add_checkbox("MMIK", wanted.mmik)
        self._path = gui.add_checkbox("Path following", wanted.path_following)
        with gui.add_folder("Push"):
            force = gui.add_slider("Force [N]", 0, 1200, 50, 400)
            direction = gui.add_slider("Direction [deg]", 0, 345, 15, 90, hint="0 forward, 90 left")
            gui.add_button("Push for 0.2 s").on_click(lambda _: self.push(float(force.value), float(direction.value)))
        with gui.add_folder("View"):
            self._show_ghost = gui.add_checkbox("Reference", True)
            self._show_forces = gui.add_checkbox("Contact forces", True)
            self._follow = gui.add_checkbox("Follow", True)
            self._pause = gui.add_checkbox("Pause", False)
            self._speed = gui.add_slider("Speed", 0.1, 2.0, 0.1, 1.0)
        gui.add_button("Restart").on_click(lambda _: self._restart.set())

    def _read_controls(self) -> Wanted:
        friction = None if self._own_friction.value else float(self._friction.value)
        return Wanted(
            list(self._library.names).index(self._clip.value),
            self._terrain.value,
            friction,
            bool(self._mmik.value),
            bool(self._path.value),
        )

    def _build(self, wanted: Wanted) -> Any:
        options: dict[str, Any] = {
            **self._options,
            "terrain": self._terrains[wanted.terrain],
            "mmik": wanted.mmik,
            "path_following": wanted.path_following,
        }
        if wanted.friction is not None:
            options["friction"] = wanted.friction
        return self._make_player(options)

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException as error:
            self._error = error

    def _loop(self) -> None:
        previous_root = self._begin(self._wanted)
        step, due = 0, time.perf_counter()
        while not self._stop.is_set():
            wanted = self._read_controls()
            changed = wanted != self._wanted
            if changed and wanted._replace(clip=self._wanted.clip) != self._wanted:
                self._player = self._build(wanted)
            length = int(self._library.length[wanted.clip])
            if changed or self._restart.is_set() or step >= length - 2 - self._start:
                self._restart.clear()
                previous_root, step = self._begin(wanted), 0
            if self._pause.value:
                time.sleep(0.05)
                due = time.perf_counter()
                continue
            pushing = self._push_steps > 0
            push_w = self._push_w if pushing else np.zeros(3)
            begun = time.perf_counter()
            poses = self._player.step(push_force_w=push_w[None])
            step_ms = 1000 * (time.perf_counter() - begun)
            self._push_steps -= pushing
            if not bool(poses.alive[0]):
                self._status.content = f"**fell** after {step / CONTROL_HZ:.1f} s, starting again"
                self._stop.wait(1.0)
                previous_root, step = self._begin(self._wanted), 0
                due = time.perf_counter()
                continue
            step += 1
            self._heading = float(yaw_of(quat_to_matrix(poses.srb_quat_w[0])))
            self._show(poses, push_w, poses.body_pos_w[0, 0] - previous_root)
            previous_root = poses.body_pos_w[0, 0].copy()
            stance = CONTACT_NAMES[int(poses.contact[0])]
            self._status.content = f"{step / CONTROL_HZ:.1f} s, stance {stance}, {step_ms:.2f} ms a step"
            due = max(due + 1.0 / (CONTROL_HZ * self._speed.value), time.perf_counter() - 0.1)
            self._stop.wait(max(0.0, due - time.perf_counter()))

    def _begin(self, wanted: Wanted) -> Array:
        """Reset onto a clip; returns the root position there."""
        new_ground = wanted.terrain != self._wanted.terrain
        self._wanted = wanted
        self._push_steps = 0
        self._player.reset(np.array([wanted.clip]), np.array([self._start]))
        root = np.array(self._library.body_pos_w[self._library.start[wanted.clip] + self._start, 0])
        if new_ground or np.linalg.norm(root[:2] - self._ground_middle) > 5.0:
            self._draw_ground(root[:2])
        for client in self.server.get_clients().values():
            client.camera.position = tuple(root + np.array([1.8, -2.6, 0.7]))
            client.camera.look_at = tuple(root)
        return root

    def _show(self, poses: Any, push_w: Array, moved: Array) -> None:
        ground = ground_of(self._terrains[self._wanted.terrain])
        take = Take(poses.body_pos_w[:1], poses.body_quat_w[:1])
        frame = int(poses.ref_frame[0])
        reference = Take(self._library.body_pos_w[frame : frame + 1], self._library.body_quat_w[frame : frame + 1])
        ghost = overlay_reference(reference, take, ground)
        if ground is not None and np.linalg.norm(take.body_pos_w[0, 0, :2] - self._ground_middle) > 8.0:
            self._draw_ground(take.body_pos_w[0, 0, :2].copy())
        with self.server.atomic():
            for handles, shown in ((self._bodies, take), (self._ghost, ghost)):
                for body, handle in enumerate(handles):
                    handle.position, handle.wxyz = shown.body_pos_w[0, body], shown.body_quat_w[0, body]
            for handle in self._ghost:
                handle.visible = bool(self._show_ghost.value)
            self._show_arrows(poses, push_w)
        if self._follow.value:
            for client in self.server.get_clients().values():
                with client.atomic():
                    shift = moved * [1.0, 1.0, 0.0]
                    client.camera.position = tuple(np.asarray(client.camera.position) + shift)
                    client.camera.look_at = tuple(np.asarray(client.camera.look_at) + shift)

    def _show_arrows(self, poses: Any, push_w: Array) -> None:
        points, colours = [], []
        if self._show_forces.value:
            centres, sums = forces_by_foot(poses.force_points_w[0], poses.forces_w[0], poses.foot_pos_w[0])
            points += [
                [centre, centre + force * METRES_PER_NEWTON] for centre, force in zip(centres, sums, strict=True)
            ]
            colours += [FORCE_RGB] * 2
        if np.any(push_w):
            points.append(list(push_arrow(poses.body_pos_w[0, 1], push_w)))
            colours.append(PUSH_RGB)
        kept = [k for k, (a, b) in enumerate(points) if np.linalg.norm(np.asarray(b) - a) > 0.01]
        rgb = (255 * np.array([colours[k] for k in kept]).reshape(-1, 3)).astype(np.uint8)
        segments = np.array([points[k] for k in kept], np.float32).reshape(-1, 2, 3)
        self.server.scene.add_arrows(
            "/forces", segments, rgb, shaft_radius=0.012, head_radius=0.03, head_length=0.06, visible=bool(kept)
        )


def serve(policy: str, library: Any, clip: int, options: dict[str, Any], port: int = 8080, start: int = 0) -> None:
    """Open the page for a policy and run until it is interrupted (Ctrl-C)."""
    from engine import players

    page = LivePage(
        lambda chosen: players.load(policy, n=1, library=library, **chosen), library, clip, options, port, start=start
    )
    print(f"open {page.url} in a browser; stop with Ctrl-C", flush=True)
    page.start()
    try:
        page.wait()
    except KeyboardInterrupt:
        print("stopped")
    finally:
        page.stop()


def _import_viser() -> Any:
    try:
        import viser
    except ImportError:
        raise InputError(
            "--live: the live page needs viser (found none, expected `pip install gaitforge[live]`)"
        ) from None
    return viser


def _body_mesh(body: int) -> tuple[Array, NDArray[np.int64]]:
    vertices, faces, count = [], [], 0
    for shape in character_shapes():
        if shape.body == body:
            points, _, triangles = shape_mesh(shape)
            vertices.append(points)
            faces.append(triangles + count)
            count += len(points)
    return np.concatenate(vertices), np.concatenate(faces)
