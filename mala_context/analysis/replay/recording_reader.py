"""One recording through the core: its rows into events, events into the tracker, and what came of it.

This is the careful way, which reads every row whole; `scan` is the fast one, and gives the same. The tracker is the
one that live sessions use, so whatever holds here holds there.

A recording may hold several sessions one after the other (a stream over a `/clear`, a resumed file with rows under
its old id); each becomes a `Stretch`. Where the tracker keeps the context over a change of id, it is one stretch,
under the newer id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.record import AgentRecord, Best, CompactionRecord, Counts, Problems, Stretch
from mala_context.analysis.replay.rows import Line, lines
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.events import Compaction, Event, Response, Summary
from mala_context.tracking.readers.rows import RowReader
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage
from mala_context.transcripts.compactions import is_microcompaction


def begins_another(row: Mapping[str, Any], session_id: str) -> bool:
    """Tell whether a row is the first of another session's transcript after this one, as `cat` puts them together."""
    named = row.get("sessionId")
    return (
        row.get("type") == "user"
        and isinstance(named, str)
        and named != session_id
        and row.get("parentUuid", False) is None
        and row.get("isCompactSummary") is not True
    )


class Tally:
    """What is counted of one agent besides the tracker's own state."""

    __slots__ = ("compactions", "counts", "overflows", "peak", "responses")

    def __init__(self) -> None:
        self.peak: int | None = None
        self.counts = Best()
        self.responses = self.compactions = self.overflows = 0
        """Those of which the agent's state does not know: from before a `/clear` that kept the session's id."""

    def take(self, identity: str, counts: Counts, tokens: int) -> None:
        """Take a response's counts, and the size of its request."""
        self.counts.take(identity, counts)
        if self.peak is None or tokens > self.peak:
            self.peak = tokens

    def record(self, state: AgentState) -> AgentRecord:
        """Return the agent's record."""
        ids, counts, sums = self.counts.arrays()
        return AgentRecord(
            state.agent_id or state.tool_use_id,
            state.model,
            state.responses + self.responses,
            state.context.tokens,
            self.peak,
            state.compactions + self.compactions,
            accuracy=state.context.accuracy,
            ids=ids,
            counts=counts,
            sums=sums,
        )


