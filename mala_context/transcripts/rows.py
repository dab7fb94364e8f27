"""Split the bytes of a transcript into rows.

A row ends at a newline byte and nowhere else. U+2028 and similar characters occur inside rows, so text functions that
split lines give wrong rows. A row longer than `long_rows.LONG` is never held in memory: `rows` shortens it, `lines`
gives it block by block.
"""

from __future__ import annotations

import os

from mala_context._util.safe_open import READ, Held
from mala_context.transcripts.long_rows import LONG, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK = 256 * 1024
"""Bytes that `file_chunks` reads at once."""


class Row:
    """One row of a transcript, without its newline. A plain class: making a record takes as long as decoding a row."""

    __slots__ = ("data", "ended", "left_out", "offset")

    def __init__(self, offset: int, data: bytes, *, ended: bool = True, left_out: int = 0) -> None:
        self.offset = offset
        """Where it starts in the transcript, in bytes."""
        self.data = data
        self.ended = ended
        """Whether a newline followed."""
        self.left_out = left_out
        """Bytes that were cut from a row that is too long."""

    @property
    def size(self) -> int:
        """Its bytes in the transcript."""
        return len(self.data) + self.left_out


class LongRow:
    """A row that is too long to be held in memory. Read it before you ask for the next row."""

    def __init__(self, offset: int, held: list[bytes], data: Iterator[bytes]) -> None:
        self.offset = offset
        self.size = 0
        """Its bytes that were read."""
        self.ended = False
        """Whether a newline followed, once it was read."""
        self._held = held
        self._data = data
        self._after = b""

    def parts(self) -> Iterator[bytes]:
        """Yield its bytes, once."""
        while self._held:
            yield self._read(self._held.pop(0))
        while not self.ended and (chunk := next(self._data, None)) is not None:
            line, newline, after = chunk.partition(b"\n")
            self.ended, self._after = bool(newline), after
            yield self._read(line)

    def _read(self, part: bytes) -> bytes:
        self.size += len(part)
        return part

    def finish(self) -> bytes:
        """Read the rest of the row; return the bytes after it that were read too."""
        for _ in self.parts():
            pass
        return self._after


def file_chunks(path: str, size: int | None = None, *, start: int = 0) -> Iterator[bytes]:
    """Yield the bytes of a regular file from `start` up to a size, without following a link; raises `OSError`."""
    import stat

    with Held(os.open(path, READ)) as fd:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"not a regular file: {path}")
        os.lseek(fd, start, os.SEEK_SET)
        left = max(0, (status.st_size if size is None else min(size, status.st_size)) - start)
        while left and (data := os.read(fd, min(CHUNK, left))):
            left -= len(data)
            yield data


def rows(data: Iterable[bytes], most: int | None = LONG, *, mark: bytes = b"") -> Iterator[Row]:
    """Yield the rows of a transcript without empty ones; rows of more than about `most` bytes are shortened.

    With `mark`, only rows that hold these bytes are yielded.
    """
    for line in lines(data, most, mark=mark):
        if isinstance(line, Row):
            if mark in line.data:
                yield line
        elif mark in (kept := shortened(line.parts())):
            yield Row(line.offset, kept, ended=line.ended, left_out=line.size - len(kept))


def lines(data: Iterable[bytes], most: int | None = LONG, *, mark: bytes = b"") -> Iterator[Row | LongRow]:
    """Yield the rows of a transcript; a row of more than about `most` bytes is a `LongRow`, read in parts.

    With `mark`, rows without these bytes may be left out.
    """
    source = iter(data)
    parts: list[bytes] = []
    held = offset = 0
    while (chunk := next(source, None)) is not None:
        after: bytes | None = chunk
        while after is not None:
            # Marks are rare, so most chunks are searched once and not split. The row that began in an earlier chunk
            # is kept, since the mark may lie across the two.
            skipped = 0
            if mark not in after and (last := after.rfind(b"\n")) != (first := after.find(b"\n")):
                skipped, whole, rest = last - first, [after[:first]], after[last + 1 :]
            else:
                *whole, rest = after.split(b"\n")
            after = None
            for line in whole:
                row = b"".join((*parts, line)) if parts else line
                parts.clear()
                held = 0
                if row:
                    yield Row(offset, row)
                offset += len(row) + 1
            offset += skipped
            if rest:
                parts.append(rest)
                held += len(rest)
            if most is not None and held > most:
                long = LongRow(offset, parts, source)
                yield long
                # The caller may have read a part only. What was read past the row's newline belongs to the next row.
                after = long.finish()
                offset += long.size + 1
                parts, held = [], 0
    if parts:
        yield Row(offset, b"".join(parts), ended=False)
