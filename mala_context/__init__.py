"""Context tracking, transcript archives and guards for agents built on `claude-agent-sdk`.

Every public name comes from here, from `mala_context.testing` or from nowhere: modules below may move in any version.
A name is loaded when it is first used, so that `import mala_context` costs a hook process nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` and `importlib` would take most of this import's time
if TYPE_CHECKING:
    from mala_context.agent.baseline import Baseline, measure_baseline
    from mala_context.agent.builder import AgentRuntimeBuilder, instrument
    from mala_context.agent.hooks import make_precompact_hook
    from mala_context.agent.restart import ContextPressureHandler
    from mala_context.agent.runtime import AgentRuntime
    from mala_context.agent.session import AgentSession
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.agent.telemetry.otel import OpenTelemetryObserver
    from mala_context.agent.telemetry.records import (
        Archived,
        CacheRewritten,
        CompactionSeen,
        ContextUpdated,
        FinalTurn,
        GuardActed,
        Observer,
        Restarted,
        SessionEnded,
        SessionRestarted,
        SilentChange,
        TelemetryRecord,
        ThresholdCrossed,
        Uploaded,
    )
    from mala_context.analysis.cluster import DaskEngine
    from mala_context.analysis.replay.engine import replay
    from mala_context.analysis.replay.record import AgentRecord, CompactionRecord, SessionRecord
    from mala_context.archive.layout import get_repo_runs_dir
    from mala_context.archive.session_store import ArchiveSessionStore
    from mala_context.archive.store import TranscriptArchive
    from mala_context.archive.verify import VerifyReport, verify_archive
    from mala_context.config import ArchiveConfig, ContextConfig, GuardConfig, Retention, load_config
    from mala_context.errors import (
        ArchiveBusyError,
        ArchiveError,
        ArchiveUnavailableError,
        BaselineError,
        ClusterError,
        ConfigError,
        ConfigProblem,
        ContextPressureError,
        CorruptArchiveError,
        InvalidSessionIdError,
        MalaContextError,
        ObjectStoreError,
        PartNotFoundError,
        RecordingNotFoundError,
        SessionNotFoundError,
        TranscriptError,
    )
    from mala_context.guard import ContextGuard, GuardEvent, Requirement, TargetContextConfig
    from mala_context.guard.debug import debug_printer
    from mala_context.guard.log import log_guard_event
    from mala_context.guard.overflow import ContextOverflow
    from mala_context.guard.tool_budget import ToolBudget
    from mala_context.tracking.cache import CacheUse
    from mala_context.tracking.context_map import ContextPart
    from mala_context.tracking.openai import OpenAIStatus, openai_status
    from mala_context.tracking.readers import read_message, read_openai, read_row, read_stream_json
    from mala_context.tracking.tracker import ContextSnapshot, ContextTracker
    from mala_context.tracking.usage import TRACKING_DISABLED, ContextUsage, Usage

_HOMES = {
    name: home
    for home, names in {
        "agent.baseline": "Baseline measure_baseline",
        "agent.builder": "AgentRuntimeBuilder instrument",
        "agent.hooks": "make_precompact_hook",
        "agent.restart": "ContextPressureHandler",
        "agent.runtime": "AgentRuntime",
        "agent.session": "AgentSession",
        "agent.stream": "MessageStreamProcessor",
        "agent.telemetry.otel": "OpenTelemetryObserver",
        "agent.telemetry.records": (
            "Archived CacheRewritten CompactionSeen ContextUpdated FinalTurn GuardActed Observer Restarted "
            "SessionEnded SessionRestarted SilentChange TelemetryRecord ThresholdCrossed Uploaded"
        ),
        "analysis.cluster": "DaskEngine",
        "analysis.replay.engine": "replay",
        "analysis.replay.record": "AgentRecord CompactionRecord SessionRecord",
        "archive.layout": "get_repo_runs_dir",
        "archive.session_store": "ArchiveSessionStore",
        "archive.store": "TranscriptArchive",
        "archive.verify": "VerifyReport verify_archive",
        "config": "ArchiveConfig ContextConfig GuardConfig Retention load_config",
        "errors": (
            "ArchiveBusyError ArchiveError ArchiveUnavailableError BaselineError ClusterError ConfigError "
            "ConfigProblem ContextPressureError CorruptArchiveError InvalidSessionIdError MalaContextError "
            "ObjectStoreError PartNotFoundError RecordingNotFoundError SessionNotFoundError TranscriptError"
        ),
        "guard": "ContextGuard GuardEvent Requirement TargetContextConfig",
        "guard.debug": "debug_printer",
        "guard.log": "log_guard_event",
        "guard.overflow": "ContextOverflow",
        "guard.tool_budget": "ToolBudget",
        "tracking.cache": "CacheUse",
        "tracking.context_map": "ContextPart",
        "tracking.openai": "OpenAIStatus openai_status",
        "tracking.readers": "read_message read_openai read_row read_stream_json",
        "tracking.tracker": "ContextSnapshot ContextTracker",
        "tracking.usage": "ContextUsage TRACKING_DISABLED Usage",
    }.items()
    for name in names.split()
}
"""Public name → the module that it is loaded from, below this package."""

__all__ = [
    "TRACKING_DISABLED",
    "AgentRecord",
    "AgentRuntime",
    "AgentRuntimeBuilder",
    "AgentSession",
    "ArchiveBusyError",
    "ArchiveConfig",
    "ArchiveError",
    "ArchiveSessionStore",
    "ArchiveUnavailableError",
    "Archived",
    "Baseline",
    "BaselineError",
    "CacheRewritten",
    "CacheUse",
    "ClusterError",
    "CompactionRecord",
    "CompactionSeen",
    "ConfigError",
    "ConfigProblem",
    "ContextConfig",
    "ContextGuard",
    "ContextOverflow",
    "ContextPart",
    "ContextPressureError",
    "ContextPressureHandler",
    "ContextSnapshot",
    "ContextTracker",
    "ContextUpdated",
    "ContextUsage",
    "CorruptArchiveError",
    "DaskEngine",
    "FinalTurn",
    "GuardActed",
    "GuardConfig",
    "GuardEvent",
    "InvalidSessionIdError",
    "MalaContextError",
    "MessageStreamProcessor",
    "ObjectStoreError",
    "Observer",
    "OpenAIStatus",
    "OpenTelemetryObserver",
    "PartNotFoundError",
    "RecordingNotFoundError",
    "Requirement",
    "Restarted",
    "Retention",
    "SessionEnded",
    "SessionNotFoundError",
    "SessionRecord",
    "SessionRestarted",
    "SilentChange",
    "TargetContextConfig",
    "TelemetryRecord",
    "ThresholdCrossed",
    "ToolBudget",
    "TranscriptArchive",
    "TranscriptError",
    "Uploaded",
    "Usage",
    "VerifyReport",
    "debug_printer",
    "get_repo_runs_dir",
    "instrument",
    "load_config",
    "log_guard_event",
    "make_precompact_hook",
    "measure_baseline",
    "openai_status",
    "read_message",
    "read_openai",
    "read_row",
    "read_stream_json",
    "replay",
    "verify_archive",
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
