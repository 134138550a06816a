"""How the batched kernels use threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def run_rows(
    rows: Callable[..., None], parallel: Callable[..., None], workers: int, arguments: tuple[Any, ...]
) -> None:
    """Run a batched kernel over its workers.

    A kernel is written twice: ``rows(w, *arguments)`` does the share of worker ``w``, ``parallel(*arguments)`` runs all
    shares at once. One worker calls the first directly: waking a pool for a single share costs more than a small batch,
    and on a busy machine it waits for threads that have nothing to do.
    """
    if workers == 1:
        rows(0, *arguments)
    else:
        parallel(*arguments)
