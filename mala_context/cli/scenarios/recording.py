"""What the session of a scenario yielded, and what was tracked in it, to compare with what the server received.

The server's counts are the truth. Each response that the server gave on the main thread has a row, even if nothing was
tracked for it. So a response that the tracker missed is a row that is not exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mala_context.cli.agent_runner import why_failed
from mala_context.tracking.events import Compaction, Response

if TYPE_CHECKING:
    from mala_context.agent.runtime import AgentRuntime
    from mala_context.cli.scenarios.report import Stage
    from mala_context.testing import ScriptedMessagesAPI
    from mala_context.testing.requests import Request
    from mala_context.tracking.events import Event
    from mala_context.tracking.tracker import ContextSnapshot


@dataclass(kw_only=True)
class Heard:
    """What reached the caller of a session; give each message to `message`."""

    session_id: str | None = None
    """The last result's."""
    cli_version: str | None = None
    results: list[Any] = field(default_factory=list)
    markers: list[Any] = field(default_factory=list)
    """Each `SessionRestarted` in the stream."""
    texts: list[str] = field(default_factory=list)
    """What the agent said."""
    errors: list[str] = field(default_factory=list)
    """Why turns failed, for each that ended with an error."""

    async def play(
        self, stage: Stage, runtime: AgentRuntime, prompts: Iterable[str], until: Callable[[], bool] = lambda: False
    ) -> None:
        """Send prompts, one after the other, and look at each message; ends early where `until` says so."""
        async with runtime.session() as session:
            for number, prompt in enumerate(prompts, 1):
                stage.on_turn(number)
                self.turn(number)
                async for message in session.send(prompt):
                    self.message(message)
                if until():
                    return

    def turn(self, number: int) -> None:
        """Note that a turn begins, before its prompt is sent."""

    def message(self, message: Any) -> None:
        """Look at a message that the session yielded."""
        kind = type(message).__name__
        if kind == "ResultMessage":
            self.results.append(message)
            self.session_id = message.session_id
            if message.is_error:
                self.errors.append(why_failed(message))
        elif kind == "SessionRestarted":
            self.markers.append(message)
        elif kind == "AssistantMessage":
            self.texts += [block.text for block in message.content if type(block).__name__ == "TextBlock"]
        elif kind == "SystemMessage" and message.subtype == "init":
            self.cli_version = message.data.get("claude_code_version")


@dataclass(frozen=True)
class ResponseRow:
    """One response: what was tracked and what the server counted, in tokens."""

    turn: int
    response: int
    """Number within the turn, from 1."""
    message_id: str
    tracked_tokens: int | None
    received_tokens: int
    marked_exact: bool
    """Whether the tracker itself called the value exact."""
    estimates: Mapping[str, int | None]
    """By formula; empty unless asked for."""

    @property
    def difference(self) -> int | None:
        """Tracked less received."""
        return None if self.tracked_tokens is None else self.tracked_tokens - self.received_tokens

    @property
    def exact(self) -> bool:
        """Whether the tracked size is the server's own count, and is called so."""
        return self.marked_exact and self.tracked_tokens == self.received_tokens

    def as_dict(self) -> dict[str, Any]:
        """Return the row for JSON; without `estimates` where there are none."""
        row = {**asdict(self), "difference": self.difference, "exact": self.exact}
        del row["marked_exact"]
        if not self.estimates:
            del row["estimates"]
        return row


@dataclass
class CompactionRow:
    """One compaction of the main agent, sizes in tokens."""

    turn: int
    trigger: str | None
    before: int | None
    """What was tracked just before it."""
    cli_pre_tokens: int | None
    """The CLI's own estimate of that."""
    estimate: int | None
    """What was estimated right after it."""
    accuracy: str
    duration_ms: int | None
    next_message_id: str | None = None
    """The first response after it."""
    next_request_tokens: int | None = None
    """What that response's request held."""
    refused_tokens: int | None = None
    """Size of the request whose refusal caused it, where one did."""


@dataclass
class Recorder(Heard):
    """Listens to a runtime while a session is played; attach it before the first prompt."""

    runtime: AgentRuntime
    api: ScriptedMessagesAPI
    estimators: bool = False
    compactions: list[CompactionRow] = field(default_factory=list)
    _turn: int = 0
    _turn_starts: list[int] = field(default_factory=list)
    _tracked: dict[str, tuple[int | None, bool, Mapping[str, int | None]]] = field(default_factory=dict)

    def attach(self) -> None:
        """Observe the runtime's events."""
        self.runtime.processor.event_observers.append(self._on_event)

    def turn(self, number: int) -> None:
        """Note that a turn begins, before its prompt is sent."""
        self._turn = number
        self._turn_starts.append(len(self.api.requests))

    def message(self, message: Any) -> None:
        """Look at a message that the session yielded; an error is named with its turn."""
        before = len(self.errors)
        super().message(message)
        self.errors[before:] = [f"turn {self._turn}: {each}" for each in self.errors[before:]]

    def rows(self) -> list[ResponseRow]:
        """Return a row for each response that the server gave on the main thread, in order."""
        rows: list[ResponseRow] = []
        for request in self.api.main_requests:
            if request.status != 200 or request.message_id is None:
                continue
            turn = sum(request.number > start for start in self._turn_starts)
            number = 1 + sum(row.turn == turn for row in rows)
            tracked, exact, estimates = self._tracked.get(request.message_id, (None, False, {}))
            rows.append(ResponseRow(turn, number, request.message_id, tracked, request.tokens, exact, estimates))
        return rows

    def settle(self) -> Sequence[CompactionRow]:
        """Fill in what only the server knows of each compaction, and return them."""
        for row in self.compactions:
            if row.next_message_id is None:
                continue
            after = self.api.by_message(row.next_message_id)
            row.next_request_tokens = after.tokens
            row.refused_tokens = _refused_before(self.api.main_requests, after)
        return self.compactions

    def _on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        if isinstance(event, Response) and event.agent is None and event.message_id is not None:
            self._on_response(event.message_id, snapshot or self.runtime.tracker.snapshot())
        elif isinstance(event, Compaction) and event.agent is None and snapshot is not None:
            before = snapshot.before
            self.compactions.append(
                CompactionRow(
                    turn=self._turn,
                    trigger=event.trigger,
                    before=None if before is None else before.tokens,
                    cli_pre_tokens=event.pre_tokens,
                    estimate=snapshot.tokens,
                    accuracy=snapshot.accuracy,
                    duration_ms=event.duration_ms,
                )
            )

    def _on_response(self, message_id: str, snapshot: ContextSnapshot) -> None:
        if message_id not in self._tracked and self.compactions and self.compactions[-1].next_message_id is None:
            self.compactions[-1].next_message_id = message_id
        estimates: Mapping[str, int | None] = {}
        if self.estimators:
            answers = self.runtime.tracker.estimates()
            estimates = {name: answer.tokens for name, answer in answers.items()}
        self._tracked[message_id] = (snapshot.tokens, snapshot.exact, estimates)


def _refused_before(requests: Sequence[Request], after: Request) -> int | None:
    """Return the size of the request before this one if the API refused it as too long."""
    place = requests.index(after)
    before = requests[place - 1] if place else None
    return before.tokens if before is not None and before.status == 400 else None
