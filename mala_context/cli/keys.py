"""Keys on the terminal while something is drawn: not echoed, and read without waiting for a line's end."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

QUIT: Final = frozenset({"q", "Q", "\x04", ""})
"""What ends a view: q, Ctrl-D, and a terminal that is gone."""


@contextmanager
def keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits at most so many seconds for a key and returns it.

    It returns `None` where none was pressed, and an empty text where the terminal is gone. Where standard input is no
    terminal it only waits. The terminal is as it was when the block ends.
    """
    try:
        import termios
    except ImportError:  # Windows
        yield _wait
        return
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
        silent = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield _wait
        return

    def pressed(seconds: float) -> str | None:
        ready, _, _ = select.select([descriptor], [], [], seconds)
        return os.read(descriptor, 64).decode("utf-8", "replace")[:1] if ready else None

    silent[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield pressed
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _wait(seconds: float) -> None:
    time.sleep(seconds)
