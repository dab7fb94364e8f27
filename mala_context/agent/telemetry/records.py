"""What happened to an agent's context, as frozen records: one kind for each happening, the same for every observer.

An observer is any callable that takes a record; it looks at the record's class and leaves out what it does not know,
for there may be more kinds one day. An observer that has a method `wants(kind)` is asked before a record is made that
comes with every response. Records hold counts, ids and words from fixed lists. They never hold what a message says, so
whatever an observer exports, no content goes with it. `SessionRestarted` alone is no such record: a session's caller
gets it among the messages, and it may hold one.

A path or a tool's name is in some records: that is for logs, not for labels of metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mala_context.guard.overflow import ContextOverflow
from mala_context.tracking.windows import WindowState

__all__ = [
    "Archived",
    "CacheRewritten",
    "CompactionSeen",
    "ContextOverflow",
    "ContextUpdated",
    "FinalTurn",
    "GuardActed",
    "Observer",
    "Restarted",
    "SessionEnded",
    "SessionRestarted",
    "SilentChange",
    "TelemetryRecord",
    "ThresholdCrossed",
    "UploadOutcome",
    "Uploaded",
]

Threshold = Literal["warn_at", "compact_at", "restart_at", "final_at"]
GuardAction = Literal[
    "told",
    "denied",
    "stopped",
    "turn_cut",
    "compact_asked",
    "compact_failed",
    "breaker",
    "born_full",
    "guess",
    "overdue",
    "restarts",
    "capped",
]
"""What the guard can do: the agent was told, a tool was denied, the session was stopped after too many denials, a turn
was cut for a restart, `/compact` was asked for, or was and nothing came of it, the breaker opened, a fresh session
reaches a threshold by itself, no tool was denied because the window is a guess, the CLI is overdue with its own
compaction, no restart is left, a result was capped."""


AlarmCause = Literal[
    "microcompaction", "context_editing", "model", "thinking", "tools", "memory", "prefix", "unexplained"
]
"""Why a request was not what was projected: the CLI cleared old results, the API edited the context, another model
counts the text, thinking was left out, tools were loaded, memory files changed, the cached beginning changed or lapsed,
or unknown."""


class ContextUpdated(NamedTuple):
    """An agent's context has another size, window or model than before, or its turn has ended. Sizes are tokens.

    At most one a response and one a turn; none is made where no observer wants any.
    """

    session_id: str | None
    """Its session; `None` before the first message that names it."""
    agent: str | None
    """A subagent's key, the id of its Task call or its own; `None` for the main agent."""
    model: str | None
    """The model, where it is known."""
    tokens: int | None
    """Size of the last request; `None` while unknown."""
    window: int
    """The context window."""
    ratio: float | None
    """What the configured estimator says as a share of the window; may exceed 1.0."""
    exact: bool
    """Whether the API counted it; an estimate stands for a while after a compaction."""
    cause: str
    """Name of the event that brought it: `Response`, `UsageDelta`, `Compaction` or `TurnEnd`."""
    window_state: WindowState = "known"
    """Whether the window is `known`, a `guess` or `doubtful`; the ratio is as good."""


class SessionEnded(NamedTuple):
    """A session is over, or was left for another: its contexts are no longer held."""

    session_id: str
    """The session."""


@dataclass(frozen=True, slots=True)
class ThresholdCrossed:
    """A threshold was reached; once a crossing, as the log lines."""

    session_id: str | None
    """The session."""
    threshold: Threshold
    """Its name in `mala.yaml`."""
    at: float
    """Its value."""
    ratio: float
    """What reached it."""
    tokens: int | None
    """Size of the last request."""
    window: int
    """The window, in tokens."""
    model: str | None
    """The model."""
    agent: str | None = None
    """A subagent's id; `None` for the main agent."""
    window_state: WindowState = "known"
    """Whether the window is `known`, a `guess` or `doubtful`."""


@dataclass(frozen=True, slots=True)
class CompactionSeen:
    """A conversation was compacted; sizes are in tokens, unknown is `None`."""

    session_id: str | None
    """Session in which it happened."""
    agent: str | None
    """A subagent's id; `None` for the main agent."""
    trigger: str | None
    """`auto` or `manual`."""
    tokens_before: int | None = None
    """Size of the last request before it, as the API counted; the CLI's own estimate where that is not known."""
    tokens_after: int | None = None
    """What is left, an estimate until the next response."""
    seconds: float | None = None
    """How long it took, by the CLI's clock."""
    model: str | None = None
    """The model."""
    window: int | None = None
    """The window."""
    by_reference: bool = False
    """Whether the words stayed and tool calls became pointers, in place of a summary."""
    window_state: WindowState = "known"
    """Whether the window is `known`, a `guess` or `doubtful`."""


