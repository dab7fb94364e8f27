"""`ContextGuard`'s arithmetic under a lock, for tool calls that end at the same time.

Each result is counted before it joins the context. A result that would not fit is refused and not counted, and the
final turn is forced, once. A result is capped before it is counted, so that exactly the tokens that the model will see
are reserved. It runs on asyncio and on trio.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, NamedTuple

import anyio

from mala_context.guard import ContextGuard, cap_text, cap_tokens
from mala_context.guard.targets import is_count

TOKEN_BUDGET_EXCEEDED: Final = "token_budget_exceeded"  # noqa: S105  # a reason, no secret
"""Reason of a reservation that was refused."""


class Reservation(NamedTuple):
    """The answer to one reservation."""

    ok: bool
    """Whether the text may join the context; if not, hand the model a short refusal in its place."""
    tokens: int
    """Tokens of the text as the model would see it."""
    reason: str | None
    """`token_budget_exceeded`, or `None`."""


class ToolBudget:
    """Gives out the room that is left in a turn. Make one for each guard; all tasks of the turn share it.

    Args:
        guard: keeps the counters; `commit` or `reset` opens the budget again after a turn, a compaction, a restart.
        tool_output_tokens: cap on one result: a number, `auto`, or `None`.
        count: tokens of a text; by default what the guard's targets count.

    Raises `ValueError` for a cap that is no positive number and not `auto`.
    """

    def __init__(
        self,
        guard: ContextGuard,
        *,
        tool_output_tokens: int | Literal["auto"] | None = None,
        count: Callable[[str], int] | None = None,
    ) -> None:
        if tool_output_tokens not in (None, "auto") and not (is_count(tool_output_tokens) and tool_output_tokens):
            wanted = "a positive number of tokens, 'auto' or None would be right"
            raise ValueError(f"tool_output_tokens is {tool_output_tokens!r}: {wanted}")
        self.guard = guard
        self._cap = tool_output_tokens
        self._count = guard.count if count is None else count
        self._lock = anyio.Lock()
        self._closed_in_turn: int | None = None

    @property
    def can_execute(self) -> bool:
        """Whether a further tool should be started in this turn; a reservation that fits is accepted all the same."""
        return self._closed_in_turn != self.guard.turn

    async def reserve(self, text: str) -> Reservation:
        """Count `text` in, or refuse it; with a cap set it is counted as it will be after the cap."""
        return (await self.fit(text))[0]

    async def fit(
        self,
        text: str,
        where: str = "",
        *,
        most: int | None = None,
        count: Callable[[str], int] | None = None,
        named: bool = False,
    ) -> tuple[Reservation, str]:
        """Cap `text`, count it in or refuse it, and return it as the model may see it; empty if it is refused.

        If the text is cut, `where` is named in it as the place of the full text, which the caller must keep. `most` is
        a further cap on this text alone. `count` replaces the budget's own count, for example if the model is shown
        line numbers too. With `named`, a text that must be cut is refused if there is no room for `where`.
        """
        count = count or self._count
        async with self._lock:
            guard = self.guard
            cap = cap_tokens(self._cap, guard.remaining)
            if most is not None:
                cap = most if cap is None else min(cap, most)
            seen = text if cap is None else cap_text(text, cap, where=where, count=count)
            tokens = count(seen)
            lost = bool(text) and (not seen or (named and seen != text and where not in seen))
            result = guard.evaluate(tokens)
            if lost or result.final:
                self._closed_in_turn = guard.turn
                guard.debug_tool(ok=False, tokens=tokens)
                guard.enforce_final_turn(result.blocked, "tool_preflight")
                return Reservation(ok=False, tokens=tokens, reason=TOKEN_BUDGET_EXCEEDED), ""
            guard.add_new(tokens)
            guard.debug_tool(ok=True, tokens=tokens)
            return Reservation(ok=True, tokens=tokens, reason=None), seen

    async def commit(self, current: int | None = None) -> None:
        """End the turn, see `ContextGuard.commit`; waits for a reservation that is under way."""
        async with self._lock:
            self.guard.commit(current)

    async def reset(self, current: int = 0) -> None:
        """Start over after a compaction or in a fresh session, see `ContextGuard.reset`."""
        async with self._lock:
            self.guard.reset(current)
