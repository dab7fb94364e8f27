"""Wiring: from options to an agent whose context is tracked, archived and guarded.

`instrument` is for those who have their options already, `AgentRuntimeBuilder` for those who start from nothing. Both
give an `AgentRuntime`; neither touches what it was given.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from mala_context.actions import Actions
from mala_context.archive.spills import Spills
from mala_context.archivist import Archivist
from mala_context.auto_compact import AUTO_COMPACT_WINDOW, read_auto_compact_window
from mala_context.config import ContextConfig, load_config
from mala_context.errors import ConfigError
from mala_context.gauge import TranscriptGauge
from mala_context.log import get_logger
from mala_context.pin import AUTO, Pin
from mala_context.policy import Policy, thresholds_from
from mala_context.pressure import PLACE, ContextPressureHandler
from mala_context.sdk_hooks import HOOK_SECONDS, HOOKS, is_ours
from mala_context.search_tool import FULL_NAME, SERVER, HistorySearch
from mala_context.session import AgentSession, open_session
from mala_context.stewardship import Steward
from mala_context.stream import MessageStreamProcessor
from mala_context.telemetry import Hub, Reporter, own_observers
from mala_context.tool_cap import ToolCap
from mala_context.tracker import ContextTracker

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions, HookMatcher

    from mala_context.archive.store import TranscriptArchive
    from mala_context.happenings import Observer

log = get_logger(__name__)


class SDKClientFactory(Protocol):
    """Stands in for the SDK's own types."""

    def create_options(self, **fields: Any) -> Any:
        """Return options with these fields set, as `ClaudeAgentOptions(**fields)` does."""

    def create_hook_matcher(self, matcher: str | None, hooks: list[Any]) -> Any:
        """Return a matcher, as `HookMatcher(matcher=…, hooks=…)` does."""


