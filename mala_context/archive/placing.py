"""Writing one private file outside the archive, whole or not at all, and never in place of another.

For restored sessions, exports and side files that are put back. The bytes go into a temporary file (0600 from its
first moment), are made durable and then get their name by `link`, which cannot replace anything; where a file system
has no links the name is taken first. Whatever ends the writing, Ctrl-C included, the temporary file goes.
"""

from __future__ import annotations

import contextlib
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mala_context.archive.interface import Write

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


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
    from mala_context.archive.writer import sync, write_all

    def write(data: memoryview | bytes) -> None:
        with _naming(path):
            write_all(fd, data)

    temporary = f".tmp-{os.urandom(8).hex()}"
    fd = -1
    try:
        with _naming(path):
            fd = os.open(temporary, _CREATE, 0o600, dir_fd=directory)
        os.fchmod(fd, 0o600)
        fill(write)
        with _naming(path):
            sync(fd)
            _name(directory, temporary, os.path.basename(path))
            sync(directory)
    finally:
        if fd >= 0:
            os.close(fd)
        with contextlib.suppress(OSError):  # it has its name already, or could not be made at all
            os.unlink(temporary, dir_fd=directory)


def _name(directory: int, temporary: str, name: str) -> None:
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}:
            raise
        os.close(os.open(name, _CREATE, 0o600, dir_fd=directory))
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