@dataclass(frozen=True, slots=True)
class CacheRewritten:
    """A request wrote tokens to the prompt cache that the one before had left there, or a first one wrote them."""

    session_id: str | None
    """Its session."""
    agent: str | None
    """A subagent's key; `None` for the main agent."""
    model: str | None
    """The model that answered."""
    cause: Literal["lapsed", "prefix", "model", "compaction", "first"]
    """Why: the cache had lapsed, the beginning of the context changed, another model answered; or what was written is
    new, after a compaction or in the first request of a conversation."""
    tokens: int
    """How many."""
    cost: float
    """What that cost more than reading them, in units of one uncached input token."""
    idle_seconds: float | None
    """Time since the request before; `None` where it is unknown."""


@dataclass(frozen=True, slots=True)
class Archived:
    """Something was added to the archive; told from the thread that wrote it."""

    session_id: str
    """Whose it is."""
    trigger: str
    """Why: `auto` and `manual` (a compaction), `boundary` (one whose hook did not run), `session_end`,
    `subagent_end`."""
    pieces: int
    """Files that were written."""
    bytes: int
    """Their size together."""
    seconds: float
    """How long it took: the wait for another writer is in it, and of a `boundary` the look at what the summary lost."""
    path: str | None
    """The first of them."""


@dataclass(frozen=True, slots=True)
class SilentChange:
    """A request held something else than the stream shows: 5 % and 2,000 tokens more or less than projected."""

    session_id: str | None
    """The main agent's session."""
    agent: str | None
    """A subagent's key; `None` for the main agent."""
    model: str | None
    """The model."""
    projected: int
    """What the request should have held, in tokens."""
    tokens: int
    """What it held, as the API counted."""
    cause: AlarmCause
    """What changed it, where something tells that."""


UploadOutcome = Literal["begun", "done", "failed", "put_off"]
"""How a round of uploads stands: it has begun, all of it arrived, it failed and is tried again (but for a store whose
library is not installed), or it was put off since another process uploads from the same archive."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A round of uploads has begun, or has ended; told from the thread that uploads."""

    outcome: UploadOutcome
    """How it stands."""
    files: int = 0
    """Files that arrived, also where the round failed after them."""
    bytes: int = 0
    """Their size together."""
    seconds: float = 0.0
    """How long the round took."""
    pending: int = 0
    """Sessions of which something had not arrived when a round was done; the next one sends it."""


@dataclass(frozen=True, slots=True)
class GuardActed:
    """The guard did something, or said that something is wrong."""

    session_id: str | None
    """The session."""
    action: GuardAction
    """What."""
    tool: str | None = None
    """The tool that was denied, or whose result was capped."""
    agent: str | None = None
    """A subagent's id; `None` for the main agent, and where a result was capped."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A run goes on in a fresh session; told when the old one is left, before the new one connects."""

    old_session_id: str
    """The session that was left; it is archived."""
    new_session_id: str
    """The session from now on."""
    reason: Literal["threshold", "overflow"]
    """Whether `restart_at` was reached, or the context ran over."""
    restarts: int
    """How many there were in this run, this one included."""
    checkpoint: bool
    """Whether the old session wrote a checkpoint."""


@dataclass(frozen=True, slots=True)
class SessionRestarted(Restarted):
    """A session yields it between the old session's messages and the new one's; it goes nowhere else.

    Without a checkpoint the new session has the archive's path.
    """

    result: Any = None
    """The `ResultMessage` with which the old session's unfinished turn was cut, if one was: it is no answer."""


@dataclass(frozen=True, slots=True)
class FinalTurn:
    """A turn in which only finishing tools were allowed has ended."""

    session_id: str | None
    """Its session."""
    reason: Literal["context"]
    """Why it was final."""
    ratio: float
    """The ratio that reached `final_at`; may exceed 1.0."""
    stopped: bool
    """Whether it was ended by force, since the agent went on asking for other tools."""
    denials: int
    """Tool calls that were denied."""
    missing: tuple[str, ...]
    """What it should have brought and did not: `saved work` (no finishing tool was used), `final answer`."""
    agent: str | None = None
    """A subagent's id; `None` for the main agent."""
    window_state: WindowState = "known"
    """Whether the window of `ratio` is `known`, a `guess` or `doubtful`."""

    @property
    def line(self) -> str:
        """The log line."""
        how = "was stopped" if self.stopped else "ended"
        missing = f"missing: {', '.join(self.missing)}" if self.missing else "nothing is missing"
        whose = "" if self.agent is None else ", in a subagent"
        return (
            f"Context: the final turn {how} ({self.ratio:.1%} of the window, {self.denials} tools denied); "
            f"{missing}{whose}"
        )


TelemetryRecord = (
    ContextUpdated
    | ThresholdCrossed
    | CompactionSeen
    | CacheRewritten
    | Archived
    | Uploaded
    | GuardActed
    | Restarted
    | FinalTurn
    | ContextOverflow
    | SilentChange
    | SessionEnded
)
"""Any record that observers are told."""
Observer = Callable[[Any], object]
"""Takes each record at once, in the call that made it, now and then in a thread of the archive's: be quick."""
