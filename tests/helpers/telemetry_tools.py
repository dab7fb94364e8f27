"""An OpenTelemetry SDK in memory, and records in few words, for the tests of telemetry."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mala_context.agent.telemetry.otel import OpenTelemetryObserver
from mala_context.agent.telemetry.records import (
    Archived,
    CacheRewritten,
    CompactionSeen,
    ContextOverflow,
    ContextUpdated,
    FinalTurn,
    GuardActed,
    Restarted,
    SilentChange,
    ThresholdCrossed,
    Uploaded,
)

MODEL = "claude-sonnet-4-5"


def updated(
    tokens, *, session="s1", agent=None, model=MODEL, window=1_000, exact=True, cause="Response", state="known"
):
    ratio = None if tokens is None else tokens / window
    return ContextUpdated(session, agent, model, tokens, window, ratio, exact, cause, state)


EACH = (
    updated(800),
    ThresholdCrossed("s1", "warn_at", 0.7, 0.8, 800, 1_000, MODEL),
    CompactionSeen("s1", None, "auto", 900, 100, 2.5, MODEL, 1_000),
    CacheRewritten("s1", None, MODEL, "lapsed", 212_400, 403_560.0, 4_260.0),
    Archived("s1", "auto", 1, 4_096, 0.004, "/runs/s1_x_transcript.jsonl"),
    Uploaded("begun"),
    Uploaded("done", 2, 5_000, 1.5),
    GuardActed("s1", "denied", "Bash"),
    Restarted("s1", "s2", "overflow", 1, checkpoint=True),
    ContextOverflow("refusal", 1_100, 1_000, "s1"),
    FinalTurn("s1", "context", 0.95, stopped=False, denials=1, missing=()),
    SilentChange("s1", None, MODEL, 900, 500, "microcompaction"),
    updated(500, session="s2", cause="TurnEnd"),
)
"""A record of every kind that has a metric."""


class Collector:
    """Providers, an observer that reports to them, and what came of it."""

    def __init__(self, **options):
        self.reader = InMemoryMetricReader()
        self.spans_in = InMemorySpanExporter()
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans_in))
        self.observer = OpenTelemetryObserver(meter_provider=self.meters, tracer_provider=self.tracers, **options)

    @property
    def tracer(self):
        return self.tracers.get_tracer("the application")

    @property
    def spans(self):
        return self.spans_in.get_finished_spans()

    def metrics(self):
        """Return the metrics by name, as the SDK's own objects."""
        data = self.reader.get_metrics_data()
        scopes = [] if data is None else [scope for each in data.resource_metrics for scope in each.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self):
        """Return, by metric, each point's value (or count and sum) by its labels' values."""
        return {
            name: {tuple(point.attributes.values()): value_of(point) for point in metric.data.data_points}
            for name, metric in self.metrics().items()
        }

    def label_sets(self):
        return [
            (name, tuple(sorted(point.attributes.items())))
            for name, metric in self.metrics().items()
            for point in metric.data.data_points
        ]


def value_of(point):
    return point.value if hasattr(point, "value") else (point.count, point.sum)
