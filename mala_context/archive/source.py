"""Read a transcript that another program may be writing to, and compare it with what is archived.

The path comes from a hook's input, and programs that the agent runs may write to its folder. So the path itself is not
trusted: it is opened without following a link in its last component and without waiting for a FIFO's writer, and the
opened file must be a regular one. The size is taken once. Bytes that the transcript gains after that belong to the next
piece. If it loses bytes while it is read, it is `changing`.

All reading goes through buffers of 256 KiB that are used again, so memory does not grow with the transcript.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from contextlib import closing

from mala_context._util.safe_open import DIRECTORY, READ, Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn, Self

    from mala_context.archive.interface import Reader, Write

CHUNK = 256 * 1024


class Source:
    """An open transcript. Its size stays as it was when it was taken, whatever the file gains.

    Args:
        path: the transcript; raises `TranscriptError` where it is empty text, missing, unreadable or no regular file.
        own: the session's directory, if the path leads through it. It and the directories in it may not be links: a
            link there would bring other files into the archive, and into the object store.
    """

    def __init__(self, path: object, own: str | None = None) -> None:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            _refuse(path, "empty path")
        self.path = os.fsdecode(path)
        self._own = own
        self._file = _open(self.path, own)
        self.take_size()
        self._ours, self._theirs = bytearray(), bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take_size(self) -> None:
        """Take the size again: another writer may have archived more bytes since than the file had on opening."""
        try:
            status = os.fstat(self._file.fileno())
        except OSError as error:
            _refuse(self.path, *_reason(error))
        self.size = status.st_size
        self.mtime_ns = status.st_mtime_ns

    def _fill(self, view: memoryview, offset: int) -> None:
        """Fill all of the view from an offset; raises `TranscriptError` where the bytes are no longer there."""
        try:
            self._file.seek(offset)
            while view:
                count = self._file.readinto(view)
                if not count:
                    _refuse(self.path, "changing", "it lost bytes while it was read")
                view = view[count:]
        except OSError as error:
            _refuse(self.path, *_reason(error))

    def open_again(self) -> None:
        """Open the path again: it may lead to another file by now. Raises as the constructor."""
        file = _open(self.path, self._own)
        self._file.close()
        self._file = file

    def last_newline(self, start: int, end: int) -> int:
        """Return the offset after the last newline between two offsets, `start` where there is none."""
        buffer = bytearray(min(CHUNK, end - start))
        while end > start:
            begin = max(start, end - CHUNK)
            length = end - begin
            self._fill(memoryview(buffer)[:length], begin)
            found = buffer.rfind(b"\n", 0, length)
            if found >= 0:
                return begin + found + 1
            end = begin
        return start

    def copy(self, start: int, end: int, write: Write) -> str:
        """Pass the bytes between two offsets to `write`, and return their SHA-256."""
        from hashlib import sha256

        digest = sha256()
        buffer = memoryview(bytearray(min(CHUNK, end - start)))
        while start < end:
            view = buffer[: min(CHUNK, end - start)]
            self._fill(view, start)
            digest.update(view)
            write(view)
            start += len(view)
        return digest.hexdigest()

    def digest(self, start: int, end: int) -> str:
        """Return the SHA-256 of the bytes between two offsets, in hexadecimal."""
        return self.copy(start, end, len)

    def same_as(self, reader: Reader, start: int, length: int) -> bool:
        """Compare `length` bytes from `start`, byte by byte, with all that the reader holds."""
        if not self._ours:
            self._ours, self._theirs = bytearray(CHUNK), bytearray(CHUNK)
        ours, theirs = self._ours, self._theirs
        offset, end = start, start + length
        while count := fill(reader, theirs):
            if offset + count > end:
                return False
            self._fill(memoryview(ours)[:count], offset)
            # Whole buffers compare by memcmp; slices of views would compare element by element.
            same = ours == theirs if count == CHUNK else ours[:count] == theirs[:count]
            if not same:
                return False
            offset += count
        return offset == end


def _open(path: str, own: str | None) -> io.FileIO:
    try:
        fd = os.open(path, READ) if own is None else _open_below(own, path[len(own) + 1 :])
    except (OSError, ValueError) as error:
        _refuse(path, *_reason(error))
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        _refuse(path, "not a regular file")
    return io.FileIO(fd, "rb")


def _open_below(top: str, name: str) -> int:
    *folders, last = name.split("/")
    with Held(open_directory(top, folders)) as directory:
        return os.open(last, READ, dir_fd=directory)


def open_directory(top: str, folders: Sequence[str] = ()) -> int:
    """Open a directory below another one, none of which may be a link; raises `OSError`. Close the descriptor."""
    try:
        fd = os.open(top, DIRECTORY)
    except ValueError as error:  # a path from a hook's input may hold a NUL character
        raise OSError(errno.EINVAL, str(error)) from None
    for folder in folders:
        try:
            inner = os.open(folder, DIRECTORY, dir_fd=fd)
        finally:
            os.close(fd)
        fd = inner
    return fd


def own_directory(path: object) -> str | None:
    """Return the session's directory that a subagent's transcript lies in: `…/SESSION` of `…/SESSION/subagents/…`."""
    found, _, name = (
        os.fsdecode(path).rpartition("/subagents/") if isinstance(path, str | os.PathLike) else ("", "", "")
    )
    return found if found and "/../" not in f"/{name}" else None


def fill(reader: Reader, buffer: bytearray) -> int:
    """Read into a buffer until it is full or the file ends; returns the bytes read."""
    count = reader.readinto(buffer) or 0
    if 0 < count < len(buffer):
        view = memoryview(buffer)
        while count < len(buffer) and (more := reader.readinto(view[count:])):
            count += more
    return count


def digest_of(reader: Reader) -> tuple[str, int]:
    """Return the SHA-256, in hexadecimal, and the number of the bytes that a reader gives, and close it."""
    from hashlib import sha256

    digest = sha256()
    buffer = bytearray(CHUNK)
    length = 0
    with closing(reader):
        while count := fill(reader, buffer):
            digest.update(memoryview(buffer)[:count])
            length += count
    return digest.hexdigest(), length


def _reason(error: OSError | ValueError) -> tuple[str, str]:
    """Return why a path could not be opened: the reason of a `TranscriptError` and its detail."""
    number = error.errno if isinstance(error, OSError) else None
    if number in {errno.ENOENT, errno.ENOTDIR}:
        return "missing", ""
    # With O_NOFOLLOW Linux and macOS answer a link with ELOOP, FreeBSD with EMLINK.
    if number in {errno.ELOOP, errno.EMLINK}:
        return "not a regular file", "a symbolic link"
    if number == errno.ESTALE:
        return "changing", "it was replaced on another machine"
    if number in {errno.EISDIR, errno.ENXIO, errno.ENODEV}:
        return "not a regular file", ""
    return "unreadable", str(getattr(error, "strerror", None) or error)


def _refuse(path: object, reason: str, detail: str = "") -> NoReturn:
    from mala_context.errors import TranscriptError

    raise TranscriptError(path, reason, detail)
