"""A block of a transcript as columns: what its rows say of themselves, and nothing of what that means.

`skim` is in C (`_skim.c`), which passes over text at some gigabytes a second; where this was installed without a
compiler, `skim_slowly` decodes each row and gives the same, a row a stretch.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, TypeAlias

from mala_context._util.tuples import NamedTuple
from mala_context.analysis.replay.record import Counts
from mala_context.analysis.replay.rows import decode
from mala_context.tracking.events import SIDECHAIN, Appended, Compaction, Link, Response, SubagentStart, Summary
from mala_context.tracking.readers import read_row
from mala_context.tracking.readers.parts import mapping, text
from mala_context.tracking.usage import Usage
from mala_context.transcripts.compactions import MICRO_BOUNDARY

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


KINDS: Final[Mapping[type, int]] = {Response: ASSISTANT, Appended: USER, Link: LINK}
COUNTED: Final = {**KINDS, Compaction: LINK, Summary: LINK}
"""Where only counts are wanted: a compaction changes none."""


def stretch_of(row: Mapping[str, Any], line: int, kinds: Mapping[type, int] = KINDS) -> RowRun | None:
    """Return a decoded row as a stretch; `None` where it is more than a prompt, a counted response or a link."""
    if "session_id" in row and not text(row.get("sessionId")):
        return None
    events = read_row(row)
    moment, session, forked = text(row.get("timestamp")), text(row.get("sessionId")), row.get("forkedFrom") is not None
    if not events:
        return RowRun(line, 1, FILLER, None, session, None, [], None, None, moment, moment, forked)
    if len(events) > 1 and events[0].__class__ is not SubagentStart:
        return None
    event: Any = events[-1]
    kind = kinds.get(event.__class__)
    if kind is None or event.uuid is None or event.parent is None or (kind == LINK and _is_counted(row)):
        return None
    answers, model = None, None
    if kind == ASSISTANT:
        message = mapping(row.get("message"))
        usage, paid = event.usage, Usage.parse(message.get("usage"))
        if "usage" not in message:
            kind, usage, paid = BARE, _NONE, _NONE
        if event.message_id is None or usage is None or paid is None or usage.counts_cache_twice:
            return None
        counts = (paid[0], paid[1], paid[2], paid[3])
        answers = Answers([event.message_id], [event.request_id], [counts], [usage.context_tokens], [0], [0])
        model = event.model
    elif kind == USER and event.kind != "user":
        kind = ATTACHMENT
    author, parent = True if event.agent == SIDECHAIN else event.agent, event.parent or None
    return RowRun(line, 1, kind, author, session, parent, [event.uuid], answers, model, moment, moment, forked)


def _is_counted(row: Mapping[str, Any]) -> bool:
    return row.get("subtype") == MICRO_BOUNDARY


def skim_slowly(block: memoryview) -> tuple[list[RowRun | Odd], bytes]:
    """Do what `skim` does, with each row decoded."""
    found: list[RowRun | Odd] = []
    ends, begin = array("q"), 0
    for number, line in enumerate(bytes(block).split(b"\n")):
        if line and not line.isspace():
            rows, problem = decode(line)
            stretch = stretch_of(rows[0], number) if len(rows) == 1 and problem is None else None
            found.append((number, begin, begin + len(line)) if stretch is None else stretch)
        begin += len(line) + 1
        ends.append(begin - 1)
    return found, (ends if line else ends[:-1]).tobytes()


_NONE: Final = Usage()
skim: Skim = skim_slowly
with suppress(ImportError, AttributeError):  # not there, or left from another version
    skim = import_module("mala_context.analysis.replay._skim").stretches
