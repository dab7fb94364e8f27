"""One agent session over the SDK's client, and the fresh sessions that follow it if `restart_at` is set.

The SDK buffers at most 100 messages. While these are unread it answers no hook, and the agent stands still. So a
session reads all the time, in a task of its own, into a buffer that its caller empties at any speed.

A prompt is sent with a uuid of its own, and a result ends `send` only if it names that uuid. A subagent that works in
the background ends in a turn without a prompt, and that turn has its own result. Its messages reach the caller in
their order, and the answer to the prompt is still to come.

Before a prompt is sent, the session asks its supervisor whether something should be done first (see `supervisor`): a
compaction, whose messages then come before the prompt's own, or a restart. A turn that is cut for a restart, or that
the API refused because the window is full, continues in the fresh session. Its result is no answer: the caller gets it
as part of the `SessionRestarted` that stands between the two sessions' messages.

The reading task processes each message in the `contextvars` context of the last prompt's sender. So observers find the
caller's trace there, and not the trace of the moment in which the session was opened.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

import anyio

from mala_context._util.log import get_logger
from mala_context._util.text import version_numbers
from mala_context.agent.running_tasks import RunningTasks
from mala_context.tracking.events import TurnEnd, WindowReport
from mala_context.tracking.readers.parts import mapping, window_report

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from claude_agent_sdk import ClaudeSDKClient

    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.agent.telemetry.records import SessionRestarted
    from mala_context.errors import ContextPressureError
    from mala_context.tracking.cache import CacheUse
    from mala_context.tracking.tracker import ContextSnapshot, ContextTracker

Prompt = str | list[dict[str, Any]]

_MOST_UUIDS_LISTED = 64
"""The CLI lists at most this many prompts on a result. A prompt that is not in a full list may still belong to it."""
_DISCONNECT_SECONDS = 30.0
_SAYS_WINDOW = (2, 1, 257)
"""The first CLI that answers `detail: summary` without a request to the API.

Measured: 2.1.119 to 2.1.252 make 6 `count_tokens` requests for an empty session and about 18 with tools.
"""
WINDOW_SECONDS = 0.6
"""Longest wait for the CLI's window if a caller waits for it."""
_BESIDE_SECONDS = 10.0
"""Longest wait if no caller waits for it: on a busy machine the CLI may need a second."""

log = get_logger(__name__)


class Steward(Protocol):
    """Decides what a session does besides its caller's prompts; see `supervisor`."""

    def serve(self, session: AgentSession) -> None:
        """Act on this session from now on."""

    async def before(self, prompt: Prompt) -> Prompt:
        """Do the compaction or restart that is due before a prompt; return the prompt to send."""

    async def prompt_after(self, result: Any) -> Prompt | None:
        """Return the prompt that continues a turn after its result; `None` if the turn is over."""


def answers(turn: TurnEnd, prompt_uuid: str) -> bool:
    """Tell whether a result belongs to the turn that got the prompt with this uuid."""
    if turn.user_uuids:
        return prompt_uuid in turn.user_uuids or len(turn.user_uuids) >= _MOST_UUIDS_LISTED
    # An interrupted turn, a local command or an older CLI names no prompt: then only the turn's origin tells.
    return turn.origin in {None, "human"}


class _Unread(NamedTuple):
    """A message that the session's caller has not read yet."""

    message: Any
    turn: TurnEnd | None = None
    """The end of the turn that a result reports; `None` for other messages, and for the result of our own prompt."""
    pressure: ContextPressureError | None = None
    """The error to raise after the message."""


async def says_window(client: Any, tracker: ContextTracker) -> bool:
    """Tell whether the CLI can say its window without an API request; false while its version is unknown.

    A CLI from 2.1.296 on names its version at connect, an older one in the `init` of the first prompt. Raises what the
    SDK raises.
    """
    version = mapping(await client.get_server_info()).get("claude_code_version") or tracker.reducer.cli
    return isinstance(version, str) and version_numbers(version) >= _SAYS_WINDOW


