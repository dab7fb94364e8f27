"""Turn records into OpenTelemetry metrics, spans and span events, through its API alone.

The application installs an SDK and configures an exporter; without these the API drops everything. This module starts,
flushes and shuts down nothing.

A compaction becomes a span below the current span; every other record becomes an event on the current span. If you hold
your own client, the current span is that of your code. A session reads messages in a task of its own, and there the
current span is that of the caller who sent the prompt.

Metrics carry no ids, because each id would be one more time series. An SDK that takes exemplars links a point to the
trace in which it was made, and the spans of that trace carry the session's id.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, NoOpHistogram, Observation

from mala_context.agent.telemetry import names
from mala_context.agent.telemetry.live import Labels, Level, LiveContexts
from mala_context.agent.telemetry.records import (
    Archived,
    CacheRewritten,
    CompactionSeen,
    ContextOverflow,
    ContextUpdated,
    FinalTurn,
    GuardActed,
    Restarted,
    SessionEnded,
    SilentChange,
    ThresholdCrossed,
    Uploaded,
)
from mala_context.guard.events import EVENT_NAME, GuardEvent

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

MOST_MODELS: Final = 7
"""Models that get a label of their own."""
OTHER: Final = "other"
"""Label for every other value."""
UNKNOWN: Final = "unknown"
"""Label for an unknown value."""
MAIN: Final = "main"
SUBAGENT: Final = "subagent"
COMPACTION_TRIGGERS: Final = frozenset({"auto", "manual"})
ARCHIVE_TRIGGERS: Final = frozenset({"auto", "manual", "boundary", "session_end", "subagent_end"})


class Models:
    """The names of models that metrics use.

    Args:
        names: models that always have a label of their own.
        most: how many models have one, `names` included.
    """

    def __init__(self, names: Iterable[str] = (), *, most: int = MOST_MODELS) -> None:
        self._names = dict.fromkeys(names)
        self._most = max(most, len(self._names))

    def label(self, model: str | None) -> str:
        """Return the label for a model; `other` if the model is unknown or comes after the first `most` models."""
        if model in self._names:
            return model
        if model is None or len(self._names) >= self._most:
            return OTHER
        self._names[model] = None
        return model


def one_of(value: str | None, known: frozenset[str]) -> str:
    """Return a value that is on the list, else `other`; `unknown` for `None`."""
    if value is None:
        return UNKNOWN
    return value if value in known else OTHER


Attributes = Mapping[str, str | bool | int | float]


class OpenTelemetryObserver:
    """Makes metrics, spans and span events of records.

    Each runtime has such an observer already, and all runtimes of a process share it. Make your own to use other
    providers than the global ones, or to choose the labels of models. Give the same one to each runtime among its
    `observers`: there it replaces the shared one. A `ContextGuard` of your own takes it as `on_event`.

    Args:
        meter_provider: where metrics go; the global one by default.
        tracer_provider: where spans go; the global one by default.
        models: models that always get a label of their own; by default the first seven that are seen get one.
        spans: whether to make spans and span events. Set it to false if the CLI's own traces are enough: they have a
            span `claude_code.compaction`.
    """

    def __init__(
        self,
        *,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
        models: Iterable[str] = (),
        spans: bool = True,
    ) -> None:
        meter = metrics.get_meter(names.SCOPE, meter_provider=meter_provider)
        self._tracer = trace.get_tracer(names.SCOPE, tracer_provider=tracer_provider) if spans else None
        self._models = Models(models)
        self._live = LiveContexts()
        self._instruments = {
            each.name: _made(meter, each) for each in names.METRICS if each.kind in {"counter", "histogram"}
        }
        self._turns = self._instruments[names.TURNS.name]
        self._gauges = [
            meter.create_observable_gauge(
                each.name, callbacks=[self._reader(each, value)], unit=each.unit, description=each.words
            )
            for each, value in _GAUGES
        ]

    def __call__(self, record: object) -> None:
        """Handle one record; other objects are ignored."""
        handler = _HANDLERS.get(record.__class__)
        if handler is not None:
            handler(self, record)

    def wants(self, kind: type) -> bool:
        """Tell whether a record of this class has an effect: without an SDK, records of sizes need not be made."""
        if kind is not ContextUpdated:
            return True
        turns = self._turns
        # The API's proxy, which uses another instrument once an SDK is installed. If a later version builds it in
        # another way, this returns true, and records are made that the API drops.
        real = getattr(turns, "_real_instrument", turns)
        return real is not None and not isinstance(real, NoOpHistogram)

    def _reader(
        self, metric: names.Metric, value: Callable[[Level], float]
    ) -> Callable[[CallbackOptions], Iterator[Observation]]:
        def read(options: CallbackOptions) -> Iterator[Observation]:
            for labels, level in self._live.levels().items():
                values = (*labels, level.fullest.window_state)
                yield Observation(value(level), dict(zip(metric.labels, values, strict=False)))

        return read

    def _labelled(self, model: str | None, agent: str | None) -> Labels:
        return (self._models.label(model), MAIN if agent is None else SUBAGENT)

    def _add(self, metric: names.Metric, attributes: Attributes, count: int = 1) -> None:
        self._instruments[metric.name].add(count, attributes)

    def _record(self, metric: names.Metric, value: float | None, attributes: Attributes) -> None:
        if value is not None:
            self._instruments[metric.name].record(value, attributes)

    def _event(self, name: str, session_id: str | None, attributes: Attributes) -> None:
        """Add an event to the current span, where one is recorded."""
        if self._tracer is None:
            return
        span = trace.get_current_span()
        if span.is_recording():
            session = {} if session_id is None else {names.CONVERSATION: session_id}
            span.add_event(f"{names.SCOPE}.{name}", {**attributes, **session})

    # -- one for each record ------------------------------------------------------------------------------------------

    def _updated(self, record: ContextUpdated) -> None:
        labels = self._labelled(record.model, record.agent)
        session, ratio, state = record.session_id, record.ratio, record.window_state
        if session is not None:
            tokens, window = record.tokens, record.window
            self._live.put(session, record.agent, labels, tokens=tokens, window=window, ratio=ratio, window_state=state)
        if record.cause == "TurnEnd" and record.exact and ratio is not None:
            self._record(names.TURNS, ratio, {names.MODEL: labels[0], names.WINDOW_STATE: state})

    def _ended(self, record: SessionEnded) -> None:
        self._live.drop(record.session_id)

    def _compacted(self, record: CompactionSeen) -> None:
        model, kind = self._labelled(record.model, record.agent)
        trigger = one_of(record.trigger, COMPACTION_TRIGGERS)
        way = {names.BY_REFERENCE: record.by_reference}
        self._add(names.COMPACTIONS, {names.MODEL: model, names.TRIGGER: trigger, names.AGENT: kind, **way})
        by_model = {names.MODEL: model}
        self._record(names.TOKENS_BEFORE, record.tokens_before, by_model)
        self._record(names.TOKENS_AFTER, record.tokens_after, by_model)
        self._record(names.COMPACTION_TIME, record.seconds, {**by_model, **way})
        if self._tracer is not None:
            end = time.time_ns()
            start = end - int((record.seconds or 0.0) * 1e9)
            name = names.COMPACT if record.model is None else f"{names.COMPACT} {record.model}"
            span = self._tracer.start_span(name, start_time=start, attributes=_of_compaction(record, trigger, kind))
            span.end(end)

    def _rewritten(self, record: CacheRewritten) -> None:
        model, kind = self._labelled(record.model, record.agent)
        attributes = {names.MODEL: model, names.CAUSE: record.cause, names.AGENT: kind}
        self._add(names.CACHE_REWRITTEN, attributes, record.tokens)

    def _archived(self, record: Archived) -> None:
        attributes = {names.TRIGGER: one_of(record.trigger, ARCHIVE_TRIGGERS)}
        self._record(names.ARCHIVE_TIME, record.seconds, attributes)
        self._record(names.ARCHIVE_SIZE, record.bytes, attributes)

    def _uploaded(self, record: Uploaded) -> None:
        attributes = {names.OUTCOME: record.outcome}
        self._add(names.UPLOADS, attributes)
        if record.outcome != "begun":
            self._add(names.UPLOAD_SIZE, attributes, record.bytes)
            self._record(names.UPLOAD_TIME, record.seconds, attributes)

    def _crossed(self, record: ThresholdCrossed) -> None:
        attributes = {names.THRESHOLD: record.threshold}
        self._add(names.THRESHOLDS, attributes)
        limit, projected = round(record.at * record.window), round(record.ratio * record.window)
        sizes = _sizes("turn_preflight", _OUTCOMES[record.threshold], limit, projected, max(0, limit - projected))
        self._event("threshold", record.session_id, {**attributes, **sizes, **_share(record)})

    def _said(self, event: GuardEvent) -> None:
        """Report a decision of a plain `ContextGuard`; ignore its debug topics."""
        if event.name != EVENT_NAME:
            return
        values = [event.fields[f"{name}_tokens"] for name in ("limit", "projected", "remaining")]
        self._add(names.ACTIONS, {names.ACTION: event.fields["outcome"]})
        self._event("guard", None, _sizes(event.fields["trigger"], event.fields["outcome"], *values))

    def _acted(self, record: GuardActed) -> None:
        attributes = {names.ACTION: record.action}
        self._add(names.ACTIONS, attributes)
        tool = {} if record.tool is None else {names.TOOL: record.tool}
        self._event("guard", record.session_id, {**attributes, **tool})

    def _restarted(self, record: Restarted) -> None:
        self._live.drop(record.old_session_id)
        attributes = {names.REASON: record.reason, names.CHECKPOINT: record.checkpoint}
        self._add(names.RESTARTS, attributes)
        self._event("restart", record.new_session_id, attributes)

    def _overflowed(self, record: ContextOverflow) -> None:
        attributes = {names.SOURCE: record.source}
        self._add(names.OVERFLOWS, attributes)
        self._event("overflow", record.session_id, attributes)

    def _surprised(self, record: SilentChange) -> None:
        attributes = {names.CAUSE: record.cause}
        model, _ = self._labelled(record.model, record.agent)
        self._add(names.SILENT_CHANGES, {**attributes, names.MODEL: model})
        sizes = {names.BEFORE: record.projected, names.AFTER: record.tokens}
        self._event("silent_change", record.session_id, {**attributes, **sizes})

    def _final(self, record: FinalTurn) -> None:
        attributes = {names.STOPPED: record.stopped, names.COMPLETE: not record.missing}
        self._add(names.FINAL_TURNS, attributes)
        self._event("final_turn", record.session_id, {**attributes, **_share(record)})


def _share(record: ThresholdCrossed | FinalTurn) -> Attributes:
    """Return the attributes of the share that reached a threshold."""
    return {names.UTILIZATION: record.ratio, names.WINDOW_STATE: record.window_state}


def _sizes(trigger: str, outcome: str, limit: int, projected: int, remaining: int) -> dict[str, str | int]:
    """Return the attributes of what a guard decided about a request; sizes are in tokens."""
    return {
        names.TRIGGER: trigger,
        names.OUTCOME: outcome,
        names.LIMIT: limit,
        names.PROJECTED: projected,
        names.REMAINING: remaining,
    }


def _made(meter: metrics.Meter, metric: names.Metric) -> Any:
    if metric.kind == "counter":
        return meter.create_counter(metric.name, unit=metric.unit, description=metric.words)
    return meter.create_histogram(
        metric.name,
        unit=metric.unit,
        description=metric.words,
        explicit_bucket_boundaries_advisory=metric.buckets,
    )


def _of_compaction(record: CompactionSeen, trigger: str, kind: str) -> dict[str, str | bool | int | float]:
    """Return the known attributes of a compaction's span."""
    full = bool(record.window) and record.tokens_after is not None
    values = {
        names.OPERATION: names.COMPACT,
        names.CONVERSATION: record.session_id,
        names.COMPACTED: True,
        names.MODEL: record.model,
        names.AGENT_ID: record.agent,
        names.AGENT: kind,
        names.TRIGGER: trigger,
        names.BY_REFERENCE: record.by_reference,
        names.BEFORE: record.tokens_before,
        names.AFTER: record.tokens_after,
        names.WINDOW: record.window,
        names.WINDOW_STATE: None if record.window is None else record.window_state,
        names.UTILIZATION: (record.tokens_after or 0) / (record.window or 1) if full else None,
    }
    return {name: value for name, value in values.items() if value is not None}


