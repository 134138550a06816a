"""Errors that a user can act on: one line, naming the place, what was found and what was expected."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable


class InputError(Exception):
    """Bad input; the text is one line ``FILE:LINE: what is wrong (found ..., expected ...)``."""

    @classmethod
    def at(cls, path: str | os.PathLike[str], line: int | None, message: str) -> InputError:
        """Build the error for ``path``; ``line`` counts from 1, None where the whole file is meant."""
        place = os.fspath(path) if line is None else f"{os.fspath(path)}:{line}"
        return cls(f"{place}: {' '.join(message.split())}")


def run_main(main: Callable[[list[str]], int | None]) -> None:
    """Run a command-line ``main(argv)``: an `InputError` or a full disk is one line on stderr and exit status 2.

    A traceback is shown only with ``--debug`` anywhere in the arguments (the flag is removed before ``main`` sees it).
    """
    argv = sys.argv[1:]
    debug = "--debug" in argv
    try:
        status = main([a for a in argv if a != "--debug"])
    except (InputError, OSError) as error:
        if debug:
            raise
        print(_describe(error), file=sys.stderr)
        raise SystemExit(2) from None
    raise SystemExit(status or 0)


def _describe(error: InputError | OSError) -> str:
    if isinstance(error, OSError) and error.strerror:
        place = error.filename if error.filename is not None else "file system"
        return f"{place}: {error.strerror.lower()}"
    return str(error)
