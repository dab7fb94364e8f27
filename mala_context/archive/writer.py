"""A session's local files for its only writer: the one module that opens an archive for writing.

A file appears in one step. Its bytes go into a temporary file that was private from the moment it existed
(`O_CREAT | O_EXCL | O_NOFOLLOW`, 0600), are made durable, and then get their name as `naming` says, in place of
nothing. A process that is killed leaves at most a temporary file, or a temporary name beside the published one. Both
begin with the session's temporary prefix, and only the holder of the session's lock makes such names: so whoever gets
the lock next may drop all of them. A file of no bytes, which holds a name where a file system has no links, is never a
piece, and is dropped in the same way.

The lock is an `flock` on the session's manifest, so that it leaves nothing behind. The manifest may be replaced or
deleted while we wait, so after the lock is there the name must still lead to the file that is locked. Threads of one
process exclude each other by a lock of their own first, since some network file systems keep `flock` per process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import weakref

from mala_context._util.safe_open import READ
from mala_context.archive import layout
from mala_context.archive.atomic_write import (
    close_locked,
    create,
    discard,
    publish,
    rename_to,
    sync,
    sync_directory,
    thread_locks,
    try_flock,
    write_all,
)
from mala_context.archive.directory import open_archives, refuse
from mala_context.archive.interface import SessionFiles
from mala_context.archive.local_view import LocalView, each_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mala_context.archive.interface import Write

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
            self._take_thread_lock(timeout)
            self._take_file_lock(started, timeout)
            if os.fstat(self._manifest).st_nlink > 1:  # another name leads to it: that file is not ours to change
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
        del fd
        return sorted(self._known)

    def publish(self, name: str, fill: Callable[[Write], None], *, mtime_ns: int | None = None) -> None:
        """Write a new file under its name in one step."""
        if layout.session_of(name) != self.session_id:
            raise ValueError(f"{name!r} is no name for a file of session {self.session_id}")

        def fill_and_name(write: Write) -> str:
            fill(write)
            return name

        if not self._publish(fill_and_name, mtime_ns)[1]:
            raise FileExistsError(errno.EEXIST, "an archive is never overwritten", self.path(name))

    def publish_named(self, fill: Callable[[Write], str]) -> tuple[str, bool]:
        """Write a new file whose name is known at the end."""
        return self._publish(fill, None)

    def _publish(self, fill: Callable[[Write], str], mtime_ns: int | None) -> tuple[str, bool]:
        name, new = publish(self._dir, layout.temporary_prefix(self.session_id), fill, mtime_ns=mtime_ns)
        self._known.add(name)
        return name, new

    def append(self, rows: bytes) -> None:
        """Add rows to the manifest, on a line of their own even where the last row was cut.

        Rows of which only a part could be written (a full disk) are taken back.
        """
        size = os.fstat(self._manifest).st_size
        cut = size > 0 and os.pread(self._manifest, 1, size - 1) != b"\n"
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
        fd, temporary = create(self._dir, layout.temporary_prefix(self.session_id), os.O_APPEND)
        try:
            write_all(fd, data)
            sync(fd)
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
        """Set modification times to now, so that an age limit sees the session as one.

        Never to an earlier time than any of them has: a clock that was set back makes no session old. A time that
        cannot be set stays.
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
        """Let the next writer in; a manifest that nobody wrote to goes."""
        try:
            if self._manifest >= 0:
                with contextlib.suppress(OSError):  # an empty manifest that stays is no harm
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
        close_locked(fd)

    def _after_fork(self) -> None:
        """Close, in the child of a fork, what the parent goes on with; the lock stays the parent's."""
        for fd in (self._manifest, self._fd):
            if fd is not None and fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._manifest, self._fd, self._thread_key = -1, None, None

    def _unlink(self, name: str) -> None:
        try:
            os.unlink(name, dir_fd=self._dir)
        except OSError:
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
                    if self._is_manifest():
                        return
                    self._close_manifest()
                    continue
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                self._close_manifest()  # replaced by another machine; the next one is that machine's
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
        """Drop what a killed writer left: temporary files, and names that were taken but never filled.

        Whatever is there of the session is then known, and only we give it names: so the directory, in which very
        many sessions may lie, is listed once.
        """
        prefix = layout.temporary_prefix(self.session_id)
        own = f"{self.session_id}_", f"{self.session_id}."
        found = [each for each in each_name(self._dir) if each.startswith((prefix, *own))]
        self._known = {each for each in found if layout.session_of(each) == self.session_id}
        for name in found:
            if name.startswith(prefix):
                discard(self._dir, name)
            elif layout.parse_piece_name(name) is not None:
                with contextlib.suppress(FileNotFoundError):  # on a file system without locks
                    status = os.stat(name, dir_fd=self._dir, follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and status.st_size == 0:
                        discard(self._dir, name)
