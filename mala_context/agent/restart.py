"""From a session that is full to a fresh one: a checkpoint, and the prompt that goes on from it.

The old session is asked in a fork, so that it stays as it was, and the fork leaves no transcript. It keeps the options
and the tools of the old one, since they are part of what the prompt cache holds, but each tool call is denied: all it
shall do is write. It gets `CHECKPOINT_SECONDS` at most, and never runs past the run's own deadline. Whatever goes
wrong, the run goes on: without a checkpoint the fresh session is told where the archive is and what was asked last.

A driver of one's own::

    handler = runtime.pressure_handler()
    prompt = "…"
    while True:
        try:
            async with ClaudeSDKClient(handler.options) as client:
                await client.query(prompt)
                async for message in runtime.processor.stream(client.receive_response()):
                    …
            break
        except ContextPressureError as error:
            prompt = await handler.handle_pressure_error(error, last_prompt=prompt)
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from uuid import uuid4

import anyio

from mala_context._util.log import get_logger
from mala_context.agent.hook_io import deny
from mala_context.agent.sdk import SDK
from mala_context.agent.telemetry.hub import Hub
from mala_context.agent.telemetry.records import Restarted

if TYPE_CHECKING:
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.errors import ContextPressureError

CHECKPOINT_SECONDS: Final = 30.0
"""Longest that the old session is asked for its checkpoint."""
INTERRUPT_SECONDS: Final = 0.5
"""Longest that a fork which did not answer is asked to stop."""
DISCONNECT_SECONDS: Final = 5.0
"""Longest that is waited for the fork's CLI to end."""
MOST_LAST_PROMPT: Final = 8_000
"""Characters of the last prompt that a continuation without a checkpoint repeats."""
PLACE: Final = "{checkpoint}"
"""What a continuation template holds where the checkpoint goes."""

CHECKPOINT_PROMPT: Final = """\
The context of this session is full. The work goes on in a fresh session that sees nothing of this one but what you \
write now. Use no tools. Write, between <checkpoint> and </checkpoint>:

1. the task, in the user's own words, with every instruction and constraint that still holds;
2. what is done, with the files that were changed and why;
3. what is left to do, in order, and the very next step;
4. what was learned that must not be learned again: decisions, commands, errors and their causes.
"""

_TAG: Final = re.compile(r"<(/?)checkpoint>", re.IGNORECASE)
_DENIED: Final = "No tools now: write the checkpoint."

log = get_logger(__name__)


def extract_checkpoint(text: str) -> str | None:
    """Return what stands in an answer's first `<checkpoint>`, up to the tag that closes it; `None` if nothing does.

    Tags within it are kept as they are. An answer that was cut before its end gives what there is, one without any tag
    is the checkpoint itself.
    """
    start, depth = None, 0
    for tag in _TAG.finditer(text):
        if not tag[1]:
            start = tag.end() if start is None else start
            depth += 1
        elif depth == 1:
            return text[start : tag.start()].strip() or None
        elif depth:
            depth -= 1
    return (text if start is None else text[start:]).strip() or None


class RestartLimits(Protocol):
    """Who counts restarts across sessions, and may forbid the next; the runtime's `Actions` does."""

    @property
    def can_restart(self) -> bool:
        """Whether one more is allowed."""

    def restarted(self) -> object:
        """Take note of one."""


