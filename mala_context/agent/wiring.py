"""Make the parts of a runtime and connect them: which hook calls which part, and what is added to the options."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.log import get_logger
from mala_context._util.safe_open import read_regular
from mala_context.agent.actions import Actions
from mala_context.agent.archiving import SessionArchiver
from mala_context.agent.claude_code.statusline.usable import SOURCES, automatic_window
from mala_context.agent.fresh_options import resumes_at
from mala_context.agent.hooks import HOOKS, is_ours
from mala_context.agent.pin import AUTO, Pin
from mala_context.agent.reference.compactor import NEEDS, ByReference
from mala_context.agent.restart import PLACE
from mala_context.agent.runtime import AgentRuntime, Parts
from mala_context.agent.sdk import SDKClientFactory
from mala_context.agent.search_tool import FULL_NAME, SERVER, HistorySearch
from mala_context.agent.stream import MessageStreamProcessor
from mala_context.agent.telemetry import Hub, Reporter
from mala_context.agent.tool_cap import ToolCap
from mala_context.agent.transcript_feed import TranscriptFeed
from mala_context.archive.full_outputs import Spills
from mala_context.config import ContextConfig, checked, load_config
from mala_context.errors import ConfigError
from mala_context.guard.policy import Policy
from mala_context.guard.thresholds import subagent_thresholds, thresholds_from
from mala_context.tracking.registry import LIVE
from mala_context.tracking.tracker import ContextTracker

if TYPE_CHECKING:
    from mala_context.archive.store import TranscriptArchive

log = get_logger(__name__)
_MOST_TEMPLATE: Final = 1_000_000
"""Most bytes of a continuation template; a longer file is refused."""


def wire(
    options: Any,
    repo: str,
    config: ContextConfig | None,
    sdk: SDKClientFactory,
    *,
    copy: Callable[..., Any],
    hub: Hub,
    agent_id: str | None = None,
) -> AgentRuntime:
    """Make the runtime's parts and connect them; `copy(options, hooks=…)` makes the options to connect with."""
    config = load_config(os.path.join(repo, "mala.yaml")) if config is None else checked(config)
    env = getattr(options, "env", None) or {}
    tracker = _tracker(config, options, env, repo)
    archivist = None
    if config.archive.enabled:
        archivist = SessionArchiver.for_repo(repo, config.archive, _projects_dirs(env), tell=hub.tell)
    policy = Policy(thresholds_from(config))
    processor = MessageStreamProcessor(
        tracker,
        restart_at=None if config.restart_at is None else policy.raises_pressure,
        compaction_logger=None if archivist is None else archivist.announces,
        agent_name=agent_id or "main",
        enabled=config.enabled,
    )
    if archivist is not None:
        archivist.listen(processor)
    reporter = Reporter(hub.tell, hub.wants)
    processor.observe(reporter.on_event, *reporter.events, wants=reporter.wants_size)
    processor.rewrite_observers.append(reporter.rewritten)
    actions = Actions(
        policy, processor, finishing_tools=config.finishing_tools, hub=hub, subagents=subagent_thresholds(config)
    )
    gauge = _gauge(processor, options, env)
    cap = _tool_cap(repo, config, tracker, actions)
    denies = config.final_at is not None or config.subagents.final_at is not None
    parts = {
        "archivist": archivist,
        "gauge": gauge if config.enabled else None,
        "notes": actions if config.enabled else None,
        "gate": actions if config.enabled and denies else None,
        "cap": cap,
        "pin": _pin(repo, config, archivist),
        "reference": _by_reference(repo, config, archivist, processor, cap),
    }
    wired = _wired(options, config, parts, tracker, sdk)
    template = _template(repo, config.continuation_template)

    def copy_wired(given: Any, **changes: Any) -> Any:
        return copy(given, **{**wired, **changes})

    def another(options: Any, hub: Hub) -> AgentRuntime:
        return wire(options, repo, config, sdk, copy=copy, hub=hub, agent_id=agent_id)

    made = Parts(config, processor, archivist, actions, hub, reporter, template, copy_wired, another, gauge.connected)
    return AgentRuntime(copy_wired(options), made)


def _gauge(processor: MessageStreamProcessor, options: Any, env: Mapping[str, str]) -> TranscriptFeed:
    resumed = getattr(options, "resume", None)
    resumes = bool(resumed or getattr(options, "continue_conversation", None))
    at = resumes_at(options) if resumes else None
    return TranscriptFeed(
        processor, resumes=resumes, resume_of=resumed, resume_at=at, projects_dirs=_projects_dirs(env)
    )


def _tracker(config: ContextConfig, options: Any, env: Mapping[str, str], repo: str) -> ContextTracker:
    return ContextTracker(
        estimator=config.estimator,
        window=None if config.window == "auto" else config.window,
        model=model if isinstance(model := getattr(options, "model", None), str) else None,
        betas=tuple(getattr(options, "betas", None) or ()),
        auto_compact_window=_automatic_window(options, env, repo),
        remembers=LIVE,
        alarm_at=config.alarm_at,
    )


def _automatic_window(options: Any, env: Mapping[str, str], repo: str) -> int | None:
    """Return the window that a CLI with these options compacts by, if its environment or settings files set one."""
    sources = getattr(options, "setting_sources", None)
    project = os.fspath(getattr(options, "cwd", None) or repo)
    whole = {name: str(value) for name, value in {**os.environ, **env}.items()}
    return automatic_window(
        whole,
        project,
        SOURCES if sources is None else sources,
        _own_settings(getattr(options, "settings", None), project),
    )


