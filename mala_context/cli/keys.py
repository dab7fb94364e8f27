"""Keys on the terminal while something is drawn: not echoed, and read without waiting for a line's end."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

GONE: Final = ""
"""The key that a terminal which was closed gives."""
QUIT: Final = frozenset({"q", "Q", "\x04", GONE})
"""What ends a view: q, Ctrl-D, and a terminal that is gone."""
SUSPEND: Final = "\x1a"
"""Ctrl-Z comes as a key, so that the view can put the terminal back before it stops; `suspend` stops it."""


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
    silent[6][termios.VSUSP] = b"\0"  # no key is that one
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield pressed
    finally:
        with suppress(termios.error):  # the terminal may be gone, and then nothing is left to put back
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def suspend() -> None:
    """Stop this process as Ctrl-Z does; returns when it goes on, at once where nobody could let it go on."""
    os.kill(0, signal.SIGTSTP)


def _wait(seconds: float) -> None:
    time.sleep(seconds)