_GAUGES: Final[tuple[tuple[names.Metric, Callable[[Level], float]], ...]] = (
    (names.TOKENS, lambda level: level.fullest.tokens),
    (names.WINDOW_SIZE, lambda level: level.fullest.window),
    (names.FULLEST, lambda level: level.fullest.ratio),
    (names.CONTEXTS, lambda level: level.contexts),
)

_OUTCOMES: Final = {
    "warn_at": "warned",
    "compact_at": "compact",
    "restart_at": "restart",
    "final_at": "forced_final",
}
"""What a threshold of `mala.yaml` asks for, in the words of a guard's `agent:context` event."""

_HANDLERS: Final[dict[type, Callable[..., None]]] = {
    ContextUpdated: OpenTelemetryObserver._updated,
    SessionEnded: OpenTelemetryObserver._ended,
    CompactionSeen: OpenTelemetryObserver._compacted,
    CacheRewritten: OpenTelemetryObserver._rewritten,
    Archived: OpenTelemetryObserver._archived,
    Uploaded: OpenTelemetryObserver._uploaded,
    ThresholdCrossed: OpenTelemetryObserver._crossed,
    GuardActed: OpenTelemetryObserver._acted,
    Restarted: OpenTelemetryObserver._restarted,
    ContextOverflow: OpenTelemetryObserver._overflowed,
    FinalTurn: OpenTelemetryObserver._final,
    SilentChange: OpenTelemetryObserver._surprised,
    GuardEvent: OpenTelemetryObserver._said,
}
