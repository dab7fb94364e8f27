"""A request that is not what was projected is said, with its cause; one that is what was projected is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.events import Appended, Compaction, ContextEdited, Event, Response
from mala_context.tracking.readers.rows import RowReader, read_row
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.truth_alarm import CAUSES, LEAST, Surprise, is_alarm
from mala_context.tracking.usage import Usage

MODEL = "claude-sonnet-4-5"


def response(number: int, tokens: int, *, model: str = MODEL, read: int | None = None, output: int = 40) -> Response:
    read = tokens if read is None else read
    return Response(None, "s1", f"m{number}", model, Usage(0, tokens - read, read, output), [])


def alarms(*events: Event, **options: Any) -> list[Surprise]:
    tracker = ContextTracker(**options)
    for event in events:
        tracker.apply(event)
    return tracker.alarms()


def test_a_context_that_changes_in_silence() -> None:
    """Case core-34."""
    (alarm,) = alarms(response(1, 102_000), response(2, 60_000), response(3, 60_040))
    assert alarm.projected - alarm.tokens == pytest.approx(42_000, abs=100)
    assert alarm.cause == "unexplained"
    assert "42,040 tokens fewer than projected (60,000, not 102,040; 41.2%): unexplained" in alarm.line


def test_what_the_stream_shows_is_no_alarm() -> None:
    large = Appended(None, "s1", "user", [{"type": "tool_result", "tool_use_id": "t", "content": "word " * 20_000}])
    tracker = ContextTracker()
    for event in (response(1, 50_000), large):
        tracker.apply(event)
    tracker.apply(response(2, tracker.snapshot().projected or 0))
    tracker.apply(Compaction(None, "s1", "auto", 90_000, 4_000))
    tracker.apply(response(3, 20_000))
    assert tracker.alarms() == []


def test_the_first_request_of_a_resumed_session_is_not_compared() -> None:
    """Another process sends it, with a system prompt and tools of its own; the next one is compared again."""
    resumed = {"type": "attachment", "attachment": {"type": "hook_success", "hookEvent": "SessionStart"}}
    (alarm,) = alarms(response(1, 50_000), *read_row(resumed), response(2, 60_000), response(3, 70_000))
    assert alarm.tokens == 70_000


@pytest.mark.parametrize("rows", [1, 3])
def test_a_row_of_another_version_is_another_process(rows: int) -> None:
    """The first request of each is not compared, however many rows of it came before; the next one is."""
    reader, tracker = RowReader(), ContextTracker()

    def take(version: str | None, number: int, tokens: int) -> None:
        message = {"id": f"m{number}", "model": MODEL, "content": [], "usage": {"input_tokens": tokens}}
        said = {} if version is None else {"version": version}
        prompts = [{"type": "user", "message": {"content": "Go on."}, **said}] * (rows - 1)
        for row in (*prompts, {"type": "assistant", "message": message, **said}):
            for event in reader.read(row):
                tracker.apply(event)

    for place, (version, tokens) in enumerate(
        [("2.1.1", 50_000), ("2.1.2", 60_000), (None, 60_000), ("2.1.1", 70_000), ("2.1.1", 80_000)]
    ):
        take(version, place, tokens)
    assert [alarm.tokens for alarm in tracker.alarms()] == [80_000]


SAID = {"type": "text", "text": "Done."}


def thoughtful(number: int, tokens: int, model: str) -> Response:
    thinking = [{"type": "thinking", "thinking": "", "signature": "x" * 40_000}]
    return response(number, tokens, model=model, output=8_000)._replace(content=[*thinking, SAID])


PROMPT = Appended(None, "s1", "user", "Go on.")
RESULT = Appended(None, "s1", "user", [{"type": "tool_result", "tool_use_id": "t", "content": "done"}])


def test_thinking_that_is_left_out_when_a_turn_begins() -> None:
    """Older models may forget it: said once, with its cause; from then on the session's projections leave it out."""
    old = "claude-sonnet-4-5"
    turns = [thoughtful(1, 60_000, old), RESULT, thoughtful(2, 68_000, old), PROMPT]
    found = alarms(*turns, thoughtful(3, 62_000, old), PROMPT, thoughtful(4, 63_000, old))
    assert [(alarm.tokens, alarm.cause) for alarm in found] == [(62_000, "thinking")]
    again = alarms(*turns, thoughtful(3, 62_000, old), PROMPT, response(4, 70_000, model=old))
    assert [alarm.cause for alarm in again] == ["thinking", "unexplained"], "now it is a change that it is kept"


@pytest.mark.parametrize("model", ["claude-opus-4-5", "claude-sonnet-4-6", "claude-opus-5", "gpt-5"])
def test_a_model_that_keeps_its_thinking(model: str) -> None:
    turns = [thoughtful(1, 60_000, model), PROMPT]
    assert alarms(*turns, response(2, 68_000, model=model)) == []
    (alarm,) = alarms(*turns, response(2, 60_100, model=model))
    assert alarm.cause == "unexplained"


def test_what_an_older_model_thinks_within_a_turn_stays() -> None:
    events = [thoughtful(1, 60_000, MODEL), RESULT, thoughtful(2, 68_000, MODEL), RESULT, response(3, 76_000)]
    assert alarms(*events) == []
    (alarm,) = alarms(*events[:-1], response(3, 60_500))
    assert alarm.cause == "unexplained"


