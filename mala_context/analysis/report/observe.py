"""One recording, read for a report: the line of each agent, and what happened along it.

It is a `RecordingReader`, so the sizes are the tracker's, as they were live. Each response with a size is a point; a
compaction makes two more, half a step further: about what the next request would have held, and about what is left.
Each `Stretch` of the replay has one `SessionPart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.record import Stretch
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.rows import Line
from mala_context.analysis.report.contributors import ANSWERS, START, Contribution, Ledger, tokens_of
from mala_context.analysis.report.discarded import SinceCompaction
from mala_context.analysis.report.model import CompactionEntry, Contributor, Mark, Points
from mala_context.guard.thresholds import MARGIN, OneShotThreshold
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.cache import CacheUse
from mala_context.tracking.events import Appended, Compaction, Event, Refusal, Reset, Response, Summary
from mala_context.transcripts.compactions import is_microcompaction, kept_text
from mala_context.transcripts.prompts import prompt_text

WARN_AT: Final = 0.70
"""Share of the window, where nothing else is said."""
BIG_RESULT: Final = 5_000
"""Tokens from which a tool's result counts as big, where nothing else is said."""
MOST_BIG: Final = 60
"""Big results that are marked; the largest."""
_CONTINUES: Final = "Continue from checkpoint:"


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What a report is told to look for."""

    window: int | None = None
    """The window in tokens; `None` for what the recording says."""
    auto_compact_window: int | None = None
    """`CLAUDE_CODE_AUTO_COMPACT_WINDOW` of the sessions, where it was set."""
    warn_at: float | None = WARN_AT
    """Share of the window that is marked when it is reached; `None` for none."""
    big_result: int = BIG_RESULT
    """Tokens from which a tool's result is marked."""


@dataclass(slots=True)
class SessionPart:
    """What one recording shows of one session."""

    points: Points = field(default_factory=Points)
    compactions: list[CompactionEntry] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    subagents: dict[str, Points] = field(default_factory=dict)
    """Lines of the subagents with rows in this recording; `x` counts the main agent's responses."""
    contributors: list[Contributor] = field(default_factory=list)
    files: list[Contributor] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    """What fills the context at the end: the fields of each `ContextPart`."""
    cache: CacheUse = field(default_factory=CacheUse)
    """What the prompt cache read and wrote for the main agent."""
    cwd: str | None = None
    first_prompt: str | None = None
    big_omitted: int = 0
    """Big results that are not among the marks."""


class _ObservedSession:
    """What is known of the session that is being read."""

    def __init__(self, warn_at: float | None) -> None:
        self.part = SessionPart()
        self.ledger = Ledger()
        self.since = SinceCompaction()
        self.warning = OneShotThreshold(warn_at, MARGIN)
        self.identity: object = None
        self.answer = 0
        self.appended = self.start = 0
        self.begun = False
        self.big: list[tuple[Contribution, float, str | None, int]] = []
        self.others: dict[str, object] = {}


