"""Pass the SDK's messages to the tracker and to the caller.

The processor stands between the SDK and its caller. It passes on every message, the same object, in order, before it
asks for the next one. The readers and the tracker know what a message means. No message can stop the stream: a fault in
our own code is logged, and the message is passed on. Only `ContextPressureError` reaches the caller, if `restart_at` is
set. It is raised after the result that caused it, so that the caller gets the result first.

A full window is reported in several ways, often in two at once (an error row, then a result that looks like success).
They become one `ContextOverflow` and one WARNING, until a response or a compaction shows that it is over.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from mala_context._util.foreign_code import passes
from mala_context._util.log import get_logger
from mala_context._util.text import printable
from mala_context.agent.log_lines import compaction_line, context_line, log_values
from mala_context.errors import ContextPressureError
from mala_context.guard.overflow import overflow_of
from mala_context.guard.thresholds import ratio_ahead
from mala_context.tracking.cache import SAID
from mala_context.tracking.events import Appended, Compaction, Refusal, Response, TurnEnd
from mala_context.tracking.fast_path import NOTHING, FastPath, Quiet, Wants
from mala_context.tracking.readers import read_message
from mala_context.tracking.readers.sdk import read_turn_end
from mala_context.tracking.registry import LIVE
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.truth_alarm import explained, unsure
from mala_context.tracking.usage import ContextUsage, strangers

if TYPE_CHECKING:
    from mala_context.guard.overflow import ContextOverflow
    from mala_context.tracking.agent_state import AgentState
    from mala_context.tracking.cache import Rewrite
    from mala_context.tracking.events import Event, Events
    from mala_context.tracking.tracker import ContextSnapshot
    from mala_context.tracking.truth_alarm import Surprise

M = TypeVar("M")
SnapshotObserver = Callable[["ContextSnapshot"], object]
EventObserver = Callable[["Event", "ContextSnapshot | None"], object]
RewriteObserver = Callable[["AgentState", "Rewrite"], object]
OverflowObserver = Callable[["ContextOverflow"], object]

log = get_logger(__name__)
_level = logging.getLogger(__name__)  # asked for its level at each response: structlog's own filter is slower
_FREQUENT = frozenset({Response, Appended})
_MOST_UNREAD = 100


class MessageStreamProcessor:
    """Feeds the messages of one SDK client into a tracker.

    Args:
        tracker: where the events go; a new one by default.
        restart_at: pressure (a ratio) at which a result raises `ContextPressureError`; a result that reports a full
            window has at least 1.0. Or a function that decides it from the ratio: a runtime passes its policy's. `None`
            for never.
        on_snapshot: called with each new `ContextSnapshot`. They run between two messages, so keep them short. An
            exception that they raise is logged.
        on_event: called with each event and the snapshot after it, if there is one.
        on_overflow: called with a `ContextOverflow` when the main agent's window is full.
        compaction_logger: called with a `Compaction` and its snapshot; returns whether it logs the line itself.
        agent_name: names the agent in log lines.
        enabled: false passes messages on without looking at them.
        clock: the time of a message, in seconds since the epoch.
    """

    def __init__(
        self,
        tracker: ContextTracker | None = None,
        *,
        restart_at: float | Callable[[float], bool] | None = None,
        on_snapshot: Iterable[SnapshotObserver] = (),
        on_event: Iterable[EventObserver] = (),
        on_overflow: Iterable[OverflowObserver] = (),
        compaction_logger: Callable[[Compaction, ContextSnapshot | None], bool] | None = None,
        agent_name: str = "main",
        enabled: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tracker = ContextTracker(remembers=LIVE) if tracker is None else tracker
        # A float first: `int.__le__(1, 0.3)` is NotImplemented, which counts as true, so `restart_at=1` raised at each
        # result.
        self._restarts_at = restart_at if restart_at is None or callable(restart_at) else float(restart_at).__le__
        self.context_usage = ContextUsage()
        self.messages_seen = 0
        """How many messages passed; 0 means that no client's messages reach this processor."""
        self.snapshot_observers = list(on_snapshot)
        self.event_observers = list(on_event)
        self._observers: dict[type, list[EventObserver]] = {}
        self.overflow_observers = list(on_overflow)
        self.alarm_observers: list[Callable[[Surprise], object]] = []
        """Called with each request that was not what was projected, after its WARNING."""
        self.asks_why: Callable[[], object] | None = None
        """Asks the CLI why a request was not what was projected. The caller that sets it must call `explain` later."""
        self._puzzles: list[Surprise] = []
        self._alarms: Sized = () if self.tracker.lookout is None else self.tracker.lookout.found
        self.rewrite_observers: list[RewriteObserver] = []
        """Called with an agent's state and the tokens that its request wrote to the prompt cache again."""
        self.use_clock(clock)
        self.agent_name = agent_name
        self.in_order: Callable[[Callable[[], object]], object] | None = None
        """Runs a function after the line about the last compaction. That line may wait for what the summary lost."""
        self._enabled = enabled
        self._shortcut = FastPath(self.tracker, self.snapshot_observers)
        self._holds = self._shortcut.holds
        self._debug = _level.isEnabledFor(logging.DEBUG)
        """Whether the level is DEBUG; looked up at each event that does not take the fast path."""
        self._unread: set[str] = set()
        self.overflow: ContextOverflow | None = None
        """The overflow of the main agent's context; `None` while its requests are accepted."""
        self._compaction_logger = compaction_logger
        self._last_result: tuple[object, TurnEnd] = (None, TurnEnd(None, None))
        self._resume_tracking = False
        self._doubted = False
        self._pressure: ContextPressureError | None = None

    @property
    def enabled(self) -> bool:
        """Whether messages are looked at; set it at any time."""
        return self._enabled

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self._enabled = enabled
        self._shortcut.rest()

    def use_clock(self, clock: Callable[[], float]) -> None:
        """Take the time of messages from this clock, in seconds since the epoch."""
        self.clock = self.tracker.reducer.clock = clock

    def take_pressure(self) -> ContextPressureError | None:
        """Return, once, the error that `stream` would raise now; for callers of `process`."""
        pressure, self._pressure = self._pressure, None
        return pressure

    def stream(self, messages: AsyncIterable[M]) -> AsyncIterator[M]:
        """Yield every message of `messages` unchanged, at once and in order.

        Raises `ContextPressureError` after the result that reached `restart_at` (at the start of the next stream if
        the caller left at that result); the driver then calls `reset()` and continues in a fresh session. Errors of
        `messages` itself pass through. A caller may leave at any message: there is nothing to close here, and
        `messages` still belongs to the caller.
        """
        return _Passing(self, messages) if "trio" in sys.modules else self._passing(messages)

    async def _passing(self, messages: AsyncIterable[M]) -> AsyncIterator[M]:
        process = self.process
        self._raise_pressure()
        async for message in messages:
            process(message)
            yield message
            if self._pressure is not None:
                self._raise_pressure()

    def _raise_pressure(self) -> None:
        pressure = self.take_pressure()
        if pressure is not None:
            raise pressure

    def process(self, message: object) -> None:
        """Process one message. Never raises; `take_pressure` has the error that `stream` would raise."""
        try:
            # The fast path: the commonest messages cost one look-up and one call. It added 1.9 µs to a message in a
            # runtime where the way below added 9.6 µs.
            hold = self._holds.get(message.__class__)
            if hold is not None and not self.event_observers and hold(message):
                self.messages_seen += 1
                if self._alarms:
                    self._alarm()
                return
            self._take_all(message)
        except ContextPressureError as pressure:
            self._pressure = pressure
        except BaseException as error:  # the caller gets each message, whether or not we understand it
            # Ctrl-C and what a signal's handler raises pass; a SystemExit of a log handler or an observer does not.
            if passes(error):
                raise
            log.warning("Context: a %s was not understood and is passed on", type(message).__name__, exc_info=True)

    def _take_all(self, message: Any) -> None:
        """Process a message event by event, without the fast path."""
        if not self._enabled:
            return
        self.messages_seen += 1
        events = read_message(message)
        if self._debug:
            self._log_unread(message, events)
        for event in events:
            self.take(event)
            if event.__class__ is TurnEnd:
                self._last_result = (message, event)
                self._process_result_message(message, event)
            elif event.__class__ in _FREQUENT and self.overflow is None and not self._debug:
                self._shortcut.after(message, event)

    def _log_unread(self, message: Any, events: Events) -> None:
        """Log each kind of message that gives no event once, and the names of counts that no reader knows.

        Here a newer CLI shows itself: it sends kinds that this version does not know.
        """
        subtype = getattr(message, "subtype", None) or ""
        unread = [] if events else [f"{type(message).__name__:.80} {subtype!s:.80}".rstrip()]
        if names := strangers(getattr(message, "usage", None)):
            unread.append(f"usage with {', '.join(names)}")
        for kind in unread:
            if kind not in self._unread and len(self._unread) < _MOST_UNREAD:
                self._unread.add(kind)
                log.debug("Context: nothing is read from %s", printable(kind))

    def take(self, event: Event) -> None:
        """Apply one event, call the observers, and write its log lines; for events that do not come from messages."""
        self._take(event)
        if self._alarms:
            self._alarm()

    def take_history(self, events: Iterable[Event]) -> None:
        """Apply an earlier process's events. Observers hear of the size at the end, and of nothing before it.

        Without this, each resume logged a WARNING, a line and a record for every old compaction in the transcript.
        """
        with self.tracker.without_alarms():
            for event in events:
                changed = self.tracker.advance(event)
                if changed is not None:
                    changed.cache.news = None
        self._shortcut.counted = NOTHING
        snapshot = self.tracker.snapshot()
        for observer in self.snapshot_observers if snapshot.tokens is not None else ():
            self._notify(observer, snapshot)

    def _take(self, event: Event) -> None:
        kind = event.__class__
        changed = self.tracker.advance(event)
        if changed is not None and changed.cache.news is not None:
            self._written_again(changed)
        self._shortcut.counted = NOTHING
        debug = _level.isEnabledFor(logging.DEBUG)
        if debug is not self._debug:
            self._debug = debug
            self._shortcut.rest()
        if self.overflow is not None and isinstance(event, Response) and event.agent is None:
            self.overflow = None
        if (
            kind in _FREQUENT
            and (changed is None or not (self.snapshot_observers or debug))
            and kind not in self._observers
            and not self.event_observers
        ):
            return  # before a snapshot is made that no observer gets: it costs more than all the rest
        snapshot = None
        if changed is not None:
            snapshot = self.tracker.snapshot_of(changed, kind.__name__)
            for observer in self.snapshot_observers:
                self._notify(observer, snapshot)
        for event_observer in self._observers.get(kind, ()):
            self._notify(event_observer, event, snapshot)
        for event_observer in self.event_observers:
            self._notify(event_observer, event, snapshot)
        line = _LINES.get(kind)
        if line is not None:
            line(self, event, snapshot)

    def observe(self, observer: EventObserver, *kinds: type, wants: Wants | Quiet | None = None) -> None:
        """Have an observer called with the events of these classes only; other events cost nothing.

        It is not called for the later messages of a response, because they do not change its size. An observer that
        needs them too belongs into `event_observers`. `wants` is called before a response with the size of its request
        in tokens. If all observers of responses return false there, the response takes the fast path, and none of them
        is called. Without `wants` the observer is called for every response.
        """
        for kind in kinds:
            self._observers.setdefault(kind, []).append(observer)
            if kind is Response:
                if isinstance(wants, Quiet):
                    self._shortcut.quiet.append(wants)
                else:
                    self._shortcut.wanted.append((lambda _: True) if wants is None else wants)
            if kind is Appended:
                self._shortcut.leave("UserMessage")

    def overflowed(self, overflow: ContextOverflow) -> None:
        """Note that the main agent's window is full; logged once, however many messages report it."""
        if self.overflow is not None:
            return
        self.overflow = overflow
        self._shortcut.rest()
        log.warning("%s", overflow.line(), **log_values(self.tracker.snapshot()))
        for observer in self.overflow_observers:
            self._notify(observer, overflow)

    def _alarm(self) -> None:
        """Log the requests that were not what was projected. If the CLI may know why, ask it before logging."""
        for surprise in self.tracker.alarms():
            if self.asks_why is not None and surprise.agent is None and unsure(surprise):
                self._puzzles.append(surprise)
                self.asks_why()
            else:
                self._surprised(surprise)

    def explain(self) -> None:
        """Log the alarms for which the CLI was asked; the tracker has its answer, if it gave one."""
        puzzles, self._puzzles = self._puzzles, []
        for puzzle in puzzles:
            self._surprised(explained(puzzle, self.tracker.main.noted))

    def _surprised(self, surprise: Surprise) -> None:
        log.warning("%s", surprise.line, **log_values(self.tracker.snapshot(surprise.agent)), cause=surprise.cause)
        for observer in self.alarm_observers:
            self._notify(observer, surprise)

    def reset(self) -> None:
        """Forget the old session's counts before a new stream; a disabled ledger counts again from its next usage."""
        self.context_usage.reset()
        self.overflow = None
        self._resume_tracking = True
        self._pressure = None

    def _written_again(self, agent: AgentState) -> None:
        """Report tokens that were written to the cache again; log them if they are many and were not to be expected."""
        rewrite, agent.cache.news = agent.cache.news, None
        if rewrite is not None and rewrite.again and rewrite.tokens >= SAID:
            name = agent.tool_use_id or agent.agent_id
            log.info("%s", rewrite.line, session=self.tracker.session_id, agent=name, model=agent.model)
        for observer in self.rewrite_observers:
            self._notify(observer, agent, rewrite)

    def _notify(self, observer: Callable[..., object], *values: object) -> None:
        try:
            observer(*values)
        except BaseException as error:  # an observer's fault is not the agent's
            if passes(error):
                raise
            log.warning("Context: an observer failed", exc_info=True)

    def turn_end(self, message: Any) -> TurnEnd:
        """Return the `TurnEnd` of a `ResultMessage`; the message that was processed last is not read again."""
        known, turn = self._last_result
        if known is message:
            return turn
        return next((event for event in read_message(message) if isinstance(event, TurnEnd)), TurnEnd(None, None))

    def _process_result_message(self, message: Any, turn: TurnEnd | None = None) -> None:
        """Add a turn's usage to the ledger, log the gauge, and raise `ContextPressureError` past `restart_at`."""
        turn = read_turn_end(message) if turn is None else turn
        usage = turn.usage
        snapshot = self.tracker.snapshot()
        ledger = self.context_usage
        if usage is None:
            # The ledger is a sum, so one turn without counts (a proxy, an aborted turn) makes every later value too
            # low. It stops, once; the gauge needs no sum and goes on.
            if ledger.is_tracking_enabled():
                log.warning("Context: result without usage, cumulative tracking is off", session=snapshot.session_id)
                ledger.disable_tracking()
        else:
            if self._resume_tracking:
                ledger.enable_tracking()
                self._resume_tracking = False
            ledger.add_turn(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
            )
        debug = _level.isEnabledFor(logging.DEBUG)
        pressure = self._pressure_ratio(snapshot) if debug or self._restarts_at is not None else None
        if debug:
            log.debug(
                "Context: turn input=%d output=%d cache_read=%d, so far input=%d output=%d cache_read=%d, limit=%d, %s",
                *((usage.input_tokens, usage.output_tokens, usage.cache_read_tokens) if usage else (0, 0, 0)),
                ledger.input_tokens,
                ledger.output_tokens,
                ledger.cache_read_tokens,
                snapshot.window,
                "pressure unknown" if pressure is None else f"pressure={pressure:.6f}",
            )
        self._say_size(snapshot)
        if self._restarts_at is None:
            return
        # An overflow looks like a success: subtype `success`, `is_error`, `prompt_too_long` (case core-14). The last
        # request fitted, so its own ratio is below 1; the one that was refused is above it.
        if overflow_of(turn) is not None:
            pressure = max(1.0, pressure or 0.0)
        if pressure is not None and self._restarts_at(pressure):
            raise ContextPressureError(
                session_id=snapshot.session_id or turn.session_id or "",
                input_tokens=max(0, ledger.input_tokens),
                output_tokens=ledger.output_tokens,
                cache_read_tokens=ledger.cache_read_tokens,
                pressure_ratio=pressure,
            )

    def _say_size(self, snapshot: ContextSnapshot) -> None:
        """Log the gauge, and once a WARNING if its window is in doubt."""
        if _level.isEnabledFor(logging.INFO):
            say = partial(log.info, context_line(snapshot, self.agent_name), **log_values(snapshot))
            # The size is an estimate from a compaction. The line about that compaction waits for what was lost, and
            # this one must come after it.
            if self.in_order is not None and snapshot.usage_source == "boundary":
                self.in_order(say)
            else:
                say()
        if snapshot.window_doubtful and not self._doubted:
            log.warning("Context: the window of %s tokens is in doubt", f"{snapshot.window:,}", **log_values(snapshot))
        self._doubted = snapshot.window_doubtful

    def _pressure_ratio(self, snapshot: ContextSnapshot) -> float | None:
        """Return the ratio that `restart_at` is compared with: of the projected request, or of another estimator."""
        if self.tracker.estimator == "cumulative":
            return self.context_usage.pressure_ratio(snapshot.window)
        return ratio_ahead(snapshot)


