"""What the columns of a block of a transcript say: its rows as runs, and nothing of what that means."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from mala_context._util.tuples import NamedTuple
from mala_context.analysis.replay.record import Counts

FILLER: Final = 0
"""A row without an id, of which a context knows nothing."""
LINK: Final = 1
"""A row that no request holds."""
ATTACHMENT: Final = 2
USER: Final = 3
ASSISTANT: Final = 4
"""A response's row with counts."""
BARE: Final = 5
"""A response's row without counts, a stretch of its own; the counts that it gives are 0."""


class NeedsFullReader(Exception):  # noqa: N818  (not an error: the careful way reads it)
    """A recording that cannot be read to its end, or not twice, or of which columns do not tell enough."""


class Answers(NamedTuple):
    """Responses, each by its rows that follow one another: a list for each thing that they say."""

    ids: list[str]
    requests: list[str | None]
    counts: list[Counts]
    """With the largest output of a response's rows."""
    tokens: list[int]
    """Sizes of their requests."""
    at: list[int]
    """Place of each one's first row among those of the stretch that have an id."""
    lines: list[int]
    """That row's line, counted from the stretch's first."""


class RowRun(NamedTuple):
    """Rows that go on from one another, of one author in one session; what they differ in is the first one's.

    Each row's parent is one of the rows since the last response's first.
    """

    line: int
    """Its first line, counted from 0 in the block."""
    lines: int
    kind: int
    """Of the first row: `FILLER` to `BARE`. After a link there are only links."""
    author: str | bool | None
    """An agent's id; `True` for a sidechain without a name, `None` for the main agent."""
    session: str | None
    parent: str | None
    """Of the first row; `None` for a root."""
    uuids: list[str]
    """Of all rows that have one."""
    answers: Answers | None
    """The responses; of one model."""
    model: str | None
    started: Any
    """The earliest time of a row; `None` where none has one."""
    ended: Any
    """The latest."""
    forked: bool
    """Whether a row says that it was copied from another session."""


Odd: TypeAlias = tuple[int, int, int]
"""A line that is not plain: its number in the block, and where it begins and ends, in bytes."""
Skim: TypeAlias = Callable[[memoryview], tuple[list[RowRun | Odd], bytes]]
"""A block's lines, and where each of them ends, in bytes: integers of 8 bytes."""


def divided(stretch: RowRun, at: int, line: int) -> tuple[RowRun, RowRun]:
    """Return a stretch's rows before one, given by its place among the ids and its line in the stretch, and the others.

    The others' kind is right where they begin with a response, or with a link after a link.
    """
    first, lines, kind, author, session, parent, uuids, answers, *more = stretch
    before = after = None
    if answers is not None:
        columns: tuple[Any, ...] = answers
        count = bisect_left(columns[4], at)
        before = Answers(*(column[:count] for column in columns)) if count else None
        if count < len(columns[4]):
            after = Answers(*(column[count:] for column in columns))
            after = after._replace(at=[each - at for each in after.at], lines=[each - line for each in after.lines])
    begun = RowRun(first, line, kind, author, session, parent, uuids[:at], before, *more)
    if at == len(uuids):
        kind = FILLER
    elif kind != LINK:
        kind = ASSISTANT if after and not after.at[0] else USER
    return begun, RowRun(first + line, lines - line, kind, author, session, uuids[at - 1], uuids[at:], after, *more)