class ReportReader(RecordingReader):
    """Follows a recording and notes what a report shows."""

    divides = True

    def __init__(self, recording: Recording, options: ReportOptions) -> None:
        super().__init__(recording)
        self.options = options
        self.parts: list[SessionPart] = []
        self._time: str | None = None
        self._copy = False
        self._now = _ObservedSession(options.warn_at)
        self._fresh_tracker()

    def _fresh_tracker(self) -> None:
        self.tracker.auto_compact_window = self.options.auto_compact_window
        self._known = self.tracker
        self._ratios, self._agent = self.tracker.main.ratios, self.tracker.main
        self._resets = 0

    def observe(self) -> list[tuple[Stretch, SessionPart]]:
        """Read the whole recording; never raises. Return each stretch with what it shows."""
        stretches = self.run()
        self._close_sessions(len(stretches))
        return list(zip(stretches, self.parts, strict=True))

    # -- what the follower tells ------------------------------------------------------------------------------

    def line(self, line: Line) -> None:
        """Note the time of the line, and hold its rows for the next compaction."""
        for row in line.rows:
            moment = row.get("timestamp")
            if isinstance(moment, str) and moment:
                self._time = moment
                break
        super().line(line)
        for row in line.rows:
            self._about(row)

    def _about(self, row: Mapping[str, Any]) -> None:
        """Take what no event tells: where the session works, its first prompt, the CLI's microcompactions."""
        part, cwd = self._now.part, row.get("cwd")
        if isinstance(cwd, str) and cwd and not row.get("isSidechain"):
            part.cwd = cwd
        if part.first_prompt is None and not row.get("isSidechain"):
            part.first_prompt = prompt_text(row)
        if is_microcompaction(row):
            tokens = part.points.tokens[-1] if len(part.points) else None
            self._mark("microcompaction", self._x(), tokens, "the CLI cleared old tool results; this is no compaction")

    def line_done(self, line: Line) -> None:
        """Hold the rows for the next compaction."""
        for row in line.rows:
            self._now.since.row(row)
            if kept := "" if row.get("isSidechain") else kept_text(row):
                self._kept(kept)

    def before(self, event: Event) -> None:
        """See to it that the event finds the session that it belongs to."""
        self._close_sessions(len(self.stretches))
        if self.tracker is not self._known:
            self._fresh_tracker()
        self._ratios, self._agent = self.tracker.main.ratios, self.tracker.main
        uuid = getattr(event, "uuid", None)
        self._copy = isinstance(event, Appended) and uuid is not None and self.tracker.holds_row(uuid)

    def after(self, event: Event, state: AgentState | None) -> None:
        """Take what happened."""
        self._close_sessions(len(self.stretches))
        resets = self.tracker.main.resets
        if resets > self._resets or event.__class__ is Reset:
            self._cleared()
        self._resets = resets
        taker = _TAKERS.get(event.__class__)
        if taker is not None:
            taker(self, event, state)
        for alarm in self.tracker.alarms():  # those of subagents too
            self._mark("silent_change", self._x(), alarm.tokens if alarm.agent is None else None, alarm.line)

    # -- events -----------------------------------------------------------------------------------------------

    def _sized(self, event: Response, state: AgentState | None) -> None:
        if event.agent is None:
            self._now.ledger.calls(event)
        tokens = None if state is None else state.context.tokens
        if state is None or tokens is None:
            return
        if state is not self.tracker.main:
            self._subagent(state, tokens)
            return
        now, context = self._now, state.context
        points, identity = now.part.points, context.message_id
        if identity != now.identity:
            self._answered()
            if not now.begun:
                now.begun = True
                now.start += max(0, tokens - now.appended)
            entries = now.part.compactions
            if entries and not entries[-1].after_exact:  # the first request after the last compaction
                entries[-1].after, entries[-1].after_exact = tokens, True
            now.since.response()
            points.add(self._x() + 1.0, self._time, tokens, self.number)
            now.identity = identity
            self._warn(tokens, state)
        elif points.exact and points.exact[-1]:
            points.tokens[-1] = tokens
        now.answer = context.output or 0

    def _answered(self) -> None:
        """Add the last answer, whose size is known once another response begins."""
        now = self._now
        if now.identity is not None:
            now.ledger.plain("answers", ANSWERS, now.answer)
        now.identity, now.answer = None, 0

    def _warn(self, tokens: int, state: AgentState) -> None:
        known = self.tracker.window_of(state.model)
        window, mark = self.options.window or known.tokens, "?" * (not self.options.window and known.source == "guess")
        if self._now.warning.reached(tokens / window if window > 0 else None):
            words = f"{tokens / window:.1%}{mark} of the window"
            self._mark("warning", self._now.part.points.x[-1], tokens, words)

    def _subagent(self, state: AgentState, tokens: int) -> None:
        key = state.agent_id or state.tool_use_id or "?"
        points = self._now.part.subagents.setdefault(key, Points())
        identity = state.context.message_id
        if len(points) and self._now.others.get(key) == identity:
            points.tokens[-1] = tokens
            return
        self._now.others[key] = identity
        points.add(self._x(), self._time, tokens, self.number)

    def _appended(self, event: Appended, state: AgentState | None) -> None:
        if event.agent is not None or self._copy:
            return
        now, main = self._now, self.tracker.main
        if not now.begun and isinstance(event.content, str) and event.content.startswith(_CONTINUES):
            self._mark("restart", 1.0, None, "continues from the checkpoint of a session that was full")
        for added in now.ledger.take(event, main.model):
            now.since.add(added)
            size = tokens_of(added, main.ratios)
            if not now.begun and added.kind != "tool":
                now.appended += size
            if added.kind == "tool" and size >= self.options.big_result:
                now.big.append((added, self._x(), self._time, self.number))

    def _kept(self, text: str) -> None:
        """Take words that a compaction by reference kept: what is there now, and what they do not mention."""
        now, context = self._now, self.tracker.main.context
        lost, entries = now.since.kept(text), now.part.compactions
        if not entries or entries[-1].after_exact:
            return
        entry = entries[-1]
        entry.by_reference, entry.lost, entry.after = True, lost or entry.lost, context.tokens
        if len(now.part.points):
            now.part.points.tokens[-1] = context.tokens

    def _compacted(self, event: Compaction | Summary, state: AgentState | None) -> None:
        now, main = self._now, self.tracker.main
        if state is main:
            self._entry(event, state)
        if isinstance(event, Summary) and event.agent is None:
            entries = now.part.compactions
            lost = now.since.summary(event.content)
            if entries and lost is not None and entries[-1].lost is None:
                entries[-1].lost = lost
            now.ledger.take(Appended(None, None, "summary", event.content), main.model)

    def _entry(self, event: Compaction | Summary, state: AgentState) -> None:
        now, main, points = self._now, self.tracker.main, self._now.part.points
        boundary = event if isinstance(event, Compaction) else None
        before = None if state.before is None else state.before.projected_by_table
        after = state.context.tokens
        x = (points.x[-1] if len(points) else 0.5) + 0.5
        x = points.x[-1] if len(points) and points.x[-1] % 1 else x
        if before is not None:
            points.add(x, self._time, before, self.number, exact=False)
        points.add(x, self._time, after, self.number, exact=False)
        now.part.compactions.append(
            CompactionEntry(
                x,
                self._time,
                self.number,
                None if boundary is None else boundary.trigger,
                before,
                after,
                cli_before=None if boundary is None else boundary.pre_tokens,
                discarded=now.since.compacted(main.ratios, () if boundary is None else boundary.preserved),
            )
        )
        now.warning.reached(0.0)

    def _cleared(self) -> None:
        now, points = self._now, self._now.part.points
        tokens = points.tokens[-1] if len(points) else None
        if tokens is not None:
            x = self._x() + 0.5
            self._mark("clear", x, tokens, "the conversation was cleared (/clear)")
            points.add(x, self._time, None, self.number, exact=False)
        self._answered()
        now.since.thrown_away()
        now.warning.reached(0.0)
        now.begun, now.appended = False, 0

    def _refused(self, event: Refusal, state: AgentState | None) -> None:
        if event.agent is None and state is not None:
            size = "" if event.tokens is None else f": {event.tokens:,} tokens"
            most = "" if event.maximum is None else f", at most {event.maximum:,}"
            self._mark("refusal", self._x(), event.tokens, f"the API refused the request{size}{most}")

    # -- places -----------------------------------------------------------------------------------------------

    def _x(self) -> float:
        points = self._now.part.points
        return float(int(points.x[-1])) if len(points) else 0.0

    def _mark(self, kind: str, x: float, tokens: int | None, words: str) -> None:
        self._now.part.marks.append(Mark(kind, x, self._time, self.number, tokens, words))

    # -- the end of a session ---------------------------------------------------------------------------------

    def _close_sessions(self, count: int) -> None:
        while len(self.parts) < count:
            self._close_part()
            self._now = _ObservedSession(self.options.warn_at)

    def _close_part(self) -> None:
        part = self._now.part
        self._answered()
        view = self._agent.map.view()
        part.parts = [each._asdict() for each in view.parts(self._agent.context.tokens)]
        known = {name: tokens for (group, name, _), tokens in view.fixed.items() if group != "start"}
        told = {f"the beginning: {name}": tokens for name, tokens in known.items()} or {START: 1.0}
        for name, tokens in told.items():
            self._now.ledger.plain("start", name, round(self._now.start * tokens / sum(told.values())))
        part.cache = self._agent.cache.use
        part.contributors, part.files = self._now.ledger.contributors(self._ratios)
        self._mark_big()
        part.marks.sort(key=lambda mark: mark.x)
        self.parts.append(part)

    def _mark_big(self) -> None:
        """Mark the largest results, at the height that the context had when they came."""
        part = self._now.part
        sized = [(tokens_of(added, self._ratios), added, x, time, row) for added, x, time, row in self._now.big]
        sized = sorted((each for each in sized if each[0] >= self.options.big_result), key=lambda each: -each[0])
        part.big_omitted = max(0, len(sized) - MOST_BIG)
        heights = dict(zip(part.points.x, part.points.tokens, strict=True))
        for size, added, x, time, row in sized[:MOST_BIG]:
            words = added.name if added.path is None else f"{added.name} {added.path}"
            part.marks.append(Mark("big_result", x, time, row, heights.get(x), words, size))


_TAKERS: Final[Mapping[type, Callable[[ReportReader, Any, AgentState | None], None]]] = {
    Response: ReportReader._sized,
    Appended: ReportReader._appended,
    Compaction: ReportReader._compacted,
    Summary: ReportReader._compacted,
    Refusal: ReportReader._refused,
}
