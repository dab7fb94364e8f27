"""Feed the tracker from the transcript, for programs that pass no messages through the processor.

Each hook names the transcript, so two lines are enough to use this package. After the first message has passed through
the processor, the stream is the better source. The transcript is then read only for what the stream lacks:

* a resumed session's context, which exists before its first response;
* the parts of the session's first request besides its prompt, needed to estimate the size after a compaction;
* the counts of responses that a server streams without counts;
* the window that an API names when it refuses a prompt: only the transcript has the number.

The CLI writes its rows late. At `Stop` the row of the answer is still missing (it comes 45 to 90 ms later, measured),
so that hook waits for it, `SETTLE_SECONDS` at most.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from anyio.lowlevel import checkpoint

from mala_context._util.background import Worker, wait_for
from mala_context._util.log import get_logger
from mala_context.agent.hook_io import texts_in
from mala_context.guard.policy import NOT_QUIET
from mala_context.tracking.events import (
    Appended,
    Compaction,
    ContextEdited,
    Refusal,
    Response,
    SessionStart,
    TotalTokens,
    UsageDelta,
)
from mala_context.tracking.fast_path import EVERY, Quiet
from mala_context.tracking.readers import read_row
from mala_context.transcripts.json_rows import content_of
from mala_context.transcripts.projects import find_transcript
from mala_context.transcripts.tail import TranscriptTail, read_opening

if TYPE_CHECKING:
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.guard.overflow import ContextOverflow
    from mala_context.tracking.events import Event

READ_SECONDS = 5.0
"""Longest that a hook waits for a transcript; then the agent goes on without a gauge."""
SETTLE_SECONDS = 2.0
"""Longest that the end of a turn waits for the answer's row."""
_POLL_SECONDS = 0.005
_MOST_UNCOUNTED = 256

T = TypeVar("T")

log = get_logger(__name__)


