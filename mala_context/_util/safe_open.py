"""Open a file at a path that other programs control: a FIFO, a device or a link to one never blocks the caller.

The path is checked before it is opened, because opening some devices has an effect. It is checked again through the
descriptor, because the file may have been swapped in between. A hook and the status line live for milliseconds, so this
module imports nothing that they do not load anyway.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
READ = _FLAGS | _NO_LINK
"""Flags to read a file: not through a link, and without waiting for the writer of a FIFO."""
DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK
"""Flags to open a directory: not through a link."""
CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINK
"""Flags to create a file that must be new."""
_BLOCK = 1 << 20


class Held:
    """Closes a descriptor at the end of a `with` statement; importing `contextlib` for that would cost a hook time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def open_regular(path: str) -> int:
    """Open a regular file, through links too, without waiting; raises `OSError` for anything else.

    Close the descriptor.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise _irregular(path)
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _irregular(path)
    return descriptor


def read_regular(path: str, most: int) -> bytes:
    """Return at most `most` bytes from the beginning of a regular file; raises `OSError` like `open_regular`."""
    parts = []
    with Held(open_regular(path)) as descriptor:
        while most > 0 and (data := os.read(descriptor, min(_BLOCK, most))):
            parts.append(data)
            most -= len(data)
    return b"".join(parts)


def reader_of(descriptor: int) -> tuple[Callable[[int], bytes], Callable[[float], bool]]:
    """Return `read(bytes)` of a descriptor, and `wait(seconds)`, which says whether there is more to read."""
    import select

    def is_ready(seconds: float) -> bool:
        return bool(select.select([descriptor], [], [], seconds)[0])

    return lambda size: os.read(descriptor, size), is_ready


def _irregular(path: str) -> OSError:
    return OSError(errno.EINVAL, "not a regular file", path)
