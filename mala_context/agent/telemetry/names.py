"""Names of metrics, attributes, spans and span events; `docs/reference/telemetry.md` lists them.

If the GenAI semantic conventions have a name for something, that name is used. They have none for the size of a context
and its window: these are under `gen_ai.context.*`. Everything else is under `mala_context.*`. There is no metric of the
tokens that were *used* (`gen_ai.client.*`): the CLI and the instrumentations of the SDK export those.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SCOPE: Final = "mala_context"
"""Name of the instrumentation scope of everything that this package exports."""

# Attributes of the GenAI semantic conventions
OPERATION: Final = "gen_ai.operation.name"
MODEL: Final = "gen_ai.request.model"
CONVERSATION: Final = "gen_ai.conversation.id"
COMPACTED: Final = "gen_ai.conversation.compacted"
AGENT_ID: Final = "gen_ai.agent.id"
TOOL: Final = "gen_ai.tool.name"

# Attributes of ours
WINDOW: Final = "gen_ai.context.window_size"
UTILIZATION: Final = "gen_ai.context.utilization"
AGENT: Final = "mala_context.agent"
TRIGGER: Final = "mala_context.trigger"
BY_REFERENCE: Final = "mala_context.by_reference"
WINDOW_STATE: Final = "mala_context.window_state"
THRESHOLD: Final = "mala_context.threshold"
ACTION: Final = "mala_context.action"
REASON: Final = "mala_context.reason"
CHECKPOINT: Final = "mala_context.checkpoint"
CAUSE: Final = "mala_context.cause"
OUTCOME: Final = "mala_context.outcome"
SOURCE: Final = "mala_context.source"
STOPPED: Final = "mala_context.stopped"
COMPLETE: Final = "mala_context.complete"
LIMIT: Final = "mala_context.limit_tokens"
PROJECTED: Final = "mala_context.projected_tokens"
REMAINING: Final = "mala_context.remaining_tokens"
BEFORE: Final = "mala_context.tokens.before"
AFTER: Final = "mala_context.tokens.after"

COMPACT: Final = "compact"
"""`gen_ai.operation.name` of a compaction, and the first word of its span's name."""


class Metric(NamedTuple):
    """One metric."""

    name: str
    kind: str
    """`gauge`, `counter` or `histogram`."""
    unit: str
    words: str
    """Its description."""
    labels: tuple[str, ...]
    """The attributes of its points; they have no others."""
    buckets: tuple[float, ...] | None = None
    """A histogram's boundaries."""


_SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1)
_TOKENS: Final = (
    *(1_000.0, 2_500.0, 5_000.0, 10_000.0, 20_000.0, 30_000.0, 50_000.0, 75_000.0, 100_000.0, 125_000.0, 150_000.0),
    *(175_000.0, 200_000.0, 300_000.0, 400_000.0, 500_000.0, 650_000.0, 800_000.0, 1_000_000.0),
)
_COMPACTION: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
_ARCHIVE: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_UPLOAD: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BYTES: Final = (1e3, 1e4, 5e4, 1e5, 2.5e5, 5e5, 1e6, 2.5e6, 5e6, 1e7, 2.5e7, 1e8)


def _gauge(name: str, unit: str, words: str, *labels: str) -> Metric:
    return Metric(name, "gauge", unit, words, (MODEL, AGENT, *labels))


def _counter(name: str, unit: str, words: str, *labels: str) -> Metric:
    return Metric(name, "counter", unit, words, labels)


def _histogram(name: str, unit: str, buckets: tuple[float, ...], words: str, *labels: str) -> Metric:
    return Metric(name, "histogram", unit, words, labels, buckets)


TOKENS: Final = _gauge("gen_ai.context.tokens", "{token}", "Size of the fullest context that is held now", WINDOW_STATE)
WINDOW_SIZE: Final = _gauge(
    "gen_ai.context.window_size", "{token}", "Context window of the fullest context", WINDOW_STATE
)
FULLEST: Final = _gauge(
    "gen_ai.context.utilization", "1", "Share of its window that the fullest context takes", WINDOW_STATE
)
CONTEXTS: Final = _gauge("gen_ai.context.active", "{context}", "Contexts that are held now")
TURNS: Final = _histogram(
    "gen_ai.context.turn.utilization",
    "1",
    _SHARES,
    "Share of the window in use at the end of each turn",
    *(MODEL, WINDOW_STATE),
)
COMPACTIONS: Final = _counter(
    "mala_context.compactions", "{compaction}", "Compactions", MODEL, TRIGGER, AGENT, BY_REFERENCE
)
TOKENS_BEFORE: Final = _histogram(
    "mala_context.compaction.tokens.before", "{token}", _TOKENS, "Size of the context before a compaction", MODEL
)
TOKENS_AFTER: Final = _histogram(
    "mala_context.compaction.tokens.after", "{token}", _TOKENS, "Size of the context after a compaction", MODEL
)
COMPACTION_TIME: Final = _histogram(
    "mala_context.compaction.duration", "s", _COMPACTION, "Time that a compaction took", MODEL, BY_REFERENCE
)
CACHE_REWRITTEN: Final = _counter(
    "mala_context.cache.rewritten", "{token}", "Tokens written to the prompt cache again, or first", MODEL, CAUSE, AGENT
)
ARCHIVE_TIME: Final = _histogram("mala_context.archive.duration", "s", _ARCHIVE, "Time that archiving took", TRIGGER)
ARCHIVE_SIZE: Final = _histogram("mala_context.archive.size", "By", _BYTES, "Bytes that were archived at once", TRIGGER)
UPLOADS: Final = _counter("mala_context.uploads", "{round}", "Rounds of uploads that began or ended", OUTCOME)
UPLOAD_SIZE: Final = _counter("mala_context.upload.size", "By", "Bytes that arrived in the object store", OUTCOME)
UPLOAD_TIME: Final = _histogram(
    "mala_context.upload.duration", "s", _UPLOAD, "Time that a round of uploads took", OUTCOME
)
THRESHOLDS: Final = _counter("mala_context.thresholds", "{crossing}", "Thresholds that were reached", THRESHOLD)
ACTIONS: Final = _counter("mala_context.guard.actions", "{action}", "What the guard did", ACTION)
RESTARTS: Final = _counter(
    "mala_context.restarts", "{restart}", "Runs that went on in a fresh session", REASON, CHECKPOINT
)
OVERFLOWS: Final = _counter(
    "mala_context.overflows", "{overflow}", "Requests that were refused since the window is full", SOURCE
)
SILENT_CHANGES: Final = _counter(
    "mala_context.silent_changes", "{request}", "Requests that were not what was projected", MODEL, CAUSE
)
FINAL_TURNS: Final = _counter("mala_context.final_turns", "{turn}", "Final turns that ended", STOPPED, COMPLETE)

METRICS: Final = (
    *(TOKENS, WINDOW_SIZE, FULLEST, CONTEXTS, TURNS),
    *(COMPACTIONS, TOKENS_BEFORE, TOKENS_AFTER, COMPACTION_TIME),
    CACHE_REWRITTEN,
    *(ARCHIVE_TIME, ARCHIVE_SIZE, UPLOADS, UPLOAD_SIZE, UPLOAD_TIME),
    *(THRESHOLDS, ACTIONS, RESTARTS, OVERFLOWS, FINAL_TURNS, SILENT_CHANGES),
)
"""Every metric."""