class TranscriptFeed:
    """Keeps the processor's tracker up to date from hook inputs.

    Args:
        processor: the owner of the tracker; messages that it has processed are never read again.
        resumes: whether the session continues an older one.
        resume_of: the older session's id, if it is known. A fork's transcript is written with its first answer; until
            then the older session's transcript, beside it, has the rows.
        resume_at: the uuid of the row up to which the older session is continued; its later rows are no part of the
            conversation any more. `None` if it is continued from its end.
        projects_dirs: where transcripts are looked for before a hook has named one; see `find_transcript`.
    """

    def __init__(
        self,
        processor: MessageStreamProcessor,
        *,
        resumes: bool = False,
        resume_of: str | None = None,
        resume_at: str | None = None,
        projects_dirs: Sequence[str] | None = None,
    ) -> None:
        self._processor = processor
        self._projects_dirs = projects_dirs
        self._seeded_as: str | None = None
        self._tail = TranscriptTail()
        self._worker = Worker("mala-context gauge")
        self._to_seed = resumes
        self._resume_of = resume_of
        self._resume_at = resume_at
        self._opening_of: str | None = None
        self._uncounted: dict[str, None] = {}
        self._refused = False
        self._quiet = Quiet(EVERY)
        processor.observe(self._on_event, Response, UsageDelta, wants=self._quiet)
        processor.overflow_observers.append(self._on_overflow)

    async def connected(self) -> None:
        """Read a resumed session's transcript before its first prompt. Never raises."""
        older = self._resume_of
        if older is None or not self._to_seed or not self._processor.enabled:
            return
        try:
            path = await self._read(lambda: find_transcript(older, projects_dirs=self._projects_dirs))
            if path is not None:
                await self._follow(older, path, 0.0)
                self._seeded_as = older
        except Exception:
            log.warning("Context: the resumed session's transcript could not be read", exc_info=True)

    async def observe(self, hook_input: Mapping[str, Any]) -> None:
        """Process a hook's input: the session, its transcript so far, and the prompt that is about to be sent.

        Raises `OSError` if the transcript cannot be read, and `TimeoutError` if that takes too long.
        """
        session_id, path = texts_in(hook_input, "session_id", "transcript_path")
        if hook_input.get("agent_id") or session_id is None:
            return
        if self._seeded_as not in (None, session_id):  # a fork, whose id was not known before
            self._processor.take(SessionStart(session_id, "fork"))
        self._seeded_as = None
        self._processor.tracker.main.map.asked(hook_input.get("prompt"))
        settle = SETTLE_SECONDS if hook_input.get("hook_event_name") == "Stop" else 0.0
        if (self._to_seed or not self._fed) and path is not None:
            await self._follow(session_id, path, settle)
        if self._fed:
            await self._complete(session_id, path, hook_input, settle)

    async def after_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Count a subagent's compaction (PostCompact): the stream has no boundary for it.

        The remaining size is estimated from the summary alone, at the CLI's own four characters a token.
        """
        session_id, agent, trigger, summary = texts_in(
            hook_input, "session_id", "agent_id", "trigger", "compact_summary"
        )
        if agent is None or not self._processor.enabled:
            return
        await checkpoint()  # let the reading task process the messages before this hook
        remaining = None if summary is None else len(summary) // 4
        self._processor.take(Compaction(agent, session_id, trigger, None, remaining))

    async def _follow(self, session_id: str, path: str, settle: float) -> None:
        seeding, self._to_seed = self._to_seed, False
        places = [path]
        if seeding and self._resume_of:
            places.append(os.path.join(os.path.dirname(path), f"{self._resume_of}.jsonl"))
        for place in places:
            with contextlib.suppress(FileNotFoundError):  # a new session's transcript is written with its first row
                rows, from_start = await self._read(partial(self._tail_rows, place, settle))
                break
        else:
            return
        # Messages arrived while the disk was read. They are newer than these rows, unless the tracker still knows no
        # size.
        if self._fed and not (seeding and self._processor.tracker.snapshot().tokens is None):
            return
        if from_start:
            self._processor.take(SessionStart(session_id, "resume" if seeding else "init"))
        if seeding:
            rows = self._continued(rows)
        events = list(self._events(rows, session_id))
        if seeding:
            # History: its compactions were reported when they happened. The next request comes from another process
            # with tools and memory files of its own, so a size that differs is no alarm.
            self._processor.take_history(events)
            self._processor.take(ContextEdited(None, session_id, "resume"))
        elif from_start:
            # A fork's file repeats the older session's rows: up to the last known row everything is history. Taken as
            # news, an old compaction gave a WARNING, a line and a piece.
            known = self._known(events)
            if known:
                self._processor.take_history(events[:known])
            with self._processor.tracker.without_alarms():
                self._feed(events[known:])
        else:
            self._feed(events)

    def _continued(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the rows that the session goes on from."""
        at = self._resume_at
        if at is None:
            return rows
        return rows[: next((place for place in range(len(rows), 0, -1) if rows[place - 1].get("uuid") == at), None)]

    async def _complete(self, session_id: str, path: str | None, hook_input: Mapping[str, Any], settle: float) -> None:
        """Add what the stream lacks, when the processor gets messages."""
        prompt = hook_input.get("prompt")
        if isinstance(prompt, str):
            self._processor.take(Appended(None, session_id, "user", prompt))
        if path is None:
            return
        if hook_input.get("source") == "compact" and self._opening_of != session_id:
            self._opening_of = session_id
            rows = await self._read(lambda: read_opening(path))
            self._processor.tracker.note_opening([event for row in rows for event in read_row(row)])
        await checkpoint()  # let the reading task process the messages before this hook
        if self._uncounted or self._refused:
            self._refused = False
            try:
                rows, _ = await self._read(lambda: self._tail_rows(path, settle))
            except FileNotFoundError:  # a new session has begun, and the CLI has written no row yet
                return
            for row in rows:
                for event in read_row(row):
                    if isinstance(event, Response) and event.message_id in self._uncounted:
                        self._processor.take(event._replace(session_id=session_id))
                    elif isinstance(event, Refusal):  # straight to the tracker: the stream's report of it was logged
                        self._processor.tracker.apply(event._replace(session_id=session_id))

    def _on_event(self, event: Event, snapshot: object) -> None:
        """Remember the responses whose counts have not come yet."""
        if isinstance(event, Response) and event.agent is None and event.message_id is not None:
            if event.usage is not None:
                if self._uncounted:
                    self._uncounted.pop(event.message_id, None)
            else:
                self._uncounted[event.message_id] = None
                if len(self._uncounted) > _MOST_UNCOUNTED:
                    del self._uncounted[next(iter(self._uncounted))]
        elif isinstance(event, UsageDelta) and event.agent is None and event.usage and event.usage.context_tokens:
            self._uncounted.clear()
        self._quiet.sizes = NOT_QUIET if self._uncounted else EVERY

    def _on_overflow(self, overflow: ContextOverflow) -> None:
        self._refused = overflow.maximum is None

    async def _read(self, work: Callable[[], T]) -> T:
        return await wait_for(self._worker.submit(work), seconds=READ_SECONDS)

    def _tail_rows(self, path: str, settle: float) -> tuple[list[dict[str, Any]], bool]:
        """Return the transcript's new rows; wait up to `settle` seconds for the row of the turn's answer."""
        rows, from_start = self._tail.read(path)
        end = time.monotonic() + settle
        while not self._has_answer(rows) and time.monotonic() < end:
            time.sleep(_POLL_SECONDS)
            more, again = self._tail.read(path)
            rows, from_start = (more, True) if again else (rows + more, from_start)
        return rows, from_start

    @staticmethod
    def _has_answer(rows: list[dict[str, Any]]) -> bool:
        """Tell whether the last message among rows is an answer of the main agent that calls no tool."""
        last: dict[str, Any] = next((row for row in reversed(rows) if row.get("type") in ("assistant", "user")), {})
        content = content_of(last)
        return last.get("type") == "assistant" and not any(
            isinstance(block, dict) and block.get("type") == "tool_use"
            for block in (content if isinstance(content, list) else ())
        )

    @property
    def _fed(self) -> bool:
        return self._processor.messages_seen > 0

    @staticmethod
    def _events(rows: list[dict[str, Any]], session_id: str) -> Iterator[Event]:
        """Read rows as this session's own: a fork's or a resumed file's rows may name an older one."""
        for row in rows:
            for event in read_row(row):
                yield event if isinstance(event, TotalTokens) else event._replace(session_id=session_id)

    def _known(self, events: Sequence[Event]) -> int:
        """Return how many events there are up to the last one whose row the tracker has already."""
        holds = self._processor.tracker.holds_row
        known = (place for place in range(len(events), 0, -1) if holds(getattr(events[place - 1], "uuid", None) or ""))
        return next(known, 0)

    def _feed(self, events: Iterable[Event]) -> None:
        for event in events:
            self._processor.take(event)