class _Passing(AsyncIterator[M]):
    """The iterator of `stream` if trio is loaded: trio warns of an async generator that is left early.

    Without trio the generator is used, because it costs 0.1 µs a message less.
    """

    def __init__(self, processor: MessageStreamProcessor, messages: AsyncIterable[M]) -> None:
        self._processor = processor
        self._process = processor.process
        self._messages = messages
        self._next: Callable[[], Awaitable[M]] | None = None

    async def __anext__(self) -> M:
        following = self._next
        if following is None or self._processor._pressure is not None:
            following = self._begin()
        message = await following()
        self._process(message)
        return message

    async def aclose(self) -> None:
        """End the iteration; for callers that use `contextlib.aclosing`."""
        self._next = _nothing

    def _begin(self) -> Callable[[], Awaitable[M]]:
        """Return the function that gives the next message; raise a pressure that is due before it."""
        self._next = _nothing  # if the pressure is raised, the iteration is over
        self._processor._raise_pressure()
        self._next = self._messages.__aiter__().__anext__
        return self._next


async def _nothing() -> Any:
    raise StopAsyncIteration


def _log_response(processor: MessageStreamProcessor, event: Response, snapshot: ContextSnapshot | None) -> None:
    if snapshot is not None and _level.isEnabledFor(logging.DEBUG):
        line = context_line(snapshot, event.agent or processor.agent_name)
        log.debug(line, message_id=event.message_id, **log_values(snapshot))
        if snapshot.estimator == "max_cache_read":
            audit = processor.tracker.state_of(event).estimate(snapshot.estimator).audit
            values = " ".join(f"{name}={value}" for name, value in audit.items())
            log.debug("Context: message=%s %s", event.message_id, values)


