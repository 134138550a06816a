"""Table 4: frames a second of a whole crowd, each character at its own place in the clips, by size and threads.

The paper's rows go from 1 to 4 characters; ours on to 1000. The paper-faithful run-time is serial, so it is measured up
to 4 characters on one thread.
"""

from __future__ import annotations

import pytest

from benchmarks.timed_play import TimedPlay

MOST_FAITHFUL = 4


@pytest.mark.benchmark(group="table4")
@pytest.mark.parametrize("mmik", ["yes", "no"])
@pytest.mark.parametrize("runtime", ["engine", "faithful"])
def test_crowd(benchmark, library, params, starts, policy_path, method, runtime, mmik, n_characters, threads):
    if runtime == "faithful" and (threads > 1 or n_characters > MOST_FAITHFUL):
        pytest.skip("the paper-faithful run-time is serial: 1 thread, up to 4 characters")
    frames = max(10, min(params.frames, params.crowd_frames // n_characters))
    if runtime == "faithful":
        frames = min(frames, max(20, params.frames // 10))
    play = TimedPlay(runtime, policy_path, library, n_characters, mmik == "yes", threads, starts)
    warmup = min(params.warmup_frames, frames)
    benchmark.pedantic(play.run, args=(frames,), setup=lambda: play.start(warmup), rounds=params.runs)
    play.check()
    benchmark.extra_info.update(
        method=method,
        runtime=runtime,
        mmik=mmik,
        threads=threads,
        n_characters=n_characters,
        frames=frames,
        warmup_frames=warmup,
        stance_feet_mean=play.stance_feet_mean(),
    )
