"""The live page: it starts, serves, reacts to its controls and stops."""

from __future__ import annotations

import builtins
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine.errors import InputError
from tests.engine.playback import FRAMES, PlaybackPlayer, playback_library

pytest.importorskip("viser", reason="the optional extra `live` is not installed")

from engine.live import LivePage


class _Players:
    def __init__(self) -> None:
        self.library = playback_library()
        self.built: list[tuple[dict[str, Any], PlaybackPlayer]] = []
        self.falls_at: int | None = None

    def make(self, options: dict[str, Any]) -> PlaybackPlayer:
        player = PlaybackPlayer(self.library, self.falls_at)
        self.built.append((options, player))
        return player


@pytest.fixture
def players() -> _Players:
    return _Players()


@pytest.fixture
def page(players: _Players) -> Iterator[LivePage]:
    with LivePage(players.make, players.library, clip=0, port=18620) as live:
        yield live


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("the page did not get there")


def test_page_is_served_while_the_player_runs(players: _Players, page: LivePage) -> None:
    with urllib.request.urlopen(page.url, timeout=10) as answer:
        assert answer.status == 200
        assert b"<html" in answer.read().lower()
    _until(lambda: len(players.built[0][1].pushes) > 3)
    assert page.running


def test_page_stops_and_frees_its_thread(players: _Players) -> None:
    page = LivePage(players.make, players.library, clip=0, port=18640).start()
    assert page.running
    page.stop()
    assert not page.running
    with pytest.raises(OSError, match=r"."):
        urllib.request.urlopen(page.url, timeout=2)


def test_push_button_pushes_for_a_fifth_of_a_second(players: _Players, page: LivePage) -> None:
    _until(lambda: len(players.built[0][1].pushes) > 1)
    page.push(300.0, 90.0)
    _until(lambda: sum(bool(np.any(f)) for f in list(players.built[0][1].pushes)) == 6)
    forces = np.array([f for f in list(players.built[0][1].pushes) if np.any(f)])
    assert np.allclose(forces, [0.0, 300.0, 0.0])


def test_ground_and_friction_rebuild_the_player_and_a_clip_only_restarts(players: _Players, page: LivePage) -> None:
    page._clip.value = "run_fast"
    _until(lambda: players.built[0][1].resets[-1] == (1, 0))
    assert len(players.built) == 1
    page._terrain.value = "steps:10"
    page._own_friction.value = False
    page._friction.value = 0.4
    _until(lambda: len(players.built) > 1 and players.built[-1][0].get("friction") == 0.4)
    options, player = players.built[-1]
    assert options["terrain"].name == "steps:10"
    assert (options["mmik"], options["path_following"]) == (True, False)
    _until(lambda: len(player.pushes) > 1)


def test_a_fall_and_the_clips_end_start_again(players: _Players) -> None:
    players.falls_at = 3
    with LivePage(players.make, players.library, clip=0, port=18660, start=FRAMES - 6):
        _until(lambda: len(players.built[0][1].resets) >= 2)
    players.falls_at = None
    with LivePage(players.make, players.library, clip=0, port=18680, start=FRAMES - 6):
        _until(lambda: len(players.built[1][1].resets) >= 2)


def test_an_error_while_running_is_raised_by_stop(players: _Players) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise InputError("policy: broken")

    player = players.make({})
    player.step = broken  # type: ignore[method-assign]
    page = LivePage(lambda options: player, players.library, clip=0, port=18700).start()
    page.wait()
    with pytest.raises(InputError, match="policy: broken"):
        page.stop()


def test_without_viser_the_extra_is_named(players: _Players, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **named: Any) -> Any:
        if name == "viser":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(InputError, match=r"needs viser \(found none, expected `pip install gaitforge\[live\]`\)"):
        LivePage(players.make, players.library, clip=0)
