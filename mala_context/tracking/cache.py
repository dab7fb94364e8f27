"""The tokens that the prompt cache read and wrote for one agent, and the tokens that were written a second time.

A request reads from the cache the longest beginning that the cache still holds, and writes the rest up to its last
cache mark. The request before it left `held` tokens there (read + written). If the next request reads fewer tokens and
writes some, these were written again: `min(held - read, written)`. The cause is the first of these that applies: there
was a compaction between the two, the model is another one, the entry's time to live had run out, the prefix changed. An
entry lives for five minutes or an hour after its last use; the request that wrote it chose which.

Costs are in units of one uncached input token, so that they hold for every model: a written token costs 1.25 (five
minutes) or 2 (an hour), a read token 0.1 or less, a token of output 5. In the price list of the Claude API all models
have these ratios; only the newest ones read for less (`READS`).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.usage import Usage

Cause = Literal["lapsed", "prefix", "model", "compaction", "first"]

CAUSES: Final = {
    "lapsed": "the cache had lapsed",
    "prefix": "the prefix changed",
    "model": "the model was switched",
    "compaction": "after a compaction",
    "first": "first request",
}
"""Causes in words."""
LEAST: Final = 1_000
"""Fewer tokens do not count as written again: the cache marks of two requests are not always at the same place."""
SAID: Final = 10_000
"""Tokens from which a log line reports it."""
MOST_MINUTES: Final = 600
"""Minutes from which the line gives the time in hours."""
WRITE_SHORT: Final = 1.25
WRITE_HOUR: Final = 2.0
OUTPUT: Final = 5.0
READ: Final = 0.1
READS: Final = (
    ("claude-opus-5-5", 0.05),
    ("claude-sonnet-5-5", 0.05),
    ("claude-fable-5-1", 0.025),
    ("claude-mythos-5-1", 0.025),
)
"""The price of reads for models that read for less than `READ`, by the beginning of the model's name."""
SHORT: Final = 300.0
"""Seconds that an entry lives after its last use."""
HOUR: Final = 3600.0
"""The same for an entry that was written for an hour."""


def read_price(model: str | None) -> float:
    """Return the price of a token that is read from the cache, in units of an uncached input token."""
    return next((price for name, price in READS if (model or "").startswith(name)), READ)


def write_price(written: int, hour: int) -> float:
    """Return the average price of a written token if `hour` of `written` tokens are kept for an hour."""
    return WRITE_SHORT + (WRITE_HOUR - WRITE_SHORT) * (hour / written if written else 0.0)


def seconds(time: object) -> float | None:
    """Return a time (ISO 8601 or a number) in seconds since the epoch; `None` for anything else."""
    if isinstance(time, str):
        try:
            return datetime.fromisoformat(time).timestamp()
        except ValueError:
            return None
    return float(time) if isinstance(time, int | float) else None


class Rewrite(NamedTuple):
    """Tokens that one request wrote to the cache although the request before it had left them there."""

    cause: Cause
    """Why they were written. `first` means the first request of a conversation, which found nothing in the cache."""
    tokens: int
    """How many tokens."""
    cost: float
    """The extra cost of writing them instead of reading them, in units of an uncached input token."""
    idle_seconds: float | None
    """Seconds since the request before it; `None` if unknown."""

    @property
    def again(self) -> bool:
        """Whether these tokens had been written before: a first request and one after a compaction write new ones."""
        return self.cause not in ("first", "compaction")

    @property
    def line(self) -> str:
        """The log line."""
        why = CAUSES[self.cause]
        if self.cause == "lapsed" and self.idle_seconds is not None:
            minutes = self.idle_seconds / 60
            why = f"{minutes:.0f} min idle" if minutes < MOST_MINUTES else f"{minutes / 60:.0f} h idle"
        return f"Cache: {self.tokens:,} tokens written again ({why})"


class CauseSum(NamedTuple):
    """All re-writes of one cause."""

    requests: int = 0
    """How many requests."""
    tokens: int = 0
    """How many tokens they wrote again."""
    cost: float = 0.0
    """The extra cost of writing instead of reading, in units of an uncached input token."""

    def plus(self, requests: int, tokens: int, cost: float) -> CauseSum:
        """Return the sum of both."""
        return CauseSum(self.requests + requests, self.tokens + tokens, self.cost + cost)


class CacheUse(NamedTuple):
    """The cache's work for one agent so far; all counts are tokens, summed over the agent's requests."""

    uncached: int = 0
    """Prompt tokens that were neither read nor written."""
    written_5m: int = 0
    """Tokens written for five minutes."""
    written_1h: int = 0
    """Tokens written for an hour."""
    read: int = 0
    """Tokens read from the cache."""
    causes: tuple[tuple[str, CauseSum], ...] = ()
    """Re-writes by cause (`lapsed`, `prefix`, `model`, `compaction`, `first`); only causes that occurred."""

    @property
    def rewritten(self) -> int:
        """Tokens that were written a second time, because of a lapse, a changed prefix or another model."""
        return sum(each.tokens for cause, each in self.causes if cause not in ("first", "compaction"))

    @property
    def cost(self) -> float:
        """The extra cost of writing these tokens instead of reading them, in units of an uncached input token."""
        return sum(each.cost for cause, each in self.causes if cause not in ("first", "compaction"))

    def plus(self, other: CacheUse) -> CacheUse:
        """Return the sum of both."""
        causes = dict(self.causes)
        for cause, each in other.causes:
            causes[cause] = causes.get(cause, CauseSum()).plus(*each)
        uncached, short, hour, read, _ = other
        sums = (self.uncached + uncached, self.written_5m + short, self.written_1h + hour, self.read + read)
        return CacheUse(*sums, tuple(sorted(causes.items())))

    def as_dict(self) -> dict[str, object]:
        """Return the counts for JSON."""
        causes = {cause: each._asdict() for cause, each in self.causes}
        return {**self._asdict(), "rewritten": self.rewritten, "cost": self.cost, "causes": causes}


