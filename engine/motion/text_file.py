"""Text of motion files: decoding, line ends, strict numbers; every fault names its line."""

from __future__ import annotations

import gzip
import logging
import math
import re
import zlib
from pathlib import Path

from engine.errors import InputError

log = logging.getLogger("engine.motion")

MAX_UNPACKED_BYTES = 64 * 2**20  # a .gz that claims more is refused before memory is
MAX_ABS = 1e7  # lengths and angles beyond this are damage, not motion
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_WIDE_BOMS = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def read_text(path: str | Path) -> str:
    """Text of a file, or of a gzip file, with ``\\n`` line ends and without a byte-order mark.

    UTF-8, else Latin-1 (old exporters wrote names so; numbers are ASCII either way). UTF-16 and UTF-32 are refused by
    name.

    Raises:
        InputError: Missing, unreadable, empty, UTF-16, or a damaged gzip file.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError.at(path, None, f"cannot be read ({(error.strerror or str(error)).lower()})") from None
    if data[:2] == b"\x1f\x8b":
        data = _unpack(path, data)
    for mark, name in _WIDE_BOMS:
        if data.startswith(mark):
            raise InputError.at(
                path, 1, f"text encoding not read (found {name}, expected UTF-8: save the file as UTF-8)"
            )
    if data.startswith(b"\xef\xbb\xbf"):
        data = data[3:]
    if not data.strip():
        raise InputError.at(path, 1, "the file is empty (found 0 lines of text, expected motion data)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _unpack(path: Path, data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    try:
        out = unpacker.decompress(data, MAX_UNPACKED_BYTES + 1)
        if len(out) > MAX_UNPACKED_BYTES:
            raise InputError.at(
                path, None, f"gzip file too large (found more than {MAX_UNPACKED_BYTES >> 20} MiB unpacked)"
            )
        if not unpacker.eof:
            raise InputError.at(path, None, "gzip file is cut off (found its end too early, expected a whole file)")
        if unpacker.unused_data.startswith(b"\x1f\x8b"):  # several members, as `cat a.gz b.gz`
            with gzip.open(path) as stream:
                out = stream.read(MAX_UNPACKED_BYTES + 1)
    except (zlib.error, OSError, EOFError) as error:
        raise InputError.at(path, None, f"gzip file is damaged ({error})") from None
    return out[:MAX_UNPACKED_BYTES]


def excerpt(text: str, length: int = 40) -> str:
    """At most ``length`` printable characters of a text, for an error message."""
    text = text.strip()
    shown = "".join(c if c.isprintable() else "?" for c in text[:length])
    return shown + "..." if len(text) > length else shown


def parse_float(token: str) -> float:
    """A finite number of at most `MAX_ABS` in plain ASCII notation; ValueError with the reason otherwise.

    Stricter than ``float``: no ``nan``, ``inf``, ``1_000`` or digits of other scripts.
    """
    if _NUMBER.fullmatch(token):
        value = float(token)
        if not math.isfinite(value):
            raise ValueError(f"number is not finite (found {excerpt(token)})")
        if abs(value) > MAX_ABS:
            raise ValueError(f"number out of range (found {excerpt(token)}, expected at most {MAX_ABS:g})")
        return value
    if token.lstrip("+-").lower() in ("nan", "inf", "infinity"):
        raise ValueError(f"number is not finite (found {token}, expected a finite number)")
    raise ValueError(f"not a number (found {excerpt(token)!r}, expected a number)")


def parse_int(token: str) -> int:
    """A whole number in plain ASCII digits; ValueError otherwise."""
    if not _INTEGER.fullmatch(token):
        raise ValueError(f"not a whole number (found {excerpt(token)!r}, expected a whole number of at most 18 digits)")
    return int(token)


def log_notes(source: str | Path, notes: list[str]) -> None:
    """Log the notes on one file as exactly ONE warning line of the logger ``engine.motion`` (stderr by default)."""
    if notes:
        log.warning("%s: warning: %s", source, "; ".join(" ".join(n.split()) for n in notes))
