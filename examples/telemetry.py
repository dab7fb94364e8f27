"""A compaction in a trace, and the gauge in a metric: an agent with OpenTelemetry, no key, no network.

Needs `pip install opentelemetry-sdk`. Run it with

    python examples/telemetry.py
"""

import asyncio
import tempfile

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from mala_context import ArchiveConfig, ContextConfig, instrument
from mala_context.testing import fill_until_compaction

# An application has this setup anyway. Here the exporters keep everything in memory; yours are OTLP exporters.
reader, exported = InMemoryMetricReader(), InMemorySpanExporter()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exported))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("my application")


async def main(folder: str) -> None:
    """Play a session that is compacted once, with a span around each turn; then show the exported data."""
    scenario = fill_until_compaction(f"{folder}/project", window=60_000, turns=4)
    with scenario.api() as api:
        options = api.options(cwd=scenario.project, env=scenario.env)
        config = ContextConfig(archive=ArchiveConfig(directory=f"{folder}/archives"))
        runtime = instrument(options, config=config)  # finds the providers above by itself
        async with runtime.session() as session:
            for number, prompt in enumerate(scenario.prompts, 1):
                with tracer.start_as_current_span(f"turn {number}"):
                    assert [message async for message in session.send(prompt)]
            show()


def show() -> None:
    """Print the metrics, and the spans with their parents."""
    for resource in reader.get_metrics_data().resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            for point in metric.data.data_points:
                value = getattr(point, "value", None)
                print(f"{metric.name} {dict(point.attributes)}: {point.count if value is None else value}")
    spans = {span.context.span_id: span for span in exported.get_finished_spans()}
    for span in spans.values():
        parent = spans.get(span.parent.span_id) if span.parent else None
        print(f"span: {span.name}" + (f", in {parent.name}" if parent else ""))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