async def ask_window(client: Any, tracker: ContextTracker, seconds: float = WINDOW_SECONDS) -> WindowReport | None:
    """Ask the CLI for its model's window and its parts; `None` if it gives no answer in time. Never raises.

    The control request takes 0.09 to 0.54 s and makes no API request. It is not documented: the SDK's own method has no
    `detail`, and without that the CLI counts through the API. No other place uses it.
    """
    ask = getattr(getattr(client, "_query", None), "_send_control_request", None)
    if ask is None:
        return None
    try:
        if not await says_window(client, tracker):
            log.debug("Context: the CLI is not asked for its window: it is too old, or has not named its version")
            return None
        with anyio.move_on_after(seconds):
            answer = await ask({"subtype": "get_context_usage", "detail": "summary"}, timeout=seconds)
            return window_report(answer, tracker.session_id)
    except Exception as error:  # noqa: BLE001 - an older CLI refuses, an ending one is silent: use the table of windows
        log.debug("Context: the CLI did not say its window: %s", error)
    return None


class AgentSession:
    """A connected session, which `AgentRuntime.session()` makes.

    It takes the `client`, the `processor`, the task group `tasks` in which the reading task runs, its supervisor
    `steward`, and `asked`, a function that is called at each prompt. With `verbatim` the caller's prompts are text,
    even if one begins with a slash.

    Attributes:
        client: the SDK's client, for `interrupt`, `set_model` and the like; another client after a restart. Read
            messages from the session only.
        outstanding: the tasks that run in the session now.
    """

    def __init__(
        self,
        client: ClaudeSDKClient,
        processor: MessageStreamProcessor,
        tasks: TaskGroup,
        steward: Steward | None = None,
        asked: Callable[[], object] = lambda: None,
        *,
        verbatim: bool = False,
    ) -> None:
        self.client = client
        self._verbatim = verbatim
        self.outstanding = RunningTasks()
        self._processor = processor
        self._tasks = tasks
        self._steward = steward
        self._asked = asked
        self._unread: deque[_Unread] = deque()
        self._changed = anyio.Event()
        self._reading = anyio.CancelScope()
        self._ended = False
        self._failure: Exception | None = None
        self._reader: object = None
        self._pressure: ContextPressureError | None = None
        self._awaited: str | None = None
        self._own_prompt = False
        self._context = contextvars.copy_context()
        if steward is not None:
            steward.serve(self)
        self._window_of: str | None = None
        """The model for which the CLI has reported the window."""
        processor.asks_why = lambda: tasks.start_soon(self._explain, self.client)
        tasks.start_soon(self._pump, client, self._reading)
        self._ask_window()

    @property
    def tracker(self) -> ContextTracker:
        """The tracker of this session's contexts, subagents included."""
        return self._processor.tracker

    @property
    def context(self) -> ContextSnapshot:
        """How full the main agent's context is now; it may be ahead of the messages read so far."""
        return self._processor.tracker.snapshot()

    @property
    def cache(self) -> CacheUse:
        """The tokens that the prompt cache read, wrote and wrote again for the main agent in this session."""
        return self.tracker.main.cache.use

    def send(self, prompt: Prompt) -> AsyncIterator[Any]:
        """Send a prompt (text, or content blocks of the Messages API) and yield the messages that come.

        Messages that an earlier `send` left unread, messages of turns without a prompt, and those of a compaction that
        `compact_at` asked for come first. It ends with the prompt's own `ResultMessage`, or when the CLI ends. If
        `restart_at` is set, a `SessionRestarted` may come at any place; the messages after it are the fresh session's.
        A caller that leaves early loses nothing: the next `send` or `receive` takes over, and a further message from
        the older iterator raises `RuntimeError`. Raises `ContextPressureError` after a result that reached `restart_at`
        when no restart is left (from the next `send` or `receive` if the caller left at that result), and what the SDK
        raises. The prompt is sent when the first message is asked for.
        """
        return _Messages(self, prompt)

    def receive(self) -> AsyncIterator[Any]:
        """Yield messages as they come, without a prompt of one's own, until the CLI ends.

        Raises what the SDK raised when it read, `ContextPressureError` as `send` does, and `RuntimeError` if a later
        `send` or `receive` took over.
        """
        return _Messages(self)

    # For the iterators of `send` and `receive`

    async def begin(self, prompt: Prompt) -> str:
        """Let the supervisor act before a prompt, send the prompt, and return its uuid."""
        if self._steward is not None:
            prompt = await self._steward.before(prompt)
        return await self.put(prompt)

    async def goes_on(self, result: Any) -> str | None:
        """Send the prompt that continues a cut turn, and return its uuid; `None` if the turn is over."""
        if self._steward is None:
            return None
        prompt = await self._steward.prompt_after(result)
        return None if prompt is None else await self.put(prompt)

    async def take(self, reader: object) -> _Unread | None:
        """Return the next message for this reader; `None` if the CLI has ended.

        Raises the error that ended the stream, and `RuntimeError` if another reader took over.
        """
        while self._reader is reader:
            self.raise_pressure()
            if self._unread:
                found = self._unread.popleft()
                self._pressure = found.pressure
                return found
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return None
            await self._changed.wait()
        raise RuntimeError("a later send() or receive() reads this session's messages now")

    def take_over(self, reader: object) -> None:
        """Give the messages to this reader from now on, and wake a reader that waits, so that it raises."""
        self._reader = reader
        self._wake()

    def raise_pressure(self) -> None:
        """Raise the pressure that the last taken message caused, if any."""
        pressure, self._pressure = self._pressure, None
        if pressure is not None:
            raise pressure

    # For the supervisor

    def beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this as a task beside the session, until the session ends."""
        self._tasks.start_soon(work)

    async def put(self, prompt: Prompt, *, own: bool = False) -> str:
        """Send a prompt and return its uuid. With `own` it is not the caller's prompt, so its result ends no `send`."""
        uuid = str(uuid4())
        content = {"role": "user", "content": prompt}
        message: dict[str, Any] = {"type": "user", "message": content, "parent_tool_use_id": None, "uuid": uuid}
        if self._verbatim and not own:
            # The CLI then runs no slash command in it. The option `verbatim_prompts` of the client would do that too,
            # but also to our own `/compact`, which reached the model as words (case guard-15).
            message["client_composed"] = True
        self._awaited, self._own_prompt = uuid, own
        self._context = contextvars.copy_context()
        self._asked()
        await self.client.query(_once(message))
        return uuid

    @property
    def awaits_answer(self) -> bool:
        """Whether the last prompt's result is still to come."""
        return self._awaited is not None and not self._ended

    async def answered(self) -> None:
        """Wait for the last prompt's result or the end of the CLI; the messages stay in the buffer for the caller."""
        while self.awaits_answer:
            await self._changed.wait()

    async def leave(self) -> None:
        """Stop reading and disconnect; messages that were read stay for the caller."""
        self._reading.cancel()
        with anyio.move_on_after(_DISCONNECT_SECONDS, shield=True):
            await self.client.disconnect()

    async def enter(self, client: Any, marker: SessionRestarted) -> None:
        """Continue with another client; its messages follow `marker`. Raises what the SDK raises on connecting."""
        self.client = client
        await client.connect()
        self.outstanding = RunningTasks()
        self._awaited, self._ended, self._failure = None, False, None
        self._unread.append(_Unread(marker))
        self._reading = anyio.CancelScope()
        self._tasks.start_soon(self._pump, client, self._reading)
        self._wake()
        self._ask_window()

    async def _pump(self, client: Any, scope: anyio.CancelScope) -> None:
        """Read a client's messages into the buffer until they end; runs as a task beside the caller."""
        try:
            with scope:
                async for message in client.receive_messages():
                    self._context.run(self._processor.process, message)
                    self.outstanding.see(message)
                    if _may_change_window(message, self._window_of):
                        self._ask_window()
                    is_result = type(message).__name__ == "ResultMessage"
                    turn = self._processor.turn_end(message) if is_result else None
                    # The result of our own prompt (`/compact`) must not look like the answer to the caller's.
                    if turn is not None and self._awaited is not None and answers(turn, self._awaited):
                        self._awaited = None
                        turn = None if self._own_prompt else turn
                    self._unread.append(_Unread(message, turn, self._processor.take_pressure()))
                    self._wake()
        except Exception as failure:  # noqa: BLE001 - `take` raises it in the caller's task
            self._failure = failure
        finally:
            if client is self.client:  # after a restart the old client's end is not the session's
                self._ended = True
                self._wake()

    def _ask_window(self) -> None:
        """Ask the CLI for its window in a task of its own."""
        if self._processor.enabled:
            self._tasks.start_soon(self._learn_window, self.client)

    async def _learn_window(self, client: Any) -> None:
        report = await ask_window(client, self.tracker, _BESIDE_SECONDS)
        if report is not None and client is self.client:
            self._window_of = report.model
            self._processor.take(report)

    async def _explain(self, client: Any) -> None:
        """Ask the CLI for the parts before the conversation (tools, memory files): they may have grown."""
        try:
            await self._learn_window(client)
        finally:
            self._processor.explain()

    def _wake(self) -> None:
        # An event of anyio cannot be reset: each wait gets a new one.
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class _Messages:
    """The messages of one `send` or `receive`.

    An iterator and not an async generator: a caller who leaves early has nothing to close, and on trio no warning.
    """

    def __init__(self, session: AgentSession, prompt: Prompt | None = None) -> None:
        self._session = session
        self._prompt = prompt
        self._uuid: str | None = None
        self._begun = self._over = False

    def __aiter__(self) -> _Messages:
        return self

    async def __anext__(self) -> Any:
        session = self._session
        if self._over:
            session.raise_pressure()
            raise StopAsyncIteration
        if not self._begun:
            self._begun = self._over = True  # a prompt that could not be sent, or only in part, is not sent again
            if self._prompt is not None:
                self._uuid = await session.begin(self._prompt)
            session.take_over(self)
            self._over = False
        found = await session.take(self)
        if found is not None and found.turn is not None and self._uuid is not None and answers(found.turn, self._uuid):
            self._uuid = await session.goes_on(found.message)
            if self._uuid is not None:
                found = await session.take(self)
            else:
                self._over = True
        if found is None:
            self._over = True
            raise StopAsyncIteration
        return found.message


