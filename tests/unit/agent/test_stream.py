"""The way of messages through the processor: unchanged, in order, and never stopped by what they hold."""

import gc
import logging
import warnings
from contextlib import aclosing
from dataclasses import dataclass, field
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from claude_agent_sdk import AssistantMessage, StreamEvent, SystemMessage, TextBlock, UserMessage
from hypothesis import given
from hypothesis import strategies as st

from mala_context import ContextPressureError, ContextTracker, MessageStreamProcessor
from mala_context.tracking.events import Appended, Refusal, Response, SessionStart
from mala_context.tracking.readers.parts import window_report
from tests.helpers import sdk_messages


def init(session_id="s1", model="claude-sonnet-4-5"):
    return SystemMessage(subtype="init", data={"session_id": session_id, "model": model})


def assistant(prompt, message_id="m1", output=1, parent=None, session_id="s1"):
    usage = {"input_tokens": 0, "cache_read_input_tokens": prompt, "output_tokens": output}
    return AssistantMessage(
        content=[TextBlock("hello")],
        model="claude-sonnet-4-5",
        parent_tool_use_id=parent,
        usage=usage,
        message_id=message_id,
        session_id=session_id,
    )


def result(usage: Any = None, session_id="s1", **fields):
    return sdk_messages.result(session_id=session_id, usage=usage, **fields)


def usage(input_tokens=0, output_tokens=0, cache_read=0):
    return {"input_tokens": input_tokens, "output_tokens": output_tokens, "cache_read_input_tokens": cache_read}


async def feed(messages):
    for message in messages:
        yield message


async def drain(processor, messages):
    return [message async for message in processor.stream(feed(messages))]


@pytest.fixture(params=[True, False], ids=["trio is imported", "no trio"])
def each_way(request, monkeypatch):
    """Both ways to pass messages on."""
    monkeypatch.setattr(
        "mala_context.agent.stream.sys", SimpleNamespace(modules={"trio": None} if request.param else {})
    )


def seed_processor(limit=1000, restart_at=0.5):
    return MessageStreamProcessor(ContextTracker(estimator="cumulative", window=limit), restart_at=restart_at)


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)


@pytest.mark.usefixtures("each_way")
async def test_every_message_passes_as_the_same_object_and_in_order():
    messages = [init(), assistant(100), object(), None, 7, "text", {"type": "assistant"}, Hostile(), result(usage())]
    passed = await drain(MessageStreamProcessor(), messages)
    assert [id(message) for message in passed] == [id(message) for message in messages]


@pytest.mark.usefixtures("each_way")
async def test_a_message_is_handed_on_before_the_next_is_asked_for():
    asked = []

    async def source():
        for number in range(3):
            asked.append(number)
            yield number

    async for number in MessageStreamProcessor().stream(source()):
        assert asked[-1] == number


@pytest.mark.usefixtures("each_way")
async def test_the_snapshot_is_there_when_the_message_arrives():
    processor = MessageStreamProcessor()
    async for message in processor.stream(feed([init(), assistant(41_903)])):
        if isinstance(message, AssistantMessage):
            assert processor.tracker.snapshot().tokens == 41_903


def hostile_message(name, values):
    return type(name, (), {**values})()


