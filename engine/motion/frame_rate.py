"""Frame rates: the common rate that a rounded frame time stands for."""

from __future__ import annotations

COMMON_FPS = (
    1.0, 5.0, 10.0, 12.0, 12.5, 15.0, 20.0, 24000 / 1001, 24.0, 25.0, 30000 / 1001, 30.0, 48.0, 50.0, 60000 / 1001,
    60.0, 72.0, 75.0, 80.0, 90.0, 100.0, 120000 / 1001, 120.0, 144.0, 150.0, 180.0, 200.0, 240000 / 1001, 240.0, 250.0,
    300.0, 360.0, 400.0, 480.0, 500.0, 600.0, 1000.0,
)  # fmt: skip
MIN_FRAME_TIME_S, MAX_FRAME_TIME_S = 1e-5, 60.0


def snap_fps(frame_time_s: float, resolution_s: float = 1e-6) -> float:
    """Frames per second of a frame time that was rounded or cut off when written.

    ``.0083333`` stands for 120, ``0.008342`` for 120000/1001, ``0.033333`` for 30: the nearest rate of `COMMON_FPS`
    whose period is within one unit of the last written place, and within 0.2 %, is taken, else ``1 / frame_time_s``.

    Args:
        frame_time_s: Frame time as written [s], positive.
        resolution_s: One unit of the last written decimal place [s].
    """
    tolerance = min(resolution_s, 2e-3 * frame_time_s) + 1e-4 * frame_time_s
    best = min(COMMON_FPS, key=lambda fps: abs(1.0 / fps - frame_time_s))
    return best if abs(1.0 / best - frame_time_s) <= tolerance else 1.0 / frame_time_s


def decimal_resolution(token: str) -> float:
    """One unit of the last decimal place of a number as written: ``"0.0333"`` -> 1e-4, ``"2e-3"`` -> 1e-3."""
    mantissa, _, exponent = token.lower().partition("e")
    places = len(mantissa.partition(".")[2])
    return 10.0 ** (int(exponent or 0) - places)
