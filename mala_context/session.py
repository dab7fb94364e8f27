"""One agent session over the SDK's client.

The SDK holds back at most 100 messages; while they are unread it answers no hook, and the agent stands still. So a
session reads all the time, in a task of its own, into a buffer that its caller empties at leisure.

A prompt goes out with a uuid of its own, and a result ends `send` only if it names that uuid. A subagent that works in
the background ends in a turn that nobody asked for, with a result of its own; that turn's messages reach the caller in
their order, as what they are, and the answer is still to come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import anyio

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient

    from mala_context.errors import ContextPressureError
    from mala_context.stream import MessageStreamProcessor
    from mala_context.tracker import ContextSnapshot

_MOST_UUIDS_LISTED = 64
"""The CLI lists at most so many prompts on a result: one that is missing from a full list may be among them."""
_DISCONNECT_SECONDS = 30.0


def answers(message: Any, prompt_uuid: str) -> bool:
    """Tell whether `message` is the result of the turn that took in the prompt with this uuid."""
    if type(message).__name__ != "ResultMessage":
        return False
    named = getattr(message, "user_message_uuids", None)
    if not named:
        single = getattr(message, "user_message_uuid", None)
        named = [single] if single else None
    if named:
        return prompt_uuid in named or len(named) >= _MOST_UUIDS_LISTED
    # An interrupted turn, a local command or an older CLI names none: then only the origin tells.
    origin = getattr(message, "origin", None)
    return not (isinstance(origin, dict) and origin.get("kind") not in {None, "human"})


class AgentSession:
    """A connected session; made by `AgentRuntime.session()`.

    Attributes:
        client: the SDK's client, for `interrupt`, `set_model` and the like. Read messages from the session only.
    """

    def __init__(self, client: ClaudeSDKClient, processor: MessageStreamProcessor) -> None:
        self.client = client
        self._processor = processor
        self._unread: deque[tuple[Any, ContextPressureError | None]] = deque()
        self._changed = anyio.Event()
        self._ended = False
        self._failure: Exception | None = None
        self._reader: object = None
        self._pressure: ContextPressureError | None = None

    @property
    def context(self) -> ContextSnapshot:
        """How full the main agent's context is now; it may be ahead of the messages read so far."""
        return self._processor.tracker.snapshot()

    def send(self, prompt: str | list[dict[str, Any]]) -> AsyncIterator[Any]:
        """Send a prompt (text, or content blocks as the Messages API has them) and yield what comes.

        Messages left unread by an earlier `send`, and those of turns that nobody asked for, come first. Ends with
        the prompt's own `ResultMessage`, or when the CLI ends. A caller who leaves early loses nothing: the next
        `send` or `receive` takes over, and going on with the older one raises `RuntimeError`. Raises
        `ContextPressureError` behind the result that reached `restart_at` (from the next `send` or `receive` if the
        caller left at that result), and what the SDK raises. The prompt goes out when the first message is asked for.
        """
        return _Messages(self, prompt)

    def receive(self) -> AsyncIterator[Any]:
        """Yield messages as they come, without a prompt of one's own, until the CLI ends.

        Raises what the SDK raised when it read, `ContextPressureError` as `send` does, and `RuntimeError` if a later
        `send` or `receive` took over.
        """
        return _Messages(self)

    async def pump(self) -> None:
        """Read the SDK's messages into the buffer until they end; runs as a task beside the caller."""
        try:
            async for message in self.client.receive_messages():
                self._processor.process(message)
                self._unread.append((message, self._processor.take_pressure()))
                self._wake()
        except Exception as failure:  # noqa: BLE001 - handed to whoever reads
            self._failure = failure
        finally:
            self._ended = True
            self._wake()

    async def take(self, reader: object) -> tuple[bool, Any]:
        """Return whether there is a message for this reader, and the message; for the iterators of `send`."""
        while self._reader is reader:
            self.raise_pressure()
            if self._unread:
                message, self._pressure = self._unread.popleft()
                return True, message
            if self._ended:
                if self._failure is not None:
                    raise self._failure
                return False, None
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

    def _wake(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


class _Messages:
    """The messages of one `send` or `receive`.

    An iterator and not an async generator: a caller who leaves early has nothing to close, and on trio no warning.
    """

    def __init__(self, session: AgentSession, prompt: str | list[dict[str, Any]] | None = None) -> None:
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
            await self._begin()
            self._over = False
        there, message = await session.take(self)
        if not there:
            self._over = True
            raise StopAsyncIteration
        self._over = self._uuid is not None and answers(message, self._uuid)
        return message

    async def _begin(self) -> None:
        if self._prompt is not None:
            self._uuid = str(uuid4())
            content = {"role": "user", "content": self._prompt}
            message = {"type": "user", "message": content, "parent_tool_use_id": None, "uuid": self._uuid}
            await self._session.client.query(_once(message))
        self._session.take_over(self)


async def _once(message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield message


@asynccontextmanager
async def open_session(
    client: ClaudeSDKClient,
    processor: MessageStreamProcessor,
    close: Callable[[], Awaitable[None]],
) -> AsyncIterator[AgentSession]:
    """Connect `client`, read from it while the body runs, disconnect, then `await close()`, whatever happened.

    Raises what the body raises, as itself and not in a group, and what the SDK raises on connecting.
    """
    failure: BaseException | None = None
    try:
        await client.connect()
        async with anyio.create_task_group() as tasks:
            session = AgentSession(client, processor)
            tasks.start_soon(session.pump)
            try:
                yield session
            except (anyio.get_cancelled_exc_class(), GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below, outside of the group
                failure = error
            tasks.cancel_scope.cancel()
    finally:
        try:
            with anyio.move_on_after(_DISCONNECT_SECONDS, shield=True):
                await client.disconnect()
        except Exception as error:  # noqa: BLE001 - raised below, unless the body's own error comes first
            failure = failure or error
        with anyio.CancelScope(shield=True):
            await close()
    if failure is not None:
        raise failure
