"""From a processor's events to records: sizes, compactions, and the end of a session.

A response arrives in several parts, and each of them brings the same size; only a change is told, and the size at the
end of each turn. What the hooks and the guard see (archives, restarts, denials) is told by those who do it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from mala_context.agent.telemetry.records import CompactionSeen, ContextUpdated, SessionEnded
from mala_context.tracking.events import Compaction, Response, SessionStart, TurnEnd, UsageDelta

if TYPE_CHECKING:
    from mala_context.tracking.events import Event
    from mala_context.tracking.tracker import ContextSnapshot

MOST_AGENTS: Final = 256
"""Agents whose last size is kept; past them the oldest is forgotten, and told again when it changes."""


class Reporter:
    """Tells what one processor's events mean.

    Args:
        tell: takes each record.
        wants: says whether somebody takes records of a class; asked once a response.
    """

    def __init__(self, tell: Callable[[object], object], wants: Callable[[type], bool] = lambda _: True) -> None:
        self._tell = tell
        self._wants = wants
        self._last: dict[str | None, tuple[object, ...]] = {}
        self._session: str | None = None
        self._sizes_wanted = True

    @property
    def events(self) -> tuple[type, ...]:
        """The classes of events to call `on_event` with."""
        return tuple(_EVENTS)

    def wants_size(self, tokens: int) -> bool:
        """Tell whether somebody takes the size of a response's request."""
        del tokens
        self._sizes_wanted = self._wants(ContextUpdated)
        return self._sizes_wanted

    def on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Take in one event and the snapshot that it gave, if any."""
        handler = _EVENTS.get(event.__class__)
        if handler is not None:
            handler(self, event, snapshot)

    def ended(self) -> None:
        """Say that the session is over; to be called when nothing more is read from it. Said once a session."""
        session, self._session = self._session, None
        self._last.clear()
        if session is not None:
            self._tell(SessionEnded(session))

    def _started(self, event: SessionStart, snapshot: ContextSnapshot | None) -> None:
        del snapshot
        if event.session_id != self._session:
            self.ended()
            self._session = event.session_id

    def _sized(self, event: Any, snapshot: ContextSnapshot | None) -> None:
        ended = event.__class__ is TurnEnd  # its responses have asked already
        if snapshot is None or not (self._sizes_wanted if ended else self.wants_size(snapshot.tokens or 0)):
            return
        agent = snapshot.tool_use_id or snapshot.agent_id
        size = (snapshot.tokens, snapshot.window, snapshot.model, snapshot.session_id, snapshot.exact)
        last = self._last.get(agent)
        if (last == size and not ended) or (last is None and snapshot.tokens is None):
            return
        self._last[agent] = size
        if len(self._last) > MOST_AGENTS:
            del self._last[next(iter(self._last))]
        self._session = snapshot.session_id or self._session
        self._tell(
            ContextUpdated(
                snapshot.session_id,
                agent,
                snapshot.model,
                snapshot.tokens,
                snapshot.window,
                snapshot.ratio,
                snapshot.exact,
                event.__class__.__name__,
            )
        )

    def _compacted(self, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        if snapshot is None:
            return
        known = snapshot.before.tokens if snapshot.before is not None else None
        self._tell(
            CompactionSeen(
                session_id=event.session_id or snapshot.session_id,
                agent=snapshot.tool_use_id or snapshot.agent_id,
                trigger=event.trigger,
                tokens_before=event.pre_tokens if known is None else known,
                tokens_after=snapshot.tokens,
                seconds=None if event.duration_ms is None else event.duration_ms / 1000,
                model=snapshot.model,
                window=snapshot.window,
            )
        )
        self._sized(event, snapshot)


_EVENTS: Final[dict[type, Callable[..., None]]] = {
    SessionStart: Reporter._started,
    Response: Reporter._sized,
    UsageDelta: Reporter._sized,
    TurnEnd: Reporter._sized,
    Compaction: Reporter._compacted,
}
