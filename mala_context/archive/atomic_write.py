"""Write one private file, whole or not at all. Everything that the archive publishes goes through this module.

`publish` writes into a temporary file that is private from its first moment (0600), makes it durable, and only then
gives it its name. By default the name is given by `link`, which cannot replace anything. Where a file system has no
links, an empty file first reserves the name, and a rename then replaces that file. Whatever ends the writing, Ctrl-C
included, the temporary file is removed; `place` also removes those that killed processes left beside the target.

A network file system sends a request again when the answer to it is lost. The second request finds the work done and
fails: the name is taken, or the old name is gone. So before an error is raised, the code checks whether the name leads
to our file now. Some file systems cannot make a directory durable; their refusal is ignored.

A session has two locks: one among the threads of this process, one among processes. Some network file systems keep
`flock` per process, so threads exclude each other by a lock of their own first. A fork copies both locks. The child
inherits the descriptor and with it a share in the `flock`, so closing is not enough: the lock is released first. The
child's copies of the thread locks would stay held for ever, so the child starts with new ones.
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
"""Beginning of the names of temporary files inside an archive; the session's id follows, see `temporary_prefix`."""
OUTSIDE_TEMPORARY = ".mala-context-"
"""Beginning of the names of temporary files outside an archive: no other program uses it, so they may be removed."""
FLUSH = 32 * 1024 * 1024
"""Bytes after which the kernel is told to start writing to the disk."""
_TRIES = 2
"""How many temporary files are tried before one is used without a lock."""
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EISDIR, errno.EACCES})


def temporary_prefix(session_id: str) -> str:
    """Return the beginning of a session's temporary names; only the holder of its lock makes or removes such files."""
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
        prefix: the beginning of the temporary file's name.
        fill: writes the bytes.
        name: the file's name; without it, `fill` returns the name, which may depend on the bytes.
        replace: whether the file takes the place of one of that name.
        lock: hold a lock on the temporary file, so that another process does not take it for one that was left.
        durable: whether a crash of the machine may not lose it.
        mtime_ns: its modification time.
        path: the path that an `OSError` names instead of the temporary file. An error that `fill` raises itself (about
            the file that it reads, for example) keeps its own path.

    If the name is taken and `replace` is false, nothing is written under it, and the second value is false. Raises
    `OSError`, and what `fill` raises; then nothing is published.
    """
    fd, temporary = -1, ""
    try:  # around everything: Ctrl-C may come between any two calls
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
                with contextlib.suppress(OSError):  # the bytes are durable by now, or another error is on its way
                    os.close(fd)
                discard(directory, temporary)
            except KeyboardInterrupt:  # Ctrl-C during the clean-up itself
                discard(directory, temporary)
                raise
    if durable:
        with _naming(path):
            sync_directory(directory)
    return name, new


def place(root: str, parts: Sequence[str], fill: Callable[[Write], object]) -> str:
    """Write a new file at `root` / `parts`, for restored sessions, exports and side files that are put back.

    Missing directories are made, 0700, and no directory in `parts` may be a link. Returns the file's path. Raises
    `FileExistsError` if the name is taken, `OSError` if it cannot be written, `ValueError` for a part that is not a
    plain name, and what `fill` raises; then no file is left.
    """
    for part in parts:
        if not part or part in {".", ".."} or "/" in part or "\0" in part:
            raise ValueError(f"{part!r} is no name of a file")
    path = os.path.join(root, *parts)
    # The user named the root, and it may be a link. The parts below it come from an archive's rows: each directory is
    # opened through the one above it without following a link, so that nothing is written outside of the root.
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
    """Put `path` into an `OSError`: the user knows the target's name, and not that of the temporary file."""
    try:
        yield
    except OSError as error:
        if path is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def _writer(fd: int, path: str | None) -> Write:
    """Return a `write` that starts the disk while more bytes are copied, so that the last sync waits less.

    Measured with 2 GB at once on one disk: 3.5 s instead of 4.9 s.
    """
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
    """Create a temporary file and lock it, so that no other process removes it as a killed writer's."""
    for _ in range(_TRIES):
        fd, temporary = create(directory, prefix)
        try:
            if try_flock(fd) and leads_to(directory, temporary, fd):
                return fd, temporary
        except BaseException:
            os.close(fd)
            discard(directory, temporary)
            raise
        os.close(fd)  # between `create` and the lock another process's `_drop_leftovers` took it
        discard(directory, temporary)
    return create(directory, prefix)


