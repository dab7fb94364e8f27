"""Two ways to make a runtime: from the options of an agent (`instrument`), or step by step (`AgentRuntimeBuilder`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from mala_context.agent.runtime import AgentRuntime
from mala_context.agent.sdk import SDK, SDKClientFactory
from mala_context.agent.telemetry import Hub, own_observers
from mala_context.agent.wiring import wire
from mala_context.config import ContextConfig, load_config
from mala_context.errors import ConfigError

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions

    from mala_context.agent.telemetry.records import Observer


def instrument(
    options: ClaudeAgentOptions | None = None,
    repo_path: str | os.PathLike[str] | None = None,
    *,
    config: ContextConfig | None = None,
    observers: Iterable[Observer] = (),
) -> AgentRuntime:
    """Add tracking and archive to a copy of an agent's options; the original is not changed.

    Args:
        options: the agent's options; `None` for the SDK's defaults.
        repo_path: the repository whose `mala.yaml` counts and whose runs directory gets the archives; by default the
            options' `cwd`, else the working directory.
        config: used in place of `mala.yaml`.
        observers: called with every record of `telemetry.records`, after the log and OpenTelemetry.

    Existing hooks stay, and come first. Options that `instrument` made before lose the old wiring first. Raises
    `ConfigError` if `mala.yaml` or `config` is wrong, `TypeError` for options of another type.
    """
    sdk = SDK()
    given = sdk.create_options() if options is None else options
    if not hasattr(given, "cwd"):  # case people-21: it was an AttributeError from inside
        raise TypeError(f"options is a {type(options).__name__}; instrument takes ClaudeAgentOptions or None")
    repo = _repo(repo_path, given.cwd)
    return wire(given, repo, config, sdk, copy=replace, hub=_hub(observers))


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
        self._sdk: SDKClientFactory = sdk_client_factory or SDK()
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
        """Add hook matchers by event; ours come after them."""
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
        """Go on from the session `session_id`, in a copy of it where `fork` is true; `None` for a new one."""
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
        """Have these called with every telemetry record, after the log, OpenTelemetry and those set before."""
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

        return wire(
            options,
            self._repo,
            self._config,
            self._sdk,
            copy=with_wired_hooks,
            hub=_hub(self._observers),
            agent_id=self._agent_id,
        )


def _hub(observers: Iterable[Observer]) -> Hub:
    given = list(observers)
    return Hub([*own_observers(given), *given])


def _repo(repo_path: str | os.PathLike[str] | None, cwd: object) -> str:
    chosen = repo_path if repo_path is not None else cwd
    return os.path.abspath(os.fspath(cast("str", chosen)) if chosen is not None else os.curdir)
