"""Decide when a session compacts or restarts by itself: between turns, at a safe point.

Before each prompt the supervisor asks for the next step. A compaction is a turn of its own. It is put off while a
subagent runs; shell commands in the background are not disturbed by it. A restart ends the CLI, so it is put off while
those run too. After the end of a turn a restart waits for the next prompt: without one the fresh session would have no
work.

A long turn need not fill the window. After a batch of tools, if nothing else runs and a restart is due, the turn may be
cut, and continues in the fresh session at once. A turn that was refused because the window is full also continues
there. That restart does not wait for subagents, because the old session cannot take their results any more.

An idle session may compact shortly before its prompt cache lapses, if a cold start would cost more. A task looks at the
session every few seconds and asks the wall clock, instead of one long wait: the machine may sleep in between. It acts
only while nothing runs, and once for each answer. The CLI's own idle compaction begins earlier; after it the context is
too small for this one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from mala_context._util.log import get_logger
from mala_context.agent.telemetry.records import SessionRestarted
from mala_context.guard.thresholds import Compact, Restart
from mala_context.tracking.cache import SUMMARY, idle_after, pays_to_compact, seconds

if TYPE_CHECKING:
    from mala_context.agent.actions import Actions
    from mala_context.agent.restart import ContextPressureHandler
    from mala_context.agent.session import AgentSession, Prompt
    from mala_context.agent.stream import MessageStreamProcessor

CUT: Final = "hook_stopped"
"""`terminal_reason` of a turn that was cut."""
GO_ON: Final = "Go on."
"""Prompt for a turn that was cut for a restart which then did not happen."""
LOOK_EVERY: Final = 15.0
"""Seconds between two looks at an idle session, at most."""
FRESH: Final = 19_000
"""Assumed tokens of a fresh session if its baseline is unknown; usual ones have 15,000 to 25,000."""

log = get_logger(__name__)


class SessionSupervisor:
    """Carries out the policy's compactions and restarts for one session.

    Args:
        actions: gives the next step.
        processor: knows whether the window is full.
        handler: moves a run to the next session, with `actions` for its limits; `None` if `restart_at` is not set.
        connect: makes a client from options.
        idle: whether an idle session compacts before its prompt cache lapses.
    """

    def __init__(
        self,
        actions: Actions,
        processor: MessageStreamProcessor,
        handler: ContextPressureHandler | None,
        connect: Callable[[Any], Any],
        *,
        idle: bool = False,
    ) -> None:
        self._actions = actions
        self._processor = processor
        self._handler = handler
        self._connect = connect
        self._idle = idle
        self._busy = anyio.Lock()
        """Held during a compaction or a restart between turns: a prompt waits for it."""
        self._session: AgentSession | None = None
        self._asked: str | None = None
        self._under_way: tuple[str, Restart] | None = None
        self._cut = False
        """Whether the present turn was cut for a restart."""

    def serve(self, session: AgentSession) -> None:
        """Act on this session from now on."""
        self._session = session
        if self._handler is not None:
            self._actions.restart_with(self._cut_turn)
        if self._idle:
            session.beside(partial(compact_when_idle, session, self._processor.clock, self._compact_idle))

    async def _compact_idle(self) -> None:
        policy = self._actions.policy
        async with self._busy:
            session = self._session
            if session is not None and not policy.breaker_open and due_in(session, self._processor.clock()) == 0:
                await self._compact(session, Compact(policy.thresholds.compact_focus, 0.0, "idle"))

    async def before(self, prompt: Prompt) -> Prompt:
        """Compact or restart if that is due; return the prompt to send. Raises what the SDK raises."""
        async with self._busy:
            return await self._before(prompt)

    async def _before(self, prompt: Prompt) -> Prompt:
        session = self._session
        if session is None:
            return prompt
        asked, self._asked = self._asked, _text(prompt)
        if self._under_way is not None:  # the caller left in the middle of a restart
            return _joined(await self._restart(session, self._under_way[1], asked, None), prompt)
        outstanding, full = session.outstanding, self._processor.overflow is not None
        # Not at a safe point: a turn is still going on.
        if session.awaits_answer or outstanding.in_turn:
            return prompt
        # A subagent would be cut off by either step, a shell command only by a restart. With a full window waiting is
        # of no use.
        if not full and (outstanding.subagents or (outstanding.tasks and self._actions.policy.restart_due)):
            return prompt
        step = self._actions.next_step()
        if isinstance(step, Compact):
            await self._compact(session, step)
        elif isinstance(step, Restart):
            return _joined(await self._restart(session, step, asked, None), prompt)
        return prompt

    async def prompt_after(self, result: Any) -> Prompt | None:
        """Return the prompt that continues a turn that was cut or refused; `None` if the turn is over."""
        session, stopped, self._cut = self._session, self._cut, False
        cut = stopped and getattr(result, "terminal_reason", None) == CUT
        refused = bool(result.is_error) and self._processor.overflow is not None
        if session is None or not (cut or refused):
            return None
        step = self._actions.next_step() if self._handler is not None and self._actions.can_restart else None
        if isinstance(step, Restart):
            return await self._restart(session, step, self._asked, result)
        if step is not None:
            self._actions.failed()
        return GO_ON if cut else None

    async def _compact(self, session: AgentSession, step: Compact) -> None:
        before = session.context.compactions
        log.info("Context: asking for /compact (%s)", step.cause)
        self._actions.acted("compact_asked")
        await session.put(f"/compact {step.focus or ''}".rstrip(), own=True)
        await session.answered()
        if session.context.compactions == before:
            self._actions.failed()
            self._actions.acted("compact_failed")
            log.warning("Context: /compact was asked for, and nothing was compacted")

    async def _restart(self, session: AgentSession, step: Restart, asked: str | None, result: Any) -> str:
        handler = self._handler
        if handler is None:
            raise RuntimeError("a restart without a handler")  # `restart_at` makes both the step and the handler
        # The step is remembered until the fresh session is entered: a caller may leave (be cancelled) in between, and
        # then its next prompt must finish this restart.
        if self._under_way is None:
            self._under_way = (session.context.session_id or str(getattr(result, "session_id", "")), step)
        old, _ = self._under_way
        await session.leave()
        prompt = await handler.restart(old, asked, reason=step.cause)
        new = str(getattr(handler.options, "session_id", ""))
        restarts = self._actions.policy.restarts
        marker = SessionRestarted(old, new, step.cause, restarts, handler.had_checkpoint, result)
        await session.enter(self._connect(handler.options), marker)
        self._under_way = None
        return prompt

    def _cut_turn(self) -> bool:
        """Tell whether the turn may be cut for a restart now; if so, it counts as cut."""
        session = self._session
        if session is None or not session.awaits_answer or session.outstanding.tasks:
            return False
        self._cut = True
        return True


def _text(prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    return "\n".join(str(block["text"]) for block in prompt if block.get("text"))


def _joined(first: str, prompt: Prompt) -> Prompt:
    """Put the fresh session's opening before the prompt that was about to be sent."""
    if isinstance(prompt, str):
        return f"{first}\n\n{prompt}"
    return [{"type": "text", "text": first}, *prompt]


# -- idle sessions --------------------------------------------------------------------------------------------------


def due_in(session: AgentSession, now: float) -> float | None:
    """Return in how many seconds an idle session should compact, 0 for now; `None` if it should not."""
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
    """Call `compact` when the session is due for it, at most once for each answer; runs until it is cancelled.

    If `clock` has a method `sleep`, that is used to wait.
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
