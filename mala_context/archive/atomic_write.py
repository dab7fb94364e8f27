"""Writing one private file, whole or not at all: the one place where the archive publishes anything.

`publish` writes into a temporary file that is private from its first moment (0600), makes it durable, and only then
gives it its name. By default the name is given by `link`, which cannot replace anything. Where a file system has no
links the name is first taken by an empty file, which a rename then replaces. Whatever ends the writing, Ctrl-C
included, the temporary file goes; `place` also drops those that killed processes left beside the target.

A network file system sends a request again when the answer to it is lost. The second request finds the work done and
fails: the name is taken, or the old name is gone. So an error is no answer. What counts is whether the name leads to
our file now, and that is looked at before any error is believed. Nor does every file system know how to make a
directory durable; one that refuses has done all that it can.

A session has two locks: one among the threads of this process, one among processes. Some network file systems keep
`flock` per process, so threads exclude each other by a lock of their own first. A fork copies both: the child gets the
descriptor, and with it a share in the lock, so a lock is released and not only closed; it gets the thread locks as the
parent threads held them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from _thread import allocate_lock

from mala_context._util.safe_open import CREATE, DIRECTORY, READ, Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _thread import LockType
    from collections.abc import Callable, Iterator, Sequence

    from mala_context.archive.interface import Write

ARCHIVE_TEMPORARY = ".tmp-"
"""What the names of temporary files inside an archive begin with; the session's id follows, see `temporary_prefix`."""
OUTSIDE_TEMPORARY = ".mala-context-"
"""What the names of temporary files outside of an archive begin with, which no other program's do."""
FLUSH = 32 * 1024 * 1024
"""Bytes after which the disk is told to begin."""
_TRIES = 2
"""How often a temporary file that could not be locked is given up for another."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EISDIR, errno.EACCES})


def temporary_prefix(session_id: str) -> str:
    """Return what the names of a session's temporary files begin with; only the lock's holder makes or drops them."""
    return f"{ARCHIVE_TEMPORARY}{session_id}."


def publish(
    directory: int,
    prefix: str,
    fill: Callable[[Write], object],
    *,
    name: str | None = None,
    replace: bool = False,
    lock: bool = False,
    durable: bool = True,
    mtime_ns: int | None = None,
    path: str | None = None,
) -> tuple[str, bool]:
    """Write a private file into the open directory in one step; return its name and whether it is new.

    Args:
        directory: descriptor of the directory.
        prefix: what the temporary file's name begins with.
        fill: writes the bytes.
        name: the file's name; without it, `fill` returns the name, which may depend on the bytes.
        replace: whether the file takes the place of one of that name.
        lock: hold a lock on the temporary file, so that another process does not take it for one that was left.
        durable: whether a crash of the machine may not lose it.
        mtime_ns: its modification time.
        path: what an `OSError` names in place of the temporary file. An error that `fill` has of its own, the file that
            it reads say, stays as it is.

    Where the name is taken, and `replace` is false, nothing is written under it, and the second value is false. Raises
    `OSError`, and what `fill` raises; then nothing is there.
    """
    fd, temporary = -1, ""
    try:  # around all of it, since an interrupt may come between any two calls
        with _naming(path):
            fd, temporary = _own(directory, prefix) if lock else create(directory, prefix)
        made = fill(_writer(fd, path))
        name = str(made) if name is None else name
        with _naming(path):
            if mtime_ns is not None:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            # Bytes, name, directory: a crash between two of these leaves a temporary file or a whole one. With the name
            # first, it could leave a name with no bytes, which a reader would take for the archive.
            if durable:
                sync(fd)
            if replace:
                rename_to(directory, fd, temporary, name)
            new = replace or give_name(directory, fd, temporary, name)
    finally:
        if fd >= 0:
            try:
                with contextlib.suppress(OSError):  # its bytes are durable, or an error says already that they are not
                    os.close(fd)
                discard(directory, temporary)
            except KeyboardInterrupt:  # just then
                discard(directory, temporary)
                raise
    if durable:
        with _naming(path):
            sync_directory(directory)
    return name, new


def place(root: str, parts: Sequence[str], fill: Callable[[Write], object]) -> str:
    """Write a new file at `root` / `parts`, for restored sessions, exports and side files that are put back.

    Missing directories are made, 0700, and none on the way may be a link. Returns the file's path. Raises
    `FileExistsError` where the name is taken, `OSError` where it cannot be written, `ValueError` for a part that is no
    plain name, and what `fill` raises; then nothing is there.
    """
    for part in parts:
        if not part or part in {".", ".."} or "/" in part or "\0" in part:
            raise ValueError(f"{part!r} is no name of a file")
    path = os.path.join(root, *parts)
    fd = os.open(root, DIRECTORY & ~getattr(os, "O_NOFOLLOW", 0))

    try:
        for part in parts[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=fd)
            inner = os.open(part, DIRECTORY, dir_fd=fd)
            os.close(fd)
            fd = inner
        _drop_leftovers(fd)
        if not publish(fd, OUTSIDE_TEMPORARY, fill, name=parts[-1], lock=True, path=path)[1]:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    finally:
        os.close(fd)
    return path


@contextlib.contextmanager
def _naming(path: str | None) -> Iterator[None]:
    """Say in an `OSError` which file could not be written: not the temporary one, and not the one that was read."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def _writer(fd: int, path: str | None) -> Write:
    """Return a `write` that has the disk begin while more is copied: of 2 GB, the last sync then waits for little."""
    written = flushed = 0
    advise = getattr(os, "posix_fadvise", None)

    def write(data: memoryview | bytes) -> None:
        nonlocal written, flushed
        with _naming(path):
            write_all(fd, data)
            written += len(data)
            if advise is not None and written - flushed >= FLUSH:
                # Dirty pages cannot be dropped, so this advice starts writing them and leaves them in memory.
                advise(fd, flushed, written - flushed, os.POSIX_FADV_DONTNEED)
                flushed = written

    return write


