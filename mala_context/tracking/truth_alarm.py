"""The truth alarm: tells whether a request held as much as was projected, and if not, why.

The stream shows what each request gains. If a request misses its projection by 5 % and by 2,000 tokens, it holds
something that the stream does not show, or lacks something: the CLI cleared old results, a server edited the context,
tools were loaded, a proxy changed the prompt. Only the next count of the API tells that this has happened. Of real
requests at most two in a thousand miss by 5 %.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.tuples import NamedTuple
from mala_context.tracking.projection import PLACEHOLDER
from mala_context.tracking.token_costs import (
    CHARS_PER_TOKEN,
    family,
    forgets_thinking,
    is_measured,
    rough_tokens,
    thought_in,
)
from mala_context.tracking.usage import Usage

if TYPE_CHECKING:
    from mala_context.tracking.context_state import ContextState

ALARM_AT: Final = 0.05
"""Share of the projected request from which a difference is an alarm, unless the user sets another share."""
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
"""Each cause and its words, in the order in which they are tried."""
_TOLD_BY: Final[Mapping[str, str]] = {
    "attachment:deferred_tools_delta": "tools",
    "attachment:mcp_instructions_delta": "tools",
    "tool_reference": "tools",
    "attachment:instructions": "memory",
    "attachment:nested_memory": "memory",
}
"""The cause by the unit of a text that came between two requests (see `Countable.unit`)."""
_TELLS: Final = 200
"""Tokens of thinking from which a request's size shows whether the thinking was left out."""
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
        # A request of the CLI's own between the two may write more than was held, and the line then said
        # "35,626 of 34,626 cached tokens were read".
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
    """Return an alarm with the cause that the CLI named after it, or unchanged if its own cause is sure."""
    if surprise.tokens < surprise.projected or not unsure(surprise):
        return surprise
    return surprise._replace(cause=next((cause for cause in ("tools", "memory") if cause in noted), surprise.cause))


def unsure(surprise: Surprise) -> bool:
    """Tell whether the CLI may know the cause of an alarm better."""
    return surprise.cause in ("prefix", "unexplained")


def look_back(agent: Any, lookout: Lookout, before: ContextState, begun: int, now: ContextState) -> None:
    """Divide the growth of a request among the parts of the context, and compare its size with the projection.

    `agent` is the `AgentState`, whose module imports this one.
    """
    # Step 1: take the parts that the request held; later ones belong to its answer.
    found, parts, base, tokens = agent.map, before.parts, before.tokens, now.tokens or 0
    if begun < len(parts):
        parts = parts[:begun]
    per_token = CHARS_PER_TOKEN[family(agent.model)]
    if base is None or before.accuracy != "exact" or now.accuracy != "exact":
        found.began(parts, tokens, per_token)  # an estimate is compared with nothing: its own error would be an alarm
    else:
        # Step 2: the map. `came` is the most that the parts can take, because it weighs a character as a token.
        usage, cut, at, thought = before.usage, before.cut, lookout.at, 0
        output = 0 if cut or usage is None else usage[3]
        told = output > PLACEHOLDER or cut or before.told
        if tokens < base:
            found.went_back(tokens)
        came = found.grew(parts, output, per_token, told=told)
        if (before.signed or agent.thought) and before.model == now.model and forgets_thinking(now.model):
            thought = _left_out(agent, before, begun)
        # Step 3: the alarm, cheapest test first, because this runs with every response of a live agent.
        if at is not None:
            # A request between these two sizes is no alarm, whatever its text costs. For most other requests a rough
            # price of the text shows the same. Only the rest is priced in full (see `is_alarm`).
            limit, gained = at * base if at * base > LEAST else LEAST, tokens - base - output
            # Another model gets other thinking, and a turn's thinking may be left out: such a request is priced.
            alike = before.model == now.model and not thought
            usual = alike and came - limit < gained < limit
            if alike and not usual and agent.doubts is None and before.cut_at(begun) is cut:
                least, most = rough_tokens(parts, agent.model, answers=not told)
                usual = most - limit < gained < least + limit - (0 if told else output)
                agent.off = None if usual else agent.off
            # After a resume another process sends the request, with a system prompt and tools that no row shows.
            if not usual and "resume" not in agent.noted:
                _compare(agent, lookout, before, begun, now, thought)
    if agent.noted:  # a cause explains one request; an empty set is not made again for each response
        agent.noted = set()