class ContextPressureHandler:
    """Takes a run from a full session to a fresh one; one handler a run, whatever the number of its sessions.

    Args:
        options: the agent's options. `handler.options` is what to connect the fresh session with.
        processor: whose counts are reset.
        template: a continuation prompt with `{checkpoint}` in it; `None` for the plain one.
        max_restarts: restarts at most.
        timeout_seconds: time that the whole run has, restarts included; `None` where nothing but the caller's own
            cancel scope ends it.
        keep: archives a session and returns the paths of its archive, the oldest first.
        limits: counts the restarts, and forbids those that follow one another too fast; `None` for no such limit.
        copy: `copy(options, **changes)` makes options with other fields; `dataclasses.replace` by default.
        connect: makes a client from options; the SDK's `ClaudeSDKClient` by default.
        tell: is given a `Restarted` each time.
        clock: seconds from a clock that never goes back.

    Attributes:
        options: the options for the next session; they have a new session id after each restart. Connect with them
            once: a second session under the same id is refused.
        restarts: how many there were.
    """

    def __init__(
        self,
        options: Any,
        processor: MessageStreamProcessor | None = None,
        *,
        template: str | None = None,
        max_restarts: int = 3,
        timeout_seconds: float | None = None,
        keep: Callable[[str], Awaitable[Sequence[str]]] | None = None,
        limits: RestartLimits | None = None,
        copy: Callable[..., Any] = replace,
        connect: Callable[[Any], Any] | None = None,
        tell: Callable[[Restarted], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.restarts = 0
        self.max_restarts = max_restarts
        self.had_checkpoint = False
        """Whether the last restart had one."""
        self._processor = processor
        self._template = template
        self._keep = keep
        self._limits = limits
        self._copy = copy
        self._connect = _client if connect is None else connect
        self._tell = None if tell is None else Hub([tell]).tell  # which raises nothing
        self._clock = clock
        self._started = clock()
        self._timeout = timeout_seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the run began; a restart does not set it back."""
        return self._clock() - self._started

    @property
    def seconds_left(self) -> float:
        """Seconds until the run's own deadline, the enclosing cancel scope's included; never below 0."""
        left = anyio.current_effective_deadline() - anyio.current_time()
        if self._timeout is not None:
            left = min(left, self._timeout - self.elapsed)
        return max(0.0, left)

    async def handle_pressure_error(self, error: ContextPressureError, last_prompt: str | None = None) -> str:
        """Archive the session that is full, take its checkpoint, reset the counts; return the prompt to go on with.

        Send it in a fresh session, connected with `options`. `last_prompt` is what was asked last; it is used where
        there is no checkpoint. Raises `error` itself once `max_restarts` are used up, and where restarts followed one
        another too fast.
        """
        if self.restarts >= self.max_restarts or (self._limits is not None and not self._limits.can_restart):
            raise error
        full = self._processor is not None and self._processor.overflow is not None
        return await self.restart(error.session_id, last_prompt, reason="overflow" if full else "threshold")

    async def restart(
        self,
        session_id: str,
        last_prompt: str | None = None,
        *,
        reason: Literal["threshold", "overflow"] = "threshold",
    ) -> str:
        """Do the same, whatever the limits say; return the first prompt of the fresh session.

        `session_id` is the session that is left: it is archived and asked for a checkpoint. `last_prompt` is what was
        asked last, for where there is none. `reason` is what the record of it says.
        """
        paths = await self._archived(session_id)
        checkpoint = await self.fetch_checkpoint(session_id)
        self.had_checkpoint = checkpoint is not None
        self.restarts += 1
        if self._processor is not None:
            self._processor.reset()
            self._processor.tracker.reset()
        log.info("Session %s: resetting context usage for restart (continuation #%d)", session_id, self.restarts)
        if self._limits is not None:
            self._limits.restarted()
        hooks = getattr(self.options, "hooks", None)
        self.options = self._changed({**_NEW, "session_id": str(uuid4()), "hooks": hooks})
        if self._tell is not None:
            new = str(getattr(self.options, "session_id", ""))
            self._tell(Restarted(session_id, new, reason, self.restarts, self.had_checkpoint))
        return self.build_continuation_prompt(checkpoint, session_id=session_id, paths=paths, last_prompt=last_prompt)

    async def fetch_checkpoint(self, session_id: str) -> str | None:
        """Ask a fork of the session for its checkpoint; `None` where there is none in time. Never raises."""
        seconds = min(CHECKPOINT_SECONDS, self.seconds_left)
        answer: str | None = None
        why = f"no answer within {seconds:.0f} s"
        try:
            client = self._connect(self._forked(session_id))
            try:
                with anyio.move_on_after(seconds):
                    await client.connect()
                    await client.query(CHECKPOINT_PROMPT)
                    answer, why = await _answer(client.receive_messages())
            finally:
                if answer is None:
                    await _interrupt(client)
                with anyio.move_on_after(DISCONNECT_SECONDS, shield=True):
                    await client.disconnect()
        except Exception as error:  # noqa: BLE001 - the run goes on without a checkpoint
            why = f"{type(error).__name__}: {error}"
        checkpoint = None if answer is None else extract_checkpoint(answer)
        if checkpoint is None:
            log.warning("Session %s: no checkpoint (%s); going on from the archive", session_id, why)
        return checkpoint

    def build_continuation_prompt(
        self,
        checkpoint: str | None,
        *,
        session_id: str | None = None,
        paths: Sequence[str] = (),
        last_prompt: str | None = None,
    ) -> str:
        """Return the first prompt of the fresh session, from the template where there is one.

        Without a `checkpoint` its place is taken by where the archive of `session_id` is, its `paths`, and by
        `last_prompt`, what was asked last.
        """
        words = _without_checkpoint(session_id, paths, last_prompt) if checkpoint is None else checkpoint
        if self._template is not None:
            return self._template.replace(PLACE, words)
        return words if checkpoint is None else f"Continue from checkpoint:\n\n{words}"

    async def _archived(self, session_id: str) -> Sequence[str]:
        if self._keep is None:
            return ()
        try:
            return await self._keep(session_id)
        except Exception:  # the archive's own trouble is not the run's
            log.warning("Session %s: could not be archived before the restart", session_id, exc_info=True)
            return ()

    def _forked(self, session_id: str) -> Any:
        quiet = {"max_turns": 3, "output_format": None, "include_partial_messages": False, "can_use_tool": None}
        extra = {**(getattr(self.options, "extra_args", None) or {}), "no-session-persistence": None}
        hooks = {"PreToolUse": [SDK().create_hook_matcher(None, [_deny])]}
        fork = {"resume": session_id, "fork_session": True, "hooks": hooks, "extra_args": extra}
        return self._changed({**_NEW, **quiet, **fork})

    def _changed(self, changes: Mapping[str, Any]) -> Any:
        """Return the options with these fields, of which an SDK of another version may lack some."""
        return self._copy(
            self.options, **{name: value for name, value in changes.items() if hasattr(self.options, name)}
        )


_NEW: Final[Mapping[str, Any]] = {
    "resume": None,
    "resume_session_at": None,
    "fork_session": False,
    "continue_conversation": False,
    "session_id": None,
}
"""Options of a session that goes on from no other."""


def _without_checkpoint(session_id: str | None, paths: Sequence[str], last_prompt: str | None) -> str:
    """Say what a fresh session has to know where the old one could not tell it."""
    lines = [
        f"The context of an earlier session{f' ({session_id})' if session_id else ''} is full; go on with its work."
    ]
    if paths:
        lines += ["It wrote no checkpoint. Its transcript, one JSON object a line, is in:", *paths]
        lines.append("Search it (it is large: do not read it whole) for the task and for what was done.")
    if last_prompt:
        lines += ["The last request was:", "", last_prompt[:MOST_LAST_PROMPT]]
    return "\n".join(lines)


async def _answer(messages: Any) -> tuple[str | None, str]:
    """Return the main agent's words, or `None` and why there are none."""
    texts: list[str] = []
    why = "it wrote nothing"
    with anyio.CancelScope() as scope:
        async for message in messages:
            kind = type(message).__name__
            if kind == "AssistantMessage" and message.parent_tool_use_id is None and message.model != "<synthetic>":
                texts += [block.text for block in message.content if type(block).__name__ == "TextBlock"]
            elif kind == "ResultMessage":
                if message.is_error:
                    why = str(message.result or getattr(message, "terminal_reason", None) or message.subtype)
                scope.cancel()  # ends the generator where it waits; one that is left is a warning on trio
    return "\n".join(texts) or None, why


async def _interrupt(client: Any) -> None:
    """Let the fork drop what it still waits for: a CLI in the middle of a request takes seconds to end."""
    with anyio.move_on_after(INTERRUPT_SECONDS, shield=True), contextlib.suppress(Exception):
        await client.interrupt()


async def _deny(hook_input: Any, *_: object) -> dict[str, Any]:
    return deny(_DENIED)


def _client(options: Any) -> Any:
    from claude_agent_sdk import ClaudeSDKClient

    return ClaudeSDKClient(options)
