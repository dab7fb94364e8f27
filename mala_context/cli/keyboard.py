"""Keys on the terminal while something is drawn: not echoed, and read without waiting for a line's end."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

GONE: Final = ""
"""What a terminal that was closed gives in place of a key."""
QUIT: Final = frozenset({"q", "Q", "\x04", GONE})
"""What ends a view: q, Ctrl-D, and a terminal that is gone."""
SUSPEND: Final = "\x1a"
"""Ctrl-Z comes as a key, so that the view can put the terminal back before it stops; `suspend` stops it."""
_NAMES: Final = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}
_KEY: Final = re.compile("\x1b\\[[0-9;]*[A-Za-z~]|\x1bO[A-Za-z]|.", re.DOTALL)
"""One key in what a terminal sends; a sequence that has no name above is one key too."""


@contextmanager
def keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits at most this many seconds for a key and returns it: a character, or a name.

    It returns `None` if no key was pressed, and an empty text if the terminal is gone. If standard input is no
    terminal, it only waits. When the block ends, the terminal is as it was before.
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

    waiting: deque[str] = deque()

    def pressed(seconds: float) -> str | None:
        if not waiting:
            ready, _, _ = select.select([descriptor], [], [], seconds)
            if not ready:
                return None
            read = os.read(descriptor, 1024).decode("utf-8", "replace")
            waiting.extend(_NAMES.get(key, key) for key in _KEY.findall(read) or [GONE])
        return waiting.popleft()

    silent[3] &= ~(termios.ECHO | termios.ICANON)
    silent[6][termios.VSUSP] = b"\0"  # no key stops the process: see SUSPEND
    termios.tcsetattr(descriptor, termios.TCSADRAIN, silent)
    try:
        yield pressed
    finally:
        with suppress(termios.error):  # the terminal may be gone, and then nothing is left to put back
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def suspend() -> None:
    """Stop this process as Ctrl-Z does; returns when it continues, at once if no shell could continue it."""
    os.kill(0, signal.SIGTSTP)


def _wait(seconds: float) -> None:
    time.sleep(seconds)
