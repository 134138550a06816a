from __future__ import annotations

import hashlib
import io
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from engine.errors import InputError
from engine.motion import fetch as fetch_module
from engine.motion.config import FetchParams, LocalSource, PackageSource
from engine.motion.fetch import fetch


def _wheel(folder: Path) -> PackageSource:
    path = folder / "clips-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("clips/data/walk.txt", "walk")
        archive.writestr("clips/data/run.txt", "run")
        archive.writestr("clips/data/readme.md", "no motion")
    return _source("clips", path, ["clips/data/*.txt"], wheel=True)


def _sdist(folder: Path) -> PackageSource:
    path = folder / "demo-0.1.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("test.asf", "test.amc", "plot.py"):
            entry = tarfile.TarInfo(f"demo-0.1/demo/{name}")
            entry.size = len(name)
            archive.addfile(entry, io.BytesIO(name.encode()))
    return _source("demo", path, ["demo/test.asf", "demo/test.amc"], wheel=False)


def _source(package: str, path: Path, members: list[str], wheel: bool) -> PackageSource:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    version = "1.0" if wheel else "0.1"
    return PackageSource(package, version, digest, wheel, members, f"licence of {package}", True)


@pytest.fixture
def params(tmp_path: Path) -> FetchParams:
    archives = tmp_path / "archives"
    archives.mkdir()
    demo = _sdist(archives)
    local = LocalSource("", "the user's own", True)
    return FetchParams(["deepmimic", "cmu"], _wheel(archives), demo, replace(demo, accept_licence=False), local, local)


def _content(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_members_are_taken_out_of_wheels_and_source_archives(params: FetchParams, tmp_path: Path) -> None:
    assert fetch(params, tmp_path / "raw", tmp_path / "archives") == {"deepmimic": 2, "cmu": 2}
    assert _content(tmp_path / "raw") == {
        "cmu/LICENCE.txt": b"licence of demo\n",
        "cmu/test.amc": b"test.amc",
        "cmu/test.asf": b"test.asf",
        "deepmimic/LICENCE.txt": b"licence of clips\n",
        "deepmimic/run.txt": b"run",
        "deepmimic/walk.txt": b"walk",
    }


def test_a_second_run_gives_equal_bytes_and_drops_what_was_left_over(params: FetchParams, tmp_path: Path) -> None:
    fetch(params, tmp_path / "raw", tmp_path / "archives")
    first = _content(tmp_path / "raw")
    (tmp_path / "raw" / "cmu" / "old.bvh").write_text("old", encoding="utf-8")
    fetch(params, tmp_path / "raw", tmp_path / "archives")
    assert _content(tmp_path / "raw") == first


def test_another_digest_is_refused_and_the_other_sources_are_fetched(params: FetchParams, tmp_path: Path) -> None:
    wrong = replace(params, deepmimic=replace(params.deepmimic, sha256="0" * 64))
    with pytest.raises(InputError, match="sha256") as error:
        fetch(wrong, tmp_path / "raw", tmp_path / "archives")
    assert "clips 1.0" in str(error.value)
    assert "fetched: cmu" in str(error.value)
    assert not (tmp_path / "raw" / "deepmimic").exists()
    assert (tmp_path / "raw" / "cmu" / "test.asf").exists()


def test_a_failed_download_names_the_package_and_what_still_works(
    params: FetchParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline = tmp_path / "pip"
    offline.write_text("#!/bin/sh\necho 'ERROR: No matching distribution found' >&2\nexit 1\n", encoding="utf-8")
    offline.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(offline))
    (tmp_path / "archives" / "clips-1.0-py3-none-any.whl").unlink()
    with pytest.raises(InputError, match=r"clips==1\.0 could not be downloaded") as error:
        fetch(params, tmp_path / "raw", tmp_path / "archives")
    text = str(error.value)
    assert "No matching distribution" in text
    assert "fetched: cmu" in text
    assert "\n" not in text


def test_a_licence_that_is_not_accepted_stops_its_source_only(params: FetchParams, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="licence is not accepted") as error:
        fetch(replace(params, sources=["lafan1_sample", "cmu"]), tmp_path / "raw", tmp_path / "archives")
    assert "fetch.lafan1_sample" in str(error.value)
    assert (tmp_path / "raw" / "cmu").is_dir()


def test_a_folder_and_a_zip_of_the_user_are_copied(params: FetchParams, tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "deep"
    mine.mkdir(parents=True)
    (mine / "a.BVH").write_text("a", encoding="utf-8")
    (mine / "notes.md").write_text("no", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        archive.writestr("lafan1/b.bvh", "b")
    local = replace(
        params,
        sources=["folder", "lafan1"],
        folder=LocalSource(str(tmp_path / "mine"), "own", True),
        lafan1=LocalSource(str(tmp_path / "mine.zip"), "theirs", True),
    )
    assert fetch(local, tmp_path / "raw") == {"folder": 1, "lafan1": 1}
    assert (tmp_path / "raw" / "folder" / "a.BVH").read_text(encoding="utf-8") == "a"
    assert (tmp_path / "raw" / "lafan1" / "b.bvh").read_text(encoding="utf-8") == "b"


@pytest.mark.parametrize(("path", "words"), [("", "no folder given"), ("nowhere", "nothing there")])
def test_a_user_folder_that_is_not_there_is_named(params: FetchParams, tmp_path: Path, path: str, words: str) -> None:
    local = replace(params, sources=["folder"], folder=LocalSource(path, "own", True))
    with pytest.raises(InputError, match=words):
        fetch(local, tmp_path / "raw")


def test_pip_is_asked_for_a_wheel_of_any_platform_or_for_the_source(
    params: FetchParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> object:
        asked.append(command)
        name = "clips-1.0-py3-none-any.whl" if "clips==1.0" in command else "demo-0.1.tar.gz"
        target = Path(command[command.index("-d") + 1])
        (target / name).write_bytes((tmp_path / "archives" / name).read_bytes())
        return type("Result", (), {"stderr": "", "stdout": ""})()

    monkeypatch.setattr(fetch_module.subprocess, "run", run)
    assert fetch(params, tmp_path / "raw") == {"deepmimic": 2, "cmu": 2}
    assert "--no-deps" in asked[0]
    assert asked[0][asked[0].index("--python-version") + 1] == "311"
    assert asked[1][asked[1].index("--no-binary") + 1] == "demo"