class CacheLedger:
    """Follows the requests of one agent."""

    __slots__ = (
        "_causes",
        "_use",
        "compacted",
        "held",
        "hour",
        "last",
        "model",
        "news",
        "read",
        "short",
        "time",
        "ttl",
        "uncached",
    )

    def __init__(self) -> None:
        self.uncached = self.short = self.hour = self.read = 0
        self.held: int | None = None
        """Tokens that the last request left in the cache; `None` before the first of a conversation."""
        self.model: str | None = None
        self.time: object = None
        """When the last request was answered, in the form that the source gave."""
        self.last: Rewrite | None = None
        """The tokens that the last request wrote again."""
        self.news: Rewrite | None = None
        """The same, until somebody has reported it and sets this to `None`."""
        self.ttl = SHORT
        """Seconds that the newest entry lives."""
        self.compacted = False
        """Whether the conversation was compacted after the last request."""
        self._causes: dict[str, CauseSum] = {}
        self._use: CacheUse | None = None

    def take(self, usage: Usage, hour: int, time: object, model: str | None) -> None:
        """Take a response's counts, the time and the model; `hour` of the written tokens were written for an hour."""
        if not self.goes_on(usage, hour, time, model):
            found = self._rewrite(usage, hour, time, model)
            # With these two values `goes_on` accepts the same counts, so only `goes_on` adds to the sums.
            self.held, self.compacted = usage.cache_read_tokens, False
            self.goes_on(usage, hour, time, model)
            self.last = self.news = found

    def goes_on(self, usage: Usage, hour: int, time: object, model: str | None) -> bool:
        """Take the counts like `take`, but return `False` and take nothing if the request may write tokens again.

        The fast path calls this, so it has no call and no comparison of times.
        """
        fresh, written, read, _ = usage
        held = self.held
        if held is None or held - read >= LEAST or self.compacted:
            return False
        self.held = held = read + written
        self.time = time
        self.model = model
        self.last = self._use = None
        self.read += read
        if fresh != held or fresh < LEAST:  # else the input has the cache in it: see `Usage.counts_cache_twice`
            self.uncached += fresh
        if hour and written:
            hour = min(hour, written)
            self.hour += hour
            self.short += written - hour
            self.ttl = HOUR
        elif written:
            self.short += written
            self.ttl = SHORT
        return True

    def correct(self, known: Usage, now: Usage) -> None:
        """Replace the last response's counts `known` by `now`."""
        self.uncached += now.input_tokens - known.input_tokens
        self.read += now.cache_read_tokens - known.cache_read_tokens
        self.short += now.cache_creation_tokens - known.cache_creation_tokens
        self.held, self._use = now.cache_read_tokens + now.cache_creation_tokens, None

    def begin_again(self) -> None:
        """Note that the next request is the first one of a new conversation."""
        self.held = None

    @property
    def use(self) -> CacheUse:
        """The cache's work so far."""
        if self._use is None:
            causes = tuple(sorted(self._causes.items()))
            self._use = CacheUse(self.uncached, self.short, self.hour, self.read, causes)
        return self._use

    def _rewrite(self, usage: Usage, hour: int, time: object, model: str | None) -> Rewrite | None:
        """Count the tokens that a request wrote again, and return them; `None` if there are fewer than `LEAST`."""
        now, before = seconds(time), seconds(self.time)
        idle = None if now is None or before is None else max(0.0, now - before)
        written = tokens = usage.cache_creation_tokens
        cause: Cause = "first"
        if self.held is not None:
            tokens = min(self.held - usage.cache_read_tokens, written)
            if self.compacted:
                cause = "compaction"
            elif model != self.model:
                cause = "model"
            else:
                cause = "lapsed" if idle is not None and idle >= self.ttl else "prefix"
        if tokens < LEAST:
            return None
        cost = tokens * (write_price(written, min(hour, written)) - read_price(model))
        self._causes[cause] = self._causes.get(cause, CauseSum()).plus(1, tokens, cost)
        return Rewrite(cause, tokens, cost, idle)


SUMMARY: Final = 6_000
"""Tokens of a compaction's summary: the median of 77 recorded summaries is 5,555."""
LEAD: Final = 60.0
"""Least seconds between the compaction of an idle context and the cache's lapse."""


def compaction_cost(size: int, model: str | None, *, write: float | None = None) -> float:
    """Return the cost of a compaction by a model, which reads a context of `size` tokens and writes a summary.

    `write` is the price of writing a token, for a cache that has lapsed; with `None` the context is read from the
    cache. The cost is in units of an uncached input token.
    """
    return size * (read_price(model) if write is None else write) + SUMMARY * OUTPUT


def idle_after(ttl: float) -> float:
    """Return the seconds of silence after which an idle context is compacted, if cache entries live for `ttl` seconds.

    It is a minute before the lapse, or a twentieth of the entry's life if that is longer. So it comes after the CLI's
    own compaction of an idle context, which begins at 0.9 of an hour.
    """
    return ttl - max(LEAD, ttl / 20)


def pays_to_compact(size: int, left: int, model: str | None, ttl: float) -> bool:
    """Tell whether a compaction before the lapse costs less than a cold start with `size` tokens after it.

    `left` is the size after the compaction, which the next request writes. The compaction itself reads the context from
    the cache, which is cheap.
    """
    write = WRITE_HOUR if ttl >= HOUR else WRITE_SHORT
    return size * write > compaction_cost(size, model) + left * write
