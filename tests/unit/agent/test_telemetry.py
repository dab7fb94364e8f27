"""Who observes a runtime, and what of a running agent reaches observers; on a scripted agent."""

import asyncio
import builtins
import contextvars
import logging
import sys

import anyio
import pytest
from claude_agent_sdk import ClaudeAgentOptions

from mala_context import AgentRuntimeBuilder, instrument
from mala_context.agent import telemetry
from mala_context.agent.session import open_session
from mala_context.agent.telemetry import SWITCH, log_happening, own_observers, process_observer
from mala_context.agent.telemetry.otel import OpenTelemetryObserver
from mala_context.agent.telemetry.records import Archived, CompactionSeen, ContextUpdated, SessionEnded, TelemetryRecord
from mala_context.tracking.events import Response
from tests.helpers.sdk_stream import assistant, boundary, init, result, usage
from tests.helpers.telemetry_tools import Collector

PLANTED = "PLANTED-c0ffee-SECRET"


def test_the_log_always_and_opentelemetry_where_it_is_installed():
    assert own_observers(environ={}) == [log_happening, process_observer()]
    assert process_observer() is process_observer()
    for value in ("mala_context", "requests, mala_context ,x", "*"):
        assert own_observers(environ={SWITCH: value}) == [log_happening]


def test_without_the_api_there_is_the_log(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(telemetry, "_process_observer", None)
    monkeypatch.delitem(sys.modules, "mala_context.agent.telemetry.otel", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    assert own_observers(environ={}) == [log_happening]


def test_an_opentelemetry_observer_of_ones_own_takes_the_usual_ones_place(tmp_path):
    mine = Collector().observer
    assert instrument(ClaudeAgentOptions(), tmp_path, observers=[mine]).observers == [log_happening, mine]
    both = AgentRuntimeBuilder(tmp_path).with_observers(print, mine).build().observers
    assert both == [log_happening, print, mine]


def test_observers_of_ones_own_come_last(tmp_path):
    mine, other = [].append, [].append
    assert instrument(ClaudeAgentOptions(), tmp_path, observers=[mine]).observers[-1:] == [mine]
    builder = AgentRuntimeBuilder(tmp_path).with_observers(mine).with_observers(other)
    runtime = builder.build()
    assert runtime.observers[-2:] == [mine, other]
    assert runtime.observers[0] is log_happening
    assert runtime.actions.observers is runtime.observers


def test_there_is_a_word_for_every_happening():
    from typing import get_args

    from mala_context.agent.telemetry.otel import _HANDLERS
    from mala_context.guard.events import GuardEvent

    assert {*get_args(TelemetryRecord), GuardEvent} == set(_HANDLERS)  # a guard of your own tells it as well


@pytest.mark.usefixtures("mala_runs")
async def test_an_agents_life_in_records(tmp_path):
    told = []
    runtime = instrument(ClaudeAgentOptions(), tmp_path, observers=[told.append])
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text('{"type":"user","message":{"role":"user","content":"hello"}}\n')
    (hook,) = (matcher.hooks[0] for matcher in runtime.options.hooks["PreCompact"])
    (after,) = (matcher.hooks[0] for matcher in runtime.options.hooks["PostCompact"])
    hook_input = {"session_id": "s1", "transcript_path": str(transcript), "trigger": "manual"}
    async with runtime:
        for message in (init(), assistant("m1", 50_000), assistant("m2", 60_000)):
            runtime.processor.process(message)
        await hook(hook_input)
        runtime.processor.process(boundary(60_000, 5_000, "manual"))
        runtime.processor.process(assistant("m3", 20_000, parent="a1"))
        await after({**hook_input, "agent_id": "a1", "compact_summary": PLANTED})
        assert runtime.tracker.snapshot("a1").compactions == 1
        transcript.write_text(transcript.read_text() * 2)
    kinds = [type(record) for record in told]
    assert kinds[:2] == [ContextUpdated, ContextUpdated]
    first, last = (record for record in told if isinstance(record, Archived))
    assert (first.trigger, first.pieces, first.bytes, last.trigger) == ("manual", 1, 60, "session_end")
    assert first.path.startswith(str(runtime.archive.location))
    main, subagent = (record for record in told if isinstance(record, CompactionSeen))
    assert (main.agent, main.trigger, main.tokens_before) == (None, "manual", 60_000)
    assert (subagent.agent, subagent.trigger, subagent.tokens_before) == ("a1", "manual", 20_000)
    assert subagent.tokens_after == 20_000 + len(PLANTED) // 4
    assert told[-1] == SessionEnded("s1")
    assert PLANTED not in repr(told)


def test_an_observer_that_raises_harms_no_agent(tmp_path, caplog):
    def broken(record):
        raise RuntimeError

    runtime = instrument(ClaudeAgentOptions(), tmp_path, observers=[broken])
    for number in range(5):
        runtime.processor.process(assistant(f"m{number}", 50_000 + number))
    assert runtime.tracker.snapshot().tokens == 50_004
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == [
        "Context: an observer failed"
    ]


FAULTS = (ValueError, SystemExit, GeneratorExit, asyncio.CancelledError, type("Odd", (BaseException,), {}))


class Raising(logging.Handler):
    """What raises wherever it is asked: an observer, a handler, a filter, a meter's provider and its instruments."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def get_meter(self, *_, **__):
        return self

    def create_counter(self, *_, **__):
        return self

    create_histogram = create_observable_gauge = create_counter

    def __call__(self, *_, **__):
        raise self.error

    emit = filter = add = record = __call__


@pytest.mark.usefixtures("mala_runs")
@pytest.mark.parametrize("error", FAULTS, ids=lambda error: error.__name__)
@pytest.mark.parametrize("place", ["observer", "event observer", "wants", "metric", "handler", "filter"])
def test_nobody_who_is_told_raises_into_the_agent(tmp_path, request, place, error):
    """Neither into its messages, nor into a hook, nor into a session's end; and all is counted and archived."""
    raising = Raising(error)
    told = [raising] if place == "observer" else []
    if place == "metric":
        told = [OpenTelemetryObserver(meter_provider=raising)]
    runtime = instrument(ClaudeAgentOptions(), tmp_path, observers=told)
    logger = logging.getLogger("mala_context")
    if place in {"handler", "filter"}:
        handler = raising if place == "handler" else logging.NullHandler()
        handler.addFilter(raising)
        logger.addHandler(handler)
        request.addfinalizer(lambda: logger.removeHandler(handler))
    if place == "event observer":
        runtime.processor.event_observers.append(raising)
    if place == "wants":
        runtime.processor.observe(lambda *_: None, Response, wants=raising)
    transcript = tmp_path / "s1.jsonl"
    transcript.write_text('{"type":"user","message":{"role":"user","content":"hello"}}\n')
    given = {"session_id": "s1", "transcript_path": str(transcript), "trigger": "manual", "compact_summary": "Done."}
    seen = []

    async def live():
        async with runtime:
            for message in (init(), assistant("m1", 50_000), assistant("m2", 60_000), result(usage(60_000)), object()):
                runtime.processor.process(message)
            seen.append(runtime.tracker.snapshot().tokens)
            for event, (matcher,) in runtime.options.hooks.items():
                assert await matcher.hooks[0]({**given, "hook_event_name": event}) == {}
            runtime.processor.process(boundary(60_000, 5_000, "manual"))
            transcript.write_text(transcript.read_text() * 2)

    asyncio.run(live())
    assert seen == [60_000]
    assert sum(each.stat().st_size for each in tmp_path.glob("**/archives/s1_*")) == transcript.stat().st_size


class Client:
    """Stands in for the SDK's client: answers each prompt by one compaction."""

    def __init__(self):
        self.asked = 0
        self._sending, self._receiving = anyio.create_memory_object_stream(100)

    async def connect(self):
        await anyio.lowlevel.checkpoint()

    async def disconnect(self):
        await anyio.lowlevel.checkpoint()
        self._sending.close()

    async def query(self, prompt):
        async for message in prompt:
            self.asked += 1
            for each in (init(), assistant(message["uuid"], 90_000), boundary(90_000 + self.asked, 5_000)):
                self._sending.send_nowait(each)
            self._sending.send_nowait(result(usage(90_000), user_message_uuid=message["uuid"]))

    async def receive_messages(self):
        with self._receiving:
            async for message in self._receiving:
                yield message


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_sessions_records_are_told_under_the_span_of_the_prompt(tmp_path, backend):
    """The tasks that read and that run hooks were started when the session was opened, in another trace."""
    collector = Collector()
    runtime = instrument(ClaudeAgentOptions(), tmp_path, observers=[collector.observer])

    async def nothing():
        await anyio.lowlevel.checkpoint()

    async def main():
        with collector.tracer.start_as_current_span("opened"):
            opened = open_session(Client(), runtime.processor, nothing, asked=runtime._parts.hub.asked)
            session = await opened.__aenter__()
            elsewhere = contextvars.copy_context()
        try:
            for name in ("one", "two"):
                with collector.tracer.start_as_current_span(name):
                    assert [message async for message in session.send(name)]
                    elsewhere.run(runtime.actions.acted, "denied", "Bash")  # a hook, in a task of the SDK's
        finally:
            await opened.__aexit__(None, None, None)

    anyio.run(main, backend=backend)
    events = [(span.name, event.name) for span in collector.spans for event in span.events]
    assert events == [(name, "mala_context.guard") for name in ("one", "two")]
    names = {span.context.span_id: span.name for span in collector.spans}
    compactions = [span for span in collector.spans if span.name.startswith("compact")]
    assert [names[span.parent.span_id] for span in compactions] == ["one", "two"]


@pytest.mark.parametrize("error", [StopIteration(), TypeError("an older API"), SystemExit(1)])
@pytest.mark.parametrize("name", ["metrics.get_meter", "trace.get_tracer"])
def test_a_provider_that_fails_costs_metrics_and_no_agent(monkeypatch, caplog, tmp_path, name, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(telemetry, "_process_observer", None)
    monkeypatch.setattr(telemetry, "_failure_logged", False)
    monkeypatch.setattr(f"opentelemetry.{name}", fail)
    for _ in range(2):
        assert instrument(ClaudeAgentOptions(), tmp_path).observers == [log_happening]
    (line,) = caplog.messages
    assert line == "Context: OpenTelemetry cannot be set up: no metrics and no spans"
    monkeypatch.undo()
    assert process_observer() is not None


def test_an_interruption_of_a_provider_passes(monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(telemetry, "_process_observer", None)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", interrupt)
    with pytest.raises(KeyboardInterrupt):
        process_observer()
