"""A benchmark session that measured nothing fails; one that is named plainly collects the bench files."""

from __future__ import annotations

import subprocess
import sys


def pytest_in(repo, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=repo, capture_output=True, text=True, check=False)


def test_session_in_which_all_is_skipped_fails(repo, tmp_path):
    for place in ("benchmarks/bench_frame.py", "benchmarks"):
        done = pytest_in(repo, place, "--benchmark-only", "-k", "test_frame", "--library", str(tmp_path / "none.npz"))
        assert done.returncode == 1, done.stdout
        assert "none ran" in done.stdout
        assert "no motion library" in done.stdout


def test_plain_pytest_times_nothing(repo):
    done = pytest_in(repo, "--collect-only", "tests/benchmarks")
    assert "bench_" not in done.stdout.replace("tests/benchmarks", "")
    done = pytest_in(repo, "--collect-only", "benchmarks", "--benchmark-only")
    assert "bench_frame.py::test_frame" in done.stdout
    assert done.stdout.count("bench_policy.py::test_policy") == len(set(done.stdout.split()) & {
        w for w in done.stdout.split() if "bench_policy.py::test_policy" in w
    })  # fmt: skip
