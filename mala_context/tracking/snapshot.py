"""The state of one agent's context at one moment."""

from __future__ import annotations

from typing import Any

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.cache import CacheUse
from mala_context.tracking.context_map import EMPTY, ContextPart, MapView
from mala_context.tracking.projection import Interval
from mala_context.tracking.windows import WindowState


class ContextSnapshot(NamedTuple):
    """How full one agent's context is; unknown is `None`, never 0. All sizes are in tokens.

    `ratio` is a share of the whole window. `usable_ratio` is a share of the part that is usable before the CLI
    compacts, and `tokens_left` is the rest of that part.
    """

    session_id: str | None
    """Session that the agent belongs to; `None` before the first message that names it."""
    agent_id: str | None
    """Id of a subagent in its transcript (`agentId`); `None` for the main agent, or if unknown."""
    tool_use_id: str | None
    """Id of the Task call that started a subagent; `None` for the main agent, or if unknown."""
    model: str | None
    """Model of the last response; before the first response, the session's model."""
    tokens: int | None
    """Size of the last request, as `/context` prints it: input + cache creation + cache read."""
    output_tokens: int | None
    """Output of the last response; a placeholder of a few tokens until its end is seen."""
    window: int
    """The context window."""
    window_source: str
    """The source of the window: see `windows.SOURCES`."""
    window_doubtful: bool
    """Whether an event has contradicted this window."""
    auto_compact_threshold: int | None
    """The size at which the CLI compacts by itself; `None` unless it is known to compact before a refusal."""
    exact: bool
    """Whether `tokens` is the API's count."""
    accuracy: str
    """`exact`, `estimate` (after a compaction), `rough` (the same with less information), or `unknown`."""
    usage_source: str | None
    """Source of the count: `message`, `stream`, `delta`, `result`, `row`, `boundary`; `None` while unknown."""
    responses: int
    """Responses of this agent in this session."""
    compactions: int
    """Compactions of this agent in this session."""
    overflows: int
    """Requests that were refused, and turns that failed, because the context was too long."""
    resets: int
    """How often the conversation was thrown away and started again (`/clear`) within this session."""
    compaction_helped: bool | None
    """Whether the first response after the last compaction was below 90 % of the size before; `None` while unknown."""
    by_reference: bool
    """Whether the last compaction kept the words instead of a summary; in a transcript, known one row later."""
    estimator: str
    """Name of the formula of `ratio`."""
    estimate: int | None
    """The value of that formula."""
    event: str
    """Name of the event that made this snapshot."""
    before: ContextSnapshot | None
    """On a compaction's snapshot: the snapshot just before the compaction; otherwise `None`."""
    interval: Interval
    """The text after the last response, for the projections; not for use from outside."""
    appended: int
    """How many parts of `interval` there were at this moment; later parts do not change this snapshot."""
    cut: bool
    """Whether the last answer was nothing but a thought, and so is not in the context."""
    told: bool
    """Whether the last answer's output is certainly real, not a placeholder."""
    switched: int
    """Tokens of thinking that the next request holds more (below 0: fewer) than the last; see `ContextState.switched`.
    """
    map: MapView = EMPTY
    """The sizes from which `parts` is made; not for use from outside."""
    cache: CacheUse = CacheUse()
    """Tokens that the prompt cache read, wrote and wrote again for this agent in this session."""

    @property
    def ratio(self) -> float | None:
        """The estimate as a share of the window; may exceed 1.0."""
        return None if self.estimate is None or self.window <= 0 else self.estimate / self.window

    @property
    def window_state(self) -> WindowState:
        """How well the window is known: `known`, `guess`, or `doubtful`."""
        return "guess" if self.window_source == "guess" else "doubtful" if self.window_doubtful else "known"

    @property
    def usable_ratio(self) -> float | None:
        """`tokens` as a share of the auto-compact threshold; `None` without a threshold."""
        threshold = self.auto_compact_threshold
        return None if self.tokens is None or not threshold else self.tokens / threshold

    @property
    def tokens_left(self) -> int | None:
        """Tokens until the CLI compacts by itself or, without a threshold, until the window is full; never below 0."""
        if self.tokens is None:
            return None
        limit = self.window if self.auto_compact_threshold is None else self.auto_compact_threshold
        return limit - self.tokens if limit > self.tokens else 0

    @property
    def parts(self) -> tuple[ContextPart, ...]:
        """The parts of the context, which sum up to `tokens`; empty while `tokens` is unknown."""
        return self.map.parts(self.tokens)

    @property
    def reserve(self) -> int | None:
        """Tokens of the window that stay free because the CLI compacts before; they are no part of `tokens`."""
        return None if self.auto_compact_threshold is None else self.window - self.auto_compact_threshold

    @property
    def projected(self) -> int | None:
        """Size of the next request: the last request, its answer, and the text that was appended since.

        It is counted when it is first asked for, and does not change after that.
        """
        if self.tokens is None:
            return None
        output = self.output_tokens or 0
        tokens = self.tokens + self.switched
        return self.interval.projected(tokens, output, cut=self.cut, told=self.told, parts=self.appended)

    @property
    def projected_by_table(self) -> int | None:
        """The value of `projected` without prices learned in this session; it depends on the last rows alone."""
        if self.tokens is None:
            return None
        output = self.output_tokens or 0
        return self.interval.by_table(self.tokens, output, cut=self.cut, told=self.told, parts=self.appended)

    @property
    def cli_estimate(self) -> int | None:
        """The CLI's own estimate: the last request and chars/4 of the new text.

        The CLI compares it with its threshold, and records it as preTokens.
        """
        if self.tokens is None:
            return None
        return self.interval.cli_estimate(self.tokens, self.output_tokens or 0, parts=self.appended)

    def __repr__(self) -> str:
        return f"ContextSnapshot({', '.join(f'{name}={getattr(self, name)!r}' for name in _NAMES)})"

    def as_dict(self) -> dict[str, Any]:
        """Return every value under its name, for JSON; the keys are stable."""
        parts = [part._asdict() for part in self.parts]
        return {**{name: getattr(self, name) for name in _NAMES}, "parts": parts, "cache": self.cache.as_dict()}


_NAMES = (
    *(
        name
        for name in ContextSnapshot._fields
        if name not in ("before", "interval", "appended", "cut", "told", "switched", "map", "cache")
    ),
    *("projected", "cli_estimate", "ratio", "usable_ratio", "tokens_left", "reserve"),
)