def _log_compaction(processor: MessageStreamProcessor, event: Compaction, snapshot: ContextSnapshot | None) -> None:
    if snapshot is None:
        return
    if processor._compaction_logger is None or not processor._compaction_logger(event, snapshot):
        log.info(compaction_line(event, snapshot, by_reference=snapshot.by_reference), **log_values(snapshot))
    if event.agent is None:
        processor.overflow = None


def _see_overflow(
    processor: MessageStreamProcessor, event: Refusal | TurnEnd, snapshot: ContextSnapshot | None
) -> None:
    # `overflow_of` reads texts: an ordinary end of a turn is told apart first.
    usual = isinstance(event, TurnEnd) and not event.is_error and event.terminal_reason in (None, "completed")
    overflow = None if usual else overflow_of(event)
    if overflow is None:
        return
    agent = event.agent if isinstance(event, Refusal) else None
    if agent is None:
        processor.overflowed(overflow)
    elif snapshot is not None:
        log.warning("%s, in a subagent", overflow.line(), **log_values(snapshot))


_LINES: dict[type, Callable[..., None]] = {
    Response: _log_response,
    Compaction: _log_compaction,
    Refusal: _see_overflow,
    TurnEnd: _see_overflow,
}
"""The function that logs an event and notes an overflow."""
