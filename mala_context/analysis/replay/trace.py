"""The state of the tracker after each line of a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.record import Stretch
from mala_context.analysis.replay.recording_reader import RecordingReader
from mala_context.analysis.replay.rows import Line
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.events import Appended, Event, Response

Emit = Callable[[Mapping[str, Any]], object]


class Tracer(RecordingReader):
    """Emits a record for each line: the main agent's state after it.

    A line of a subagent gives that subagent's record. In a main agent's recording, the main agent's record follows it.
    """

    def __init__(self, recording: Recording, emit: Emit) -> None:
        super().__init__(recording)
        self._emit = emit
        self._touched: AgentState | None = None
        self._own_file = True

    def after(self, event: Event, state: AgentState | None) -> None:
        """Remember which agent the line is about."""
        agent = getattr(event, "agent", None)
        if agent is None:
            self._own_file = False
        elif state is not None:
            self._touched = state
        elif isinstance(event, Response | Appended):
            self._touched = self.tracker.state_of(event)

    def line_done(self, line: Line) -> None:
        """Emit the line's records."""
        touched, self._touched = self._touched, None
        if touched is not None:
            key = touched.agent_id or touched.tool_use_id
            self._own_file = self._own_file and not (key or "").startswith("sidechain")
            self._state(line.number, key)
        if touched is None or not self._own_file:
            self._state(line.number, None)

    def _state(self, number: int, agent_id: str | None) -> None:
        snapshot = self.tracker.snapshot(agent_id)
        self._emit(
            {
                "row": number,
                "tokens": snapshot.tokens,
                "projected": snapshot.projected,
                "output_tokens": snapshot.output_tokens,
                "exact": snapshot.exact,
                "agent_id": agent_id,
            }
        )


def trace(recording: Recording, emit: Emit) -> list[Stretch]:
    """Read a recording, emit its records, and return its stretches."""
    return Tracer(recording, emit).run()
