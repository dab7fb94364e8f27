"""The second look at a transcript: what stood between a response and the boundary behind it."""

from __future__ import annotations

from typing import Final, cast

from mala_context.analysis.replay.fast_rows import NeedsFullReader

Position = tuple[int, int]
"""Where a line is: so many lines behind a byte of the recording at which a line begins."""

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


def between(path: str, since: Position, until: Position, offset: int, block: memoryview) -> list[bytes]:
    """Return the lines from one position up to before another, which is in the block that begins at byte `offset`.

    What stands before the block is read again. Raises `OSError` where the file cannot be read.
    """
    first, skipped = since
    last, more = until
    lines: list[bytes] = []
    if first < offset:
        with open(path, "rb", buffering=0) as file:
            file.seek(first)
            lines = file.read(offset - first).split(b"\n")[:-1]
        first = offset
    lines += bytes(block[first - offset : last - offset]).split(b"\n")[:-1]
    if more:
        lines += bytes(block[last - offset :]).split(b"\n", more)[:more]
    return lines[skipped:]


def estimates(lines: list[bytes], tokens: int | None) -> tuple[int | None, int | None]:
    """Return `cli_estimate` and `projected` (by the table) of what stood before a boundary.

    The lines begin with the first row of the response that made the context, and `tokens` is what it made of it. Raises
    `Unusual` where the lines do not give the same tokens.
    """
    from mala_context.analysis.replay.rows import decode
    from mala_context.tracking.readers import read_row
    from mala_context.tracking.tracker import ContextTracker

    tracker = ContextTracker()
    for line in lines:
        for row in decode(line)[0]:
            for event in read_row(row):
                tracker.advance(event)
    snapshot = tracker.snapshot()
    if snapshot.tokens != tokens:
        raise NeedsFullReader("other counts at the second look")
    return snapshot.cli_estimate, snapshot.projected_by_table
