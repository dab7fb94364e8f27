"""What is known of a session, as a row to draw or to print as JSON; rows in an order, rows with some words. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

from mala_context._util.text import utc_text
from mala_context.analysis.watch.archived import LastArchive
from mala_context.analysis.watch.state import TranscriptState
from mala_context.tracking.auto_compact import auto_compact_threshold
from mala_context.tracking.snapshot import ContextSnapshot

NEAR: Final = 0.1
"""An automatic compaction this near to the reported threshold, as a share of it, shows that it is acted on."""
ACTIVE: Final = 300.0
"""Seconds without a row after which a session counts as idle, and a subagent is no longer drawn."""


class Threshold(NamedTuple):
    """Where a session is compacted automatically."""

    tokens: int
    source: str
    """`given` (from the environment or an option), `seen` (it compacted there), or `reported`: the CLI reports this
    threshold, and by default it does not act on it, but waits for the API to refuse a prompt."""

    @property
    def acted_on(self) -> bool:
        """Whether the CLI is known to compact there."""
        return self.source != "reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchRow:
    """One agent at one moment; what is not known is `None`, and sizes are in tokens."""

    session_id: str | None
    """The session's id."""
    agent_id: str | None
    """A subagent's id; `None` for the main agent."""
    path: str
    """The transcript."""
    cwd: str | None
    """Where the agent works."""
    branch: str | None
    """The branch there."""
    model: str | None
    """The model that answered last."""
    tokens: int | None
    """Size of the last request, as `/context` prints it."""
    accuracy: str
    """`exact`, `estimate` or `rough` (after a compaction), or `unknown`."""
    window: int
    """The context window."""
    window_source: str
    """Which source says so; `guess` is a guess."""
    window_doubtful: bool
    """Whether something was seen that this window does not explain, e.g. a refusal while it is far from full."""
    ratio: float | None
    """`tokens` as a share of the window."""
    threshold: Threshold | None
    """Where it is compacted automatically."""
    change: int | None = None
    """What the turn under way has added so far, else the last one."""
    pace: float | None = None
    """Mean of what the last turns added."""
    turns_left: int | None = None
    """Turns until the threshold, where it is acted on, or else until the window is full, at that pace."""
    compactions: int
    """Compactions so far."""
    compactions_at_least: bool = False
    """Whether there may be more, since the transcript has not been read from its top."""
    archived: LastArchive | None = None
    """The session's last archive."""
    last: float
    """When the transcript was written to last, in seconds since 1970."""
    subagents: tuple[WatchRow, ...] = ()
    """Its subagents, the newest first."""
    first_prompt: str | None = None
    """The beginning of the session's first prompt. For a screen only: it is in no JSON and in no log."""
    microcompactions: int = 0
    """Times that the CLI cleared old tool results by itself; they are no compactions."""
    silent_changes: int = 0
    """Requests that were not what was projected."""

    @property
    def mark(self) -> str:
        """A question mark for shares of a window that is a guess or in doubt; empty for others."""
        return "?" if self.window_source == "guess" or self.window_doubtful else ""

    @property
    def limit(self) -> int:
        """Tokens that are usable: up to the threshold where it is acted on, else the window."""
        threshold = self.threshold
        return threshold.tokens if threshold is not None and threshold.acted_on else self.window

    @property
    def project(self) -> str | None:
        """Name of the directory that the agent works in."""
        return os.path.basename((self.cwd or "").rstrip("/")) or self.cwd

    @property
    def fullness(self) -> float | None:
        """Share of what is usable; colours and the order of a table go by it."""
        return None if self.tokens is None or self.limit <= 0 else self.tokens / self.limit

    def as_dict(self) -> dict[str, Any]:
        """Return every value but the first prompt under a stable key, for JSON; times are in UTC."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        threshold, archived = self.threshold, self.archived
        del values["threshold"], values["archived"], values["subagents"], values["first_prompt"]
        values["auto_compact_threshold"] = None if threshold is None else threshold.tokens
        values["auto_compact_source"] = None if threshold is None else threshold.source
        values["last"] = utc_text(self.last)
        values["last_archive"] = None if archived is None else archived._asdict() | {"time": utc_text(archived.time)}
        values["subagents"] = [each.as_dict() for each in self.subagents]
        return values


def threshold_of(snapshot: ContextSnapshot, last_automatic: int | None = None) -> Threshold | None:
    """Return where an agent is compacted, given the size at its last automatic compaction."""
    if snapshot.auto_compact_threshold is not None:
        return Threshold(snapshot.auto_compact_threshold, "given")
    reported = auto_compact_threshold(snapshot.window, snapshot.window)
    if reported is None:
        return None
    seen = last_automatic is not None and abs(last_automatic - reported) <= NEAR * reported
    return Threshold(reported, "seen" if seen else "reported")


def row_of(state: TranscriptState, path: str, last: float, *, before: int | None = 0) -> WatchRow:
    """Return the row of a transcript's agent, with the subagents inside of it.

    `before` are the compactions in the part that the state was not given; `None` while they are not counted.
    """
    snapshot = state.snapshot()
    row = _row(state, snapshot, path, last)
    left = None if snapshot.tokens is None else max(0, row.limit - snapshot.tokens)
    inside = [replace(_row(state, each, path, last), agent_id=key) for key, each in state.inside.items()]
    return replace(
        row,
        change=state.pace.change,
        pace=state.pace.per_turn,
        turns_left=state.pace.turns_left(left),
        compactions=state.compactions + (before or 0),
        compactions_at_least=before is None,
        subagents=tuple(reversed(inside)),
    )


_OF_STATE: Final = ("session_id", "agent_id", "cwd", "branch", "first_prompt", "microcompactions", "silent_changes")
_OF_SNAPSHOT: Final = (
    "model",
    "tokens",
    "accuracy",
    "window",
    "window_source",
    "window_doubtful",
    "ratio",
    "compactions",
)
"""Fields of a row that are the state's, and the snapshot's."""


def _row(state: TranscriptState, snapshot: ContextSnapshot, path: str, last: float) -> WatchRow:
    values: dict[str, Any] = {name: getattr(state, name) for name in _OF_STATE}
    values |= {name: getattr(snapshot, name) for name in _OF_SNAPSHOT}
    return WatchRow(**values, path=path, last=last, threshold=threshold_of(snapshot, state.last_automatic))


def joined(mains: Iterable[WatchRow], agents: Iterable[WatchRow]) -> list[WatchRow]:
    """Put subagents under their sessions, and of a session that is there twice keep what was written last.

    A subagent whose session is not among them stands by itself.
    """
    sessions: dict[str | None, WatchRow] = {}
    for row in mains:
        known = sessions.get(row.session_id)
        if known is None or row.last > known.last:
            sessions[row.session_id] = row
    below: dict[str | None, list[WatchRow]] = {}
    alone = []
    for agent in agents:
        if agent.session_id in sessions:
            below.setdefault(agent.session_id, []).append(agent)
        else:
            alone.append(agent)
    whole = [_with(row, below.get(key, ())) for key, row in sessions.items()]
    return [*whole, *alone]


def _with(row: WatchRow, agents: Iterable[WatchRow]) -> WatchRow:
    both = sorted((*row.subagents, *agents), key=lambda each: each.last, reverse=True)
    return replace(row, subagents=tuple(both), last=max([row.last, *(each.last for each in both)])) if both else row


class RowOrder(NamedTuple):
    """An order of rows."""

    words: str
    key: Callable[[WatchRow], tuple[Any, ...]]


ORDERS: Final = {
    "context": RowOrder("fullest first", lambda row: (-(row.fullness or 0.0),)),
    "activity": RowOrder("last active first", lambda row: (-row.last,)),
    "project": RowOrder("by project", lambda row: (row.project or "~", row.branch or "")),
    "turns": RowOrder("fewest turns left first", lambda row: (row.turns_left is None, row.turns_left)),
}
"""Name → order; rows that are equal in it are ordered by session."""


def ordered(rows: Iterable[WatchRow], order: str = "context") -> list[WatchRow]:
    """Return rows in one of the `ORDERS`."""
    key = ORDERS[order].key
    return sorted(rows, key=lambda row: (*key(row), row.session_id or "", row.agent_id or ""))


def matches(row: WatchRow, words: str) -> bool:
    """Tell whether all of some words stand in a row's project, branch, model, ids or first prompt, in any case."""
    texts = (row.cwd, row.branch, row.model, row.session_id, row.agent_id, row.first_prompt)
    text = "\n".join(each for each in texts if each).casefold()
    return all(word in text for word in words.casefold().split())