def _own_settings(given: object, project: str) -> Mapping[str, Any]:
    """Return the settings in the options, given as JSON or as a path; an empty mapping if they cannot be read."""
    if not isinstance(given, str):
        return {}
    try:
        data = given.encode() if given.lstrip().startswith("{") else read_regular(os.path.join(project, given), 4 << 20)
        found = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _wired(
    options: Any, config: ContextConfig, parts: Mapping[str, Any], tracker: ContextTracker, sdk: SDKClientFactory
) -> dict[str, Any]:
    """Return the fields of the options that we set: hooks, and the fields that the search and the mod need.

    For each event that a part handles, our callback comes after the hooks that are there already.
    """
    hooks = _without_ours(getattr(options, "hooks", None) or {})
    for event, factory in HOOKS.items():
        callback = factory(parts)
        if callback is not None:
            hooks.setdefault(event, []).append(sdk.create_hook_matcher(None, [callback]))
    archivist, reference = parts["archivist"], parts["reference"]
    archive = None if archivist is None else archivist.archive
    wired = {"hooks": hooks, **_search_tool(options, config, archive, tracker)}
    if reference is not None:
        given = {name: wired.get(name, getattr(options, name, None)) for name in NEEDS}
        wired |= reference.options(SimpleNamespace(**given))
    return wired


def _search_tool(
    options: Any, config: ContextConfig, archive: TranscriptArchive | None, tracker: ContextTracker
) -> dict[str, Any]:
    """Return the options that give the agent a search of its own history; empty if that is off or impossible."""
    if not config.search_tool and config.compaction != "reference":
        return {}
    servers = getattr(options, "mcp_servers", None) or {}
    if archive is None or not isinstance(servers, Mapping):
        reason = "the archive is off" if archive is None else "the MCP servers are in a file"
        log.warning("mala.yaml: search_tool is without effect, since %s", reason)
        return {}
    tool = HistorySearch(archive, lambda: tracker.session_id)
    allowed = [name for name in getattr(options, "allowed_tools", None) or () if name != FULL_NAME]
    return {"mcp_servers": {**servers, SERVER: tool.server()}, "allowed_tools": [*allowed, FULL_NAME]}


def _by_reference(
    repo: str,
    config: ContextConfig,
    archivist: SessionArchiver | None,
    processor: MessageStreamProcessor,
    cap: ToolCap | None,
) -> ByReference | None:
    """Return the part that answers the CLI's compactions; `None` if that is off or impossible."""
    if config.compaction == "cli":
        return None
    if archivist is None or not config.enabled:
        off = "the archive" if archivist is None else "tracking"
        log.warning("mala.yaml: compaction: reference is without effect, since %s is off", off)
        return None
    return ByReference(repo, config, archivist, processor, cap)


def _template(repo: str, name: str | None) -> str | None:
    """Read the continuation template, a path below the repository; raises `ConfigError` if it cannot be used."""
    if name is None:
        return None
    path = os.path.join(repo, os.path.expanduser(name))
    try:
        data = read_regular(path, _MOST_TEMPLATE + 1)
        if len(data) > _MOST_TEMPLATE:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_TEMPLATE:,} bytes")  # noqa: TRY301  # as unreadable
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:  # a name may hold a NUL
        raise ConfigError(f"context.continuation_template: {path} cannot be read: {error}") from error
    if PLACE not in text:
        raise ConfigError(f"context.continuation_template: {path} has no {PLACE}, the place of the checkpoint")
    return text


def _tool_cap(repo: str, config: ContextConfig, tracker: ContextTracker, actions: Actions) -> ToolCap | None:
    if not config.enabled or config.guard.tool_output_tokens is None:
        return None
    return ToolCap(config.guard, Spills(repo), tracker, actions.acted)


def _pin(repo: str, config: ContextConfig, archivist: SessionArchiver | None) -> Pin | None:
    if config.pin is None or not (config.enabled or config.archive.enabled):
        return None
    if config.pin == AUTO and archivist is None:
        log.warning("mala.yaml: pin: auto needs the archive, which is off; nothing is put back after a compaction")
        return None
    return Pin(config.pin, repo, None if archivist is None else archivist.words_lost)


def _without_ours(hooks: Mapping[str, Sequence[Any] | None]) -> dict[str, list[Any]]:
    """Copy the hooks without those of an earlier wiring. An item that is no matcher stays: the SDK reports it."""
    kept = {
        event: [
            matcher for matcher in matchers or () if not any(is_ours(hook) for hook in getattr(matcher, "hooks", ()))
        ]
        for event, matchers in hooks.items()
    }
    return {event: matchers for event, matchers in kept.items() if matchers}


def _projects_dirs(env: Mapping[str, str]) -> list[str] | None:
    """Return where a CLI with these variables keeps its transcripts; `None` if this process's own variables decide."""
    if env.get("CLAUDE_CONFIG_DIR"):
        return [os.path.join(env["CLAUDE_CONFIG_DIR"], "projects")]
    if env.get("HOME") and not os.environ.get("CLAUDE_CONFIG_DIR"):
        return [os.path.join(env["HOME"], ".claude", "projects")]
    return None
