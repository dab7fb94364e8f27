"""Records as OpenTelemetry metrics, spans and span events."""

import subprocess
import sys
from dataclasses import is_dataclass, replace
from typing import get_args

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.metrics import NoOpMeterProvider

from mala_context.agent.telemetry import names
from mala_context.agent.telemetry.otel import (
    COMPACTION_TRIGGERS,
    MOST_MODELS,
    Models,
    OpenTelemetryObserver,
    one_of,
)
from mala_context.agent.telemetry.records import CompactionSeen, ContextUpdated, SessionEnded
from mala_context.guard import ContextGuard, TargetContextConfig
from mala_context.tracking.windows import WindowState
from tests.helpers.telemetry_tools import EACH, MODEL, Collector, updated
from tests.helpers.variants import variants

STATES = get_args(WindowState)


@pytest.fixture
def collector():
    return Collector()


def tell(collector, *records):
    for record in records:
        collector.observer(record)
    return collector


def test_every_record_becomes_its_metrics(collector):
    points = tell(collector, *EACH).points()
    assert points == {
        "gen_ai.context.tokens": {(MODEL, "main", "known"): 500},  # the first session was left in a restart
        "gen_ai.context.window_size": {(MODEL, "main", "known"): 1_000},
        "gen_ai.context.utilization": {(MODEL, "main", "known"): 0.5},
        "gen_ai.context.active": {(MODEL, "main"): 1},
        "gen_ai.context.turn.utilization": {(MODEL, "known"): (1, 0.5)},
        "mala_context.compactions": {(MODEL, "auto", "main", False): 1},
        "mala_context.compaction.tokens.before": {(MODEL,): (1, 900)},
        "mala_context.compaction.tokens.after": {(MODEL,): (1, 100)},
        "mala_context.compaction.duration": {(MODEL, False): (1, 2.5)},
        "mala_context.cache.rewritten": {(MODEL, "lapsed", "main"): 212_400},
        "mala_context.archive.duration": {("auto",): (1, 0.004)},
        "mala_context.archive.size": {("auto",): (1, 4_096)},
        "mala_context.uploads": {("begun",): 1, ("done",): 1},
        "mala_context.upload.size": {("done",): 5_000},
        "mala_context.upload.duration": {("done",): (1, 1.5)},
        "mala_context.thresholds": {("warn_at",): 1},
        "mala_context.guard.actions": {("denied",): 1},
        "mala_context.restarts": {("overflow", True): 1},
        "mala_context.overflows": {("refusal",): 1},
        "mala_context.final_turns": {(False, True): 1},
        "mala_context.silent_changes": {("microcompaction", MODEL): 1},
    }


def test_the_table_of_names_is_what_is_exported(collector):
    made = tell(collector, *EACH).metrics()
    assert set(made) == {metric.name for metric in names.METRICS}
    for metric in names.METRICS:
        assert (made[metric.name].unit, made[metric.name].description) == (metric.unit, metric.words)
        for point in made[metric.name].data.data_points:
            assert set(point.attributes) == set(metric.labels)
            if metric.buckets is not None:
                assert tuple(point.explicit_bounds) == metric.buckets


def test_gauges_show_the_fullest_and_forget_a_session_that_ended(collector):
    tell(collector, updated(100), updated(900, session="s2"), updated(800, session="s3", window=10_000))
    points = collector.points()
    assert points["gen_ai.context.utilization"] == {(MODEL, "main", "known"): 0.9}
    assert points["gen_ai.context.active"] == {(MODEL, "main"): 3}
    tell(collector, SessionEnded("s2"))
    assert collector.points()["gen_ai.context.tokens"] == {(MODEL, "main", "known"): 100}


@pytest.mark.parametrize("state", STATES)
def test_whatever_holds_a_share_of_a_window_says_how_well_that_is_known(collector, state):
    told = [updated(800, state=state), *EACH[1:-1], updated(500, session="s2", cause="TurnEnd", state=state)]
    told = [
        replace(each, window_state=state) if is_dataclass(each) and hasattr(each, "window_state") else each
        for each in told
    ]
    with collector.tracer.start_as_current_span("the caller's"):
        tell(collector, *told)
    points = [(name, point.attributes) for name, each in collector.metrics().items() for point in each.data.data_points]
    found = [(span.name, span.attributes) for span in collector.spans]
    found += [(event.name, event.attributes) for span in collector.spans for event in span.events]
    shares = [name for name, attributes in found if {names.UTILIZATION, names.WINDOW} & set(attributes)]
    assert shares == [f"compact {MODEL}", "mala_context.threshold", "mala_context.final_turn"]
    shares += (names.UTILIZATION, names.WINDOW, names.TURNS.name)
    assert {attributes[names.WINDOW_STATE] for name, attributes in points + found if name in shares} == {state}


