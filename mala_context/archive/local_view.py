"""Local files, for reading: what a directory holds of a session, without taking its lock.

A file that was pruned here after the object store had it is still one of the session's: the manifest says where it
is, so it is listed without asking anybody, and opened from there.
"""

from __future__ import annotations

import errno
import os
import stat

from mala_context._util.safe_open import READ
from mala_context.archive import layout
from mala_context.archive.interface import SessionView
from mala_context.archive.records import StoredFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mala_context.archive.interface import Reader


class LocalView(SessionView):
    """A session's files in a directory, for reading."""

    def __init__(self, session_id: str, directory: str, fd: int | None) -> None:
        self.session_id = session_id
        self._directory = directory
        self._fd = fd

    def list(self) -> Sequence[StoredFile]:
        """Return the session's files, those too that only an object store has.

        Files that are not ours, links, devices and empty files are none.
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
        if b'"uploaded"' not in data:
            return []
        from mala_context.archive.remote.uploaded import elsewhere

        return elsewhere(self.session_id, data, here)

    def open(self, name: str) -> Reader:
        """Open a file without following a link; where it is gone, and uploaded, the object store's.

        Raises `ObjectStoreError` where that cannot be read.
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
            if self._fd is None or error.errno in {errno.ENOENT, errno.ELOOP}:
                return b""
            raise
        with os.fdopen(fd, "rb") as file:
            return file.read() if stat.S_ISREG(os.fstat(fd).st_mode) else b""

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

    Listing `fd` itself would go on from where its last listing ended if the kernel could not go back, and an archive
    that looks empty would begin again.
    """
    own = os.open(".", os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0), dir_fd=fd)
    try:
        with os.scandir(own) as found:
            for each in found:
                yield each.name
    finally:
        os.close(own)


def scan(fd: int, prefixes: tuple[str, ...]) -> Iterator[StoredFile]:
    """Yield the files of ours that begin with one of the prefixes; a file of no bytes is no piece."""
    return status_of(fd, (name for name in each_name(fd) if name.startswith(prefixes)))


def status_of(fd: int, names: Iterable[str]) -> Iterator[StoredFile]:
    """Yield those of the names that are files of ours with bytes in them."""
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
