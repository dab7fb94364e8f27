"""What is known of one agent's context at one moment."""

from __future__ import annotations

from typing import Any

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.cache import CacheUse
from mala_context.tracking.context_map import EMPTY, ContextPart, MapView
from mala_context.tracking.projection import Interval
from mala_context.tracking.windows import WindowState


class ContextSnapshot(NamedTuple):
    """How full one agent's context is; unknown is `None`, never 0. All sizes are in tokens.

    Three ratios, each of its own: `ratio` of the window, `usable_ratio` of what is usable before the CLI compacts, and
    `tokens_left` until then.
    """

    session_id: str | None
    """Session that the agent belongs to; `None` before the first message that names it."""
    agent_id: str | None
    """Id of a subagent in its transcript (`agentId`); `None` for the main agent, and where it is not known."""
    tool_use_id: str | None
    """Id of the Task call that started a subagent; `None` for the main agent, and where it is not known."""
    model: str | None
    """Model of the last response, or the session's model before the first."""
    tokens: int | None
    """Size of the last request, as `/context` prints it: input + cache creation + cache read."""
    output_tokens: int | None
    """Output of the last response; a placeholder of a few tokens until its end is seen."""
    window: int
    """The context window."""
    window_source: str
    """Which source answered: see `windows.SOURCES`."""
    window_doubtful: bool
    """Whether something was seen that this window does not explain."""
    auto_compact_threshold: int | None
    """Where the CLI compacts by itself; `None` where that is not known to be proactive."""
    exact: bool
    """Whether `tokens` is what the API counted."""
    accuracy: str
    """`exact`, `estimate` (after a compaction), `rough` (with less known), or `unknown`."""
    usage_source: str | None
    """Where the count stands: `message`, `stream`, `delta`, `result`, `row`, `boundary`; `None` while unknown."""
    responses: int
    """Responses of this agent in this session."""
    compactions: int
    """Compactions of this agent in this session."""
    overflows: int
    """Requests that were refused or turns that failed since the context was too long."""
    resets: int
    """How often the conversation was thrown away and started again (`/clear`) within this session."""
    compaction_helped: bool | None
    """Whether the first response after the last compaction was below 90 % of the size before; `None` while unknown."""
    by_reference: bool
    """Whether the last compaction kept the words in place of a summary; a transcript tells it a row later."""
    estimator: str
    """The formula of `ratio`."""
    estimate: int | None
    """What that formula says."""
    event: str
    """Name of the event that made this snapshot."""
    before: ContextSnapshot | None
    """On the snapshot that a compaction makes: what was known just before it."""
    interval: Interval
    """What came after the last response, for the two values below; not for use from outside."""
    appended: int
    """How much of it was there."""
    cut: bool
    """Whether the last answer was nothing but a thought, and so is not in the context."""
    told: bool
    """Whether the last answer's output is real for sure."""
    switched: int
    """Tokens of thinking that the next request holds more, below 0 fewer; see `ContextState.switched`."""
    map: MapView = EMPTY
    """What fills the context, for `parts`; not for use from outside."""
    cache: CacheUse = CacheUse()
    """What the prompt cache read and wrote for this agent in this session, and what it wrote again."""

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
        """`tokens` as a share of the auto-compact threshold, where there is one."""
        threshold = self.auto_compact_threshold
        return None if self.tokens is None or not threshold else self.tokens / threshold

    @property
    def tokens_left(self) -> int | None:
        """Tokens until the CLI compacts, or until the window is full where it does not by itself; never below 0."""
        if self.tokens is None:
            return None
        limit = self.window if self.auto_compact_threshold is None else self.auto_compact_threshold
        return limit - self.tokens if limit > self.tokens else 0

    @property
    def parts(self) -> tuple[ContextPart, ...]:
        """What fills the context: parts that sum up to `tokens`; empty while that is unknown."""
        return self.map.parts(self.tokens)

    @property
    def reserve(self) -> int | None:
        """Tokens of the window that the CLI keeps free, since it compacts before; they are no part of `tokens`."""
        return None if self.auto_compact_threshold is None else self.window - self.auto_compact_threshold

    @property
    def projected(self) -> int | None:
        """What the next request will hold: the last one, its answer, and what was appended since.

        Counted when first asked for; the value does not change after that.
        """
        if self.tokens is None:
            return None
        output = self.output_tokens or 0
        tokens = self.tokens + self.switched
        return self.interval.projected(tokens, output, cut=self.cut, told=self.told, parts=self.appended)

    @property
    def projected_by_table(self) -> int | None:
        """What `projected` would be had the session taught nothing; it follows from the last rows alone."""
        if self.tokens is None:
            return None
        output = self.output_tokens or 0
        return self.interval.by_table(self.tokens, output, cut=self.cut, told=self.told, parts=self.appended)

    @property
    def cli_estimate(self) -> int | None:
        """What the CLI compares with its threshold and records as preTokens: chars/4 on top of the last request."""
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
