"""Round trips: a real agent, the SDK's own OTLP exporters, and a collector on loopback that decodes what comes."""

import pytest
from claude_agent_sdk import ClaudeSDKClient
from openinference.instrumentation.claude_agent_sdk import ClaudeAgentSDKInstrumentor
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from mala_context import instrument
from mala_context.agent.telemetry import names
from mala_context.agent.telemetry.otel import OpenTelemetryObserver
from mala_context.testing.scripts import fill_until_compaction
from tests.helpers.otlp_receiver import Receiver, attributes_of, points_of

SECRET = "PLANTED-5f1d-SECRET"
WINDOW = 60_000


@pytest.fixture
def receiver():
    with Receiver() as made:
        yield made


class Exporting:
    """Providers that export to a receiver when they are closed, as an application's do."""

    def __init__(self, receiver):
        exporter = OTLPMetricExporter(f"{receiver.endpoint}/v1/metrics")
        self.meters = MeterProvider(metric_readers=[PeriodicExportingMetricReader(exporter, 3_600_000)])
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{receiver.endpoint}/v1/traces")))
        self.observer = OpenTelemetryObserver(meter_provider=self.meters, tracer_provider=self.tracers)
        self.tracer = self.tracers.get_tracer("the application")

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.tracers.shutdown()
        self.meters.shutdown()


@pytest.fixture
def scenario(mala_project, mala_runs):
    """A session that compacts, with a secret in every prompt, in a file that it reads, and in each answer."""
    made = fill_until_compaction(mala_project, window=WINDOW, turns=4)
    for path in mala_project.rglob("*.*"):
        path.write_text(f"{SECRET}\n{path.read_text()}")
    object.__setattr__(made, "prompts", [f"{prompt} {SECRET}" for prompt in made.prompts])
    return made


async def test_an_agents_life_arrives_at_a_collector(receiver, scenario, mala_api, mala_options):
    api = mala_api(scenario.script, **scenario.settings)
    with Exporting(receiver) as exporting:
        runtime = instrument(mala_options(api, env=scenario.env), observers=[exporting.observer])
        async with runtime.session() as session:
            for number, prompt in enumerate(scenario.prompts):
                with exporting.tracer.start_as_current_span(f"turn {number}"):
                    assert [message async for message in session.send(prompt)]
            snapshot = session.context
            exporting.meters.force_flush()  # the gauges of a session that goes on
    ours = {name: metric for (scope, name), metric in receiver.metrics.items() if scope == names.SCOPE}
    assert snapshot.compactions >= 1
    (fullest,) = points_of(ours["gen_ai.context.tokens"])
    assert fullest.as_int == snapshot.tokens
    assert attributes_of(fullest) == {
        "gen_ai.request.model": snapshot.model,
        "mala_context.agent": "main",
        "mala_context.window_state": snapshot.window_state,
    }
    (share,) = points_of(ours["gen_ai.context.utilization"])
    assert share.as_double == pytest.approx(snapshot.ratio)
    turns = points_of(ours["gen_ai.context.turn.utilization"])
    assert sum(each.count for each in turns) == len(scenario.prompts)
    (compactions,) = points_of(ours["mala_context.compactions"])
    assert compactions.as_int == snapshot.compactions
    assert attributes_of(compactions)["mala_context.trigger"] == "auto"
    archives = {
        attributes_of(point)["mala_context.trigger"]: point for point in points_of(ours["mala_context.archive.size"])
    }
    pieces = runtime.archive.pieces(snapshot.session_id)
    assert archives["auto"].count == snapshot.compactions
    assert sum(point.sum for point in archives.values()) == sum(piece.length for piece in pieces)
    check_spans(receiver, snapshot)
    check_no_content(receiver, api, snapshot.session_id)


