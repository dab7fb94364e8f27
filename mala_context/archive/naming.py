"""Making bytes durable and giving a complete file its name, on file systems that say less than the truth.

A file gets its name by `link`, which cannot replace anything. Where a file system has no links the name is first taken
by an empty file, which a rename then replaces.

A network file system sends a request again when the answer to it is lost. The second request finds the work done and
fails: the name is taken, or the old name is gone. So an error is no answer. What counts is whether the name leads to
our file now, and that is looked at before any error is believed. Nor does every file system know how to make a
directory durable; one that refuses has done all that it can.
"""

from __future__ import annotations

import contextlib
import errno
import os

CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
"""How a file that must be new is opened."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EISDIR, errno.EACCES})


def sync(fd: int) -> None:
    """Make a file's bytes durable; on macOS `fsync` alone leaves them in the drive's cache."""
    import fcntl

    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(fd, full)
        except OSError:
            pass  # not every file system knows it; the plain call follows
        else:
            return
    os.fsync(fd)


def sync_directory(fd: int) -> None:
    """Make the names in a directory durable, where its file system can do that."""
    try:
        sync(fd)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def write_all(fd: int, data: memoryview | bytes) -> None:
    """Write all of it; raises `OSError` (a full disk, a limit)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def create(directory: int, prefix: str, flags: int = 0) -> tuple[int, str]:
    """Create a file of a new name that begins with `prefix`, 0600; return its descriptor and its name."""
    name = prefix + os.urandom(8).hex()
    try:
        fd = os.open(name, CREATE | flags, 0o600, dir_fd=directory)
    except FileExistsError:  # by a request that was sent twice, for nobody else makes such a name
        discard(directory, name)
        name = prefix + os.urandom(8).hex()
        fd = os.open(name, CREATE | flags, 0o600, dir_fd=directory)
    return fd, name


def give_name(directory: int, fd: int, temporary: str, name: str) -> bool:
    """Give the open file, complete under its temporary name, a name of its own in the same directory.

    Returns false where the name is taken. The temporary name may still be there afterwards. Raises `OSError`.
    """
    try:
        os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if leads_to(directory, name, fd):
            return True
        if error.errno == errno.EEXIST:
            return False
        if error.errno not in _NO_LINKS:
            raise
        return _name_without_links(directory, fd, temporary, name)
    return True


def _name_without_links(directory: int, fd: int, temporary: str, name: str) -> bool:
    try:
        os.close(os.open(name, CREATE, 0o600, dir_fd=directory))
    except FileExistsError:
        return False
    try:
        rename_to(directory, fd, temporary, name)
    except OSError:
        _let_go(directory, name)
        raise
    return True


def _let_go(directory: int, name: str) -> None:
    """Remove an empty file that held a name."""
    with contextlib.suppress(OSError):
        if os.stat(name, dir_fd=directory, follow_symlinks=False).st_size == 0:
            os.unlink(name, dir_fd=directory)


def rename_to(directory: int, fd: int, temporary: str, name: str) -> None:
    """Give the open file a name in place of whatever has it; raises `OSError` where it has not got it."""
    try:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        if not leads_to(directory, name, fd):
            raise


def leads_to(directory: int, name: str, fd: int) -> bool:
    """Say whether a name leads to the open file; where that cannot be seen it does not."""
    try:
        named, held = os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(fd)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def discard(directory: int, name: str) -> None:
    """Remove a name that nobody needs any more; one that stays is removed by the next writer."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)
