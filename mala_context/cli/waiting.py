"""A line on the terminal for work that takes longer than two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = 2.0
"""Seconds before the first word."""
_PAUSE = 0.2


@contextmanager
def waiting(doing: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes the bytes done since it was called last, and shows their sum on standard error.

    Nothing is shown where standard error is no terminal; the line is gone when the block ends.
    """
    begun = shown = time.monotonic()
    done = 0
    visible = False

    def progress(size: int) -> None:
        nonlocal done, shown, visible
        done += size
        now = time.monotonic()
        if now - begun >= PATIENCE and now - shown >= _PAUSE and sys.stderr.isatty():
            shown, visible = now, True
            sys.stderr.write(f"\r{doing}: {done / 1e6:,.0f} MB, {done / 1e6 / (now - begun):,.0f} MB/s ")
            sys.stderr.flush()

    try:
        yield progress
    finally:
        if visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
