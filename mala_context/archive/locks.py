"""The two locks of a session: one among threads of this process, one among processes.

Some network file systems keep `flock` per process, so threads exclude each other by a lock of their own first.

A fork copies both. The child gets the lock's descriptor, and with it a share in the lock, so a lock is released and not
only closed; and it gets the threads' locks as they were held by threads that it does not have.
"""

from __future__ import annotations

import contextlib
import errno
from _thread import allocate_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType


class ThreadLocks:
    """One lock for each session that a thread of this process holds or waits for, and none for the others."""

    def __init__(self) -> None:
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the threads of the process that this one was forked from."""
        self._table = allocate_lock()
        self._locks: dict[tuple[str, str], tuple[LockType, int]] = {}

    def acquire(self, key: tuple[str, str], timeout: float) -> bool:
        """Take the lock of a key, waiting at most `timeout` seconds."""
        with self._table:
            lock, users = self._locks.get(key) or (allocate_lock(), 0)
            self._locks[key] = (lock, users + 1)
        if lock.acquire(timeout=max(0.0, timeout)):
            return True
        self._leave(key)
        return False

    def release(self, key: tuple[str, str]) -> None:
        """Let the next thread in."""
        self._locks[key][0].release()
        self._leave(key)

    def _leave(self, key: tuple[str, str]) -> None:
        with self._table:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


thread_locks = ThreadLocks()


def close_locked(fd: int) -> None:
    """Release the lock on a file, also where a child of a fork has it open too, and close it.

    What it holds is durable, so an error says nothing new.
    """
    import fcntl
    import os

    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)
    with contextlib.suppress(OSError):
        os.close(fd)


def try_flock(fd: int) -> bool:
    """Lock a file among processes without waiting; false where another holds it."""
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EWOULDBLOCK, errno.EACCES}:
            return False
        if error.errno in {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}:
            return True  # a file system without locks: names still cannot be overwritten
        raise
    return True
