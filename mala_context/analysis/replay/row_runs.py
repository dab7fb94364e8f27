"""The types of a block's columns: its rows as runs. They only describe the rows, and know no rule of the tracker."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from mala_context._util.tuples import NamedTuple
from mala_context.analysis.replay.record import Counts

FILLER: Final = 0
"""A row without an id, which belongs to no context."""
LINK: Final = 1
"""A row that no request holds."""
ATTACHMENT: Final = 2
USER: Final = 3
ASSISTANT: Final = 4
"""A response's row with counts."""
BARE: Final = 5
"""A response's row without counts. It is always a run of its own, and its counts are 0."""


class NeedsFullReader(Exception):  # noqa: N818  (not an error: the careful way reads it)
    """Raised for a recording that cannot be read to its end or a second time, or whose columns do not tell enough."""


class Answers(NamedTuple):
    """The responses of a run, as one list for each of their values, so that sets and dicts take them at once."""

    ids: list[str]
    requests: list[str | None]
    counts: list[Counts]
    """The counts of each response, with the largest output among its rows."""
    tokens: list[int]
    """Size of each response's request."""
    at: list[int]
    """Place of each response's first row among the rows of the run that have an id."""
    lines: list[int]
    """Line of each response's first row, counted from the run's first line."""


class RowRun(NamedTuple):
    """A run of rows that go on from one another, of one author in one session.

    The parent of each row is one of the rows since the first row of the last response. Results of tools that ran side
    by side name the call as their parent, so a stricter rule ended four of five runs in recorded sessions.
    """

    line: int
    """The run's first line, counted from 0 in the block."""
    lines: int
    kind: int
    """Kind of the first row, `FILLER` to `BARE`. After a link a run has only links."""
    author: str | bool | None
    """An agent's id; `True` for a sidechain without a name, `None` for the main agent."""
    session: str | None
    parent: str | None
    """Parent of the first row; `None` for a root."""
    uuids: list[str]
    """Ids of all rows that have one."""
    answers: Answers | None
    """The responses, which are all of one model."""
    model: str | None
    started: Any
    """The earliest time of a row; `None` if no row has a time."""
    ended: Any
    """The latest time of a row."""
    forked: bool
    """Whether a row says that it was copied from another session."""


Odd: TypeAlias = tuple[int, int, int]
"""A line that is not plain: its number in the block, and where it begins and ends, in bytes."""
Skim: TypeAlias = Callable[[memoryview], tuple[list[RowRun | Odd], bytes]]
"""A block's lines, and where each of them ends, in bytes: integers of 8 bytes."""


def divided(stretch: RowRun, at: int, line: int) -> tuple[RowRun, RowRun]:
    """Divide a run before one of its rows, given by the row's place among the ids and by its line in the run.

    The kind of the second run is right only if that run begins with a response, or with a link after a link.
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
