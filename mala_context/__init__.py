"""Context tracking, transcript archives and guards for agents built on `claude-agent-sdk`.

The public names are loaded when they are first used, so that `import mala_context` costs a hook process nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` and `importlib` would be most of what this import costs
if TYPE_CHECKING:
    from mala_context.agent.builder import AgentRuntimeBuilder, instrument
    from mala_context.agent.hooks import make_precompact_hook
    from mala_context.agent.restart import ContextPressureHandler
    from mala_context.agent.runtime import AgentRuntime
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.archive.layout import get_repo_runs_dir
    from mala_context.archive.store import TranscriptArchive
    from mala_context.config import ContextConfig, load_config
    from mala_context.errors import ConfigError, ContextPressureError
    from mala_context.guard import ContextGuard, TargetContextConfig
    from mala_context.guard.tool_budget import ToolBudget
    from mala_context.tracking.tracker import ContextSnapshot, ContextTracker
    from mala_context.tracking.usage import TRACKING_DISABLED, ContextUsage, Usage

_HOMES = {
    "AgentRuntime": "runtime",
    "AgentRuntimeBuilder": "runtime",
    "ConfigError": "errors",
    "ContextConfig": "config",
    "ContextGuard": "guard",
    "ContextPressureError": "errors",
    "ContextPressureHandler": "pressure",
    "ContextSnapshot": "tracker",
    "ContextTracker": "tracker",
    "ContextUsage": "usage",
    "MessageStreamProcessor": "stream",
    "TRACKING_DISABLED": "usage",
    "TargetContextConfig": "guard",
    "ToolBudget": "tool_budget",
    "TranscriptArchive": "archive.store",
    "Usage": "usage",
    "get_repo_runs_dir": "archive.layout",
    "instrument": "runtime",
    "load_config": "config",
    "make_precompact_hook": "sdk_hooks",
}

__all__ = [
    "TRACKING_DISABLED",
    "AgentRuntime",
    "AgentRuntimeBuilder",
    "ConfigError",
    "ContextConfig",
    "ContextGuard",
    "ContextPressureError",
    "ContextPressureHandler",
    "ContextSnapshot",
    "ContextTracker",
    "ContextUsage",
    "MessageStreamProcessor",
    "TargetContextConfig",
    "ToolBudget",
    "TranscriptArchive",
    "Usage",
    "get_repo_runs_dir",
    "instrument",
    "load_config",
    "make_precompact_hook",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
