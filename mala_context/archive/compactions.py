"""Find where a transcript was compacted, and where it must be cut to undo a compaction.

A compaction begins with a `compact_boundary` row of the main agent. Old CLIs wrote none: there the row with the
summary (`isCompactSummary`) is the first row of the compacted conversation. A boundary whose uuid was seen before is a
copy; forks and resumed sessions have such copies. Compactions are counted from 1 in the order of the file.

To get a transcript as it was at some time, it is cut before the first row that is stamped at or after that time. The
CLI stamps rows before it writes them, so no later row was in the file either, whatever its own stamp says.
"""

from __future__ import annotations

from mala_context.archive.layout import Frozen
from mala_context.transcripts.compactions import MARKS, is_boundary, is_summary
from mala_context.transcripts.json_rows import objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from typing import Any

    from mala_context.transcripts.rows import Row

_ASSISTANT = b'"assistant"'


class RecordedCompaction(Frozen):
    """One compaction of the main agent, as the transcript tells it."""

    number: int
    """From 1, in the order of the file."""
    offset: int
    """Where its first row starts; the rows before that are the conversation just before the compaction."""
    time: str | None = None
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    uuid: str | None = None


class Cut(Frozen):
    """Where a transcript is cut."""

    offset: int | None
    """Bytes that stay; `None` is all of it."""
    compaction: RecordedCompaction | None
    """The compaction that the cut undoes, where it undoes one."""
    compactions: int
    """How many compactions were seen."""


def compactions(found: Iterable[Row]) -> Iterator[RecordedCompaction]:
    """Yield the compactions among a transcript's rows."""
    counter = Counter()
    for row in found:
        compaction = counter.see(row)
        if compaction is not None:
            yield compaction


class Counter:
    """Numbers compactions as rows pass by."""

    def __init__(self) -> None:
        self._number = 0
        self._seen: set[str] = set()
        self._open = False

    def see(self, row: Row) -> RecordedCompaction | None:
        """Return the compaction that begins with a row, `None` for any other row."""
        data = row.data
        if not any(mark in data for mark in MARKS):
            if _ASSISTANT in data:
                # An answer ends the compaction: a summary after it is that of another compaction, by an old CLI.
                self._open = False
            return None
        for value in objects(data):
            found = self._first_row(value)
            if found is not None:
                self._number += 1
                time, uuid = _text(found.get("timestamp")), _text(found.get("uuid"))
                return RecordedCompaction(
                    number=self._number, offset=row.offset, time=time, uuid=uuid, **told_by(found)
                )
        return None

    def goes_on(self, value: Mapping[str, Any]) -> bool:
        """Tell whether a row is the summary of the last compaction, and not the beginning of another one."""
        return self._open and is_summary(value) and not value.get("isSidechain")

    def _first_row(self, value: dict[str, Any]) -> dict[str, Any] | None:
        summary = is_summary(value)
        if not (is_boundary(value) or summary) or value.get("isSidechain"):
            return None
        uuid = value.get("uuid")
        if isinstance(uuid, str):
            if uuid in self._seen:
                return None
            self._seen.add(uuid)
        continues = self.goes_on(value)
        self._open = True
        return None if continues else value


def told_by(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a boundary: `trigger`, `tokens_before`, `tokens_after`; `None` for what it does not say."""
    meta = row.get("compactMetadata")
    known = meta if isinstance(meta, dict) else {}
    return {
        "trigger": _text(known.get("trigger")),
        "tokens_before": _number(known.get("preTokens")),
        "tokens_after": _number(known.get("postTokens")),
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def cut_before(found: Iterable[Row], at: int | None = None, before: datetime | None = None) -> Cut | None:
    """Return where to cut: before compaction number `at`, or at the time `before`; by default before the last one.

    Returns `None` if there are fewer compactions than `at`. A transcript without compactions is not cut by default; nor
    is a transcript that had ended before the time.
    """
    counter = Counter()
    last: RecordedCompaction | None = None
    count = 0
    for row in found:
        if before is not None and _stamped_from(row, before):
            return Cut(offset=row.offset, compaction=None, compactions=count)
        compaction = counter.see(row)
        if compaction is None:
            continue
        last, count = compaction, compaction.number
        if at == compaction.number:
            return Cut(offset=compaction.offset, compaction=compaction, compactions=count)
    if at is not None:
        return None
    if before is not None or last is None:
        return Cut(offset=None, compaction=None, compactions=count)
    return Cut(offset=last.offset, compaction=last, compactions=count)


def _stamped_from(row: Row, moment: datetime) -> bool:
    if b'"timestamp"' not in row.data:
        return False
    return any(
        (stamp := moment_of(value.get("timestamp"))) is not None and stamp >= moment for value in objects(row.data)
    )


def moment_of(value: object) -> datetime | None:
    """Return an ISO 8601 text as a time with a zone, local time where it has none; `None` for anything else."""
    from datetime import datetime

    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.astimezone()
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo is not None else moment.astimezone()
    except (ValueError, OverflowError, OSError):
        return None
