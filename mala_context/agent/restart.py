"""Move from a full session to a fresh one: get a checkpoint, and make the prompt that continues from it.

The old session is asked in a fork, so that it stays as it was; the fork leaves no transcript. The fork keeps the
options and the tools of the old session, because they are part of what the prompt cache holds. Each of its tool calls
is denied: it shall only write. It gets `CHECKPOINT_SECONDS` at most, and never more than the run's own deadline leaves.
If anything fails, the run continues: without a checkpoint the fresh session gets the archive's path and the last
request.

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
from mala_context.agent.fresh_options import fresh
from mala_context.agent.hook_io import deny
from mala_context.agent.sdk import SDK
from mala_context.agent.telemetry.hub import Hub
from mala_context.agent.telemetry.records import Restarted

if TYPE_CHECKING:
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.errors import ContextPressureError

CHECKPOINT_SECONDS: Final = 30.0
"""Longest wait for the checkpoint of the old session."""
INTERRUPT_SECONDS: Final = 0.5
"""Longest wait for a fork without an answer to be interrupted."""
DISCONNECT_SECONDS: Final = 5.0
"""Longest wait for the fork's CLI to end."""
MOST_LAST_PROMPT: Final = 8_000
"""Characters of the last prompt that a continuation without a checkpoint repeats."""
PLACE: Final = "{checkpoint}"
"""The place of the checkpoint in a continuation template."""

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
    """Return the text between an answer's first `<checkpoint>` and the tag that closes it; `None` if it is empty.

    Tags inside stay as they are. If the answer was cut, the text up to its end is returned. An answer without any tag
    is the checkpoint as a whole.
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
    """Counts restarts across sessions, and may forbid the next one; the runtime's `Actions` is one."""

    @property
    def can_restart(self) -> bool:
        """Whether one more is allowed."""

    def restarted(self) -> object:
        """Count one."""


class ContextPressureHandler:
    """Moves a run from a full session to a fresh one. Make one handler for a run with all its sessions.

    Args:
        options: the agent's options. `handler.options` is what to connect the fresh session with.
        processor: the processor whose counts are reset.
        template: a continuation prompt with `{checkpoint}` in it; `None` for the plain one.
        max_restarts: restarts at most.
        timeout_seconds: time for the whole run, restarts included; `None` if only the caller's own cancel scope ends
            it.
        keep: archives a session and returns the paths of its archive, the oldest first.
        limits: counts the restarts, and forbids restarts that follow one another too fast; `None` for no limit.
        copy: `copy(options, **changes)` makes options with other fields; `dataclasses.replace` by default.
        connect: makes a client from options; the SDK's `ClaudeSDKClient` by default.
        tell: called with a `Restarted` at each restart.
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
        """Whether the last restart had a checkpoint."""
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
        """Archive the full session, get its checkpoint, reset the counts; return the prompt that continues the work.

        Send it in a fresh session, connected with `options`. `last_prompt` is the last request; it is used if there is
        no checkpoint. Raises `error` itself when `max_restarts` are used up, and if restarts follow one another too
        fast.
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
        """Do what `handle_pressure_error` does without asking the limits; return the fresh session's first prompt.

        `session_id` is the session that is left: it is archived and asked for a checkpoint. `last_prompt` is the last
        request, used if there is no checkpoint. `reason` goes into the `Restarted` record.
        """
        # The archive first: if the fork gives no checkpoint, its paths are all that the fresh session gets.
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
        self.options = self._changed({**fresh(self.options), "session_id": str(uuid4()), "hooks": hooks})
        if self._tell is not None:
            new = str(getattr(self.options, "session_id", ""))
            self._tell(Restarted(session_id, new, reason, self.restarts, self.had_checkpoint))
        return self.build_continuation_prompt(checkpoint, session_id=session_id, paths=paths, last_prompt=last_prompt)

    async def fetch_checkpoint(self, session_id: str) -> str | None:
        """Ask a fork of the session for its checkpoint; `None` if there is none in time. Never raises."""
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
        """Return the first prompt of the fresh session, from the template if there is one.

        Without a `checkpoint`, the `paths` of the archive of `session_id` and the last request (`last_prompt`) take its
        place.
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
        except Exception:  # a failed archive must not stop the run
            log.warning("Session %s: could not be archived before the restart", session_id, exc_info=True)
            return ()

    def _forked(self, session_id: str) -> Any:
        quiet = {"max_turns": 3, "output_format": None, "include_partial_messages": False, "can_use_tool": None}
        new = fresh(self.options)
        extra = {**new.get("extra_args", {}), "no-session-persistence": None}
        hooks = {"PreToolUse": [SDK().create_hook_matcher(None, [_deny])]}
        fork = {"resume": session_id, "fork_session": True, "hooks": hooks, "extra_args": extra}
        return self._changed({**new, **quiet, **fork})

    def _changed(self, changes: Mapping[str, Any]) -> Any:
        """Return the options with these fields changed; an SDK of another version may lack some of them."""
        return self._copy(
            self.options, **{name: value for name, value in changes.items() if hasattr(self.options, name)}
        )


def _without_checkpoint(session_id: str | None, paths: Sequence[str], last_prompt: str | None) -> str:
    """Return what a fresh session has to know if there is no checkpoint."""
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
                scope.cancel()  # ends the generator where it waits: trio warns of a generator that is left
    return "\n".join(texts) or None, why


async def _interrupt(client: Any) -> None:
    """Have the fork drop its request: a CLI in the middle of a request takes seconds to end."""
    with anyio.move_on_after(INTERRUPT_SECONDS, shield=True), contextlib.suppress(Exception):
        await client.interrupt()


async def _deny(hook_input: Any, *_: object) -> dict[str, Any]:
    return deny(_DENIED)


def _client(options: Any) -> Any:
    from claude_agent_sdk import ClaudeSDKClient

    return ClaudeSDKClient(options)
