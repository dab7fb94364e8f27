"""Token counts: of one API response (`Usage`), and of a session so far (`ContextUsage`).

Usage objects come from three sources (the SDK, stream-json, transcripts) of old and new versions. So parsing takes a
mapping, or any object with the fields as attributes, and never raises: a field that cannot be read as a count is 0, and
an object that is no usage at all gives `None`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mala_context._util.records import Record
from mala_context._util.tuples import NamedTuple

TRACKING_DISABLED: Final = -1
"""The value of `ContextUsage.input_tokens` while tracking is disabled."""


MOST: Final = 1 << 50
"""A value from here on is no count of tokens. Sums of smaller values fit wherever they are kept."""


def _field(raw: Any, name: str) -> Any:
    return raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)


def _count(value: Any) -> int:
    if value.__class__ is int:
        return value if 0 < value < MOST else 0
    if isinstance(value, float) and 0 < value < MOST:
        return int(value)
    return 0


_PROMPT: Final = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def strangers(raw: Any) -> tuple[str, ...]:
    """Return the names of unknown fields that may count a part of the prompt.

    A future API may rename a count; to read the rest would give too small a size. There are no such fields if all three
    known counts of the prompt are there: an unknown field then only divides them. Nor are there any in a usage that
    simply has no cache, or that repeats its counts in the spelling of OpenAI-compatible servers.
    """
    fields = raw if isinstance(raw, Mapping) else getattr(raw, "__dict__", None)
    if not isinstance(fields, Mapping) or all(name in fields for name in _PROMPT):
        return ()
    return tuple(name for name in fields if isinstance(name, str) and _may_count_a_prompt(name, fields))


def _may_count_a_prompt(name: str, fields: Mapping[str, Any]) -> bool:
    if name in _PROMPT or not any(word in name.lower() for word in ("input", "prompt", "cache")):
        return False
    if "input_tokens" in fields and (name == "prompt_tokens" or name.endswith("_details")):
        return False
    value = fields[name]
    return any(map(_count, value.values())) if isinstance(value, Mapping) else _count(value) > 0


def is_call(kind: Any) -> bool:
    """Tell whether an entry of `iterations` is a call of the agent's own model, by its type.

    `message` is one, `fallback_message` too (case core-20); an advisor's call is another model's, with a context of its
    own.
    """
    return isinstance(kind, str) and kind.endswith("message") and not kind.startswith("advisor")


LEAST_INCLUSIVE: Final = 1_000
"""Fewest tokens at which equal counts mean that the cache is counted twice: smaller counts may be equal by chance."""


class Usage(NamedTuple):
    """What the API counted for one response, in tokens."""

    input_tokens: int = 0
    """Prompt tokens that were neither read from the cache nor written to it."""
    cache_creation_tokens: int = 0
    """Prompt tokens written to the cache."""
    cache_read_tokens: int = 0
    """Prompt tokens read from the cache."""
    output_tokens: int = 0
    """Tokens of the answer; streamed messages carry a placeholder here."""

    @property
    def context_tokens(self) -> int:
        """Size of the request: input + cache creation + cache read (what `/context` prints)."""
        fresh, written, read, _ = self
        return written + read if self.counts_cache_twice else fresh + written + read

    @property
    def counts_cache_twice(self) -> bool:
        """Whether `input_tokens` is exactly the sum of the two cache counts: some proxies put the whole prompt there.

        See case core-23. The real API gives the few uncached tokens there.
        """
        fresh, written, read, _ = self
        return fresh == written + read and fresh >= LEAST_INCLUSIVE

    @classmethod
    def parse(cls, raw: Any) -> Usage | None:
        """Read the top-level counts of a mapping or an object; `None` if it is neither.

        For a `ResultMessage` these are sums over the turn's responses.
        """
        if raw.__class__ is dict:  # what every live message has; the general way costs five times as much
            get = raw.get
            counts: tuple[Any, Any, Any, Any] = (
                get("input_tokens"),
                get("cache_creation_input_tokens"),
                get("cache_read_input_tokens"),
                get("output_tokens"),
            )
            for value in counts:
                if value.__class__ is not int or not 0 <= value < MOST:
                    return cls(*map(_count, counts))
            return cls(*counts)
        if isinstance(raw, Usage):
            return raw
        if raw is None or isinstance(raw, str | bytes | int | float | Sequence):
            return None
        return cls(
            _count(_field(raw, "input_tokens")),
            _count(_field(raw, "cache_creation_input_tokens")),
            _count(_field(raw, "cache_read_input_tokens")),
            _count(_field(raw, "output_tokens")),
        )

    @classmethod
    def understood(cls, raw: Any) -> Usage | None:
        """Read the top-level counts as `parse` does; `None` also if a count may be there under an unknown name."""
        return None if strangers(raw) else cls.parse(raw)

    @classmethod
    def of_last_call(cls, raw: Any) -> Usage | None:
        """Read the counts of a response's last model call; `None` if a count may be there under an unknown name.

        A server-side loop puts several calls into one response. Then the top level is a sum, and the next request
        builds on the last entry of `iterations` that is a call (see `is_call`). An entry that equals the top level is
        that call, whatever its type is named. If the top level is all zero, the iterations are left over from the time
        before a compaction, and the zeros are returned.
        """
        usage = cls.understood(raw)
        if usage is None or not usage.context_tokens:
            return usage
        # The advisor and web search run inside one response, whose top level is then a sum over all calls (cc#81620,
        # cc#84738; cases core-20 and core-29). The next request builds on the last call alone.
        iterations = raw.get("iterations") if raw.__class__ is dict else _field(raw, "iterations")
        if iterations and isinstance(iterations, Sequence) and not isinstance(iterations, str | bytes):
            for row in reversed(iterations):
                named = is_call(_field(row, "type"))
                if named and strangers(row):
                    return None
                last = cls.parse(row)
                if last is not None and last.context_tokens and (named or last == usage):
                    return last
        return usage


class ContextUsage(Record):
    """Cumulative token counts of a session, the ledger of the `cumulative` estimator.

    It answers how much work was done, not how full the window is. Not safe to share between threads.
    """

    input_tokens: int = 0
    """Uncached input tokens so far, or `TRACKING_DISABLED`."""
    output_tokens: int = 0
    """Output tokens so far."""
    cache_read_tokens: int = 0
    """Tokens read from the prompt cache so far; for telemetry, never part of the pressure."""

    def add_turn(self, *, input_tokens: int, output_tokens: int, cache_read_tokens: int = 0) -> None:
        """Add the counts of one turn; a negative count is taken as 0. Does nothing while disabled.

        `input_tokens` and `output_tokens` make the sum; `cache_read_tokens` are kept only for telemetry.
        """
        if not self.is_tracking_enabled():
            return
        self.input_tokens += max(0, input_tokens)
        self.output_tokens += max(0, output_tokens)
        self.cache_read_tokens += max(0, cache_read_tokens)

    def reset(self) -> None:
        """Set the counts to 0; a disabled ledger stays disabled."""
        if self.is_tracking_enabled():
            self.input_tokens = 0
        self.output_tokens = 0
        self.cache_read_tokens = 0

    def disable_tracking(self) -> None:
        """Stop counting, e.g. because a result came without usage; the pressure is 0.0 from now on."""
        self.input_tokens = TRACKING_DISABLED

    def enable_tracking(self) -> None:
        """Count again, from zero, after `disable_tracking`; nothing happens while enabled."""
        if not self.is_tracking_enabled():
            self.input_tokens = self.output_tokens = self.cache_read_tokens = 0

    def is_tracking_enabled(self) -> bool:
        """Tell whether turns are being counted."""
        return self.input_tokens != TRACKING_DISABLED

    @property
    def tracking_disabled(self) -> bool:
        """Whether counting has stopped."""
        return not self.is_tracking_enabled()

    @property
    def disabled(self) -> bool:
        """The same as `tracking_disabled`."""
        return self.tracking_disabled

    def pressure_ratio(self, context_limit: int) -> float:
        """Return (input + output) / limit; 0.0 while disabled or for a limit ≤ 0; may exceed 1.0.

        A negative count, which only assignment can make, is taken as 0, and one above 2^50 as 2^50.
        """
        if context_limit <= 0 or not self.is_tracking_enabled():
            return 0.0
        return sum(int(min(max(0, count), MOST)) for count in (self.input_tokens, self.output_tokens)) / context_limit
