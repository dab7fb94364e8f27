"""What one transcript tells, row by row. Pure: rows in, values out.

The readers and the tracker are those of live sessions and replay; besides them only what a view needs is kept: where
the session runs, when it was last heard of, its pace, and where it compacted by itself last.

A transcript may be entered in its middle. Then `opening` takes its first rows, for what the first request held makes
the estimate after a compaction, and counts are of what was read: `partial` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mala_context.tracking.events import Appended, Compaction, Event, Reset, Response, Summary, TotalTokens
from mala_context.tracking.pace import Pace
from mala_context.tracking.readers import read_row
from mala_context.tracking.readers.rows import RowReader
from mala_context.tracking.snapshot import ContextSnapshot
from mala_context.tracking.tracker import ContextTracker
from mala_context.transcripts.compactions import is_microcompaction
from mala_context.transcripts.prompts import begins_turn, prompt_text


class TranscriptState:
    """The state of one transcript, which is one agent's.

    Args:
        session_id: the session's id where the file's name says it; rows under an older id are part of it.
        agent_id: the subagent's id where the transcript is a subagent's own.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW` where it is known, in tokens.
    """

    def __init__(
        self, session_id: str | None = None, agent_id: str | None = None, auto_compact_window: int | None = None
    ) -> None:
        self.agent_id = agent_id
        self.session_id = session_id
        self.tracker = ContextTracker(auto_compact_window=auto_compact_window)
        self._rows = RowReader()
        self.pace = Pace()
        self.cwd: str | None = None
        self.branch: str | None = None
        self.first_prompt: str | None = None
        """The beginning of the first prompt that a user wrote."""
        self.microcompactions = 0
        """Times that the CLI cleared old tool results by itself, in what was read; no compactions."""
        self.silent_changes = 0
        """Requests that were not what was projected, in what was read."""
        self.last: str | None = None
        """Time of the newest row, as it stands there (ISO 8601)."""
        self.last_automatic: int | None = None
        """Tokens at the last automatic compaction."""
        self.partial = False
        """Whether rows were left out, so that counts are of the rest."""
        self._before_tail = 0
        self._given_id = session_id

    def opening(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the first rows of a transcript whose next ones are left out."""
        self.take(rows)
        self.tracker.main.forget()
        self.pace.forget()
        self.partial = True
        self._before_tail = self.tracker.main.compactions

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take the next rows; never raises on what they hold."""
        for row in rows:
            self._about(row)
            for event in self._rows.read(row):
                self._event(event, row)

    def snapshot(self) -> ContextSnapshot:
        """Return what is known of the transcript's agent."""
        if self.agent_id is None:
            return self.tracker.snapshot()
        found = self.tracker.snapshot(self.agent_id)
        if found.responses or not self.tracker.subagents:
            return found
        return self.tracker.snapshot(list(self.tracker.subagents)[-1])  # old rows name no agent

    @property
    def inside(self) -> Mapping[str, ContextSnapshot]:
        """Subagents whose rows stand in the main agent's transcript (old CLIs), by key."""
        if self.agent_id is not None:
            return {}
        return {key: each for key, each in self.tracker.agents().items() if each.responses}

    @property
    def compactions(self) -> int:
        """Compactions in what was read without a gap, i.e. not those of the opening of a `partial` transcript."""
        return self.snapshot().compactions - self._before_tail

    def _about(self, row: Mapping[str, Any]) -> None:
        get = row.get
        cwd, branch, moment, session_id = get("cwd"), get("gitBranch"), get("timestamp"), get("sessionId")
        if isinstance(cwd, str) and cwd:
            self.cwd = cwd
        if isinstance(branch, str):
            self.branch = branch or None
        if isinstance(moment, str) and moment and (self.last is None or moment > self.last):
            self.last = moment
        if self.session_id is None and isinstance(session_id, str):
            self.session_id = session_id
        if self.first_prompt is None:
            self.first_prompt = prompt_text(row)
        self.microcompactions += is_microcompaction(row)

    def _event(self, event: Event, row: Mapping[str, Any]) -> None:
        given = self._given_id
        if given is not None and not isinstance(event, TotalTokens) and event.session_id != given:
            event = event._replace(session_id=given)
        if isinstance(event, Appended) and event.kind == "user" and self._is_own(event) and begins_turn(row):
            self.pace.prompt()
        state = self.tracker.advance(event)
        self.silent_changes += len(self.tracker.alarms())
        if state is None or not self._is_own(event):
            return
        if isinstance(event, Compaction | Summary | Reset):
            self.pace.forget()
            if isinstance(event, Compaction) and event.trigger == "auto" and event.pre_tokens:
                self.last_automatic = event.pre_tokens
        elif isinstance(event, Response) and state.context.accuracy == "exact" and state.context.tokens is not None:
            self.pace.size(state.context.tokens)

    def _is_own(self, event: Event) -> bool:
        return (getattr(event, "agent", None) is None) == (self.agent_id is None)


def tells_size(rows: Iterable[Mapping[str, Any]], *, subagent: bool) -> bool:
    """Tell whether rows hold a response from which the size of the transcript's own agent follows."""
    return any(
        isinstance(event, Response) and event.usage is not None and (event.agent is not None) == subagent
        for row in rows
        for event in read_row(row)
    )