def test_the_limit_is_a_share_and_a_number_of_tokens() -> None:
    assert is_alarm(40_000, 42_000, 0.05)
    assert not is_alarm(40_000, 41_999, 0.05)
    assert not is_alarm(10_000, 10_000 + LEAST - 1, 0.05)
    assert alarms(response(1, 100_000), response(2, 60_000), alarm_at=None) == []
    assert alarms(response(1, 100_000), response(2, 60_000), alarm_at=0.5) == []


SEARCHED = Appended(
    None, "s1", "user", [{"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "mcp__a__b"}]}]
)
NESTED = Appended(None, "s1", "attachment", {"type": "nested_memory", "path": "/m", "content": "x"})
LOADED = Appended(None, "s1", "attachment", {"type": "deferred_tools_delta", "addedLines": ["- a"]})


@pytest.mark.parametrize(
    ("between", "then", "cause"),
    [
        (ContextEdited(None, "s1", "microcompaction"), response(2, 60_000), "microcompaction"),
        (ContextEdited(None, "s1", "context_editing"), response(2, 60_000), "context_editing"),
        (None, response(2, 130_000, model="claude-opus-4-8"), "model"),
        (LOADED, response(2, 130_000), "tools"),
        (SEARCHED, response(2, 130_000), "tools"),
        (NESTED, response(2, 130_000), "memory"),
        (NESTED, response(2, 60_000), "unexplained"),
        (None, response(2, 130_000, read=0), "prefix"),
        (None, response(2, 130_000), "unexplained"),
    ],
)
def test_the_cause_is_named_where_the_stream_tells_it(between: Event | None, then: Response, cause: str) -> None:
    (alarm,) = alarms(response(1, 100_000), *([] if between is None else [between]), then)
    assert alarm.cause == cause
    assert CAUSES[cause] in alarm.line
    again = alarms(response(1, 100_000), *([] if between is None else [between]), then, response(3, 20_000))
    assert again[-1].cause in ("unexplained", "model"), "a cause is told of one request"


def test_rows_name_causes() -> None:
    row = {"type": "system", "subtype": "microcompact_boundary", "uuid": "u", "sessionId": "s1"}
    assert read_row(row)[0] == ContextEdited(None, "s1", "microcompaction")
    edits = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_input_tokens": 9_000}]}
    message = {"id": "m", "model": MODEL, "content": [], "context_management": edits}
    edited, _ = read_row({"type": "assistant", "sessionId": "s1", "message": message})
    assert edited == ContextEdited(None, "s1", "context_editing")
    empty = {**message, "context_management": {"applied_edits": []}}
    assert len(read_row({"type": "assistant", "sessionId": "s1", "message": empty})) == 1


DENSE = ["+-" * 1_500, "1 2 3 " * 700, "aGVsbG8gd29ybGQ0NTY3" * 200]
TEXTS = st.sampled_from(["", "word " * 40, "word " * 4_000, "x = [1, 2, 3]\n" * 800, "字" * 3_000, "é" * 900, *DENSE])


@given(
    st.integers(5_000, 900_000),
    st.lists(TEXTS, max_size=3),
    st.integers(-60_000, 60_000),
    st.sampled_from([0.01, 0.05, 0.5]),
    st.integers(0, 3_000),
)
def test_a_request_is_an_alarm_exactly_where_the_rule_says_so(
    size: int, texts: list[str], change: int, at: float, output: int
) -> None:
    """Whatever the text costs: the sizes that are let pass without a look at the text are none of alarms."""
    tracker = ContextTracker(alarm_at=at)
    tracker.apply(response(1, size, output=output))
    for text in texts:
        tracker.apply(Appended(None, "s1", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": text}]))
    projected = tracker.snapshot().projected or 0
    tokens = max(1, projected + change)
    tracker.apply(response(2, tokens))
    assert len(tracker.alarms()) == is_alarm(projected, tokens, at)


@given(
    st.integers(5_000, 900_000),
    st.lists(TEXTS, max_size=4),
    st.floats(0.05, 1.5).map(lambda share: share * 1.001),
    st.booleans(),
    st.integers(0, 3_000),
)
def test_each_injected_change_is_flagged_once(
    size: int, texts: list[str], share: float, grows: bool, output: int
) -> None:
    """A change of 5 % and 2,000 tokens against the projection, whatever came between, is one alarm of that size."""
    tracker = ContextTracker()
    tracker.apply(response(1, size, output=output))
    for text in texts:
        content = [{"type": "tool_result", "tool_use_id": "t1", "content": text}]
        tracker.apply(Appended(None, "s1", "user", content))
    projected = tracker.snapshot().projected or 0
    change = max(LEAST, round(share * projected) + 1) * (1 if grows else -1)
    if projected + change <= 0:
        return
    tracker.apply(response(2, projected + change))
    tracker.apply(response(2, projected + change))  # a later block of the same response
    (alarm,) = tracker.alarms()
    assert (alarm.projected, alarm.tokens - alarm.projected) == (projected, change)
    assert tracker.alarms() == []


def test_thinking_that_another_model_gets_after_all_is_flagged() -> None:
    """A model gets its own alone, so no size beside another model can be let pass without a price."""
    turns = [thoughtful(1, 60_000, "claude-opus-4-8"), PROMPT]
    (alarm,) = alarms(*turns, response(2, 68_050, model="claude-sonnet-5"))
    assert alarm.projected < 61_000
    assert alarm.cause == "model"