def test_a_gauge_shows_how_well_the_fullests_window_is_known_and_no_more(collector):
    tell(
        collector, updated(900, state="guess"), updated(800, session="s2"), updated(100, session="s3", state="doubtful")
    )
    assert collector.points()["gen_ai.context.utilization"] == {(MODEL, "main", "guess"): 0.9}
    tell(collector, updated(900, window=10_000))
    assert collector.points()["gen_ai.context.utilization"] == {(MODEL, "main", "known"): 0.8}
    assert collector.points()["gen_ai.context.active"] == {(MODEL, "main"): 3}


def test_an_estimate_moves_the_gauge_alone(collector):
    points = tell(collector, updated(100, exact=False, cause="TurnEnd")).points()
    assert points["gen_ai.context.tokens"] == {(MODEL, "main", "known"): 100}
    assert "gen_ai.context.turn.utilization" not in points


def test_unknown_values_are_left_out(collector):
    points = tell(collector, updated(None), updated(5, session=None), CompactionSeen("s1", "a1", None)).points()
    assert "gen_ai.context.tokens" not in points
    assert points["mala_context.compactions"] == {("other", "unknown", "subagent", False): 1}
    assert "mala_context.compaction.tokens.before" not in points
    (span,) = collector.spans
    assert span.name == "compact"
    assert names.AFTER not in span.attributes


def test_what_is_no_record_is_left_alone(collector):
    tell(collector, None, "record", object())
    assert collector.points() == {}


@pytest.mark.parametrize("models", variants([10_000, 3]), ids=["a model a session", "few models"])
def test_ten_thousand_sessions_are_at_most_200_label_sets(collector, models):
    """With every kind of record, subagents too, and whatever names the models have."""
    for number in range(10_000):
        session, model = f"session-{number}", f"model-{number % models}"
        agent = None if number % 2 else f"agent-{number}"
        cause = "Response" if number % 3 else "TurnEnd"
        state = STATES[number // 3 % 3]
        tell(
            collector, updated(number % 1_000 + 1, session=session, agent=agent, model=model, cause=cause, state=state)
        )
        if number % 10 == 0:
            for trigger in ("auto", "manual", f"odd-{number}", None):
                for who in (None, agent):
                    for way in (False, True):
                        tell(collector, CompactionSeen(session, who, trigger, 900, 100, 1.0, model, 1_000, way))
            for record in EACH[1:-1]:
                tell(collector, record)
    labels = collector.label_sets()
    assert len(labels) == len(set(labels)) <= 200
    values = {value for _, attributes in labels for _, value in attributes}
    assert not any("session" in str(value) or "agent-" in str(value) for value in values)
    assert sum(collector.points()["gen_ai.context.active"].values()) == 10_000


def test_a_compaction_is_a_span_under_the_current_one(collector):
    with collector.tracer.start_as_current_span("the caller's") as parent:
        tell(collector, EACH[2])
    span, _ = collector.spans
    assert span.name == f"compact {MODEL}"
    assert span.parent.span_id == parent.get_span_context().span_id
    assert span.end_time - span.start_time == 2_500_000_000
    assert span.instrumentation_scope.name == "mala_context"
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "compact",
        "gen_ai.conversation.id": "s1",
        "gen_ai.conversation.compacted": True,
        "gen_ai.request.model": MODEL,
        "mala_context.agent": "main",
        "mala_context.trigger": "auto",
        "mala_context.by_reference": False,
        "mala_context.tokens.before": 900,
        "mala_context.tokens.after": 100,
        "gen_ai.context.window_size": 1_000,
        "gen_ai.context.utilization": 0.1,
        "mala_context.window_state": "known",
    }


def test_other_happenings_are_events_on_the_current_span(collector):
    tell(collector, *EACH)  # with no span there is nothing to put an event on
    with collector.tracer.start_as_current_span("the caller's"):
        tell(collector, *EACH)
    events = {event.name: dict(event.attributes) for event in collector.spans[-1].events}
    assert events == {
        "mala_context.threshold": {
            "mala_context.threshold": "warn_at",
            "mala_context.trigger": "turn_preflight",
            "mala_context.outcome": "warned",
            "mala_context.limit_tokens": 700,
            "mala_context.projected_tokens": 800,
            "mala_context.remaining_tokens": 0,
            "gen_ai.context.utilization": 0.8,
            "mala_context.window_state": "known",
            "gen_ai.conversation.id": "s1",
        },
        "mala_context.guard": {
            "mala_context.action": "denied",
            "gen_ai.tool.name": "Bash",
            "gen_ai.conversation.id": "s1",
        },
        "mala_context.restart": {
            "mala_context.reason": "overflow",
            "mala_context.checkpoint": True,
            "gen_ai.conversation.id": "s2",
        },
        "mala_context.overflow": {"mala_context.source": "refusal", "gen_ai.conversation.id": "s1"},
        "mala_context.final_turn": {
            "mala_context.stopped": False,
            "mala_context.complete": True,
            "gen_ai.context.utilization": 0.95,
            "mala_context.window_state": "known",
            "gen_ai.conversation.id": "s1",
        },
        "mala_context.silent_change": {
            "mala_context.cause": "microcompaction",
            "mala_context.tokens.before": 900,
            "mala_context.tokens.after": 500,
            "gen_ai.conversation.id": "s1",
        },
    }


