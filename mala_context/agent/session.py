"""One agent session over the SDK's client, and the fresh ones that follow it where `restart_at` is set.

The SDK holds back at most 100 messages; while they are unread it answers no hook, and the agent stands still. So a
session reads all the time, in a task of its own, into a buffer that its caller empties at leisure.

A prompt goes out with a uuid of its own, and a result ends `send` only if it names that uuid. A subagent that works in
the background ends in a turn without a prompt, with a result of its own; that turn's messages reach the caller in
their order, as what they are, and the answer is still to come.

Before a prompt goes out the session asks its supervisor whether something should be done first (see `supervisor`): a
compaction, whose messages then come before the prompt's own, or a restart. A turn that is cut for a restart, or that
the API refused since the window is full, goes on in the fresh session: its result is no answer and reaches the caller
as part of the `SessionRestarted` that stands between the two sessions' messages.

The task that reads takes each message in under the context (as `contextvars` means it) of the last prompt's sender, so
that whoever observes finds the caller's trace there, and not that of the moment in which the session was opened.
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
"""The CLI lists at most this many prompts on a result: one that is missing from a full list may be among them."""
_DISCONNECT_SECONDS = 30.0
_SAYS_WINDOW = (2, 1, 257)
"""The first CLI that leaves out the counting where only a summary is asked for; 2.1.252 makes up to 18 requests."""
WINDOW_SECONDS = 0.6
"""Longest that the CLI is waited for where somebody waits for its window."""
_BESIDE_SECONDS = 10.0
"""The same where nothing waits for it: the CLI of a busy machine may need a second."""

log = get_logger(__name__)


class Steward(Protocol):
    """Who decides what a session does besides its prompts; see `supervisor`."""

    def serve(self, session: AgentSession) -> None:
        """Act on this session from now on."""

    async def before(self, prompt: Prompt) -> Prompt:
        """Do what is due before a prompt; return the prompt to send."""

    async def prompt_after(self, result: Any) -> Prompt | None:
        """Return the prompt with which a turn goes on after its result; `None` where the turn is over."""


def answers(turn: TurnEnd, prompt_uuid: str) -> bool:
    """Tell whether a result is that of the turn that took in the prompt with this uuid."""
    if turn.user_uuids:
        return prompt_uuid in turn.user_uuids or len(turn.user_uuids) >= _MOST_UUIDS_LISTED
    # An interrupted turn, a local command or an older CLI names none: then only the origin tells.
    return turn.origin in {None, "human"}


class _Unread(NamedTuple):
    """A message that waits for whoever reads the session."""

    message: Any
    turn: TurnEnd | None = None
    """What a result says of its turn; `None` for other messages and for the result of a prompt of our own."""
    pressure: ContextPressureError | None = None
    """The error to raise after the message."""


async def says_window(client: Any, tracker: ContextTracker) -> bool:
    """Tell whether the CLI says its window without an API request, which an unknown version may not.

    From 2.1.296 on the CLI names its version at connect, older ones with the first prompt's `init`. Raises what the
    SDK raises.
    """
    version = mapping(await client.get_server_info()).get("claude_code_version") or tracker.reducer.cli
    return isinstance(version, str) and version_numbers(version) >= _SAYS_WINDOW


async def ask_window(client: Any, tracker: ContextTracker, seconds: float = WINDOW_SECONDS) -> WindowReport | None:
    """Ask the CLI for its model's window and its parts; `None` where it gives no answer in time. Never raises.

    The control request takes no API request and 0.09 to 0.54 s, and is not documented: the SDK's own method has no
    `detail`, and without it the CLI counts through the API. This is the only place that knows of it.
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
    except Exception as error:  # noqa: BLE001 - an older CLI refuses, one that ends does not answer: the table has to do
        log.debug("Context: the CLI did not say its window: %s", error)
    return None


