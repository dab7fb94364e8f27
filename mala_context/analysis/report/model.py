"""What a report shows, as plain records: of one line in the picture, of one session, of all sessions.

Their `as_dict` is the JSON of `report --json`, and the same JSON stands in the page for its charts. Text is as the
recording has it: escape it before it is shown. Sizes are in tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

from mala_context.analysis.replay.record import Problem
from mala_context.tracking.cache import CacheUse

MOST_POINTS: Final = 20_000
"""Points of one line in a page."""


class JsonRecord:
    """A dataclass that can be written as JSON: each field, then each property of `_ALSO`, under its name."""

    __slots__ = ()
    _ALSO: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the record for JSON; the keys are stable."""
        names = (*(each.name for each in fields(self) if not each.name.startswith("_")), *self._ALSO)  # type: ignore[arg-type]  # subclasses are dataclasses
        return {name: _plain(getattr(self, name)) for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, list) and value and hasattr(value[0], "as_dict"):
        return [each.as_dict() for each in value]
    return value.as_dict() if hasattr(value, "as_dict") else value


@dataclass(slots=True)
class Points(JsonRecord):
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

    def downsampled(self, most: int = MOST_POINTS) -> Points:
        """Return the points, or at most about `most` of them, for the same picture.

        Of each part of the line its first, lowest, highest and last point stay, and all gaps and estimates (which are
        around compactions).
        """
        count = len(self)
        if count <= most:
            return self
        step = max(1, -(-4 * count // most))
        kept = {place for place in range(count) if not self.exact[place]}
        for start in range(0, count, step):
            known = [place for place in range(start, min(count, start + step)) if self.tokens[place] is not None]
            if known:
                sizes = {place: self.tokens[place] or 0 for place in known}
                kept |= {known[0], known[-1], min(known, key=sizes.__getitem__), max(known, key=sizes.__getitem__)}
        places = sorted(kept)
        columns = (self.x, self.time, self.tokens, self.exact, self.row)
        return Points(*([column[place] for place in places] for column in columns))  # type: ignore[arg-type]  # of five types


@dataclass(slots=True)
class Mark(JsonRecord):
    """Something that happened at one place of the main agent's line."""

    kind: str
    """`warning`, `restart`, `clear`, `refusal`, `microcompaction`, `silent_change` or `big_result`."""
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


@dataclass(slots=True)
class NamedTokens(JsonRecord):
    """Something in a context, with its tokens, about."""

    name: str
    tokens: int


@dataclass(slots=True)
class Discarded(JsonRecord):
    """What a compaction replaced, as far as it came into the context since the compaction before."""

    responses: int = 0
    prompts: int = 0
    results: int = 0
    """Results of tools."""
    largest: list[NamedTokens] = field(default_factory=list)
    """The largest contributors."""


@dataclass(slots=True)
class CompactionEntry(JsonRecord):
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
    """About what the first request after it held; an estimate where no response followed."""
    after_exact: bool = False
    """Whether `after` was counted by the API."""
    cli_before: int | None = None
    """The CLI's own figure (preTokens)."""
    discarded: Discarded = field(default_factory=Discarded)
    """What it replaced."""
    by_reference: bool = False
    """Whether words were kept in place of a summary."""
    lost: dict[str, Any] | None = None
    """What the summary or the kept text does not mention, as `loss.Loss.as_dict` has it; `None` where not known."""

    @property
    def missing(self) -> int | None:
        """How many things the summary does not mention."""
        if self.lost is None:
            return None
        return sum(len(entry.get("missing") or ()) for entry in self.lost.values() if isinstance(entry, dict))


@dataclass(slots=True)
class Contributor(JsonRecord):
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


@dataclass(slots=True)
class Subagent(JsonRecord):
    """One subagent: its own line."""

    agent_id: str
    responses: int
    peak_tokens: int | None
    compactions: int
    points: Points


@dataclass(slots=True)
class SessionReport(JsonRecord):
    """One session."""

    _ALSO = ("peak_ratio",)

    session_id: str | None
    path: str
    project: str | None
    """Name of the directory that the session works in."""
    first_prompt: str | None
    """The beginning of its first prompt."""
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
    parts: list[dict[str, Any]] = field(default_factory=list)
    """What fills the context at the end: the fields of each `ContextPart`; they sum up to `tokens`."""
    notes: list[str] = field(default_factory=list)
    """What a reader of the report should know: what was left out, and what is a guess."""
    cache: CacheUse = field(default_factory=CacheUse)
    """What the prompt cache read and wrote for the main agent, and what it wrote a second time."""

    @property
    def peak_ratio(self) -> float | None:
        """The largest request as a share of the window."""
        return None if self.peak_tokens is None or self.window <= 0 else round(self.peak_tokens / self.window, 6)

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


@dataclass(slots=True)
class ContextReport(JsonRecord):
    """All sessions that were asked for."""

    sessions: list[SessionReport]
    """The newest first."""
    notes: list[str] = field(default_factory=list)
    """What was left out."""
