"""Whether a request is what was projected, and if not, why: the rule of the truth alarm.

The stream shows what a request gains. A request that is 5 % off, and 2,000 tokens, holds something else than the stream
shows: the CLI cleared old results, a server edited the context, tools were loaded, a proxy changed the prompt. The next
count alone tells of it. Two real requests in a thousand are 5 % off at most.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.usage import Usage

ALARM_AT: Final = 0.05
"""Share of the projected request from which a difference is an alarm, where nothing else is said."""
LEAST: Final = 2_000
"""Tokens below which no difference is an alarm."""
CAUSES: Final[Mapping[str, str]] = {
    "microcompaction": "the CLI cleared old tool results",
    "context_editing": "the API edited the context",
    "model": "another model counts the same text",
    "thinking": "the API left out what the model thought in an earlier turn",
    "tools": "tools were loaded",
    "memory": "memory files changed",
    "prefix": "the cache was not read: a proxy, the system prompt or the tools changed its beginning, or it lapsed",
    "unexplained": "unexplained",
}
"""Causes, in the order in which they are looked for, with their words."""
_TOLD_BY: Final[Mapping[str, str]] = {
    "attachment:deferred_tools_delta": "tools",
    "attachment:mcp_instructions_delta": "tools",
    "tool_reference": "tools",
    "attachment:instructions": "memory",
    "attachment:nested_memory": "memory",
}
"""Causes that a unit of the text between tells (see `Countable.unit`)."""
_CACHED: Final = 1_024
"""Tokens from which a prompt is cached at all."""


class Surprise(NamedTuple):
    """A request that was not what was projected."""

    agent: str | None
    """A subagent's key; `None` for the main agent."""
    model: str | None
    """The model."""
    projected: int
    """What the request should have held, in tokens."""
    tokens: int
    """What it held, as the API counted."""
    cause: str
    """One of `CAUSES`."""
    read: int
    """Tokens of it that came from the prompt cache."""
    held: int
    """Tokens that the request before left in the cache."""

    @property
    def line(self) -> str:
        """The log line."""
        size, more = abs(self.tokens - self.projected), "more" if self.tokens > self.projected else "fewer"
        share = size / self.projected if self.projected else 1.0
        cached = f"; {min(self.read, self.held):,} of {self.held:,} cached tokens were read" if self.held else ""
        return (
            f"Context: the request held {size:,} tokens {more} than projected "
            f"({self.tokens:,}, not {self.projected:,}; {share:.1%}): {CAUSES[self.cause]}{cached}"
        )


class Lookout:
    """Who is told of alarms: a tracker's agents share it, and its owner takes what was found."""

    __slots__ = ("at", "found")

    def __init__(self, at: float | None) -> None:
        self.at = at
        self.found: deque[Surprise] = deque(maxlen=64)


def explained(surprise: Surprise, noted: Collection[str]) -> Surprise:
    """Return an alarm with a cause that the CLI named after it; as it is where it has one, or the CLI named none."""
    if surprise.tokens < surprise.projected or not unsure(surprise):
        return surprise
    return surprise._replace(cause=next((cause for cause in ("tools", "memory") if cause in noted), surprise.cause))


def unsure(surprise: Surprise) -> bool:
    """Tell whether the CLI may know the cause of an alarm better."""
    return surprise.cause in ("prefix", "unexplained")


def is_alarm(projected: int, tokens: int, at: float) -> bool:
    """Tell whether a request of this size is an alarm where another one was projected."""
    return abs(tokens - projected) >= max(LEAST, at * projected)


def surprise(
    agent: str | None,
    models: tuple[str | None, str | None],
    projected: int,
    before: Usage | None,
    now: Usage,
    noted: Collection[str],
    units: Collection[str],
) -> Surprise:
    """Return an agent's alarm of a request, whose counts are `now`; see `cause_of`."""
    held = 0 if before is None else before.cache_read_tokens + before.cache_creation_tokens
    cause = cause_of(before, now, models, noted, units)
    return Surprise(agent, models[1], projected, now.context_tokens, cause, now.cache_read_tokens, held)


def cause_of(
    before: Usage | None,
    now: Usage,
    models: tuple[str | None, str | None],
    noted: Collection[str],
    units: Collection[str],
) -> str:
    """Tell an alarm's cause: one that was `noted` since the response before, or that the text's `units` tell."""
    causes = {*noted, *(_TOLD_BY.get(unit) or _TOLD_BY.get(unit.partition(":")[0]) for unit in units)}
    if models[0] != models[1]:
        causes.add("model")
    grows = before is None or now.context_tokens > before.context_tokens
    for cause in CAUSES:
        if cause in causes and (grows or cause not in ("tools", "memory")):
            return cause
    held = 0 if before is None else before.cache_read_tokens + before.cache_creation_tokens
    return "prefix" if held >= _CACHED and now.cache_read_tokens < 0.1 * held else "unexplained"
