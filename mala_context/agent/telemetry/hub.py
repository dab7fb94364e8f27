"""Pass records to observers: the hub, the reporter that makes records from a processor's events, and the log.

The hub passes each record to every observer. An observer's error never reaches an agent, and is logged once. Hooks run
in a task that the SDK starts when the client connects, and archives are written in a thread. So that observers find the
caller's trace there too, a session notes when its caller sends a prompt. From then on, records are passed in that
caller's `contextvars` context.

The reporter reports sizes, compactions and the end of a session. A response arrives in several parts with the same
size: only a change is reported, and the size at the end of each turn. Archives, restarts and denials are reported by
the modules that do them.

The log has every record as a line at DEBUG, with its fields as key-values. The lines at INFO and above are written
where the event happens, because they must also come without a runtime.
"""

from __future__ import annotations

import contextvars
import dataclasses
import logging
from collections.abc import Callable, Iterable
from functools import partial
from operator import is_not
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.foreign_code import passes
from mala_context._util.log import get_logger
from mala_context.agent.log_lines import size_before
from mala_context.agent.telemetry.records import (
    CacheRewritten,
    CompactionSeen,
    ContextUpdated,
    Observer,
    SessionEnded,
)
from mala_context.tracking.events import Compaction, Response, SessionStart, TurnEnd, UsageDelta

if TYPE_CHECKING:
    from mala_context.tracking.agent_state import AgentState
    from mala_context.tracking.cache import Rewrite
    from mala_context.tracking.events import Event
    from mala_context.tracking.tracker import ContextSnapshot

log = get_logger(__name__)


class Hub:
    """Passes records to observers.

    Attributes:
        observers: callables that take a record, called in this order. The list may be changed at any time.
    """

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self.observers: list[Observer] = list(observers)
        self._reported: list[Observer] = []
        self._context: contextvars.Context | None = None

    def wants(self, kind: type) -> bool:
        """Tell whether any observer takes records of this class: one that has no `wants` takes all."""
        try:
            for observer in self.observers:
                if observer.wants(kind):  # type: ignore[attr-defined]  # see below
                    return True
        except BaseException as error:
            if passes(error):
                raise
            return True  # it has no `wants`, or fails there: then it gets the record, and `_tell` logs its error
        return False

    def tell(self, record: object) -> None:
        """Pass a record to every observer. Never raises; an observer that failed still gets the next records."""
        if self._context is None:
            self._tell(record)
        else:
            self._context.copy().run(self._tell, record)  # a copy, since one context cannot be entered twice

    def beside(self) -> Hub:
        """Return a hub for another session's records. It shares the list of observers, also for later additions."""
        other = Hub()
        other.observers, other._reported = self.observers, self._reported
        return other

    def asked(self) -> None:
        """Pass later records in the `contextvars` context of this caller."""
        self._context = contextvars.copy_context()

    def left(self) -> None:
        """Pass later records in the context in which they are made."""
        self._context = None

    def _tell(self, record: object) -> None:
        for observer in self.observers.copy():  # an observer may add and remove observers, itself too
            try:
                observer(record)
            except BaseException as error:  # an observer's fault is not the agent's
                if passes(error):
                    raise
                if not any(observer is each for each in self._reported):
                    self._reported.append(observer)
                    log.warning("Context: an observer failed", exc_info=True)


MOST_AGENTS: Final = 256
"""Most agents whose last size is remembered. A forgotten agent's size is reported again with its next response."""


class Reporter:
    """Makes records from one processor's events.

    Args:
        tell: takes each record.
        wants: tells whether an observer takes records of a class; called once for each response.
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
        """Tell whether an observer takes the size of a response's request."""
        self._sizes_wanted = self._wants(ContextUpdated)
        return self._sizes_wanted

    def on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Handle one event and the snapshot after it, if there is one."""
        handler = _EVENTS.get(event.__class__)
        if handler is not None:
            handler(self, event, snapshot)

    def ended(self) -> None:
        """Report the end of the session, once. Call it when no more messages are read from it."""
        session, self._session = self._session, None
        self._last.clear()
        if session is not None:
            self._tell(SessionEnded(session))

    def rewritten(self, agent: AgentState, rewrite: Rewrite) -> None:
        """Report the tokens that an agent's request wrote to the prompt cache again."""
        about = (self._session, agent.tool_use_id or agent.agent_id, agent.model)
        self._tell(CacheRewritten(*about, rewrite.cause, rewrite.tokens, rewrite.cost, rewrite.idle_seconds))

    def _started(self, event: SessionStart, snapshot: ContextSnapshot | None) -> None:
        if event.session_id != self._session:
            self.ended()
            self._session = event.session_id

    def _sized(self, event: Any, snapshot: ContextSnapshot | None) -> None:
        ended = event.__class__ is TurnEnd  # its responses have asked already
        if snapshot is None or not (self._sizes_wanted if ended else self.wants_size(snapshot.tokens or 0)):
            return
        agent = snapshot.tool_use_id or snapshot.agent_id
        state = snapshot.window_state
        size = (snapshot.tokens, snapshot.window, snapshot.model, snapshot.session_id, snapshot.exact, state)
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
                state,
            )
        )

    def _compacted(self, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        if snapshot is None:
            return
        self._tell(
            CompactionSeen(
                session_id=event.session_id or snapshot.session_id,
                agent=snapshot.tool_use_id or snapshot.agent_id,
                trigger=event.trigger,
                tokens_before=size_before(event, snapshot),
                tokens_after=snapshot.tokens,
                seconds=None if event.duration_ms is None else event.duration_ms / 1000,
                model=snapshot.model,
                window=snapshot.window,
                by_reference=snapshot.by_reference,
                window_state=snapshot.window_state,
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


_level = logging.getLogger(__name__)  # asked for its level at each record: structlog's own filter is slower
_RENAMED = {"session_id": "session", "bytes": "size"}
"""Names that the other lines use for the same value, or that read badly alone."""


class LogObserver:
    """Logs records; `ContextUpdated` is left to the processor's own line."""

    wants = staticmethod(partial(is_not, ContextUpdated))  # a bare `partial` is a method from Python 3.14 on
    """Tells whether records of a class are logged; no function of ours, since each response asks."""

    def __call__(self, record: object) -> None:
        """Log a record."""
        if record.__class__ is not ContextUpdated and _level.isEnabledFor(logging.DEBUG):
            log.debug("Happening: %s", type(record).__name__, **fields_of(record))


log_happening: Final = LogObserver()
"""The observer that every runtime has."""


def fields_of(record: Any) -> dict[str, Any]:
    """Return a record's fields by the names that log lines use."""
    if dataclasses.is_dataclass(record):
        values = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    else:
        values = dict(record._asdict())
    return {_RENAMED.get(name, name): value for name, value in values.items()}