def test_a_plain_guard_tells_its_decisions(collector):
    small = TargetContextConfig(provider="p", model="small", window=1_256)
    large = TargetContextConfig(provider="p", model="large", window=5_256)
    guard = ContextGuard([small, large], current=900, on_event=collector.observer, on_debug=collector.observer)
    with collector.tracer.start_as_current_span("the caller's"):
        guard.preflight()
        guard.add_pending(600)
        guard.preflight()
    (event,) = collector.spans[-1].events
    assert (event.name, dict(event.attributes)) == (
        "mala_context.guard",
        {
            "mala_context.trigger": "turn_preflight",
            "mala_context.outcome": "skipped_provider",
            "mala_context.limit_tokens": 1_000,
            "mala_context.projected_tokens": 1_500,
            "mala_context.remaining_tokens": 0,
        },
    )
    guard.add_pending(5_000)
    guard.preflight()
    assert collector.points()["mala_context.guard.actions"] == {("skipped_provider",): 1, ("forced_final",): 1}


def test_without_spans_there_are_metrics_alone():
    collector = Collector(spans=False)
    with collector.tracer.start_as_current_span("the caller's"):
        tell(collector, *EACH)
    (span,) = collector.spans
    assert (span.name, span.events) == ("the caller's", ())
    assert len(collector.points()) == len(names.METRICS)


def test_models_of_ones_choice_have_their_label():
    collector = Collector(models=["mine"])
    tell(collector, *(updated(1, session=f"s{number}", model=f"m{number}") for number in range(50)))
    tell(collector, updated(1, session="last", model="mine"))
    assert collector.points()["gen_ai.context.active"]["mine", "main"] == 1


def test_an_exemplar_leads_to_the_trace(collector):
    with collector.tracer.start_as_current_span("the caller's") as span:
        tell(collector, updated(800, cause="TurnEnd"))
    (point,) = collector.metrics()["gen_ai.context.turn.utilization"].data.data_points
    assert [exemplar.trace_id for exemplar in point.exemplars] == [span.get_span_context().trace_id]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_keeps_its_callers_span(collector, backend):
    async def main():
        async with anyio.create_task_group() as tasks:
            with collector.tracer.start_as_current_span("the caller's"):
                tasks.start_soon(work)

    async def work():
        await anyio.lowlevel.checkpoint()
        tell(collector, EACH[2])

    anyio.run(main, backend=backend)
    parent, span = collector.spans
    assert span.parent.span_id == parent.context.span_id


def test_without_an_sdk_nothing_happens():
    observer = OpenTelemetryObserver()
    assert not observer.wants(ContextUpdated)
    assert observer.wants(CompactionSeen)
    assert Collector().observer.wants(ContextUpdated)
    assert not OpenTelemetryObserver(meter_provider=NoOpMeterProvider()).wants(ContextUpdated)
    assert not trace.get_current_span().is_recording()
    for record in EACH:
        observer(record)


def test_providers_that_are_set_later_are_used():
    program = """
from tests.helpers.telemetry_tools import EACH
from mala_context.agent.telemetry import process_observer
observer = process_observer()
for record in EACH:
    observer(record)
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider(metric_readers=[reader]))
for record in EACH:
    observer(record)
scopes = reader.get_metrics_data().resource_metrics[0].scope_metrics
print(len([metric for scope in scopes for metric in scope.metrics]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == str(len(names.METRICS))


@given(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=60))
def test_whatever_models_there_are_the_labels_are_bounded_and_stay_what_they_were(names):
    models = Models()
    labels = [models.label(name) for name in names]
    assert len(set(labels)) <= MOST_MODELS + 1
    assert [models.label(name) for name in names] == labels
    assert all(label in (name, "other") for label, name in zip(labels, names, strict=True))


def test_named_models_have_their_label_whoever_comes_first():
    models = Models(["mine"], most=2)
    assert [models.label(name) for name in ("a", "b", "mine", None)] == ["a", "other", "mine", "other"]
    assert Models(["a", "b"], most=1).label("b") == "b"


def test_words_from_lists():
    assert [one_of(value, COMPACTION_TRIGGERS) for value in ("auto", "x", None)] == ["auto", "other", "unknown"]
