"""What a report tells, as plain records: of one line in the picture, of one session, of all of them.

Their `as_dict` is the JSON of `report --json`, and the same JSON stands in the page behind its pictures. Text is as
the recording has it: whoever shows it escapes it. Sizes are in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mala_context.analysis.replay.record import Problem


@dataclass(slots=True)
class Points:
    """The sizes of one agent's requests, one entry a point; `None` in `tokens` breaks the line."""

    x: list[float] = field(default_factory=list)
    """Number of the main agent's response, from 1; what is between two has a fraction."""
    time: list[str | None] = field(default_factory=list)
    """Time of the row, ISO 8601."""
    tokens: list[int | None] = field(default_factory=list)
    """Size of the context."""
    exact: list[bool] = field(default_factory=list)
    """Whether the API counted it; else it is an estimate, as around a compaction."""
    row: list[int] = field(default_factory=list)
    """Line of the recording, from 1."""

    def add(self, x: float, time: str | None, tokens: int | None, row: int, *, exact: bool = True) -> None:
        """Add a point."""
        self.x.append(x)
        self.time.append(time)
        self.tokens.append(tokens)
        self.exact.append(exact)
        self.row.append(row)

    def __len__(self) -> int:
        return len(self.x)

    def chosen(self, places: list[int]) -> Points:
        """Return the points at these places."""
        columns = (self.x, self.time, self.tokens, self.exact, self.row)
        return Points(*([column[place] for place in places] for column in columns))  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """Return the columns for JSON."""
        return {"x": self.x, "time": self.time, "tokens": self.tokens, "exact": self.exact, "row": self.row}


@dataclass(slots=True)
class Mark:
    """Something that happened at one place of the main agent's line."""

    kind: str
    """`warning`, `restart`, `clear`, `refusal` or `big_result`."""
    x: float
    """As in `Points`."""
    time: str | None
    """Time of the row."""
    row: int
    """Line of the recording."""
    tokens: int | None
    """Size of the context there."""
    words: str
    """What happened, with names from the recording."""
    size: int | None = None
    """Of a big result: about how much it added."""

    def as_dict(self) -> dict[str, Any]:
        """Return the mark for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Discarded:
    """What the context held that a compaction replaced, as far as it came since the one before."""

    responses: int = 0
    prompts: int = 0
    results: int = 0
    """Results of tools."""
    largest: list[tuple[str, int]] = field(default_factory=list)
    """The weightiest contributors with their tokens, about."""

    def as_dict(self) -> dict[str, Any]:
        """Return the counts for JSON."""
        largest = [{"name": name, "tokens": tokens} for name, tokens in self.largest]
        return {"responses": self.responses, "prompts": self.prompts, "results": self.results, "largest": largest}


@dataclass(slots=True)
class CompactionEntry:
    """One compaction of the main agent."""

    x: float | None
    """As in `Points`."""
    time: str | None
    """When."""
    row: int | None
    """Line of its boundary; `None` where only the archive's manifest tells of it."""
    trigger: str | None
    """`auto`, `manual`, or `None` where it is not known."""
    before: int | None
    """About what the next request would have held."""
    after: int | None
    """About what the first request behind it held; an estimate where no response followed."""
    after_exact: bool = False
    """Whether `after` was counted by the API."""
    cli_before: int | None = None
    """The CLI's own figure (preTokens)."""
    discarded: Discarded = field(default_factory=Discarded)
    """What it replaced."""
    lost: dict[str, Any] | None = None
    """What the summary does not mention, as `loss.Loss.as_dict` has it; `None` where that is not known."""

    @property
    def missing(self) -> int | None:
        """How many things the summary does not mention."""
        if self.lost is None:
            return None
        return sum(len(entry.get("missing") or ()) for entry in self.lost.values() if isinstance(entry, dict))

    def as_dict(self) -> dict[str, Any]:
        """Return the compaction for JSON."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {**found, "discarded": self.discarded.as_dict()}


@dataclass(slots=True)
class Contributor:
    """One kind of thing that came into the main agent's context."""

    name: str
    """A tool's name, `prompts`, `answers`, …; of a file its path."""
    kind: str
    """`tool`, `file`, `start`, `answers`, `prompts`, `attachment` or `summary`."""
    tokens: int
    """About how much in all."""
    count: int
    """How often."""
    largest: int
    """The largest one."""
    share: float = 0.0
    """Of everything that came into the context."""

    def as_dict(self) -> dict[str, Any]:
        """Return the contributor for JSON."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "share": round(self.share, 4)}


@dataclass(slots=True)
class Subagent:
    """One subagent: its own line."""

    agent_id: str
    responses: int
    peak_tokens: int | None
    compactions: int
    points: Points

    def as_dict(self) -> dict[str, Any]:
        """Return the subagent for JSON."""
        return {**{name: getattr(self, name) for name in self.__slots__}, "points": self.points.as_dict()}


@dataclass(slots=True)
class SessionReport:
    """One session."""

    session_id: str | None
    path: str
    model: str | None
    window: int
    window_source: str
    window_doubtful: bool
    """Whether something was seen that this window does not explain."""
    threshold: int | None
    """Where the CLI compacts by itself."""
    threshold_acts: bool
    """Whether it is known to; else it is where it would."""
    warn_at: float | None
    """Share of the window from which a warning counts."""
    started_at: str | None
    ended_at: str | None
    responses: int
    tokens: int | None
    peak_tokens: int | None
    points: Points
    compactions: list[CompactionEntry]
    marks: list[Mark]
    subagents: list[Subagent]
    contributors: list[Contributor]
    files: list[Contributor]
    problems: list[Problem]
    notes: list[str] = field(default_factory=list)
    """What a reader of the report should know: what was left out, and what is a guess."""

    @property
    def peak_ratio(self) -> float | None:
        """The largest request as a share of the window."""
        return None if self.peak_tokens is None or self.window <= 0 else self.peak_tokens / self.window

    @property
    def unsure(self) -> str:
        """A question mark for shares of a window that is a guess or in doubt; empty for others."""
        return "?" if self.window_source == "guess" or self.window_doubtful else ""

    @property
    def missing(self) -> int | None:
        """How many things the summaries do not mention; `None` where that is known of no compaction."""
        known = [each.missing for each in self.compactions if each.missing is not None]
        return sum(known) if known else None

    def count(self, *kinds: str) -> int:
        """Return how many marks are of these kinds."""
        return sum(mark.kind in kinds for mark in self.marks)

    def as_dict(self) -> dict[str, Any]:
        """Return the session for JSON; the keys are stable."""
        plain = (
            *(
                "session_id",
                "path",
                "model",
                "window",
                "window_source",
                "window_doubtful",
                "threshold",
                "threshold_acts",
                "warn_at",
            ),
            *("started_at", "ended_at", "responses", "tokens", "peak_tokens"),
        )
        lists = ("compactions", "marks", "subagents", "contributors", "files", "problems")
        ratio = self.peak_ratio
        return {
            **{name: getattr(self, name) for name in plain},
            "peak_ratio": None if ratio is None else round(ratio, 6),
            "points": self.points.as_dict(),
            **{name: [each.as_dict() for each in getattr(self, name)] for name in lists},
            "notes": self.notes,
        }


@dataclass(slots=True)
class Report:
    """All sessions that were asked for."""

    sessions: list[SessionReport]
    """The newest first."""
    notes: list[str] = field(default_factory=list)
    """What was left out."""

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON; the keys are stable."""
        return {"sessions": [each.as_dict() for each in self.sessions], "notes": self.notes}
