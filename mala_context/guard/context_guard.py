"""The guard itself: four counters, the targets, and the final turn.

The size of the next request is::

    projected = current + pending + new + schema

`current` is the last known size of the context. `pending` is the prompt that the next request adds. `new` is what this
turn has added so far: answers and tool results. `schema` is the descriptions of the tools. Inside a turn `pending` and
`new` only grow, so that no other event takes away the room that a reservation got. Between turns `commit` moves them
into `current`; `reset` starts over after a compaction or in a fresh session.

When no target can hold the request, one final turn is forced: only finishing tools are left, and the request is
evaluated again. If it still does not fit, the turn goes on with a warning, because a refusal by the API says more than
a guard that stops the agent. The first reason for the final turn is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from mala_context.guard.debug import debug_printer
from mala_context.guard.events import DEBUG_TOPICS, EVENT_NAME, GuardEvent, Listener, Outcome, Trigger
from mala_context.guard.final_turn import FinalTurnState, Requirement
from mala_context.guard.targets import TargetContextConfig, is_count
from mala_context.guard.tool_output import estimate_tokens
from mala_context.tracking.usage import MOST

FORCED: Final = "Context limit exceeded; forcing final turn."
"""Words of the WARNING at the beginning of a final turn."""
SKIPPED: Final = "Context limit exceeded; skipping a provider."
"""Words of the WARNING for a target that is left out; its fields name the provider and the model."""

(_INIT, _LOOP, _ESTIMATE, _SCHEMA, _EVAL, _ENFORCE, _ENTRY, _TOOL, _METRICS) = DEBUG_TOPICS


class BlockedEntry(NamedTuple):
    """One target that cannot hold the request."""

    provider: str
    """Its provider."""
    model: str
    """Its model."""
    limit: int
    """Most tokens that it takes."""
    projected: int
    """Tokens that the request would have."""
    window: int = 0
    """Its window."""
    buffer: int = 0
    """Tokens of the window that stay free."""
    max_output_tokens: int = 0
    """Tokens of the window that are kept for the answer."""


class Evaluation(NamedTuple):
    """One request against every target."""

    projected: int
    """Tokens that the request would have."""
    outcomes: tuple[Outcome, ...]
    """One for each target, in their order."""
    blocked: tuple[BlockedEntry, ...]
    """Targets that cannot hold it."""

    @property
    def final(self) -> bool:
        """Whether no target can hold it: call `enforce_final_turn` with `blocked`."""
        return "final" in self.outcomes


def estimate_schema(definitions: Iterable[Any], count: Callable[[str], int] = estimate_tokens) -> int:
    """Return the tokens that tool definitions (JSON-like) add to a request; `count` counts those of a text."""
    return sum(count(json.dumps(item, ensure_ascii=False, default=str)) for item in definitions)


class ContextGuard:
    """Counts a turn's tokens and tells which targets can hold the next request. For one task; `ToolBudget` adds a lock.

    Args:
        targets: at least one, in order of preference.
        current: tokens that the context holds already.
        schema: tokens of the tools' descriptions.
        finishing_schema: tokens of the finishing tools' descriptions alone; `None` if a final turn saves none.
        requirements: what a final turn must deliver before the session is finished.
        on_event: gets each `agent:context` event.
        on_debug: gets each record of `DEBUG_TOPICS`; by default `debug_printer`, which prints if `CONTEXT_DEBUG=true`.

    Raises `ValueError` without a target or for a negative count.
    """

    def __init__(
        self,
        targets: Sequence[TargetContextConfig],
        *,
        current: int = 0,
        schema: int = 0,
        finishing_schema: int | None = None,
        requirements: Sequence[Requirement] = (),
        on_event: Listener | None = None,
        on_debug: Listener | None = None,
    ) -> None:
        if not targets:
            raise ValueError("a guard needs at least one target")
        self.targets = tuple(targets)
        self._limit = max(target.limit for target in self.targets)
        self._counts = tuple(dict.fromkeys(target.tokenizer or estimate_tokens for target in self.targets))
        self._on_event = on_event
        self._on_debug = debug_printer() if on_debug is None else on_debug
        self.current = _count("current", current)
        self.pending = 0
        self.new = 0
        self.schema = _count("schema", schema)
        self.finishing_schema = self.schema if finishing_schema is None else _count("schema", finishing_schema)
        self.turn = 0
        self.final_turn = FinalTurnState(tuple(requirements))
        self._debug(_INIT, turn=self.turn)

    @property
    def limit(self) -> int:
        """Most tokens that the largest target takes."""
        return self._limit

    @property
    def projected(self) -> int:
        """Tokens of the next request, by what is counted so far."""
        return self.current + self.pending + self.new + self.schema

    @property
    def remaining(self) -> int:
        """Tokens that the largest target has room for; below 0 where it is over its limit."""
        return self._limit - self.projected

    @property
    def final_reason(self) -> str | None:
        """Why this is a final turn; `None` while it is not."""
        return self.final_turn.reason

    def add_pending(self, tokens: int) -> None:
        """Count a prompt that the next request will hold; raises `ValueError` below 0."""
        self.pending += _count("pending", tokens)

    def add_new(self, tokens: int) -> None:
        """Count an answer or a tool result of this turn; raises `ValueError` below 0."""
        self.new += _count("new", tokens)

    def set_schema(self, tokens: int, finishing: int | None = None) -> None:
        """Set the tokens of the tools' descriptions, and of the finishing ones' alone (the same by default)."""
        whole = _count("schema", tokens)
        self.finishing_schema = whole if finishing is None else _count("schema", finishing)
        self.schema = whole if self.final_turn.reason is None else min(whole, self.finishing_schema)
        self._debug(_SCHEMA, finishing=self.finishing_schema)

    def estimate_schema(self, definitions: Iterable[Any], finishing: Iterable[Any] | None = None) -> int:
        """Set the schema's tokens from tool definitions, as `count` counts them, and return them.

        `finishing` are the definitions that a final turn is left with; by default all of them.
        """
        tokens = estimate_schema(definitions, self.count)
        self._debug(_ESTIMATE, tokens=tokens)
        self.set_schema(tokens, None if finishing is None else estimate_schema(finishing, self.count))
        return tokens

    def count(self, text: str) -> int:
        """Return the largest count of a text by any target: by its own tokenizer, else a quarter of the characters.

        Raises `ValueError` for a tokenizer whose answer is no count: a NaN would force a final turn.
        """
        return max(_count("the tokenizer's answer", count(text)) for count in self._counts)

    def commit(self, current: int | None = None) -> None:
        """End a turn: its tokens join `current`, or the measured `current` replaces it. A final turn stays final."""
        measured = self.current + self.pending + self.new if current is None else _count("current", current)
        self._begin(measured)

    def reset(self, current: int = 0) -> None:
        """Start over after a compaction or in a fresh session: a final turn ends, and no requirement is met yet."""
        self.final_turn = FinalTurnState(self.final_turn.requirements)
        self._begin(_count("current", current))

    def _begin(self, current: int) -> None:
        self.current, self.pending, self.new = current, 0, 0
        self.turn += 1
        self._debug(_LOOP, turn=self.turn)

    def evaluate(self, extra: int = 0) -> Evaluation:
        """Compare the next request plus `extra` tokens with every target's limit; a request just at the limit fits.

        Raises `ValueError` for an `extra` that is no count.
        """
        projected = self.projected + _count("extra", extra)
        over: Outcome = "skip" if projected <= self._limit else "final"
        outcomes: tuple[Outcome, ...] = tuple(["ok" if projected <= t.limit else over for t in self.targets])
        blocked = tuple(
            BlockedEntry(t.provider, t.model, t.limit, projected, t.context_window, t.buffer, t.max_output_tokens)
            for t in self.targets
            if projected > t.limit
        )
        if self._on_debug:
            self._debug(_EVAL, projected=projected, outcomes=outcomes, limits=[t.limit for t in self.targets])
        return Evaluation(projected, outcomes, blocked)

    def evaluate_target(self, provider: str, model: str, extra: int = 0) -> Outcome:
        """Return the outcome for the target of this `provider` and `model`; `extra` is as in `evaluate`.

        Raises `LookupError` if there is no such target.
        """
        for target, outcome in zip(self.targets, self.evaluate(extra).outcomes, strict=True):
            if target.provider == provider and target.model == model:
                return outcome
        raise LookupError(f"no target {provider}/{model}")

    def preflight(self, extra: int = 0) -> tuple[TargetContextConfig, ...]:
        """Return the targets for the next request, in order of preference; at least one.

        A target that cannot hold the request is left out, with a `skipped_provider` event. If none can, the final turn
        is forced. If the request does not fit even then, the largest targets are returned.
        """
        result = self.evaluate(extra)
        if result.final:
            self.enforce_final_turn(result.blocked, "turn_preflight")
            result = self.evaluate(extra)
            if result.final:
                return tuple(target for target in self.targets if target.limit == self._limit)
        for entry in result.blocked:
            self._say("turn_preflight", "skipped_provider", entry.limit, entry.projected, entry)
        return tuple(t for t, outcome in zip(self.targets, result.outcomes, strict=True) if outcome == "ok")

    def request_final_turn(self, reason: str) -> bool:
        """Make this a final turn for any reason; return false if it is one already, and keep the old reason."""
        if self.final_turn.reason is not None:
            return False
        self.final_turn.reason = reason
        self.schema = min(self.schema, self.finishing_schema)
        return True

    def enforce_final_turn(self, blocked: Sequence[BlockedEntry], trigger: Trigger) -> FinalTurnState:
        """Force the final turn: shrink the schema to the finishing tools, evaluate again, and report the outcome.

        `blocked` are the targets that could not hold the request, found at `trigger`. A second call does nothing. Offer
        the model only `FinalTurnState.tools(…)` from now on.
        """
        before = self.projected
        if not self.request_final_turn("context"):
            return self.final_turn
        entry = max(blocked, key=lambda item: item.limit, default=None)
        limit = entry.limit if entry else self._limit
        projected = entry.projected if entry else before
        # A refused tool result is not in the request. And `blocked` may be from before a commit that freed tokens.
        extra = max(0, projected - before) if trigger == "turn_preflight" else 0
        over = self.final_turn.still_over = self.evaluate(extra).final
        self._debug(_ENFORCE, trigger=trigger, limit=limit, projected=projected, still_over=over)
        self._say(trigger, "forced_final", limit, projected, entry, still_over=over)
        return self.final_turn

    def log_fields(self, target: TargetContextConfig | None = None) -> dict[str, int | float]:
        """Return the fields of a request's log line.

        `ctx_tokens` is what the context holds, `new_tokens` what this turn and the prompt add, `schema_tokens` the
        tools, `expected_tokens` the sum. `context_pct` is the sum as a percentage of the window of `target`, by default
        the first target.
        """
        window = (target or self.targets[0]).context_window
        expected = self.projected
        fields = {
            "ctx_tokens": self.current,
            "new_tokens": self.pending + self.new,
            "schema_tokens": self.schema,
            "expected_tokens": expected,
            "context_pct": round(100 * min(expected, MOST) / window, 1),
        }
        if self._on_debug:
            self._on_debug(GuardEvent(_METRICS, fields))
        return fields

    def debug_tool(self, **fields: Any) -> None:
        """Report a decision of a `ToolBudget` under the topic `tool-eval`."""
        self._debug(_TOOL, **fields)

    def _say(
        self,
        trigger: Trigger,
        outcome: str,
        limit: int,
        projected: int,
        entry: BlockedEntry | None,
        *,
        still_over: bool | None = None,
    ) -> None:
        message = FORCED if still_over is not None else SKIPPED
        if still_over is not None:
            self._debug(_ENTRY, message=message, **self.log_fields())
        if self._on_event is None:
            return
        fields: dict[str, Any] = {
            "trigger": trigger,
            "outcome": outcome,
            "limit_tokens": limit,
            "projected_tokens": projected,
            "remaining_tokens": limit - projected if limit > projected else 0,
        }
        if entry is not None:
            fields |= {"provider": entry.provider, "model": entry.model}
        if still_over is not None:
            fields["still_over"] = still_over
        self._on_event(GuardEvent(EVENT_NAME, fields, message))

    def _debug(self, topic: str, **fields: Any) -> None:
        if self._on_debug is not None:
            counters = {"current": self.current, "pending": self.pending, "new": self.new, "schema": self.schema}
            self._on_debug(GuardEvent(topic, {**counters, **fields}))


def _count(name: str, tokens: int) -> int:
    if not is_count(tokens):
        raise ValueError(f"{name} is {tokens!r:.80}, wanted a whole number of tokens, 0 or more")
    return tokens
