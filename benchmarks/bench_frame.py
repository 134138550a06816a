"""Table 3: time per frame of one character, our engine against the paper-faithful run-time of the same policy.

100 warm-up frames, 1000 timed ones, 5 runs (Kim et al. 2026, section 5.3.2), one thread. A frame is everything between
two poses: observation, policy, four substeps with contact forces, composition, MMIK.
"""

from __future__ import annotations

import pytest

from benchmarks.timed_play import TimedPlay


@pytest.mark.benchmark(group="table3")
@pytest.mark.parametrize("mmik", ["yes", "no"])
@pytest.mark.parametrize("runtime", ["engine", "faithful"])
def test_frame(benchmark, library, params, starts, policy_path, method, runtime, mmik):
    play = TimedPlay(runtime, policy_path, library, 1, mmik == "yes", 1, starts)
    benchmark.pedantic(
        play.run, args=(params.frames,), setup=lambda: play.start(params.warmup_frames), rounds=params.runs
    )
    play.check()
    benchmark.extra_info.update(
        row=f"{method} {'+' if mmik == 'yes' else 'w/o'} MMIK, {runtime}",
        method=method,
        runtime=runtime,
        mmik=mmik,
        threads=1,
        n_characters=1,
        frames=params.frames,
        warmup_frames=params.warmup_frames,
        stance_feet_mean=play.stance_feet_mean(),
        p99_ms=play.quantile_ms(0.99),
        frame_time_quantiles_ms=[play.quantile_ms(q / 100) for q in range(101)],
    )