def _may_change_window(message: Any, model: str | None) -> bool:
    """Tell whether the CLI's window may change with this message: it compacted, or names another model."""
    subtype, data = getattr(message, "subtype", None), getattr(message, "data", None)
    if subtype == "init" and isinstance(data, dict):
        return data.get("model") != model
    return subtype == "compact_boundary"


async def _once(message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield message


@asynccontextmanager
async def open_session(
    client: ClaudeSDKClient,
    processor: MessageStreamProcessor,
    close: Callable[[], Awaitable[None]],
    steward: Steward | None = None,
    asked: Callable[[], object] = lambda: None,
    *,
    verbatim: bool = False,
) -> AsyncIterator[AgentSession]:
    """Connect `client`, read from it while the body runs, disconnect, then `await close()`, whatever happened.

    `asked` is called just before each prompt is sent. With `verbatim` the CLI takes the caller's prompts as text
    without the client's option `verbatim_prompts`, so that our own `/compact` stays a command. Raises what the body
    raises, as itself and not in a group, and what the SDK raises on connecting.
    """
    failure: BaseException | None = None
    session: AgentSession | None = None
    try:
        await client.connect()
        async with anyio.create_task_group() as tasks:
            session = AgentSession(client, processor, tasks, steward, asked, verbatim=verbatim)
            try:
                yield session
            except (anyio.get_cancelled_exc_class(), GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below, outside of the group
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        processor.asks_why = None
        try:
            with anyio.move_on_after(_DISCONNECT_SECONDS, shield=True):
                await (client if session is None else session.client).disconnect()
        except Exception as error:  # noqa: BLE001 - raised below, unless the body's own error comes first
            failure = failure or error
        finally:  # asyncio cancels a task inside any shield, at Ctrl-C for example
            with anyio.CancelScope(shield=True):
                await close()
    if failure is not None:
        raise failure
