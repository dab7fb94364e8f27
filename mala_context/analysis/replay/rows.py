"""Lines into decoded rows, the careful way: each line by itself, whatever is on it.

A line usually holds one JSON object. Some hold two with nothing between them, some are cut, some are no JSON at all;
what can be read is returned and what cannot is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from mala_context._util.tuples import NamedTuple
from mala_context.analysis.replay.files import Recording, blocks, lent_buffer
from mala_context.transcripts.json_rows import objects_and_problem, one_object
from mala_context.transcripts.long_rows import LONG, shortened


class Line(NamedTuple):
    """One line of a recording."""

    number: int
    """Counted from 1; empty lines count."""
    rows: list[dict[str, Any]]
    """The objects on it, in order; usually one."""
    problem: str | None
    """What could not be read; `None` where all was."""


def decode(line: bytes) -> tuple[list[dict[str, Any]], str | None]:
    """Return the objects on a line and what is wrong with it, if anything is. Never raises.

    A long line that is hardly more than values, which take thirty times its bytes, is left out.
    """
    if len(line) > LONG and not shortened([line]) and line.strip(b"\0"):
        return [], "too many values to be read"
    return objects_and_problem(line)


def lines(recording: Recording, problem: Callable[[int, str], object]) -> Iterator[Line]:
    """Yield every line that is not empty. `problem` is told what has no line to stand on: files that cannot be read."""
    number = 0

    def tell(words: str) -> None:
        problem(number + 1, words)

    with lent_buffer() as buffer:
        for block in blocks(recording, tell, buffer):
            short = len(block) <= LONG
            data: Any = block.obj  # a block is a view of a bytearray's start
            begin, size = 0, len(block)
            while begin < size:
                end = data.find(b"\n", begin, size)
                end = size if end < 0 else end
                number += 1
                view = block[begin:end]  # `msgspec` takes it as it is, and most lines need no copy then
                begin = end + 1
                row = one_object(view) if short else None
                if row is not None:
                    yield Line(number, [row], None)
                elif (line := bytes(view)) and not line.isspace():
                    yield Line(number, *decode(line))