class _SDK:
    """The SDK's own types, imported when the first one is made."""

    def create_options(self, **fields: Any) -> ClaudeAgentOptions:
        from claude_agent_sdk import ClaudeAgentOptions

        return ClaudeAgentOptions(**fields)

    def create_hook_matcher(self, matcher: str | None, hooks: list[Any]) -> HookMatcher:
        from claude_agent_sdk import HookMatcher

        return HookMatcher(matcher=matcher, hooks=hooks, timeout=HOOK_SECONDS)


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
        observers: those who are told every record of `happenings`; callables may be added at any time.
    """

    def __init__(
        self,
        options: Any,
        processor: MessageStreamProcessor,
        archivist: Archivist,
        config: ContextConfig,
        actions: Actions,
        *,
        hub: Hub | None = None,
        reporter: Reporter | None = None,
        template: str | None = None,
        copy: Callable[..., Any] = replace,
        another: Callable[[Any, Hub], AgentRuntime],
    ) -> None:
        self.options = options
        self.processor = processor
        self.config = config
        self.actions = actions
        self._archivist = archivist
        self._hub = Hub() if hub is None else hub
        self._reporter = reporter
        self._template = template
        self._copy = copy
        self._another = another
        self._in_session = False

    @property
    def tracker(self) -> ContextTracker:
        """The tracker behind the processor."""
        return self.processor.tracker

    @property
    def archive(self) -> TranscriptArchive | None:
        """The archive of this repository."""
        return self._archivist.archive

    @property
    def observers(self) -> list[Observer]:
        """Those who are told every record of `happenings`, the log and OpenTelemetry among them."""
        return self._hub.observers

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
        runtime = self._another(self.options, self._hub.beside()) if self._in_session else self
        runtime._in_session = True
        try:
            async with runtime._open() as session:
                yield session
        finally:
            runtime._in_session = False

    def _open(self) -> AbstractAsyncContextManager[AgentSession]:
        from claude_agent_sdk import ClaudeSDKClient

        handler = None if self.config.restart_at is None else self.pressure_handler()
        steward = Steward(self.actions, self.processor, handler, ClaudeSDKClient) if self.config.enabled else None
        return open_session(ClaudeSDKClient(self.options), self.processor, self.aclose, steward, self._hub.asked)

    def pressure_handler(self, *, timeout_seconds: float | None = None) -> ContextPressureHandler:
        """Return what takes one run from a full session to a fresh one; for those who hold their own client.

        `timeout_seconds` is what the whole run has, from now on.
        """
        return ContextPressureHandler(
            self.options,
            self.processor,
            template=self._template,
            max_restarts=self.config.max_restarts,
            timeout_seconds=timeout_seconds,
            keep=self._keep,
            limits=self.actions,
            copy=self._copy,
            tell=self._hub.tell,
        )

    async def _keep(self, session_id: str) -> Sequence[str]:
        """Archive a session that is left; return its archive's paths, or the transcript's where nothing is archived."""
        paths = await self._archivist.keep(session_id)
        transcript = self.actions.transcript
        return paths or ([transcript] if transcript and session_id in transcript else [])

    async def aclose(self) -> None:
        """Archive what the last compaction of each session has not archived; may be called again. Never raises."""
        if self.config.archive.at_session_end:
            await self._archivist.close()
        if self._reporter is not None:
            self._reporter.ended()
        self._hub.left()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def instrument(
    options: ClaudeAgentOptions | None = None,
    repo_path: str | os.PathLike[str] | None = None,
    *,
    config: ContextConfig | None = None,
    observers: Iterable[Observer] = (),
) -> AgentRuntime:
    """Add tracking and archive to options that are there already; a copy, the original is not touched.

    Args:
        options: the agent's options; `None` for the SDK's defaults.
        repo_path: the repository whose `mala.yaml` counts and whose runs directory gets the archives; by default the
            options' `cwd`, else the working directory.
        config: used in place of `mala.yaml`.
        observers: called with every record of `happenings`, after the log and OpenTelemetry.

    Raises `ConfigError` where `mala.yaml` cannot be used. Existing hooks stay, listed first. Options that came out of
    here before are freed of the old wiring first.
    """
    sdk = _SDK()
    given = sdk.create_options() if options is None else options
    repo = _repo(repo_path, given.cwd)
    return _wire(given, repo, config, sdk, copy=replace, observers=observers)


class AgentRuntimeBuilder:
    """The long form of `instrument`: each `with_…` returns the builder, `build` the runtime.

    Args:
        repo_path: the repository; also the agent's working directory unless `with_options(cwd=…)` says otherwise.
        agent_id: names the agent in log lines.
        sdk_client_factory: stands in for the SDK's own types, see `SDKClientFactory`.
    """

    def __init__(
        self,
        repo_path: str | os.PathLike[str],
        agent_id: str | None = None,
        sdk_client_factory: SDKClientFactory | None = None,
    ) -> None:
        self._repo = os.path.abspath(os.fspath(repo_path))
        self._agent_id = agent_id
        self._sdk: SDKClientFactory = sdk_client_factory or _SDK()
        self._fields: dict[str, Any] = {}
        self._hooks: dict[str, list[Any]] = {}
        self._config: ContextConfig | None = None
        self._observers: list[Observer] = []

    def with_model(self, model: str) -> Self:
        """Set the model, with its `[1m]` suffix if it has one."""
        return self.with_options(model=model)

    def with_env(self, env: Mapping[str, str]) -> Self:
        """Add variables to the CLI's environment; later ones win."""
        return self.with_options(env={**self._fields.get("env", {}), **env})

    def with_hooks(self, hooks: Mapping[str, Sequence[Any]]) -> Self:
        """Add hook matchers by event; ours come behind them."""
        for event, matchers in hooks.items():
            self._hooks.setdefault(event, []).extend(matchers)
        return self

    def with_mcp(self, servers: Mapping[str, Any] | str | os.PathLike[str]) -> Self:
        """Add MCP servers by name; a path to a file of servers takes the place of what was set before."""
        before = self._fields.get("mcp_servers")
        if isinstance(servers, Mapping) and isinstance(before, Mapping):
            return self.with_options(mcp_servers={**before, **servers})
        return self.with_options(mcp_servers=dict(servers) if isinstance(servers, Mapping) else servers)

    def with_disallowed_tools(self, tools: Sequence[str]) -> Self:
        """Forbid tools, on top of those forbidden before."""
        return self.with_options(disallowed_tools=[*self._fields.get("disallowed_tools", ()), *tools])

    def with_resume(self, session_id: str | None, *, fork: bool = False) -> Self:
        """Go on from a session, in a copy of it where `fork` is true; `None` for a new one."""
        return self.with_options(resume=session_id, fork_session=fork)

    def with_config(self, config: ContextConfig | str | os.PathLike[str]) -> Self:
        """Use this configuration, or this file, in place of the repository's `mala.yaml`; raises `ConfigError`."""
        if not isinstance(config, ContextConfig):
            path = os.fspath(config)
            if not os.path.lexists(path):
                raise ConfigError(f"{path}: no such file; a configuration that is named must be there", path=path)
            config = load_config(path)
        self._config = config
        return self

    def with_observers(self, *observers: Observer) -> Self:
        """Have these called with every record of `happenings`, after the log, OpenTelemetry and those set before."""
        self._observers.extend(observers)
        return self

    def with_options(self, **fields: Any) -> Self:
        """Set any fields of `ClaudeAgentOptions`; `hooks` are added to those set before."""
        hooks = fields.pop("hooks", None)
        self._fields.update(fields)
        return self.with_hooks(hooks) if hooks else self

    def build(self) -> AgentRuntime:
        """Return a new runtime; may be called again, for another agent. Raises `ConfigError`."""
        fields = {"cwd": self._repo, **self._fields}
        hooks = {event: list(matchers) for event, matchers in self._hooks.items()}
        options = self._sdk.create_options(**fields, hooks=hooks)

        def with_wired_hooks(_: Any, **changes: Any) -> Any:
            return self._sdk.create_options(**{**fields, **changes})

        return _wire(
            options,
            self._repo,
            self._config,
            self._sdk,
            copy=with_wired_hooks,
            agent_id=self._agent_id,
            observers=self._observers,
        )


