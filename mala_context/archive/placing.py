"""Writing one private file outside the archive, whole or not at all, and never in place of another.

For restored sessions, exports and side files that are put back. The bytes go into a temporary file (0600 from its
first moment), are made durable and then get their name as `naming` says. Whatever ends the writing, Ctrl-C included,
the temporary file goes. One that a killed process left goes when the next file is written beside it: a living writer
holds a lock on its own.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mala_context.archive.interface import Write

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
TEMPORARY = ".mala-context-"
"""What the names of temporary files begin with, which no other program's do."""
_TRIES = 2
"""How often a temporary file that could not be locked is given up for another."""


def place(root: str, parts: Sequence[str], fill: Callable[[Write], object]) -> str:
    """Write a new file at `root` / `parts`; missing directories are made, 0700, and none on the way may be a link.

    Returns its path. Raises `FileExistsError` where the name is taken, `OSError` where it cannot be written,
    `ValueError` for a part that is no plain name, and what `fill` raises; then nothing is there.
    """
    for part in parts:
        if not part or part in {".", ".."} or "/" in part or "\0" in part:
            raise ValueError(f"{part!r} is no name of a file")
    path = os.path.join(root, *parts)
    fd = os.open(root, _DIRECTORY & ~getattr(os, "O_NOFOLLOW", 0))
    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=fd)
            inner = os.open(part, _DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        _write(fd, path, fill)
    finally:
        os.close(fd)
    return path


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Say in an `OSError` which file could not be written: not the temporary one, and not the one that was read."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error


def _write(directory: int, path: str, fill: Callable[[Write], object]) -> None:
    from mala_context.archive.naming import discard, give_name, sync, sync_directory, write_all

    def write(data: memoryview | bytes) -> None:
        with _naming(path):
            write_all(fd, data)

    _drop_leftovers(directory)
    fd, temporary = -1, ""
    try:  # around all of it, since an interrupt may come between any two calls
        with _naming(path):
            fd, temporary = _own(directory)
        fill(write)
        with _naming(path):
            sync(fd)
            if not give_name(directory, fd, temporary, os.path.basename(path)):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            sync_directory(directory)
    finally:
        if fd >= 0:
            try:
                with contextlib.suppress(OSError):  # its bytes are durable, or an error says already that they are not
                    os.close(fd)
                discard(directory, temporary)
            except KeyboardInterrupt:  # just then
                discard(directory, temporary)
                raise


def _own(directory: int) -> tuple[int, str]:
    """Create a temporary file and lock it, so that nobody takes it for one that was left."""
    from mala_context.archive.naming import discard

    for _ in range(_TRIES):
        fd, temporary, locked = _created(directory)
        if locked:
            return fd, temporary
        os.close(fd)  # somebody took it for one that was left
        discard(directory, temporary)
    return _created(directory)[:2]


def _created(directory: int) -> tuple[int, str, bool]:
    """Create a temporary file; tell also whether the lock on it is ours and its name still leads to it."""
    from mala_context.archive.locks import try_flock
    from mala_context.archive.naming import create, discard, leads_to

    fd, temporary = create(directory, TEMPORARY)
    try:
        os.fchmod(fd, 0o600)
        return fd, temporary, try_flock(fd) and leads_to(directory, temporary, fd)
    except BaseException:
        os.close(fd)
        discard(directory, temporary)
        raise


def _drop_leftovers(directory: int) -> None:
    import fcntl

    from mala_context.archive.naming import discard

    own = os.open(".", _DIRECTORY, dir_fd=directory)
    try:
        names = [name for name in os.listdir(own) if name.startswith(TEMPORARY)]
    finally:
        os.close(own)
    for name in names:
        with contextlib.suppress(OSError):  # locked by its writer, or on a file system that cannot tell
            fd = os.open(name, _READ, dir_fd=directory)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    discard(directory, name)
            finally:
                os.close(fd)