class AgentSession:
    """A connected session, which `AgentRuntime.session()` makes.

    It is given the `client`, the `processor`, the task group `tasks` in which the reading task runs, the supervisor
    `steward`, its supervisor, and `asked`, a function that is called at each prompt. `verbatim` says that the caller's
    prompts are text, also where one begins with a slash.

    Attributes:
        client: the SDK's client, for `interrupt`, `set_model` and the like; another one after a restart. Read messages
            from the session only.
        outstanding: what runs in the session now.
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
        """The model of which the CLI has said the window."""
        processor.asks_why = lambda: tasks.start_soon(self._explain, self.client)
        tasks.start_soon(self._pump, client, self._reading)
        self._ask_window()

    @property
    def tracker(self) -> ContextTracker:
        """What follows this session's contexts, those of its subagents too."""
        return self._processor.tracker

    @property
    def context(self) -> ContextSnapshot:
        """How full the main agent's context is now; it may be ahead of the messages read so far."""
        return self._processor.tracker.snapshot()

    @property
    def cache(self) -> CacheUse:
        """What the prompt cache read and wrote for the main agent in this session, and what it wrote again."""
        return self.tracker.main.cache.use

    def send(self, prompt: Prompt) -> AsyncIterator[Any]:
        """Send a prompt (text, or content blocks as the Messages API has them) and yield what comes.

        Messages left unread by an earlier `send`, those of turns without a prompt, and those of a compaction that
        `compact_at` asked for come first. Ends with the prompt's own `ResultMessage`, or when the CLI ends. Where
        `restart_at` is set a `SessionRestarted` may come at any place: what follows it is the fresh session's. A caller
        who leaves early loses nothing: the next `send` or `receive` takes over, and going on with the older one raises
        `RuntimeError`. Raises `ContextPressureError` after a result that reached `restart_at` when no restart is left
        (from the next `send` or `receive` if the caller left at that result), and what the SDK raises. The prompt goes
        out when the first message is asked for.
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
        """Do what has to be done before a prompt, send it, and return its uuid."""
        if self._steward is not None:
            prompt = await self._steward.before(prompt)
        return await self.put(prompt)

    async def goes_on(self, result: Any) -> str | None:
        """Return the uuid of the prompt with which a cut turn goes on after its result; `None` where it is over."""
        if self._steward is None:
            return None
        prompt = await self._steward.prompt_after(result)
        return None if prompt is None else await self.put(prompt)

    async def take(self, reader: object) -> _Unread | None:
        """Return the next message for this reader; `None` where the CLI has ended.

        Raises the error that ended the stream, and `RuntimeError` where another reader took over.
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
        """Give the messages to this reader from now on; whoever else waits for one is told so."""
        self._reader = reader
        self._wake()

    def raise_pressure(self) -> None:
        """Raise the pressure that the message taken last caused, if any."""
        pressure, self._pressure = self._pressure, None
        if pressure is not None:
            raise pressure

    # For the supervisor

    def beside(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run this as a task beside the session, until the session ends."""
        self._tasks.start_soon(work)

    async def put(self, prompt: Prompt, *, own: bool = False) -> str:
        """Send a prompt and return its uuid; `own` says that it is not the caller's, so its result ends no `send`."""
        uuid = str(uuid4())
        content = {"role": "user", "content": prompt}
        message: dict[str, Any] = {"type": "user", "message": content, "parent_tool_use_id": None, "uuid": uuid}
        if self._verbatim and not own:
            message["client_composed"] = True  # so that the CLI runs no slash command of the user's
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
        """Wait until the last prompt's result has come, or the CLI has ended; the messages stay for the caller."""
        while self.awaits_answer:
            await self._changed.wait()

    async def leave(self) -> None:
        """Stop reading and disconnect; what was read stays for the caller."""
        self._reading.cancel()
        with anyio.move_on_after(_DISCONNECT_SECONDS, shield=True):
            await self.client.disconnect()

    async def enter(self, client: Any, marker: SessionRestarted) -> None:
        """Go on with another client, after `marker`; raises what the SDK raises on connecting."""
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
                    if turn is not None and self._awaited is not None and answers(turn, self._awaited):
                        self._awaited = None
                        turn = None if self._own_prompt else turn
                    self._unread.append(_Unread(message, turn, self._processor.take_pressure()))
                    self._wake()
        except Exception as failure:  # noqa: BLE001 - handed to whoever reads
            self._failure = failure
        finally:
            if client is self.client:
                self._ended = True
                self._wake()

    def _ask_window(self) -> None:
        """Have the CLI say its window, beside the turn."""
        if self._processor.enabled:
            self._tasks.start_soon(self._learn_window, self.client)

    async def _learn_window(self, client: Any) -> None:
        report = await ask_window(client, self.tracker, _BESIDE_SECONDS)
        if report is not None and client is self.client:
            self._window_of = report.model
            self._processor.take(report)

    async def _explain(self, client: Any) -> None:
        """Have the CLI say what stands before the conversation now: tools or memory files may have grown."""
        try:
            await self._learn_window(client)
        finally:
            self._processor.explain()

    def _wake(self) -> None:
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
    """Tell whether the CLI's window may be another one from this message on: it compacted, or names another model."""
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

    `asked` is called by whoever sends a prompt, just before it goes out. `verbatim` has the CLI
    take the caller's prompts as text although the client's options have no `verbatim_prompts`: only then is `/compact`
    a command beside them.
    Raises what the body raises, as itself and not in a group, and what the SDK raises on connecting.
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
