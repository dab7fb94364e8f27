"""An agent whose context is tracked, archived and guarded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from mala_context.agent.actions import Actions
from mala_context.agent.archiving import SessionArchiver
from mala_context.agent.restart import ContextPressureHandler
from mala_context.agent.session import AgentSession, ask_window, open_session
from mala_context.agent.stream import MessageStreamProcessor
from mala_context.agent.supervisor import SessionSupervisor
from mala_context.agent.telemetry import Hub, Reporter
from mala_context.config import ContextConfig
from mala_context.tracking.tracker import ContextTracker

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient

    from mala_context.agent.telemetry.records import Observer
    from mala_context.archive.store import TranscriptArchive


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a runtime, made by `wiring`."""

    config: ContextConfig
    processor: MessageStreamProcessor
    archivist: SessionArchiver | None
    """`None` where nothing is archived."""
    actions: Actions
    hub: Hub
    """Tells the observers; the other parts hold it already."""
    reporter: Reporter
    template: str | None
    """The text of the continuation template, where one is configured."""
    copy: Callable[..., Any]
    """`copy(options, **changes)` makes options with other fields and our wiring in them."""
    another: Callable[[Any, Hub], AgentRuntime]
    """Makes a runtime like this one, with options and a hub of its own."""
    connected: Callable[[], Awaitable[None]]
    """Takes in what a resumed session holds, before its first prompt."""


class AgentRuntime:
    """An agent's options with tracking and archive wired in.

    Use `session()`; or hold your own `ClaudeSDKClient(runtime.options)`, read it through
    `runtime.processor.stream(client.receive_response())`, and wrap it in `async with runtime:` so that what the last
    compaction has not archived is archived at the end.

    A runtime has one tracker, and its options' hooks feed it: for a second client of your own at the same time make
    another runtime. `session()` does that by itself.

    Attributes:
        options: the `ClaudeAgentOptions` to connect with.
        processor: feeds messages into the tracker.
        tracker: `tracker.snapshot()` says how full the context is.
        archive: where transcripts are kept; `None` where `archive.enabled` is false or there is no place for it.
        config: the configuration in force.
        actions: does what the thresholds ask for; `actions.final_turn` says how the last final turn ended.
        observers: those who are told every record of `telemetry.records`; callables may be added at any time.
    """

    def __init__(self, options: Any, parts: Parts) -> None:
        self.options = options
        self.processor = parts.processor
        self.config = parts.config
        self.actions = parts.actions
        self._parts = parts
        self._in_session = False

    @property
    def tracker(self) -> ContextTracker:
        """The processor's tracker."""
        return self.processor.tracker

    @property
    def archive(self) -> TranscriptArchive | None:
        """The archive of this repository."""
        archivist = self._parts.archivist
        return None if archivist is None else archivist.archive

    @property
    def observers(self) -> list[Observer]:
        """The callables that get every record of `telemetry.records`, the log and OpenTelemetry included."""
        return self._parts.hub.observers

    def session(self) -> AbstractAsyncContextManager[AgentSession]:
        """Return a new session, to be used with `async with`; it connects on entering and disconnects on leaving.

        It compacts and restarts by itself where `compact_at` and `restart_at` are set. While one session is open the
        next one has a tracker, a gauge and a processor of its own (`session.tracker`): `runtime.tracker`,
        `runtime.processor` and `runtime.actions` belong to the first. Observers are told of all of them. Raises what
        the SDK raises where the CLI cannot be started.
        """
        return self._session()

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[AgentSession]:
        runtime = self._parts.another(self.options, self._parts.hub.beside()) if self._in_session else self
        runtime._in_session = True
        try:
            async with runtime._open() as session:
                await runtime._parts.connected()
                yield session
        finally:
            runtime._in_session = False
            runtime.actions.restart_with(None)

    def _open(self) -> AbstractAsyncContextManager[AgentSession]:
        from claude_agent_sdk import ClaudeSDKClient

        options = self.options
        # With verbatim_prompts the SDK would mark our own /compact as text too, and the model would read it as words
        # (case guard-15). So the option is switched off, and the session marks each of its caller's prompts.
        compacts = self.config.compact_at is not None or self.config.compact_idle
        verbatim = compacts and bool(getattr(options, "verbatim_prompts", False))
        if verbatim:
            options = self._parts.copy(options, verbatim_prompts=False)
        handler = None if self.config.restart_at is None else self._handler(options)
        idle = self.config.compact_idle
        steward = None
        if self.config.enabled:
            steward = SessionSupervisor(self.actions, self.processor, handler, ClaudeSDKClient, idle=idle)
        return open_session(
            ClaudeSDKClient(options), self.processor, self.aclose, steward, self._parts.hub.asked, verbatim=verbatim
        )

    async def learn_window(self, client: ClaudeSDKClient) -> int | None:
        """Ask the CLI of your own client for its model's window, and return it; `session()` does so by itself.

        Call it after `connect`, `set_model` and a compaction; it may run beside a turn. It takes at most 0.6 s and no
        API request. Returns `None`, and changes nothing, if the CLI does not answer, is older than 2.1.257, or has not
        named its version (before 2.1.296 it does so with the first prompt's messages). Never raises.
        """
        report = await ask_window(client, self.tracker)
        if report is None:
            return None
        self.processor.take(report)
        return report.window

    def pressure_handler(self, *, timeout_seconds: float | None = None) -> ContextPressureHandler:
        """Return a handler that moves one run from a full session to a fresh one; for programs with their own client.

        `timeout_seconds` is the time for the whole run, from now on.
        """
        return self._handler(self.options, timeout_seconds)

    def _handler(self, options: Any, timeout_seconds: float | None = None) -> ContextPressureHandler:
        return ContextPressureHandler(
            options,
            self.processor,
            template=self._parts.template,
            max_restarts=self.config.max_restarts,
            timeout_seconds=timeout_seconds,
            keep=self._keep,
            limits=self.actions,
            copy=self._parts.copy,
            tell=self._parts.hub.tell,
        )

    async def _keep(self, session_id: str) -> Sequence[str]:
        """Archive a session that is left; return the archive's paths, or the transcript's if nothing is archived."""
        archivist = self._parts.archivist
        paths = [] if archivist is None else await archivist.keep(session_id)
        transcript = self.actions.transcript
        return paths or ([transcript] if transcript and session_id in transcript else [])

    async def aclose(self) -> None:
        """Archive the rest of each session since its last compaction; may be called again. Never raises."""
        parts = self._parts
        if parts.archivist is not None and self.config.archive.at_session_end:
            await parts.archivist.close()
        parts.reporter.ended()
        parts.hub.left()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
