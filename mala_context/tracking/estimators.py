"""The five formulas that say how full a context is, under one protocol.

| name | formula | where it fails |
| -- | -- | -- |
| `occupancy` | the last response's request: input + cache creation + cache read | nowhere that is known; the default |
| `cumulative` | Σ input + Σ output; cache reads for telemetry only | with a prompt cache it sees almost nothing |
| `max_cache_read` | max(cache read) + Σ input + Σ output | after a compaction the maximum stays |
| `total_tokens` | the last answer's `total_tokens` | leaves out the text that was appended since |
| `characters` | ceil(chars/4) of all text that was appended | system prompt and tools are no text that we see |

The tracker gives every estimator the counts of each response once, as plain numbers. It gives several responses
together where no answer was asked for between them. An estimator keeps the sums that its formula needs, and answers
with an `Estimate`. None of them raises. A baseline (the size of a fresh session, from `/context`) is reported beside
the figure and never added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.events import TotalTokens
from mala_context.tracking.text_counts import all_text
from mala_context.tracking.usage import ContextUsage, Usage
from mala_context.tracking.windows import OPENAI_WINDOW

COMPACT_AT: Final = 0.90
"""Share of the window at which an OpenAI-compatible conversation wants to be compacted."""


class Estimate(NamedTuple):
    """An estimator's answer."""

    tokens: int | None
    """The formula's value; `None` while it has no counts."""
    audit: Mapping[str, int | None] = {}
    """The raw values that `tokens` was computed from, by stable names."""
    is_estimate: bool = False
    """Whether the value was derived from text instead of counts."""
    window: int | None = None
    """A window of the estimator's own; `None` for the model's."""


Count = Usage | tuple[Usage, Usage]
"""Counts of a new response; or, for a correction, a response's counts before and after it."""


class Counted(NamedTuple):
    """The sums of some counts in a row."""

    sums: Usage
    """The amount to add to each of the four sums."""
    responses: int
    """How many of them are of new responses."""
    most_read: int
    """The largest of their cache reads."""
    last: Usage
    """The last of them."""


def counted(counts: Sequence[Count]) -> Counted:
    """Return the sums of at least one count."""
    if len(counts) == 1 and isinstance(counts[0], Usage):
        return Counted(counts[0], 1, counts[0].cache_read_tokens, counts[0])
    now: Sequence[Usage] = counts  # type: ignore[assignment]  # where no pair is among them
    before: list[Usage] = []
    if set(map(len, counts)) != {len(Usage._fields)}:
        now = [each if isinstance(each, Usage) else each[1] for each in counts]
        before = [each[0] for each in counts if not isinstance(each, Usage)]
    columns = list(zip(*now, strict=True))
    sums = map(sum, columns)
    if before:
        sums = map(int.__sub__, sums, map(sum, zip(*before, strict=True)))
    return Counted(Usage(*sums), len(now) - len(before), max(columns[2]), now[-1])


class Estimator(Protocol):
    """The news that a formula gets, a method each. A method may do nothing."""

    def counted(self, counts: Counted) -> None:
        """Take the counts of one response or of several."""

    def turn(self, usage: Usage | None) -> None:
        """Take a turn's sums; `None` where the result has no usage."""

    def text(self, chars: int) -> None:
        """Take the characters of an interval that has ended."""

    def compacted(self, post_tokens: int | None) -> None:
        """Take notice that a summary replaced the conversation."""

    def total(self, event: TotalTokens) -> None:
        """Take an OpenAI-compatible answer."""

    def estimate(self, tokens: int | None, pending_chars: Callable[[], int | None]) -> Estimate:
        """Answer, given the last request's size and a function that counts the characters not yet given to `text`.

        The function returns `None` where some text went by uncounted.
        """


class _Quiet:
    """Ignores all news; a formula overrides the methods that it needs."""

    __slots__ = ()

    def counted(self, counts: Counted) -> None:
        """Ignore responses."""

    def turn(self, usage: Usage | None) -> None:
        """Ignore a turn."""

    def text(self, chars: int) -> None:
        """Ignore text."""

    def compacted(self, post_tokens: int | None) -> None:
        """Ignore a compaction."""

    def total(self, event: TotalTokens) -> None:
        """Ignore an OpenAI-compatible answer."""


class Occupancy(_Quiet):
    """The last request as the API counted it."""

    __slots__ = ()

    def estimate(self, tokens: int | None, pending_chars: Callable[[], int | None]) -> Estimate:
        """Return the last request's size as it is."""
        return Estimate(tokens)


