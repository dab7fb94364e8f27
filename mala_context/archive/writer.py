"""A session's local files: `LocalView` reads them without a lock, `LocalFiles` is the session's only writer.

A file appears in one step, as `atomic_write` does it. A process that is killed leaves at most a temporary file, or a
temporary name beside the published one. Both begin with the session's temporary prefix, and only the holder of the
session's lock makes such names. So the next holder of the lock may drop all of them. An empty file, which reserves a
name on a file system without links, is never a piece; the next holder drops it too.

The lock is an `flock` on the session's manifest, so it leaves no file behind. The manifest may be replaced or deleted
while we wait. So after the lock is there, the name must still lead to the locked file.

A file that was pruned here after the object store had it is still one of the session's files. The manifest says where
it is, so it is listed without a request, and opened from there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import weakref

from mala_context._util.safe_open import DIRECTORY, READ
from mala_context.archive import layout
from mala_context.archive.atomic_write import (
    close_locked,
    create,
    discard,
    publish,
    rename_to,
    sync,
    sync_directory,
    temporary_prefix,
    thread_locks,
    try_flock,
    write_all,
)
from mala_context.archive.directory import open_archives, refuse
from mala_context.archive.interface import SessionFiles, SessionView
from mala_context.archive.layout import StoredFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mala_context.archive.interface import Reader, Write


class LocalView(SessionView):
    """A session's files in a directory, for reading."""

    def __init__(self, session_id: str, directory: str, fd: int | None) -> None:
        self.session_id = session_id
        self._directory = directory
        self._fd = fd

    def list(self) -> Sequence[StoredFile]:
        """Return the session's files, including files that only an object store has.

        Files of other users, links, devices and empty files are left out.
        """
        if self._fd is None:
            return []
        found = list(status_of(self._fd, self._own_names(self._fd)))
        return sorted([*found, *self._elsewhere(found)], key=lambda each: each.name)

    def _own_names(self, fd: int) -> Iterable[str]:
        own = f"{self.session_id}_", f"{self.session_id}."
        return (each for each in each_name(fd) if each.startswith(own) and layout.session_of(each) == self.session_id)

    def _elsewhere(self, here: Iterable[StoredFile]) -> Sequence[StoredFile]:
        data = self.manifest()
        # Most sessions were never uploaded, and a command hook must be quick: look for the word before the `remote`
        # modules are imported and every row is decoded.
        if b'"uploaded"' not in data:
            return []
        from mala_context.archive.remote.uploaded import elsewhere

        return elsewhere(self.session_id, data, here)

    def open(self, name: str) -> Reader:
        """Open a file without following a link. If it was pruned here after its upload, open the object store's copy.

        Raises `ObjectStoreError` where that copy cannot be read.
        """
        import io

        if self._fd is None or layout.session_of(name) != self.session_id:
            raise FileNotFoundError(errno.ENOENT, "no such file in this archive", name)
        try:
            fd = os.open(name, READ, dir_fd=self._fd)
        except FileNotFoundError:
            remote = next((file.remote for file in self._elsewhere(()) if file.name == name), None)
            if remote is None:
                raise
            from mala_context.archive.remote.bucket import bucket_at

            return bucket_at(remote).open(name)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "not a regular file", name)
        return io.FileIO(fd, "rb")

    def manifest(self) -> bytes:
        """Return the manifest's bytes."""
        try:
            return self._read_manifest()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
            return self._read_manifest()  # another machine has replaced it

    def _read_manifest(self) -> bytes:
        try:
            fd = os.open(layout.manifest_name(self.session_id), READ, dir_fd=-1 if self._fd is None else self._fd)
        except OSError as error:
            # A link (ELOOP) or a socket (ENXIO) in the manifest's place was put there by another program. The session
            # then has no manifest. As an error it would end `list` and `verify` for every other session too.
            if self._fd is None or error.errno in {errno.ENOENT, errno.ELOOP, errno.ENXIO}:
                return b""
            raise
        try:  # look at the kind first: `open` fails with a bare descriptor number for a directory
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            with open(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)

    def path(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self._directory, name)

    def close(self) -> None:
        """Close the directory."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def each_name(fd: int) -> Iterator[str]:
    """Yield the names in a directory, through a description of its own.

    A second listing through `fd` itself continues where the first one ended if the file system cannot rewind. The
    archive would then look empty, and every session would be archived again from its first byte.
    """
    own = os.open(".", DIRECTORY, dir_fd=fd)
    try:
        with os.scandir(own) as found:
            yield from (each.name for each in found)
    finally:
        os.close(own)


def scan(fd: int, prefixes: tuple[str, ...]) -> Iterator[StoredFile]:
    """Yield our files whose names begin with one of the prefixes, without empty ones."""
    return status_of(fd, (name for name in each_name(fd) if name.startswith(prefixes)))


def status_of(fd: int, names: Iterable[str]) -> Iterator[StoredFile]:
    """Yield the status of each name that leads to a regular file of this user with bytes in it."""
    user = os.geteuid()
    for name in names:
        try:
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode) or status.st_uid != user or status.st_size == 0:
            continue
        yield StoredFile(
            name=name,
            size=status.st_size,
            mtime_ns=status.st_mtime_ns,
            mode=stat.S_IMODE(status.st_mode),
        )


_MANIFEST = os.O_RDWR | os.O_APPEND | os.O_CREAT | (READ & ~os.O_RDONLY)

_open: weakref.WeakSet[LocalFiles] = weakref.WeakSet()
"""Sessions that this process has locked."""


def _after_fork() -> None:
    thread_locks.after_fork()
    for each in list(_open):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class LocalFiles(LocalView, SessionFiles):
    """A session's files in a directory, for the holder of its lock."""

    def __init__(self, session_id: str, directory: str, timeout: float) -> None:
        super().__init__(session_id, directory, None)
        self._manifest = -1
        self._known: set[str] = set()
        self._thread_key: tuple[str, str] | None = None
        started = time.monotonic()
        _open.add(self)
        try:
            self._fd = open_archives(directory, create=True)
            # Threads first: on some network file systems `flock` belongs to the process, so it does not hold two
            # threads of one process apart.
            self._take_thread_lock(timeout)
            self._take_file_lock(started, timeout)
            # With a second hard link, our rows would be appended to a file elsewhere too. A copy takes the name, so the
            # other file (often a backup made of hard links) stays as it was.
            if os.fstat(self._manifest).st_nlink > 1:
                self.replace_manifest(self.manifest())
            self._drop_leftovers()
        except BaseException:
            self.close()
            raise

    @property
    def _dir(self) -> int:
        if self._fd is None:
            raise ValueError("the session's files were closed")
        return self._fd

    def _own_names(self, fd: int) -> Iterable[str]:
        return sorted(self._known)

    def publish(self, name: str, fill: Callable[[Write], object], *, mtime_ns: int | None = None) -> None:
        """Write a new file under its name in one step."""
        if layout.session_of(name) != self.session_id:
            raise ValueError(f"{name!r} is no name for a file of session {self.session_id}")

        if not self._publish(fill, name, mtime_ns)[1]:
            raise FileExistsError(errno.EEXIST, "an archive is never overwritten", self.path(name))

    def publish_named(self, fill: Callable[[Write], str]) -> tuple[str, bool]:
        """Write a new file whose name is known at the end."""
        return self._publish(fill, None, None)

    def _publish(self, fill: Callable[[Write], object], name: str | None, mtime_ns: int | None) -> tuple[str, bool]:
        made, new = publish(self._dir, temporary_prefix(self.session_id), fill, name=name, mtime_ns=mtime_ns)
        self._known.add(made)
        return made, new

    def append(self, rows: bytes) -> None:
        """Add rows to the manifest, on a line of their own even where the last row was cut.

        If only a part of the rows could be written (a full disk), that part is removed again.
        """
        size = os.fstat(self._manifest).st_size
        cut = size > 0 and os.pread(self._manifest, 1, size - 1) != b"\n"
        # A killed writer may have left half a row. The new rows begin on a line of their own; `verify` names the half.
        data = b"\n" + rows if cut else rows
        try:
            write_all(self._manifest, data)
        except OSError:
            with contextlib.suppress(OSError):
                if os.fstat(self._manifest).st_size < size + len(data):
                    os.ftruncate(self._manifest, size)
            raise
        sync(self._manifest)

    def replace_manifest(self, data: bytes) -> None:
        """Replace the manifest by rename, and hold the lock on the new one."""
        fd, temporary = create(self._dir, temporary_prefix(self.session_id), os.O_APPEND)
        try:
            write_all(fd, data)
            sync(fd)
            # Locked before it gets the manifest's name: whoever waits for the old file then finds that the name leads
            # elsewhere (`_is_manifest`) and waits for this one. Renamed first, a waiter could lock it before us.
            try_flock(fd)
            rename_to(self._dir, fd, temporary, layout.manifest_name(self.session_id))
        except BaseException:
            os.close(fd)
            discard(self._dir, temporary)
            raise
        self._close_manifest()
        self._manifest = fd
        sync_directory(self._dir)

    def touch(self, names: Sequence[str]) -> None:
        """Set the modification time of these files and of the manifest to now: a session has one age, not one per file.

        The time is never earlier than one that a file already has, so a clock that was set back does not make a
        session old. A time that cannot be set stays.
        """
        every = (*names, layout.manifest_name(self.session_id))
        newest = time.time_ns()
        for name in every:
            with contextlib.suppress(OSError):
                newest = max(newest, os.stat(name, dir_fd=self._dir, follow_symlinks=False).st_mtime_ns)
        for name in every:
            with contextlib.suppress(OSError):
                os.utime(name, ns=(newest, newest), dir_fd=self._dir, follow_symlinks=False)

    def remove(self, name: str) -> None:
        """Remove a file of this session."""
        if layout.session_of(name) != self.session_id:
            raise ValueError(f"{name!r} is no file of session {self.session_id}")
        self._unlink(name)
        self._known.discard(name)

    def close(self) -> None:
        """Release the lock for the next writer; remove the manifest if it has no rows."""
        try:
            if self._manifest >= 0:
                with contextlib.suppress(OSError):  # an empty manifest that stays does no harm
                    # Removed while the lock is still held: a waiter that gets the lock afterwards sees in
                    # `_is_manifest` that its file has no name any more, and opens a new one.
                    if os.fstat(self._manifest).st_size == 0 and self._is_manifest():
                        os.unlink(layout.manifest_name(self.session_id), dir_fd=self._dir)
                self._close_manifest()
        finally:
            if self._thread_key is not None:
                thread_locks.release(self._thread_key)
                self._thread_key = None
            super().close()

    def _close_manifest(self) -> None:
        fd, self._manifest = self._manifest, -1
        if fd >= 0:  # opening it may have failed: a network file system answers with ESTALE
            close_locked(fd)

    def _after_fork(self) -> None:
        """Close the child's copies of the descriptors after a fork, without releasing the lock: it is the parent's.

        A child that kept them held the session locked: it waited 9.5 s for itself in its own inherited hook.
        """
        for fd in (self._manifest, self._fd):
            if fd is not None and fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._manifest, self._fd, self._thread_key = -1, None, None

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._dir)
        except OSError:
            # A network file system sends a request again when its answer was lost. The second one fails because the
            # first one has removed the file.
            if self._is_there(name):
                raise

    def _is_there(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._dir, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True

    def _take_thread_lock(self, timeout: float) -> None:
        key = (self._directory, self.session_id)
        if not thread_locks.acquire(key, timeout):
            self._busy(timeout)
        self._thread_key = key

    def _take_file_lock(self, started: float, timeout: float) -> None:
        name = layout.manifest_name(self.session_id)
        pause = 0.001
        while True:
            try:
                if self._manifest < 0:
                    self._manifest = self._open_manifest(name)
                if try_flock(self._manifest):
                    # The lock is of a file, not of a name. While we waited the holder may have replaced or removed the
                    # manifest; then ours locks no other writer out, and the new file is opened.
                    if self._is_manifest():
                        return
                    self._close_manifest()
                    continue
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                self._close_manifest()  # another machine replaced the manifest: open its new file in the next round
            waited = time.monotonic() - started
            if waited >= timeout:
                self._close_manifest()
                self._busy(waited)
            time.sleep(min(pause, timeout - waited))
            pause = min(pause * 2, 0.05)

    def _open_manifest(self, name: str) -> int:
        try:
            fd = os.open(name, _MANIFEST, 0o600, dir_fd=self._dir)
        except OSError as error:
            if error.errno == errno.ELOOP:
                refuse(self._directory, f"its {name} is a symbolic link")
            if error.errno == errno.EISDIR:
                refuse(self._directory, f"its {name} is a directory")
            raise
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            os.close(fd)
            refuse(self._directory, f"its {name} is not a file of ours")
        # Not with a second link: the mode would change under the other name too. Such a manifest is replaced (see
        # `__init__`).
        if stat.S_IMODE(status.st_mode) != 0o600 and status.st_nlink == 1:
            os.fchmod(fd, 0o600)
        return fd

    def _is_manifest(self) -> bool:
        """Say whether the locked file is still the one that the manifest's name leads to."""
        try:
            named = os.stat(layout.manifest_name(self.session_id), dir_fd=self._dir, follow_symlinks=False)
        except FileNotFoundError:
            return False
        held = os.fstat(self._manifest)
        return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)

    def _busy(self, waited: float) -> None:
        from mala_context.errors import ArchiveBusyError

        raise ArchiveBusyError(self.session_id, waited)

    def _drop_leftovers(self) -> None:
        """Remove what a killed writer left: temporary files, and names that were reserved but never filled.

        Afterwards `_known` holds every name of the session. Only the holder of the lock adds names, so one listing of
        the directory is enough, however many sessions lie in it.
        """
        # Safe only under the lock: another writer's temporary file would look the same as one that was left.
        prefix = temporary_prefix(self.session_id)
        own = f"{self.session_id}_", f"{self.session_id}."
        found = [each for each in each_name(self._dir) if each.startswith((prefix, *own))]
        self._known = {each for each in found if layout.session_of(each) == self.session_id}
        for name in found:
            if name.startswith(prefix):
                discard(self._dir, name)
            elif layout.parse_piece_name(name) is not None:
                # Without hard links a name is first taken by an empty file: a kill in between leaves it empty.
                with contextlib.suppress(FileNotFoundError):  # removed by a second writer: this system has no locks
                    status = os.stat(name, dir_fd=self._dir, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
                        discard(self._dir, name)
