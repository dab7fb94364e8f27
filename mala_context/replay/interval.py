"""The second look at a transcript: what stood between a response and the boundary behind it."""

from __future__ import annotations

from io import FileIO

from mala_context.readers import read_row
from mala_context.replay.fast_rows import Unusual
from mala_context.replay.files import BLOCK, Recording
from mala_context.replay.rows import decode
from mala_context.tracker import ContextTracker

Position = tuple[int, int]
"""Where a line is: the offset of its block in bytes, and its place among the block's lines that are not empty, from 0."""


class Interval:
    """Reads parts of a plain file again. Counts lines as it goes, so ask in the order of the file."""

    def __init__(self, recording: Recording) -> None:
        self._path = recording.path
        self._counted = (0, 0)

    def lines_before(self, offset: int) -> int:
        """Return how many lines end before an offset."""
        start, lines = self._counted
        if offset < start:
            start = lines = 0
        with open(self._path, "rb", buffering=0) as file:
            file.seek(start)
            while start < offset:
                data = file.read(min(BLOCK, offset - start))
                if not data:
                    break
                lines += data.count(b"\n")
                start += len(data)
        self._counted = (start, lines)
        return lines

    def before(
        self, since: Position | None, boundary: Position, tokens: int | None
    ) -> tuple[int, int | None, int | None]:
        """Return a boundary's line from 1, and of what stood before it `cli_estimate` and `projected` (by the table).

        `since` is the first row of the response that made the context, `tokens` what it made of it; without one nothing
        is known. Raises `Unusual` where the lines are not as they were counted.
        """
        offset, place = boundary
        number = self.lines_before(offset) + place + 1
        with open(self._path, "rb", buffering=0) as file:
            file.seek(offset)
            last = _head(file, place)
            if since is None:
                return number, None, None
            first, start = since
            if first == offset:
                return number, *_estimates(last[start:], tokens)
            file.seek(first)
            data = file.read(offset - first).split(b"\n")[:-1]
        if not all(data[: start + 1]):
            raise Unusual("empty lines")
        return number, *_estimates([*data[start:], *last], tokens)


def _head(file: FileIO, count: int) -> list[bytes]:
    """Read so many lines from here."""
    parts: list[bytes] = []
    lines: list[bytes] = []
    while len(lines) <= count and (data := file.read(BLOCK)):
        parts.append(data)
        lines = b"".join(parts).split(b"\n")
    lines = lines[:count]
    if len(lines) < count or not all(lines):
        raise Unusual("empty lines")
    return lines


def _estimates(lines: list[bytes], tokens: int | None) -> tuple[int | None, int | None]:
    tracker = ContextTracker()
    for line in lines:
        for row in decode(line)[0]:
            for event in read_row(row):
                tracker.advance(event)
    snapshot = tracker.snapshot()
    if snapshot.tokens != tokens:
        raise Unusual("other counts at the second look")
    return snapshot.cli_estimate, snapshot.projected_by_table