class Cumulative(_Quiet):
    """Σ input + Σ output: of finished turns by their results, of the running turn by its responses."""

    __slots__ = ("_input", "_ledger", "_output", "_read")

    def __init__(self) -> None:
        self._ledger = ContextUsage()
        self._input = self._output = self._read = 0

    def counted(self, counts: Counted) -> None:
        """Count responses of the running turn."""
        self._input += counts.sums.input_tokens
        self._output += counts.sums.output_tokens
        self._read += counts.sums.cache_read_tokens

    def turn(self, usage: Usage | None) -> None:
        """Replace the counts of the turn's responses with its own sums; without usage, stop counting."""
        self._input = self._output = self._read = 0
        if usage is None:
            self._ledger.disable_tracking()
            return
        self._ledger.add_turn(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
        )

    def estimate(self, tokens: int | None, pending_chars: Callable[[], int | None]) -> Estimate:
        """Return Σ input + Σ output; `None` once a result came without usage."""
        ledger = self._ledger
        if not ledger.is_tracking_enabled():
            return Estimate(None)
        sums = (ledger.input_tokens + self._input, ledger.output_tokens + self._output)
        read = ledger.cache_read_tokens + self._read
        audit = {"input_tokens": sums[0], "output_tokens": sums[1], "cache_read_tokens": read}
        return Estimate(sum(sums) or None, audit)


class MaxCacheRead(_Quiet):
    """max(cache read) + Σ input + Σ output over responses, and Σ cache creation + Σ input + Σ output as its audit."""

    __slots__ = ("_calls", "_creation", "_input", "_maximum", "_output")

    def __init__(self) -> None:
        self._maximum = self._input = self._output = self._creation = self._calls = 0

    def counted(self, counts: Counted) -> None:
        """Count each response once, by its latest counts."""
        self._calls += counts.responses
        self._input += counts.sums.input_tokens
        self._output += counts.sums.output_tokens
        self._creation += counts.sums.cache_creation_tokens
        self._maximum = max(self._maximum, counts.most_read)

    def estimate(self, tokens: int | None, pending_chars: Callable[[], int | None]) -> Estimate:
        """Return the primary figure; the audit one and the raw values stand beside it."""
        primary = self._maximum + self._input + self._output
        audit = {
            "max_cache_read": self._maximum,
            "sum_in": self._input,
            "sum_out": self._output,
            "sum_cache_create": self._creation,
            "primary_tokens": primary,
            "audit_tokens": self._creation + self._input + self._output,
            "unique_api_calls": self._calls,
        }
        return Estimate(primary if self._calls else None, audit)


class LastTotal(_Quiet):
    """The last answer's total, as OpenAI-compatible servers report it; an answer without one leaves it alone."""

    __slots__ = ("_answer_id", "_chars", "_messages", "_openai", "_total")

    def __init__(self) -> None:
        self._total: int | None = None
        self._chars = self._messages = 0
        self._answer_id: str | None = None
        self._openai = False

    def counted(self, counts: Counted) -> None:
        """Take an Anthropic response's total: its request and its output."""
        self._total = counts.last.context_tokens + counts.last.output_tokens
        self._messages += counts.responses

    def total(self, event: TotalTokens) -> None:
        """Take an answer's total; keep the last one where it has none."""
        self._openai = True
        self._messages += event.answer_id is None or event.answer_id != self._answer_id  # a stream is one message
        self._answer_id = event.answer_id
        self._chars += len(all_text(event.content))
        if event.total_tokens is not None:
            self._total = event.total_tokens

    def estimate(self, tokens: int | None, pending_chars: Callable[[], int | None]) -> Estimate:
        """Return the last total; before the first, ceil(chars/4), marked as an estimate."""
        window = OPENAI_WINDOW if self._openai else None
        audit = {"messages": self._messages}
        if self._total is not None:
            return Estimate(self._total, audit, window=window)
        chars = self._chars + (pending_chars() or 0)
        return Estimate(-(-chars // 4) if chars else None, audit, is_estimate=True, window=window)


class Characters(_Quiet):
    """ceil(chars/4) of all text since the conversation began, or since its last compaction."""

    __slots__ = ("_chars",)

    def __init__(self) -> None:
        self._chars = 0

    def text(self, chars: int) -> None:
        """Add an interval's text."""
        self._chars += chars

    def compacted(self, post_tokens: int | None) -> None:
        """Start again from the size that the CLI says remains, which is chars/4 as well."""
        self._chars = 4 * (post_tokens or 0)

    def estimate(self, tokens: int | None, pending_chars: Callable[[], int | None]) -> Estimate:
        """Return ceil(chars/4); `None` before there is any text."""
        pending = pending_chars()
        chars = None if pending is None else self._chars + pending
        return Estimate(-(-chars // 4) if chars else None, {"chars": chars}, is_estimate=True)


ESTIMATORS: Final[Mapping[str, Callable[[], Estimator]]] = {
    "occupancy": Occupancy,
    "cumulative": Cumulative,
    "max_cache_read": MaxCacheRead,
    "total_tokens": LastTotal,
    "characters": Characters,
}
"""Estimator by name; make one for each agent."""