def check_spans(receiver, snapshot):
    parents = {span.span_id: span.name for scope, span in receiver.spans if scope == "the application"}
    compactions = [span for scope, span in receiver.spans if scope == names.SCOPE]
    assert len(compactions) == snapshot.compactions
    for span in compactions:
        assert parents[span.parent_span_id].startswith("turn ")
        values = attributes_of(span)
        assert values["gen_ai.conversation.id"] == snapshot.session_id
        assert values["mala_context.tokens.before"] > values["mala_context.tokens.after"]
        assert span.end_time_unix_nano >= span.start_time_unix_nano


def check_no_content(receiver, api, session_id):
    """Assert that the planted secret went to the model and nowhere else, and that only spans know the session."""
    assert all(request.contains(SECRET) for request in api.main_requests)
    assert receiver.bodies
    assert SECRET.encode() not in receiver.everything
    metrics = b"".join(body for path, body in receiver.bodies if path == "/v1/metrics")
    assert session_id.encode() not in metrics
    assert session_id.encode() in receiver.everything


CLIS_OWN = {
    "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
    "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
    "OTEL_METRICS_EXPORTER": "otlp",
    "OTEL_LOGS_EXPORTER": "otlp",
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
    "OTEL_METRIC_EXPORT_INTERVAL": "200",
    "OTEL_LOGS_EXPORT_INTERVAL": "200",
    "OTEL_TRACES_EXPORT_INTERVAL": "200",
}


@pytest.mark.long
async def test_nothing_is_counted_twice_beside_the_clis_own_telemetry(receiver, scenario, mala_api, mala_options):
    """Both export to one collector: each compaction is one span of ours and one event of the CLI's, with no metric."""
    api = mala_api(scenario.script, **scenario.settings)
    env = {**scenario.env, **CLIS_OWN, "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint}
    with Exporting(receiver) as exporting:
        runtime = instrument(mala_options(api, env=env), observers=[exporting.observer])
        async with runtime.session() as session:
            for prompt in scenario.prompts:
                assert [message async for message in session.send(prompt)]
            compactions = session.context.compactions
    theirs = {name for scope, name in receiver.metrics if scope != names.SCOPE}
    assert "claude_code.token.usage" in theirs
    assert not theirs & {metric.name for metric in names.METRICS}
    assert not any("compact" in name for name in theirs)
    spans = [(scope, span.name) for scope, span in receiver.spans if "compact" in span.name]
    assert spans == [(names.SCOPE, f"compact {runtime.tracker.snapshot().model}")] * compactions
    assert [name for name, _ in receiver.logs if "compact" in name] == ["claude_code.compaction"] * compactions


@pytest.mark.long
async def test_nothing_is_counted_twice_beside_openinference(receiver, scenario, mala_api, mala_options):
    """Its spans have the tokens that were used; ours have none of those, and no turn and no tool of its."""
    api = mala_api(scenario.script, **scenario.settings)
    with Exporting(receiver) as exporting:
        instrumentor = ClaudeAgentSDKInstrumentor()
        instrumentor.instrument(tracer_provider=exporting.tracers)
        try:
            runtime = instrument(mala_options(api, env=scenario.env), observers=[exporting.observer])
            async with runtime, ClaudeSDKClient(runtime.options) as client:
                for prompt in scenario.prompts:
                    await client.query(prompt)
                    async for _ in runtime.processor.stream(client.receive_response()):
                        pass
        finally:
            instrumentor.uninstrument()
    snapshot = runtime.tracker.snapshot()
    assert snapshot.compactions >= 1
    by_scope = {}
    for scope, span in receiver.spans:
        by_scope.setdefault(scope, []).append(span)
    ours = by_scope.pop(names.SCOPE)
    (theirs,) = by_scope.values()
    assert len(ours) == snapshot.compactions
    turns = {span.span_id for span in theirs if span.name.endswith("receive_response")}
    assert len(turns) == len(scenario.prompts)
    assert {span.parent_span_id for span in ours} <= turns
    assert any("llm.token_count.prompt" in attributes_of(span) for span in theirs)
    assert not any(key.startswith(("llm.", "gen_ai.usage")) for span in ours for key in attributes_of(span))
    assert runtime.archive.pieces(snapshot.session_id)  # our hooks ran beside its own
