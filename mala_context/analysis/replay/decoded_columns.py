"""A block of a transcript as columns, made from decoded rows: for odd lines, and if `_skim.c` was not compiled."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, Final

from mala_context.analysis.replay.row_runs import (
    ASSISTANT,
    ATTACHMENT,
    BARE,
    FILLER,
    LINK,
    USER,
    Answers,
    Odd,
    RowRun,
)
from mala_context.analysis.replay.rows import decode
from mala_context.tracking.events import SIDECHAIN, Appended, Link, Response, SubagentStart
from mala_context.tracking.readers import read_row
from mala_context.tracking.readers.parts import mapping, text
from mala_context.tracking.usage import Usage
from mala_context.transcripts.compactions import MICRO_BOUNDARY

_NONE: Final = Usage()
KINDS: Final[Mapping[type, int]] = {Response: ASSISTANT, Appended: USER, Link: LINK}


def stretch_of(row: Mapping[str, Any], line: int) -> RowRun | None:
    """Return a decoded row as a run; `None` for a row that only the tracker understands."""
    if "session_id" in row and not text(row.get("sessionId")):
        return None
    events = read_row(row)
    moment, session, forked = text(row.get("timestamp")), text(row.get("sessionId")), row.get("forkedFrom") is not None
    if not events:
        return RowRun(line, 1, FILLER, None, session, None, [], None, None, moment, moment, forked)
    if len(events) > 1 and events[0].__class__ is not SubagentStart:
        return None
    event: Any = events[-1]
    kind = KINDS.get(event.__class__)
    if kind is None or event.uuid is None or event.parent is None or (kind == LINK and _is_counted(row)):
        return None
    answers, model = None, None
    if kind == ASSISTANT:
        message = mapping(row.get("message"))
        usage, paid = event.usage, Usage.parse(message.get("usage"))
        if message.get("usage") is None:
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


def skim(block: memoryview) -> tuple[list[RowRun | Odd], bytes]:
    """Do the same as `skim` of `_skim.c`, by decoding each row."""
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