def _repo(repo_path: str | os.PathLike[str] | None, cwd: object) -> str:
    chosen = repo_path if repo_path is not None else cwd
    return os.path.abspath(os.fspath(cast("str", chosen)) if chosen is not None else os.curdir)


def _wire(
    options: Any,
    repo: str,
    config: ContextConfig | None,
    sdk: SDKClientFactory,
    *,
    copy: Callable[..., Any],
    agent_id: str | None = None,
    observers: Iterable[Observer] = (),
    hub: Hub | None = None,
) -> AgentRuntime:
    """Make the runtime's parts and hang them together; `copy(options, hooks=…)` makes the options to connect with.

    With `hub` the `observers` are those of that hub.
    """
    config = load_config(os.path.join(repo, "mala.yaml")) if config is None else config
    env = getattr(options, "env", None) or {}
    tracker = _tracker(config, options, env)
    archivist = Archivist.for_repo(repo, config.archive, _projects_dirs(env))
    processor = MessageStreamProcessor(
        tracker,
        restart_at=config.restart_at,
        agent_name=agent_id or "main",
        enabled=config.enabled,
    )
    processor.announces = archivist.announces if config.archive.enabled else None
    if config.archive.enabled:
        archivist.listen(processor)
    if hub is None:
        given = list(observers)
        hub = Hub([*own_observers(given), *given])
    reporter = Reporter(hub.tell, hub.wants)
    processor.observe(reporter.on_event, *reporter.events)
    archivist.tell = hub.tell
    actions = Actions(Policy(thresholds_from(config)), processor, finishing_tools=config.finishing_tools, hub=hub)
    resumes = bool(getattr(options, "resume", None) or getattr(options, "continue_conversation", None))
    gauge = TranscriptGauge(processor, resumes=resumes, resume_of=getattr(options, "resume", None))
    hooks = _without_ours(getattr(options, "hooks", None) or {})
    if config.enabled or config.archive.enabled:
        parts = {
            "archivist": archivist if config.archive.enabled else None,
            "gauge": gauge if config.enabled else None,
            "notes": actions if config.enabled else None,
            "gate": actions if config.enabled and config.final_at is not None else None,
            "cap": _tool_cap(repo, config, tracker, actions),
            "pin": _pin(repo, config, archivist),
        }
        _add_hooks(hooks, parts, sdk)
    template = _template(repo, config.continuation_template)
    wired = {"hooks": hooks, **_search_tool(options, config, archivist.archive, tracker)}

    def copy_wired(given: Any, **changes: Any) -> Any:
        return copy(given, **{**wired, **changes})

    def another(options: Any, hub: Hub) -> AgentRuntime:
        return _wire(options, repo, config, sdk, copy=copy, agent_id=agent_id, hub=hub)

    return AgentRuntime(
        copy_wired(options),
        processor,
        archivist,
        config,
        actions,
        hub=hub,
        reporter=reporter,
        template=template,
        copy=copy_wired,
        another=another,
    )


