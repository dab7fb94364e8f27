"""What fills the context of a recorded session, and its requests that were not what was projected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.record import Problem
from mala_context.analysis.replay.recording_reader import EventReader
from mala_context.analysis.replay.rows import Line
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_map import server_of
from mala_context.tracking.events import Event, Response
from mala_context.tracking.snapshot import ContextSnapshot
from mala_context.tracking.text_counts import field_of
from mala_context.tracking.truth_alarm import Surprise


@dataclass(frozen=True, slots=True)
class AlarmEntry:
    """A request that was not what was projected."""

    surprise: Surprise
    row: int
    """Line of the recording, from 1."""
    time: str | None
    """Time of the row."""

    def as_dict(self) -> dict[str, Any]:
        """Return the alarm for JSON."""
        return {"row": self.row, "time": self.time, **self.surprise._asdict()}


@dataclass(slots=True)
class RecordedMap:
    """The map of a recording's last session, or of the subagent whose own transcript it is."""

    path: str
    snapshot: ContextSnapshot
    alarms: list[AlarmEntry]
    servers_called: set[str] = field(default_factory=set)
    """MCP servers of which a tool was called."""
    problems: list[Problem] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return the map for JSON; the keys are stable."""
        known = self.snapshot.as_dict()
        names = ("session_id", "agent_id", "model", "tokens", "accuracy", "window", "window_source", "ratio")
        return {
            "path": self.path,
            **{name: known[name] for name in (*names, "auto_compact_threshold", "reserve", "parts")},
            "alarms": [alarm.as_dict() for alarm in self.alarms],
            "problems": [problem.as_dict() for problem in self.problems],
        }


class MapReader(EventReader):
    """Follows a recording and notes its alarms."""

    divides = True

    def __init__(self, recording: Recording, auto_compact_window: int | None = None) -> None:
        super().__init__(recording)
        self.tracker.auto_compact_window = auto_compact_window
        self._found = RecordedMap(recording.path, self.tracker.snapshot(), [])
        self._time: str | None = None

    def line(self, line: Line) -> None:
        """Take the next line, and the time from it."""
        for row in line.rows:
            moment = row.get("timestamp")
            self._time = moment if isinstance(moment, str) else self._time
        super().line(line)

    def after(self, event: Event, state: AgentState | None) -> None:
        """Note alarms, and the MCP servers that a response calls."""
        del state
        if not isinstance(event, Response):
            return
        for block in event.content if isinstance(event.content, list | tuple) else ():
            server = server_of(field_of(block, "name"))
            if server is not None:
                self._found.servers_called.add(server)
        self._found.alarms += [AlarmEntry(each, self.number, self._time) for each in self.tracker.alarms()]

    def read(self) -> RecordedMap:
        """Read the whole recording; never raises for what is in it."""
        self.follow()
        found, tracker = self._found, self.tracker
        found.snapshot = tracker.snapshot()
        if not tracker.main.responses and tracker.subagents:
            found.snapshot = tracker.snapshot(list(tracker.subagents)[-1])
        found.problems = self.problems.found
        return found