class EventReader:
    """Feeds one recording's rows to a tracker, line by line in their order.

    Subclasses look on: `before` is called with every event before the tracker takes it, `after` with the state that
    it changed (`None` where no number moved), and `line_done` after each line.
    """

    divides = False
    """Whether the tracker says what fills a context, and compares requests with their projections."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.number = 0
        """Line that is being read, from 1."""
        self.problems = Problems(recording.path)
        self._missing: bool | None = None
        """Whether the row that the last boundary goes on from is not in the recording."""
        self._start_over()

    def _start_over(self) -> None:
        """Begin with a session of which nothing is known."""
        self.tracker = ContextTracker(parts=self.divides)
        self._main = self.tracker.main
        self._rows = RowReader()
        self._session_id: str | None = None

    def follow(self) -> None:
        """Read the whole recording; never raises."""
        for line in lines(self.recording, self.problem):
            self.line(line)

    def problem(self, row: int, words: str) -> None:
        """Take notice of what could not be read."""
        self.problems.add(row, words)

    def line(self, line: Line) -> None:
        """Take the next line."""
        self.number = line.number
        if line.problem is not None:
            self.problem(line.number, line.problem)
        for row in line.rows:
            self._row(row)
        self.line_done(line)

    def _row(self, row: Mapping[str, Any]) -> None:
        if self._session_id is not None and begins_another(row, self._session_id):
            self._ends()
            self._start_over()
        version = row.get("version")
        if isinstance(version, str) and version != self.tracker.reducer.cli:
            self.tracker.reducer.written_by(version)
        for event in self._rows.read(row):
            self._event(event, row)
        if self._session_id is None:
            named = row.get("sessionId") or row.get("session_id")
            if isinstance(named, str):
                self._session_id = named

    def _event(self, event: Event, row: Mapping[str, Any]) -> None:
        tracker = self.tracker
        reducer = tracker.reducer  # its attributes: the tracker's properties would be three calls for each event
        session_id = reducer.session_id
        self.before(event)
        if event.__class__ is Compaction:
            self._missing = not tracker.holds_row(event.parent) if event.parent else None
        state = tracker.advance(event)
        if reducer.registry.main is not self._main:
            self._changed(session_id)
        self._took(event, row, state)
        self.after(event, state)

    def _changed(self, session_id: str | None) -> None:
        """Deal with a tracker that started over: in another session, or in the same one after a `/clear`."""
        self._main = self.tracker.main
        if self.tracker.session_id != session_id:
            self._rows, self._session_id = RowReader(), None

    # -- for those who count or look on -----------------------------------------------------------------------

    def _ends(self) -> None:
        """Close a session, since the next row begins another."""

    def _took(self, event: Event, row: Mapping[str, Any], state: AgentState | None) -> None:
        """Count an event that the tracker took."""

    def before(self, event: Event) -> None:
        """See an event before the tracker takes it."""

    def after(self, event: Event, state: AgentState | None) -> None:
        """See an event after the tracker took it, with the state that it changed."""

    def line_done(self, line: Line) -> None:
        """See a line when all its rows were taken."""


class RecordingReader(EventReader):
    """Notes what a recording tells of each session in it: feed it every line, then `finish`."""

    def __init__(self, recording: Recording) -> None:
        self.stretches: list[Stretch] = []
        super().__init__(recording)

    def _begin(self) -> None:
        self._tallies: dict[AgentState, Tally] = {self._main: Tally()}
        self._compactions: list[CompactionRecord] = []
        self._microcompactions = 0
        self._is_fork = False
        self._started: str | None = None
        self._ended: str | None = None

    def _start_over(self) -> None:
        super()._start_over()
        self._begin()

    def _ends(self) -> None:
        self._close(self.tracker.session_id)

    def run(self) -> list[Stretch]:
        """Read the whole recording and return what it tells; never raises."""
        self.follow()
        return self.finish()

    def _row(self, row: Mapping[str, Any]) -> None:
        super()._row(row)
        get = row.get
        self._microcompactions += is_microcompaction(row)
        moment = get("timestamp")
        if isinstance(moment, str) and moment:
            if self._started is None or moment < self._started:
                self._started = moment
            if self._ended is None or moment > self._ended:
                self._ended = moment
        if get("forkedFrom") is not None:
            self._is_fork = True

    def _took(self, event: Event, row: Mapping[str, Any], state: AgentState | None) -> None:
        if state is not None and state.context.accuracy == "exact":
            tally, tokens = self._tally(state), state.context.tokens
            if tokens is not None and (tally.peak is None or tokens > tally.peak):
                tally.peak = tokens
        if event.__class__ is Response:
            self._response(event, row)
        elif state is self._main and isinstance(event, Compaction | Summary):
            self._compaction(event, state)

    def _tally(self, state: AgentState) -> Tally:
        tally = self._tallies.get(state)
        if tally is None:
            tally = self._tallies[state] = Tally()
        return tally

    def _response(self, event: Response, row: Mapping[str, Any]) -> None:
        """Count a response for the totals: all its calls, where the size is that of the last."""
        if event.message_id is None:
            return
        tally = self._tally(self.tracker.state_of(event))
        message = row.get("message")
        usage = Usage.parse(message.get("usage")) if event.usage is not None and isinstance(message, Mapping) else None
        if usage is not None:
            tally.counts.take(event.message_id, usage)

    def _compaction(self, event: Compaction | Summary, state: AgentState) -> None:
        before = state.before
        record = CompactionRecord(
            self.number,
            event.trigger if isinstance(event, Compaction) else None,
            event.pre_tokens if isinstance(event, Compaction) else None,
            event.post_tokens if isinstance(event, Compaction) else None,
            None if before is None else before.cli_estimate,
            None if before is None else before.projected_by_table,
            self._missing if isinstance(event, Compaction) else None,
            event.uuid,
        )
        self._compactions.append(record)

    def _changed(self, session_id: str | None) -> None:
        main, another = self._main, self.tracker.session_id != session_id
        if another:
            self._close(session_id)
        super()._changed(session_id)
        if another:
            self._begin()
            return
        old = self._tallies.pop(main)
        old.responses += main.responses
        old.compactions += main.compactions
        old.overflows += main.overflows
        self._tallies[self._main] = old

    def _close(self, session_id: str | None) -> None:
        main = self._main
        window, source, doubtful = self.tracker.window_of(main.model)
        record = self._tallies[main].record(main)
        record.agent_id = None
        record.window, record.window_source, record.window_doubtful = window, source, doubtful
        agents: dict[str | None, AgentRecord] = {}
        for state, tally in self._tallies.items():
            if state is not main and state.responses:
                agents[state.agent_id or state.tool_use_id] = tally.record(state)
        self.stretches.append(
            Stretch(
                self.recording.path,
                session_id or self._session_id,
                record,
                sorted(agents.values(), key=lambda each: each.agent_id or ""),
                self._compactions,
                main.resets,
                main.overflows + self._tallies[main].overflows,
                self._microcompactions,
                self._is_fork,
                self._started,
                self._ended,
            )
        )

    def finish(self) -> list[Stretch]:
        """Close the last session and return all stretches; the problems are the last one's."""
        self._close(self.tracker.session_id)
        self.stretches[-1].problems = self.problems.found
        return self.stretches
