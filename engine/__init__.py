"""The run-time of gaitforge: Numba, MuJoCo and onnxruntime; never imports torch, ``train`` or ``export``.

Importing it points Numba's on-disk cache at a folder named by a digest of these sources, because Numba does not notice
edits in kernels that a cached kernel calls. An explicit ``NUMBA_CACHE_DIR`` is left alone.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def source_digest() -> str:
    """SHA-256 (first 16 hex digits) over every Python source of the engine, by name and content."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _set_numba_cache() -> None:
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    import numba

    base = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    numba.config.CACHE_DIR = str(base / "gaitforge" / "numba" / source_digest())


_set_numba_cache()
