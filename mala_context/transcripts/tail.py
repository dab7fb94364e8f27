"""Read a transcript that the CLI is still writing: whole rows only, each once.

Rows end at newline bytes; see `rows`. A line is not always one JSON object: the CLI has written two on one line
(`json_rows.objects` reads them). All new rows are held in memory at once. So no row takes much more memory than its
bytes, and a row of several megabytes is shortened.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from mala_context._util.safe_open import Held, open_regular
from mala_context.transcripts.json_rows import few_objects, objects
from mala_context.transcripts.rows import rows

_BLOCK, _FIRST_BLOCK = 1 << 20, 1 << 16
_MOST_OPENING = 8 << 20


def read_opening(path: str) -> list[dict[str, Any]]:
    """Return a transcript's rows up to and with its first assistant row: the contents of the first request.

    At most `_MOST_OPENING` bytes are read. Raises `OSError` like `TranscriptTail.read`.
    """
    with Held(open_regular(path)) as descriptor:
        return opening(_blocks(descriptor, _FIRST_BLOCK))


def opening(blocks: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return what `read_opening` does, of a transcript's bytes."""
    read: list[dict[str, Any]] = []
    for row in rows(blocks):
        if row.offset >= _MOST_OPENING or not row.ended:
            break
        read.extend(few_objects(row.data))
        if read and read[-1].get("type") == "assistant":
            break
    return read


def _blocks(descriptor: int, size: int) -> Iterator[bytes]:
    while block := os.read(descriptor, size):
        yield block


class TranscriptTail:
    """Reads the rows that one transcript gained since the last call. For one thread at a time."""

    _decode = staticmethod(objects)
    """Returns the objects on a row."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = 0

    def read(self, path: str) -> tuple[list[dict[str, Any]], bool]:
        """Return the rows that are new since the last call, and whether they start at the first row.

        They do at the first call, for another path, and if the file shrank or was replaced; the caller then starts
        over. A row without its newline is left for the next call. Raises `OSError` if the file cannot be read, or is no
        regular file.
        """
        with Held(open_regular(path)) as descriptor:
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            from_start = path != self._path or identity != self._identity or status.st_size < self._offset
            if from_start:
                self._path, self._identity, self._offset = path, identity, 0
            return self._rows(descriptor), from_start

    def _rows(self, descriptor: int) -> list[dict[str, Any]]:
        os.lseek(descriptor, self._offset, os.SEEK_SET)
        start = self._offset
        read: list[dict[str, Any]] = []
        for row in rows(_blocks(descriptor, _BLOCK)):
            if row.ended:
                read.extend(few_objects(row.data, self._decode))
                self._offset = start + row.offset + row.size + 1
        return read
