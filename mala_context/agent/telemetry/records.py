"""What happened to an agent's context, as frozen records: a class for each kind of event, the same for every observer.

An observer is any callable that takes a record. It looks at the record's class and ignores classes that it does not
know: later versions may add some. If an observer has a method `wants(kind)`, it is asked before each record that would
come with every response. Records hold counts, ids and words from fixed lists. They never hold the text of a message, so
no observer can export it. `SessionRestarted` alone may hold a message: it is not for observers, but for the caller of a
session, who gets it among the messages.

Some records hold a path or a tool's name: use these in logs, not as labels of metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from mala_context._util.text import percent
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
"""What the guard can do, in the order above: the agent was told, a tool was denied, the session was stopped after too
many denials, a turn was cut for a restart, `/compact` was asked for, `/compact` did not work, the breaker opened, a
fresh session reaches a threshold by itself, no tool was denied because the window is a guess, the CLI should have
compacted by itself and did not, no restart is left, a result was capped."""

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
    """A threshold was reached; one record each time that it fires."""

    session_id: str | None
    """The session."""
    threshold: Threshold
    """Its name in `mala.yaml`."""
    at: float
    """Its value."""
    ratio: float
    """The ratio that reached it."""
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
    """Size of the context after it, an estimate until the next response."""
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
    """A request wrote tokens to the prompt cache that the request before it had left there, or that are new there."""

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
    """How many tokens."""
    cost: float
    """How much more that cost than to read them, in units of one uncached input token."""
    idle_seconds: float | None
    """Time since the request before; `None` where it is unknown."""


@dataclass(frozen=True, slots=True)
class Archived:
    """Something was added to the archive. Observers get it in the thread that wrote it."""

    session_id: str
    """The session that was archived."""
    trigger: str
    """Why: `auto` and `manual` (a compaction), `boundary` (one whose hook did not run), `session_end`,
    `subagent_end`."""
    pieces: int
    """Files that were written."""
    bytes: int
    """Their size together."""
    seconds: float
    """How long it took, with the wait for another writer; for a `boundary` also the search for what was lost."""
    path: str | None
    """The first file."""


@dataclass(frozen=True, slots=True)
class SilentChange:
    """A request was larger or smaller than projected, by at least 2,000 tokens and the share `alarm_at` (5 %)."""

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
    """What changed it, or `unexplained`."""


UploadOutcome = Literal["begun", "done", "failed", "put_off"]
"""State of a round of uploads: it has begun; all files arrived; it failed, and is tried again unless the library of the
store is not installed; or it was put off because another process uploads from the same archive."""


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A round of uploads has begun or ended. Observers get it in the thread that uploads."""

    outcome: UploadOutcome
    """The state of the round."""
    files: int = 0
    """Files that arrived, even if the round failed after them."""
    bytes: int = 0
    """Their size together."""
    seconds: float = 0.0
    """How long the round took."""
    pending: int = 0
    """Sessions with files that had not arrived when the round was done; the next round sends them."""


@dataclass(frozen=True, slots=True)
class GuardActed:
    """The guard did something, or warned of something."""

    session_id: str | None
    """The session."""
    action: GuardAction
    """What it did."""
    tool: str | None = None
    """The tool that was denied, or whose result was capped."""
    agent: str | None = None
    """A subagent's id; `None` for the main agent, and where a result was capped."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """A run goes on in a fresh session. Observers get it after the old session ends, before the new one connects."""

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
    """A restart, as a session yields it between the old session's messages and the new one's; observers do not get it.

    Without a checkpoint, the new session is given the archive's path.
    """

    result: Any = None
    """The `ResultMessage` of the old session's turn if that was cut; it holds no answer. Else `None`."""


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
    """Whether it was ended by force because the agent went on asking for other tools."""
    denials: int
    """Tool calls that were denied."""
    missing: tuple[str, ...]
    """What it did not deliver: `saved work` (no finishing tool was used), `final answer`."""
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
            f"Context: the final turn {how} ({percent(self.ratio)} of the window, {self.denials} tools denied); "
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
"""Any record that observers get."""
Observer = Callable[[Any], object]
"""Gets each record inside the call that made it, sometimes in a thread of the archive: it must be quick."""