def _tracker(config: ContextConfig, options: Any, env: Mapping[str, str]) -> ContextTracker:
    return ContextTracker(
        estimator=config.estimator,
        window=None if config.window == "auto" else config.window,
        model=getattr(options, "model", None),
        betas=tuple(getattr(options, "betas", None) or ()),
        auto_compact_window=read_auto_compact_window(env.get(AUTO_COMPACT_WINDOW, os.environ.get(AUTO_COMPACT_WINDOW))),
    )


def _add_hooks(hooks: dict[str, list[Any]], parts: Mapping[str, Any], sdk: SDKClientFactory) -> None:
    """Put our callbacks behind the hooks that are there, for each event that one of the parts takes."""
    for event, factory in HOOKS.items():
        callback = factory(parts)
        if callback is not None:
            hooks.setdefault(event, []).append(sdk.create_hook_matcher(None, [callback]))


def _search_tool(
    options: Any, config: ContextConfig, archive: TranscriptArchive | None, tracker: ContextTracker
) -> dict[str, Any]:
    """Return the options that offer the agent a search of its own history; none where that is off or impossible."""
    if not config.search_tool:
        return {}
    servers = getattr(options, "mcp_servers", None) or {}
    if archive is None or not isinstance(servers, Mapping):
        reason = "the archive is off" if archive is None else "the MCP servers are in a file"
        log.warning("mala.yaml: search_tool is without effect, since %s", reason)
        return {}
    tool = HistorySearch(archive, lambda: tracker.session_id)
    allowed = [name for name in getattr(options, "allowed_tools", None) or () if name != FULL_NAME]
    return {"mcp_servers": {**servers, SERVER: tool.server()}, "allowed_tools": [*allowed, FULL_NAME]}


def _template(repo: str, name: str | None) -> str | None:
    """Read the continuation template, a path below the repository; raises `ConfigError` where it is of no use."""
    if name is None:
        return None
    path = os.path.join(repo, os.path.expanduser(name))
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"context.continuation_template: {path} cannot be read: {error}") from error
    if PLACE not in text:
        raise ConfigError(f"context.continuation_template: {path} has no {PLACE}, the place of the checkpoint")
    return text


def _tool_cap(repo: str, config: ContextConfig, tracker: ContextTracker, actions: Actions) -> ToolCap | None:
    if not config.enabled or config.guard.tool_output_tokens is None:
        return None
    return ToolCap(config.guard, Spills(repo), tracker, actions.acted)


def _pin(repo: str, config: ContextConfig, archivist: Archivist) -> Pin | None:
    if config.pin is None:
        return None
    if config.pin == AUTO and archivist.archive is None:
        log.warning("mala.yaml: pin: auto needs the archive, which is off; nothing is put back after a compaction")
        return None
    return Pin(config.pin, repo, archivist.words_lost)


def _without_ours(hooks: Mapping[str, Sequence[Any] | None]) -> dict[str, list[Any]]:
    """Copy hooks, leaving out those that an earlier wiring put there; what is no matcher is the SDK's to judge."""
    kept = {
        event: [
            matcher for matcher in matchers or () if not any(is_ours(hook) for hook in getattr(matcher, "hooks", ()))
        ]
        for event, matchers in hooks.items()
    }
    return {event: matchers for event, matchers in kept.items() if matchers}


def _projects_dirs(env: Mapping[str, str]) -> list[str] | None:
    """Where a CLI with these variables keeps its transcripts; `None` where they do not say, and this process's do."""
    if env.get("CLAUDE_CONFIG_DIR"):
        return [os.path.join(env["CLAUDE_CONFIG_DIR"], "projects")]
    if env.get("HOME") and not os.environ.get("CLAUDE_CONFIG_DIR"):
        return [os.path.join(env["HOME"], ".claude", "projects")]
    return None