def _left_out(agent: Any, before: ContextState, begun: int) -> int:
    """Return how many tokens of thinking the request may lack, because it begins a turn; 0 if it does not.

    Sonnet 4.5 and older models lose their thinking when a turn begins: always with CLIs before 2.1.41, sometimes later.
    """
    agent.thought += before.signed if before.stated else thought_in(before.parts[:begun], agent.model)
    if not before.begins_turn(begun):
        return 0
    thought, agent.thought = round(agent.thought), 0.0
    return thought if thought >= _TELLS else 0


def _compare(agent: Any, lookout: Lookout, before: ContextState, begun: int, now: ContextState, thought: int) -> None:
    """Compare a request with its projection, and note an alarm; `thought` tokens of thinking may be left out."""
    projected, tokens, usage = before.projected(begun, now.model), now.tokens or 0, now.usage
    # The size shows whether the thinking is gone. The first such turn of a session is an alarm that names it; later
    # turns are projected without it.
    if thought:
        known, agent.forgets = agent.forgets, tokens < projected - thought / 2
        projected -= thought if known else 0
        if agent.forgets:
            now.forgot()
            agent.noted |= set() if known else {"thinking"}
    if usage is None or lookout.at is None or not is_alarm(projected, tokens, lookout.at):
        agent.off = None
        return
    units = {piece.unit for _, found in before.interval.measured(begun) for piece in found}
    key, models = agent.tool_use_id or agent.agent_id, (before.model, now.model)
    found = surprise(key, models, projected, before.usage, usage, agent.noted, units)
    lookout.found.append(found)
    if found.cause == "unexplained" and is_measured(agent.model):
        _doubt(agent, before, begun, now, (tokens - (before.tokens or 0)) / max(1, projected - (before.tokens or 0)))


def _doubt(agent: Any, before: ContextState, begun: int, now: ContextState, ratio: float) -> None:
    """Learn the price of text if the prices miss two requests in a row by the same share.

    `ratio` is the growth of the request divided by its projected growth. Two equal ratios mean that a proxy counts
    differently from the model. Unseen content of a request is another share each time, and to learn from it would teach
    wrong prices: if every miss taught, alarms would rise from 1.77 to 2.28 in 1,000 requests of the chosen recordings.
    """
    if agent.off is not None and 0.8 <= ratio / agent.off <= 1.25 and ratio > 0:
        before.teach(begun, now)
        agent.doubts, agent.due = agent.responses, agent.responses + 1
    agent.off = ratio or None


def is_alarm(projected: int, tokens: int, at: float) -> bool:
    """Tell whether a request of `tokens` is an alarm where `projected` tokens were expected."""
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
    """Return the alarm about an agent's request; `now` has the request's counts. See `cause_of` for its cause."""
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
    """Return an alarm's cause: one that was `noted` since the response before, or one that the text's `units` name."""
    causes = {*noted, *(_TOLD_BY.get(unit) or _TOLD_BY.get(unit.partition(":")[0]) for unit in units)}
    if models[0] != models[1]:
        causes.add("model")
    # Loaded tools and memory files only add to a request: they are no cause where it shrank.
    grows = before is None or now.context_tokens > before.context_tokens
    for cause in CAUSES:
        if cause in causes and (grows or cause not in ("tools", "memory")):
            return cause
    held = 0 if before is None else before.cache_read_tokens + before.cache_creation_tokens
    return "prefix" if held >= _CACHED and now.cache_read_tokens < 0.1 * held else "unexplained"