def _drop_leftovers(directory: int) -> None:
    """Remove the temporary files of killed processes; a living writer holds a lock on its own."""
    import fcntl

    with Held(os.open(".", DIRECTORY, dir_fd=directory)) as own:
        names = [name for name in os.listdir(own) if name.startswith(OUTSIDE_TEMPORARY)]
    for name in names:
        # Skip a file that is gone, a link, or locked, and every file where the file system has no locks.
        with contextlib.suppress(OSError), Held(os.open(name, READ, dir_fd=directory)) as fd:
            if stat.S_ISREG(os.fstat(fd).st_mode):
                # Not `try_flock`: that succeeds on a file system without locks, and a living writer's file would go.
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                discard(directory, name)


def sync(fd: int) -> None:
    """Make a file's bytes durable. On macOS that needs `F_FULLFSYNC`: `fsync` leaves them in the drive's cache."""
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
    """Write all of `data`; raises `OSError` (a full disk, a limit, a device that takes nothing)."""
    view = memoryview(data)
    while view:
        count = os.write(fd, view)
        if count == 0:  # a device that takes no bytes: without this check the loop would never end
            raise OSError(errno.EIO, "nothing could be written")
        view = view[count:]


def create(directory: int, prefix: str, flags: int = 0) -> tuple[int, str]:
    """Create a file, 0600, whose new name begins with `prefix`; return its descriptor and its name."""
    name = prefix + os.urandom(8).hex()
    try:
        fd = os.open(name, CREATE | flags, 0o600, dir_fd=directory)
    except FileExistsError:  # 64 random bits: only our own request, sent twice by a network file system, has this name
        discard(directory, name)
        name = prefix + os.urandom(8).hex()
        fd = os.open(name, CREATE | flags, 0o600, dir_fd=directory)
    try:
        os.fchmod(fd, 0o600)  # a umask like 0700 has taken the owner's own rights
    except BaseException:
        os.close(fd)
        discard(directory, name)
        raise
    return fd, name


def give_name(directory: int, fd: int, temporary: str, name: str) -> bool:
    """Give the open file, complete under its temporary name, a name of its own in the same directory.

    Returns false where the name is taken. The temporary name may still be there afterwards. Raises `OSError`.
    """
    # `link` and not `rename`: it fails where the name is taken, so an archive can never be overwritten.
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
    """Do what `give_name` does where there are no hard links: reserve the name with an empty file, then rename."""
    try:
        os.close(os.open(name, CREATE, 0o600, dir_fd=directory))
    except FileExistsError:
        return False
    try:
        rename_to(directory, fd, temporary, name)
    except OSError:
        with contextlib.suppress(OSError):
            # Only if it is still empty: by now the name may lead to the bytes of a writer without our lock.
            if os.stat(name, dir_fd=directory, follow_symlinks=False).st_size == 0:
                os.unlink(name, dir_fd=directory)
        raise
    return True


def rename_to(directory: int, fd: int, temporary: str, name: str) -> None:
    """Give the open file a name, and replace a file that has it; raises `OSError` if the name leads elsewhere then."""
    try:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        if not leads_to(directory, name, fd):
            raise


def leads_to(directory: int, name: str, fd: int) -> bool:
    """Tell whether a name leads to the open file; false where that cannot be found out."""
    try:
        named, held = os.stat(name, dir_fd=directory, follow_symlinks=False), os.fstat(fd)
    except OSError:
        return False
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def discard(directory: int, name: str) -> None:
    """Remove a name that is not needed any more; if that fails, the next writer removes it."""
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
        """Release the lock of a key, so that the next thread gets it."""
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
    """Release the lock on a file and close it. Closing alone would not do: a forked child may have it open too.

    The file's bytes are durable by now, so errors are ignored.
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
            return True  # a file system without locks: archive anyway, since `link` still overwrites no name
        raise
    return True


def process_start(pid: int) -> str | None:
    """Return a text that differs between two processes of the same number; `None` where the system does not say it.

    It is the kernel's boot id and the ticks from boot to the start of the process. Numbers come again: in each
    container they begin at 1.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as boot, open(f"/proc/{pid}/stat", "rb") as stat_file:
            # The name of the program stands in brackets and may hold spaces and brackets itself.
            ticks = stat_file.read(4096).rpartition(b")")[2].split()[19]
            return f"{boot.read(64).strip().decode()}:{ticks.decode()}"
    except (OSError, ValueError, IndexError):
        return None
