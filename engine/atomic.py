"""Write a file whole or not at all: temporary file in the same folder, fsync, rename."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from engine.errors import InputError

TEMPORARY_SUFFIX = ".tmp"
_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is too big",
}


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Write ``data`` to ``path``; whatever goes wrong, an older file of that name stays as it was.

    The bytes go to ``<path>.tmp``, are forced to the disk and only then take the name, so that a reader (or a program
    killed in between) never meets half a file.

    Raises:
        InputError: The disk is full (or a quota used up); says so in words, with the space that was needed and found.
        OSError: Any other failure, such as a missing permission.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY_SUFFIX)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(temporary, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if error.errno not in _FULL:
            raise
        free = f"found {_free_bytes(target.parent)} bytes free, expected {len(data)}"
        message = f"{_FULL[error.errno]}: not written, what was there is kept ({free})"
        raise InputError.at(path, None, message) from error
    _sync_folder(target.parent)


def _free_bytes(folder: Path) -> str:
    try:
        status = os.statvfs(folder)
    except OSError:
        return "unknown"
    return str(status.f_bavail * status.f_frsize)


def _sync_folder(folder: Path) -> None:
    """Force the renaming itself to the disk; file systems that cannot sync a folder are left alone."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
