"""Set-up of ``pytest benchmarks --benchmark-only``: one BLAS thread, the repository's policies and library, versions.

``bench_*.py`` are collected here, so that plain ``pytest`` (``testpaths = tests``) never times anything. A session in
which no benchmark ran fails: the plugin alone would exit 0 when everything was skipped.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import pytest

from benchmarks.episodes import draw_episodes, identify
from engine.params import NotEmpty, Range, Seed, Unique, read_section

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "numpy",
    "scipy",
    "numba",
    "onnxruntime",
    "mujoco",
    "clarabel",
    "daqp",
    "proxsuite",
    "osqp",
    "mink",
    "polars",
)
Counts = Annotated[list[int], NotEmpty(), Unique(), Range(ge=1)]
Count = Annotated[int, Range(ge=1)]


@dataclass(frozen=True)
class BenchmarkParams:
    """Section ``benchmark``.

    Attributes:
        methods: Policies that are timed, the first seed of each.
        motion: Kind of motion of the clips.
        seed: Of the start frames.
        warmup_frames: Frames before the clock starts.
        frames: Timed frames of a run.
        runs: Runs, of which the mean is reported.
        characters: Sizes of the crowd.
        crowd_frames: Timed frames times characters of a crowd's run, at most.
        threads: Numba threads of the crowd.
        batches: Batch sizes of the policy.
    """

    methods: Annotated[list[str], NotEmpty(), Unique()]
    motion: str
    seed: Seed
    warmup_frames: Count
    frames: Count
    runs: Count
    characters: Counts
    crowd_frames: Count
    threads: Counts
    batches: Counts


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("gaitforge")
    group.addoption(
        "--short", action="store_true", help="a few frames and small crowds only: does it run, not how fast"
    )
    group.addoption("--params", default=str(ROOT / "params.yaml"), help="parameter file (section benchmark)")
    group.addoption("--models", default=str(ROOT / "models"), help="folder of policies: <method>/seed<k>/policy.onnx")
    group.addoption("--library", default=str(ROOT / "data" / "library.npz"), help="motion library")


def pytest_configure(config: pytest.Config) -> None:
    params = read_section(str(config.getoption("--params")), "benchmark", BenchmarkParams)
    if config.getoption("--short"):
        short = {"warmup_frames": 5, "frames": 20, "runs": 1, "crowd_frames": 100}
        params = BenchmarkParams(**{**vars(params), **short, "characters": [1, 10], "batches": [1, 64]})
    config.stash[PARAMS] = params
    config.stash[RAN] = []


PARAMS = pytest.StashKey[BenchmarkParams]()
RAN = pytest.StashKey[list[str]]()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take ``bench_*.py`` as tests (once, also where it is named on the command line)."""
    if file_path.name.startswith("bench_") and file_path.suffix == ".py":
        if parent.session.isinitpath(file_path):
            return None  # pytest takes a file that is named itself
        return pytest.Module.from_parent(parent, path=file_path)
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread benchmarks over the methods, crowd sizes, threads and batches of the parameters."""
    params = metafunc.config.stash[PARAMS]
    for fixture, values in (
        ("method", params.methods),
        ("n_characters", params.characters),
        ("threads", params.threads),
        ("batch", params.batches),
    ):
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, values)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed and _config is not None:
        _config.stash[RAN].append(report.nodeid)


_config: pytest.Config | None = None


def pytest_sessionstart(session: pytest.Session) -> None:
    global _config
    _config = session.config


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where nothing was timed."""
    if session.config.getoption("--collect-only") or exitstatus != pytest.ExitCode.OK:
        return
    if not session.config.stash[RAN]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(
                "benchmarks: none ran (all were skipped or deselected), so nothing was measured", red=True
            )


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """Record the versions that the times depend on; leave out the host's name."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    machine_info["versions"] = versions
    machine_info.pop("node", None)
    machine_info["processor"] = machine_info.get("processor") or platform.machine()


@pytest.fixture(scope="session")
def params(request: pytest.FixtureRequest) -> BenchmarkParams:
    """Section ``benchmark``, shortened with ``--short``."""
    return request.config.stash[PARAMS]


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest) -> Any:
    """The motion library of the repository."""
    from engine.motion.library import MotionLibrary

    path = Path(str(request.config.getoption("--library")))
    if not path.is_file():
        pytest.skip(f"{path}: no motion library; run `dvc repro motion` first")
    return MotionLibrary.load(path)


@pytest.fixture
def policy_path(request: pytest.FixtureRequest, method: str) -> str:
    """The first seed's policy of a method."""
    folder = Path(str(request.config.getoption("--models"))) / method
    found = sorted(folder.rglob("policy.onnx"), key=identify)
    if not found:
        pytest.skip(f"{folder}: no policy.onnx; run `dvc repro` first")
    return str(found[0])


@pytest.fixture
def starts(library: Any, params: BenchmarkParams) -> Any:
    """Make ``(clips, start frames)`` of n characters from which an episode of so many frames fits; drawn, so that each
    character plays a place of its own."""

    def draw(n: int, frames: int) -> Any:
        kinds = [params.motion, *sorted(set(library.kind) - {params.motion, "stand"})] if n > 1 else [params.motion]
        drawn = [draw_episodes(library, kind, "train", -(-n // len(kinds)), frames, params.seed) for kind in kinds]
        kept = [d for d in drawn if d is not None]
        clips = [c for group in zip(*(d.clips for d in kept), strict=True) for c in group][:n]
        frames_at = [s for group in zip(*(d.starts for d in kept), strict=True) for s in group][:n]
        more = draw_episodes(library, params.motion, "train", max(1, n - len(clips)), frames, params.seed + 1)
        if len(clips) < n and more is not None:
            clips, frames_at = [*clips, *more.clips], [*frames_at, *more.starts]
        return clips, frames_at

    return draw