@given(
    st.sampled_from(["AssistantMessage", "UserMessage", "ResultMessage", "SystemMessage", "StreamEvent", "X"]),
    st.dictionaries(
        st.sampled_from(
            ["usage", "content", "model", "message_id", "parent_tool_use_id", "session_id", "data", "subtype", "event"]
        ),
        st.recursive(
            st.none() | st.integers() | st.text(max_size=5) | st.floats(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
            max_leaves=6,
        ),
    ),
)
def test_no_message_of_any_shape_raises(name, values):
    MessageStreamProcessor(restart_at=None).process(hostile_message(name, values))


@pytest.mark.usefixtures("each_way")
async def test_what_the_source_raises_passes_through():
    async def source():
        yield init()
        raise ConnectionError("the CLI is gone")

    with pytest.raises(ConnectionError, match="the CLI is gone"):
        async for _ in MessageStreamProcessor().stream(source()):
            pass


async def test_a_failing_observer_is_logged_and_harms_nobody(caplog):
    seen = []
    observers = [lambda _: 1 / 0, seen.append]
    processor = MessageStreamProcessor(on_snapshot=observers, on_event=[lambda *_: 1 / 0])
    await drain(processor, [init(), assistant(100)])
    assert seen[-1].tokens == 100
    assert "observer failed" in caplog.text


async def test_events_reach_their_observers_with_the_snapshot_that_they_gave():
    seen = []
    processor = MessageStreamProcessor(on_event=[lambda event, snapshot: seen.append((type(event).__name__, snapshot))])
    await drain(processor, [assistant(100)])
    assert [(name, snapshot.tokens) for name, snapshot in seen if name == "Response"] == [("Response", 100)]


async def test_an_observer_may_name_the_events_that_it_wants():
    seen = []
    processor = MessageStreamProcessor()
    processor.observe(lambda event, snapshot: seen.append((event.source, snapshot.tokens)), SessionStart, Response)
    await drain(processor, [init(), UserMessage("go on"), assistant(100), result(usage(1, 1))])
    assert seen == [("init", None), ("message", 100)]


async def test_disabled_means_looking_at_nothing():
    processor = MessageStreamProcessor(enabled=False)
    messages = [init(), assistant(100), result(usage(1, 1))]
    assert await drain(processor, messages) == messages
    assert processor.messages_seen == 0
    assert processor.tracker.snapshot().tokens is None


async def test_it_may_be_switched_off_and_on_in_the_middle():
    processor = MessageStreamProcessor()
    await drain(processor, [init(), assistant(100_000, "a"), UserMessage("go on", uuid="u1")])
    for enabled, message_id, tokens, seen in ((False, "b", 100_000, 3), (True, "c", 120_000, 4)):
        processor.enabled = enabled
        assert processor.enabled is enabled
        await drain(processor, [assistant(120_000, message_id)])
        assert (processor.tracker.snapshot().tokens, processor.messages_seen) == (tokens, seen)


def test_a_message_that_will_not_even_say_its_class_is_passed_on(caplog):
    class Veiled:
        @property
        def __class__(self):
            raise RuntimeError("no")

    processor = MessageStreamProcessor()
    processor.process(Veiled())
    assert "a Veiled was not understood and is passed on" in caplog.text
    processor.process(assistant(100))
    assert processor.tracker.snapshot().tokens == 100


@pytest.mark.parametrize("kinds", [(), (Appended,), (Response,), (SessionStart,)])
async def test_the_numbers_are_the_same_whoever_observes(kinds):
    """Frequent messages go a short way where nobody wants to hear of them."""
    told = []
    quiet, observed = MessageStreamProcessor(), MessageStreamProcessor(on_event=[lambda *_: None])
    quiet.observe(lambda event, _: told.append(event), *kinds)
    messages = [init()]
    for number in range(5):
        parts = [assistant(20_000 + 1_000 * number, f"m{number}") for _ in range(3)]
        for place, part in enumerate(parts):
            part.uuid = f"m{number}-{place}"
        messages += [*parts, UserMessage("more " * 100, uuid=f"u{number}")]
    for message in messages:
        quiet.process(message)
        observed.process(message)
        assert quiet.tracker.snapshot().as_dict() == observed.tracker.snapshot().as_dict()
    assert quiet.messages_seen == observed.messages_seen == len(messages)
    assert len(told) == sum({Appended: 5, Response: 5, SessionStart: 1}[kind] for kind in kinds)


async def test_a_subagents_late_messages_move_no_main_gauge():
    processor = MessageStreamProcessor()
    late = assistant(11_000, "d", parent="toolu_1")
    await drain(processor, [init(), assistant(120_000, "a"), assistant(9_000, "b", parent="toolu_1"), result(), late])
    assert processor.tracker.snapshot().tokens == 120_000
    assert processor.tracker.snapshot("toolu_1").tokens == 11_000


async def test_a_session_change_inside_one_client_starts_from_unknown():
    processor = MessageStreamProcessor()
    await drain(processor, [init(), assistant(150_000), init("s2"), result(usage(), "s2")])
    snapshot = processor.tracker.snapshot()
    assert (snapshot.session_id, snapshot.tokens, snapshot.compactions) == ("s2", None, 0)


async def test_a_stream_may_end_in_the_middle_of_a_response():
    processor = MessageStreamProcessor()
    start = {
        "type": "message_start",
        "message": {"id": "m2", "model": "claude-sonnet-4-5", "usage": {"input_tokens": 9}},
    }
    await drain(processor, [init(), assistant(100), StreamEvent(uuid="u", session_id="s1", event=start)])
    await drain(processor, [UserMessage("go on"), assistant(140, "m3"), result(usage(1, 1))])
    assert processor.tracker.snapshot().tokens == 140


# The ledger and the pressure error


async def test_turns_add_up():
    processor = seed_processor(200_000, restart_at=None)
    await drain(processor, [result(usage(500, 1000, 10_000)), result(usage(600, 1200, 20_000))])
    ledger = processor.context_usage
    assert (ledger.input_tokens, ledger.output_tokens, ledger.cache_read_tokens) == (1100, 2200, 30_000)


@pytest.mark.parametrize(
    "raw",
    [
        {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 9},
        SimpleNamespace(input_tokens=5, output_tokens=7, cache_read_input_tokens=9),
    ],
)
def test_usage_may_be_a_mapping_or_an_object(raw):
    processor = seed_processor(restart_at=None)
    processor._process_result_message(result(raw))
    ledger = processor.context_usage
    assert (ledger.input_tokens, ledger.output_tokens, ledger.cache_read_tokens) == (5, 7, 9)


@pytest.mark.parametrize("raw", [{}, {"input_tokens": None, "output_tokens": None}, SimpleNamespace()])
def test_missing_counts_are_zero_and_tracking_goes_on(raw, caplog):
    processor = seed_processor(restart_at=None)
    processor._process_result_message(result(raw))
    assert processor.context_usage.is_tracking_enabled()
    assert processor.context_usage.input_tokens == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_missing_usage_warns_once_and_disables_the_ledger(caplog):
    processor = seed_processor()
    for _ in range(2):
        processor._process_result_message(result(None))
    assert not processor.context_usage.is_tracking_enabled()
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    processor._process_result_message(result(usage(900, 900)))
    assert processor.context_usage.pressure_ratio(1000) == 0.0


def test_after_a_reset_the_next_usage_enables_the_ledger_again():
    processor = seed_processor(restart_at=None)
    processor._process_result_message(result(None))
    processor.reset()
    assert not processor.context_usage.is_tracking_enabled()
    processor._process_result_message(result(None))
    assert not processor.context_usage.is_tracking_enabled()
    processor._process_result_message(result(usage(3, 4)))
    assert (processor.context_usage.input_tokens, processor.context_usage.output_tokens) == (3, 4)


@pytest.mark.usefixtures("each_way")
async def test_pressure_is_raised_behind_the_result_with_cumulative_totals():
    processor = seed_processor(limit=1000, restart_at=0.5)
    await drain(processor, [result(usage(200, 200))])
    stream = processor.stream(feed([result(usage(100, 100)), "never"]))
    assert type(await anext(stream)).__name__ == "ResultMessage"
    with pytest.raises(ContextPressureError) as caught:
        await anext(stream)
    error = caught.value
    assert (error.session_id, error.input_tokens, error.output_tokens) == ("s1", 300, 300)
    assert error.pressure_ratio == pytest.approx(0.6)


@pytest.mark.usefixtures("each_way")
async def test_a_caller_who_leaves_at_the_result_gets_the_pressure_next_time():
    processor = seed_processor()
    async for _ in processor.stream(feed([result(usage(300, 300))])):
        break
    with pytest.raises(ContextPressureError):
        await drain(processor, ["never seen"])
    processor.reset()
    assert await drain(processor, ["seen"]) == ["seen"]


@pytest.mark.usefixtures("each_way")
async def test_behind_the_pressure_comes_nothing():
    stream = seed_processor().stream(feed([result(usage(300, 300)), "never"]))
    await anext(stream)
    with pytest.raises(ContextPressureError):
        await anext(stream)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


class Held:
    """Messages that are no generator, so that whatever is left to the garbage collector was not left by them."""

    def __init__(self, *messages):
        self.messages = list(messages)

    def __aiter__(self):
        return self

    async def __anext__(self):
        await anyio.lowlevel.checkpoint()
        if not self.messages:
            raise StopAsyncIteration
        return self.messages.pop(0)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_caller_may_leave_at_any_message_and_go_on_with_what_is_left(backend):
    held = Held(init(), assistant(500), "more", "last")

    async def main():
        processor = MessageStreamProcessor()
        async for _ in processor.stream(held):
            break
        async for _ in processor.stream(held):
            break
        async with aclosing(processor.stream(held)) as stream:
            assert await anext(stream) == "more"
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        gc.collect()  # on trio, what is left open warns here
        await anyio.lowlevel.checkpoint()
        assert [message async for message in processor.stream(held)] == ["last"]
        return processor.tracker.snapshot().tokens

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert anyio.run(main, backend=backend) == 500
    assert [str(each.message) for each in warned] == []


@pytest.mark.parametrize("restart_at", [1, 1.0, True, Fraction(1)])
@pytest.mark.parametrize(("tokens", "raises"), [(999, False), (1000, True)])
def test_a_limit_of_any_numeric_type_is_compared(restart_at, tokens, raises):
    processor = seed_processor(limit=1000, restart_at=restart_at)
    processor.process(result(usage(tokens, 0)))
    assert (processor.take_pressure() is not None) is raises


async def test_without_restart_at_nothing_is_raised():
    await drain(seed_processor(restart_at=None), [result(usage(5000, 5000))])


@pytest.mark.parametrize(("prompt", "words", "raises"), [(480, 0, False), (500, 0, True), (400, 4000, True)])
async def test_occupancy_presses_by_what_the_next_request_holds(prompt, words, raises):
    processor = MessageStreamProcessor(ContextTracker(window=1000), restart_at=0.5)
    message = assistant(prompt, output=0)
    message.content = [TextBlock("word" * words)] if words else []
    processor.process(init())
    processor.process(message)
    assert (processor.tracker.snapshot().projected >= 500) is raises
    processor.process(result(usage(prompt, 0)))
    assert (processor.take_pressure() is not None) is raises


# Log lines


async def test_a_turns_end_is_one_info_line_with_key_values(caplog):
    caplog.set_level(logging.INFO)
    await drain(MessageStreamProcessor(), [init(), assistant(126_812), result(usage(1, 1))])
    (record,) = [record for record in caplog.records if record.levelno == logging.INFO]
    assert record.getMessage() == "Context: 63.4% (126,812 of 200,000 tokens), main, claude-sonnet-4-5"
    assert (record.session, record.tokens, record.window, record.source) == ("s1", 126_812, 200_000, "table")


async def test_a_response_is_a_debug_line_and_the_turn_another(caplog):
    caplog.set_level(logging.DEBUG)
    await drain(seed_processor(200_000, None), [init(), assistant(100), result(usage(1, 2, 3))])
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any("(1 of 200,000" in line for line in lines)  # size and share by the estimator that was chosen
    assert any("input=1 output=2 cache_read=3" in line and "limit=200000" in line for line in lines)


async def test_an_overflow_that_looks_like_success_is_a_warning(caplog):
    processor = MessageStreamProcessor()
    overflow = result(usage(), is_error=True, terminal_reason="prompt_too_long")
    await drain(processor, [init(), assistant(199_000), overflow])
    assert processor.tracker.snapshot().tokens == 199_000
    assert processor.tracker.snapshot().overflows == 1
    assert [record.levelname for record in caplog.records if "window is full" in record.getMessage()] == ["WARNING"]


OVERFLOWS = [
    {"terminal_reason": "prompt_too_long", "is_error": True},
    {"terminal_reason": "rapid_refill_breaker", "is_error": True},
    {"result": "prompt is too long: 210000 tokens > 200000 maximum", "is_error": True},
]


@pytest.mark.parametrize("fields", OVERFLOWS)
async def test_every_way_in_which_a_full_window_is_reported_is_one_record(fields, caplog):
    seen = []
    processor = MessageStreamProcessor(on_overflow=[seen.append], restart_at=0.99)
    await drain(processor, [init(), assistant(190_000)])
    processor.process(result(usage(), **fields))
    processor.process(result(usage(), **fields))
    assert len(seen) == 1
    assert processor.overflow is seen[0]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert processor.take_pressure().pressure_ratio == 1.0
    processor.process(assistant(900, "m2"))
    assert processor.overflow is None


async def test_a_subagents_overflow_is_a_warning_and_no_record(caplog):
    seen = []
    processor = MessageStreamProcessor(on_overflow=[seen.append])
    await drain(processor, [init(), assistant(1_000), assistant(500, "m2", parent="toolu_1")])
    processor.take(Refusal("toolu_1", "s1", 210_000, 200_000))
    assert seen == []
    assert "in a subagent" in caplog.text
    processor.take(Refusal(None, "s1", 210_000, 200_000))
    assert (seen[0].tokens, seen[0].maximum) == (210_000, 200_000)


async def test_a_reset_forgets_an_overflow():
    processor = MessageStreamProcessor()
    processor.process(result(usage(), **OVERFLOWS[0]))
    processor.reset()
    assert processor.overflow is None


async def test_a_compaction_is_one_info_line(caplog):
    caplog.set_level(logging.INFO)
    meta = {"trigger": "auto", "pre_tokens": 183_021, "post_tokens": 9_100, "duration_ms": 3_200}
    boundary = SystemMessage("compact_boundary", {"session_id": "s1", "compact_metadata": meta})
    await drain(MessageStreamProcessor(), [init(), assistant(14_700), assistant(183_000, "z"), boundary])
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Compaction")]
    assert line.startswith("Compaction: 183,000 → 2")
    assert line.endswith("tokens (trigger=auto, 3.2 s), 183,021 by the CLI's own count")


@dataclass
class ResultDouble:
    """What another SDK's result might look like."""

    usage: Any = field(default_factory=dict)
    session_id: str = "s"


def test_a_result_of_another_make_is_read_by_its_fields():
    processor = seed_processor(restart_at=None)
    processor._process_result_message(ResultDouble({"input_tokens": 2}))
    assert processor.context_usage.input_tokens == 2


async def test_a_window_in_doubt_is_one_warning(caplog):
    processor = MessageStreamProcessor(ContextTracker())
    turns = [
        init(model="claude-haiku-4-5"),
        assistant(671_400),
        result(usage()),
        assistant(672_000, "m2"),
        result(usage()),
    ]
    await drain(processor, turns)
    assert processor.tracker.snapshot().window_doubtful
    assert len([line for line in caplog.messages if "in doubt" in line]) == 1


def test_size_and_share_are_of_one_estimator_and_its_raw_values_are_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "mala_context.agent.stream")
    processor = MessageStreamProcessor(ContextTracker(estimator="max_cache_read", window=200_000))
    counts = {"cache_creation_input_tokens": 900, "cache_read_input_tokens": 14_000, "output_tokens": 60}
    for message in (init(), assistant(9, "m1"), assistant(9, "m2")):
        if hasattr(message, "usage"):
            message.usage = {"input_tokens": 5, **counts}
        processor.process(message)
    assert [line for line in caplog.messages if line.startswith("Context: 7.1%")] == [
        "Context: 7.1% (14,130 of 200,000 tokens), main, claude-sonnet-4-5"
    ]
    assert caplog.messages[-1] == (
        "Context: message=m2 max_cache_read=14000 sum_in=10 sum_out=120 sum_cache_create=1800 "
        "primary_tokens=14130 audit_tokens=1930 unique_api_calls=2"
    )


