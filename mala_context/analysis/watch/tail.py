"""Reading a transcript for a view that has just begun, and following it.

`TranscriptTail` returns whole rows, each once, and notices a file that shrank or was replaced. A view needs more:

* Of a huge transcript only the first rows and the last ones are read, as far back as a size needs to be known.
* A file that was rewritten in place and grew is noticed by the bytes before the place where reading stopped.
* A last row that is complete but has no newline yet is taken. An incomplete row is not: the start of a JSON object is
  never an object.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from mala_context._util.safe_open import Held, open_regular
from mala_context.analysis.replay.rows import decode
from mala_context.transcripts.tail import TranscriptTail, read_opening

WHOLE: Final = 2 << 20
"""Bytes up to which a transcript is read from its top."""
FIRST: Final = 1 << 20
"""Bytes that are read of the end of a longer one; eight times as many each time that they tell no size."""
MOST: Final = 64 << 20
"""Bytes of the end that are read at most."""
# Bytes before our place that must still be there: a file that was rewritten in place, and is longer now, has the same
# inode and would be read on from the middle of another row.
_SEAL: Final = 96

Rows = Sequence[dict[str, Any]]


class NewRows(NamedTuple):
    """The rows that a transcript gained since the last look."""

    rows: Rows
    """New rows, in order."""
    restarted: bool
    """Whether they start from the top or after a gap: then forget everything known before."""
    opening: Rows = ()
    """The transcript's first rows, where those after them were left out."""
    start: int = 0
    """Where in the file the rows begin, in bytes; not 0 only where some were left out."""


class LiveTail(TranscriptTail):
    """Follows one transcript. `gain` opens, reads and closes it; ask when the file's status changed."""

    @staticmethod
    def _decode(data: bytes) -> list[dict[str, Any]]:
        return decode(data)[0]

    def __init__(self) -> None:
        super().__init__()
        self._seal = b""

    def gain(self, path: str, enough: Callable[[Rows], bool]) -> NewRows:
        """Return the new rows; `enough` tells whether rows from a huge file's end tell all that is needed.

        Raises `OSError` where the file cannot be read.
        """
        with Held(open_regular(path)) as descriptor:
            status = os.fstat(descriptor)
            identity = (status.st_dev, status.st_ino)
            same = path == self._path and identity == self._identity and status.st_size >= self._offset
            # the bytes that were read last must still be where they were
            if same and os.pread(descriptor, len(self._seal), self._offset - len(self._seal)) == self._seal:
                return NewRows(self._all_rows(descriptor), restarted=False)
            self._path, self._identity, self._offset = path, identity, 0
            if status.st_size <= WHOLE:
                return NewRows(self._all_rows(descriptor), restarted=True)
            return self._end(descriptor, path, status.st_size, enough)

    def _all_rows(self, descriptor: int) -> list[dict[str, Any]]:
        rows = self._rows(descriptor)
        rest = os.pread(descriptor, FIRST, self._offset)
        # The last row often has no newline (213 of 1,280 real files). Waiting for one would hide a session's newest
        # size; half a row does not parse, and is read with the next look.
        if rest.rstrip().endswith(b"}"):
            try:
                row = json.loads(rest)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                rows.append(row)
                self._offset += len(rest)
        length = min(_SEAL, self._offset)
        self._seal = os.pread(descriptor, length, self._offset - length)
        return rows

    def _end(self, descriptor: int, path: str, size: int, enough: Callable[[Rows], bool]) -> NewRows:
        length = FIRST
        while length < size:
            start = self._offset = _after_newline(descriptor, size - length)
            rows = self._all_rows(descriptor)
            if enough(rows) or length >= MOST:
                return NewRows(rows, restarted=True, opening=read_opening(path), start=start)
            length *= 8
        self._offset = 0
        return NewRows(self._all_rows(descriptor), restarted=True)


def _after_newline(descriptor: int, offset: int) -> int:
    """Return the place after the first newline from an offset on; the file's end where there is none."""
    while block := os.pread(descriptor, 1 << 16, offset):
        found = block.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset += len(block)
    return offset
