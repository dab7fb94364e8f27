"""When an idle session compacts: shortly before its prompt cache lapses, where a cold start would cost more.

A task looks at the session again and again: the machine may have slept, so a moment is asked of the wall clock and not
waited for at once. It acts only while nothing is under way, and once an answer: what it does not reach in time is left
alone. The CLI's own idle compaction begins earlier; after it the context is too small for this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import anyio

from mala_context.tracking.cache import SUMMARY, idle_after, pays_to_compact, seconds

if TYPE_CHECKING:
    from mala_context.agent.session import AgentSession

LOOK_EVERY: Final = 15.0
"""Seconds between two looks at an idle session, at most."""
FRESH: Final = 19_000
"""What a fresh session is taken to hold where that is not known; a usual one holds 15,000 to 25,000 tokens."""


def due_in(session: AgentSession, now: float) -> float | None:
    """Return in how many seconds an idle session should compact, 0 for now; `None` where it should not."""
    main, outstanding = session.tracker.main, session.outstanding
    cache, tokens, last = main.cache, main.context.tokens, seconds(main.cache.time)
    busy = session.awaits_answer or outstanding.in_turn or bool(outstanding.tasks)
    if busy or last is None or tokens is None or cache.compacted or not cache.held:
        return None
    left = (FRESH if main.baseline is None else main.baseline) + SUMMARY
    age = now - last
    if age >= cache.ttl or not pays_to_compact(tokens, left, main.model, cache.ttl):
        return None
    return max(0.0, idle_after(cache.ttl) - age)


async def compact_when_idle(
    session: AgentSession, clock: Callable[[], float], compact: Callable[[], Awaitable[Any]]
) -> None:
    """Call `compact` whenever the session is due for it, once an answer; runs until it is cancelled.

    A `clock` with a method `sleep` says itself how long a wait takes.
    """
    sleep = getattr(clock, "sleep", anyio.sleep)
    tried: object = None
    while True:
        due = due_in(session, clock())
        at = session.tracker.main.cache.time
        if due == 0 and at != tried:
            tried = at
            await compact()
        else:
            await sleep(LOOK_EVERY if due is None or at == tried else min(due, LOOK_EVERY))