# -- the truth alarm ---------------------------------------------------------------------------------------------------


def alarmed(processor, caplog):
    """Return the causes that observers hear, and those in the log."""
    heard = []
    processor.alarm_observers.append(lambda surprise: heard.append(surprise.cause))
    return heard, lambda: [each.cause for each in caplog.records if "than projected" in each.getMessage()]


@pytest.mark.parametrize("observed", [False, True], ids=["the fast path", "the careful path"])
async def test_a_request_that_is_not_as_projected_is_one_warning(observed, caplog):
    processor = MessageStreamProcessor(on_snapshot=[lambda _: None] if observed else [])
    heard, logged = alarmed(processor, caplog)
    messages = [init(), *(assistant(50_000 + 10 * number, f"m{number}") for number in range(3))]
    messages += [assistant(90_000, "m3"), assistant(90_000, "m3"), assistant(90_010, "m4"), assistant(60_000, "m5")]
    await drain(processor, messages)
    assert heard == logged() == ["unexplained", "unexplained"]
    assert all(each.levelname == "WARNING" for each in caplog.records)


async def test_an_observer_of_alarms_that_fails_stops_nothing(caplog):
    processor = MessageStreamProcessor()
    processor.alarm_observers.append(lambda _: 1 / 0)
    passed = [init(), assistant(50_000, "a"), assistant(90_000, "b")]
    assert await drain(processor, passed) == passed
    assert "an observer failed" in caplog.text


async def test_the_cli_is_asked_why_before_the_warning(caplog):
    asked = []
    processor = MessageStreamProcessor()
    processor.asks_why = lambda: asked.append(True)
    heard, logged = alarmed(processor, caplog)
    reports = [
        {"categories": [{"id": "memory_files", "tokens": tokens}, {"id": "system_tools", "tokens": 9_000}]}
        for tokens in (10_000, 50_000)
    ]
    processor.take(window_report(reports[0], "s1"))
    await drain(processor, [init(), assistant(50_000, "a"), assistant(90_000, "b")])
    assert asked
    assert not heard
    processor.take(window_report(reports[1], "s1"))
    processor.explain()
    processor.explain()
    assert heard == logged() == ["memory"]
    await drain(processor, [assistant(60_000, "c")])
    processor.explain()
    assert heard == ["memory", "unexplained"], "an answer without news leaves the cause as it was"
