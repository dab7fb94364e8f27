"""The second look at a transcript: what stood between a response and the boundary behind it."""

from __future__ import annotations

from typing import Final, cast

from mala_context.replay.fast_rows import Unusual

Position = tuple[int, int]
"""Where a line is: the offset of its block in bytes, and its place among the block's lines, from 0."""

SHORT: Final = 12
"""A line of fewer bytes, newline included, is no row."""


def count_lines(block: memoryview, size: int) -> tuple[int, bool]:
    """Count newlines; tell whether a line is too short for a row: it may be empty.

    Lines of some kilobytes are faster found one by one than counted.
    """
    buffer = cast("bytearray", block.obj)
    find = buffer.find
    count, before, short = 0, -1, False
    place = find(b"\n", 0, size)
    while place >= 0:
        count += 1
        if place - before < SHORT:
            short = True
        before = place
        place = find(b"\n", place + 1, size)
    return count, short


def head(data: memoryview, first: int, last: int) -> list[bytes]:
    """Return the lines from place `first` up to before `last`."""
    buffer = cast("bytearray", data.obj)
    found = []
    start = 0
    for place in range(last):
        end = buffer.index(b"\n", start)
        if place >= first:
            found.append(bytes(data[start:end]))
        start = end + 1
    return found


def estimates(
    path: str, since: Position, offset: int, block: memoryview, place: int, tokens: int | None
) -> tuple[int | None, int | None]:
    """Return `cli_estimate` and `projected` (by the table) of what stood before a boundary.

    `since` is the first row of the response that made the context, `tokens` what it made of it; `offset`, `block` and
    `place` are the boundary's. Raises `Unusual` where the lines do not give the same tokens, `OSError` where the file
    cannot be read again.
    """
    first, start = since
    if first == offset:
        return _through_a_tracker(head(block, start, place), tokens)
    with open(path, "rb", buffering=0) as file:
        file.seek(first)
        before = file.read(offset - first).split(b"\n")[start:-1]
    return _through_a_tracker(before + head(block, 0, place), tokens)


def _through_a_tracker(lines: list[bytes], tokens: int | None) -> tuple[int | None, int | None]:
    from mala_context.readers import read_row
    from mala_context.replay.rows import decode
    from mala_context.tracker import ContextTracker

    tracker = ContextTracker()
    for line in lines:
        for row in decode(line)[0]:
            for event in read_row(row):
                tracker.advance(event)
    snapshot = tracker.snapshot()
    if snapshot.tokens != tokens:
        raise Unusual("other counts at the second look")
    return snapshot.cli_estimate, snapshot.projected_by_table