def _own(directory: int, prefix: str) -> tuple[int, str]:
    """Create a temporary file and lock it, so that no other process takes it for one that was left."""
    for _ in range(_TRIES):
        fd, temporary = create(directory, prefix)
        try:
            if try_flock(fd) and leads_to(directory, temporary, fd):
                return fd, temporary
        except BaseException:
            os.close(fd)
            discard(directory, temporary)
            raise
        os.close(fd)  # another process took it for one that was left
        discard(directory, temporary)
    return create(directory, prefix)


def _drop_leftovers(directory: int) -> None:
    """Remove the temporary files of killed processes; a living writer holds a lock on its own."""
    import fcntl

    with Held(os.open(".", DIRECTORY, dir_fd=directory)) as own:
        names = [name for name in os.listdir(own) if name.startswith(OUTSIDE_TEMPORARY)]
    for name in names:
        # What is gone, a link, or on a file system that cannot tell is left alone.
        with contextlib.suppress(OSError), Held(os.open(name, READ, dir_fd=directory)) as fd:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # unlike try_flock it fails where there are no locks
                discard(directory, name)


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
    """Write all of it; raises `OSError` (a full disk, a limit, a device that takes nothing)."""
    view = memoryview(data)
    while view:
        count = os.write(fd, view)
        if count == 0:  # else this would go on for ever
            raise OSError(errno.EIO, "nothing could be written")
        view = view[count:]


def create(directory: int, prefix: str, flags: int = 0) -> tuple[int, str]:
    """Create a file of a new name that begins with `prefix`, 0600; return its descriptor and its name."""
    name = prefix + os.urandom(8).hex()
    try:
        fd = os.open(name, CREATE | flags, 0o600, dir_fd=directory)
    except FileExistsError:  # by a request that was sent twice, since no other process makes such a name
        discard(directory, name)
        name = prefix + os.urandom(8).hex()
        fd = os.open(name, CREATE | flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(fd, 0o600)  # the umask may have taken more than others' rights
    except BaseException:
        os.close(fd)
        discard(directory, name)
        raise
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
    """Remove a name that is not needed any more; one that stays is removed by the next writer."""
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=directory)


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


def process_start(pid: int) -> str | None:
    """Return what tells a process from another of the same number, one of a container before say.

    The kernel's boot and the ticks since then at which the process began; `None` where the system does not say it.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as boot, open(f"/proc/{pid}/stat", "rb") as stat_file:
            # The name of the program stands in brackets and may hold spaces and brackets itself.
            ticks = stat_file.read(4096).rpartition(b")")[2].split()[19]
            return f"{boot.read(64).strip().decode()}:{ticks.decode()}"
    except (OSError, ValueError, IndexError):
        return None
