"""Lines into decoded rows, the careful way: each line by itself, whatever is on it.

A line usually holds one JSON object. Some hold two with nothing between them, some are cut, some are no JSON at all;
what can be read is returned and what cannot is said. `msgspec` (extra `replay`) decodes lines about twice as fast as
`json`, and is loaded when there are many; what it refuses (a lone surrogate, NaN) is tried again with `json`, so both
give the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.analysis.replay.files import Recording, blocks
from mala_context.transcripts.json_rows import objects_and_problem
from mala_context.transcripts.long_rows import LONG, shortened

_AT_ONCE: Final = 1_200
"""Rows that `json` decodes in the time that `msgspec` takes to be loaded."""
_left = _AT_ONCE


def _first(line: bytes) -> Any:
    """Decode one of the first lines."""
    global _left  # noqa: PLW0603  (how many lines there will be is not known before)
    _left -= 1
    if _left < 0:
        _quicken()
    return json.loads(line)


_decode: Callable[[bytes], Any] = _first
_errors: tuple[type[Exception], ...] = (ValueError, RecursionError)


def _quicken() -> None:
    """Go on with `msgspec`, if it is there."""
    global _decode, _errors  # noqa: PLW0603  (as a module's constants, had it been loaded at once)
    _decode = json.loads
    try:
        with uninterrupted():
            import msgspec
    except ImportError:  # the extra is not installed
        return
    _decode, _errors = msgspec.json.decode, (*_errors, msgspec.MsgspecError)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back: `msgspec` that is interrupted while it is loaded loses that, and ends the process later."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


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
    if len(line) > LONG and not shortened([line]):
        return [], "too many values to be read"
    try:
        value = _decode(line)
    except _errors:
        return objects_and_problem(line)
    if isinstance(value, dict):
        return [value], None
    return [], "no JSON object"


def lines(recording: Recording, problem: Callable[[int, str], object]) -> Iterator[Line]:
    """Yield every line that is not empty. `problem` is told what has no line to stand on: files that cannot be read."""
    number = 0

    def tell(words: str) -> None:
        problem(number + 1, words)

    for block in blocks(recording, tell):
        data = bytes(block).split(b"\n")
        if not data[-1]:
            data.pop()
        short = len(block) <= LONG
        for line in data:
            number += 1
            try:
                row = _decode(line) if short else None
            except _errors:
                row = None
            if row.__class__ is dict:
                yield Line(number, [row], None)
            elif line and not line.isspace():
                yield Line(number, *decode(line))
