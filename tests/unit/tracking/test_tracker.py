"""What a tracker answers: windows, projections, estimates, of whichever agent."""

from __future__ import annotations

from typing import Any

import pytest
from claude_agent_sdk import TextBlock

from mala_context.tracking.events import Appended, Response, TotalTokens
from mala_context.tracking.readers import read_openai, read_row
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage
from tests.helpers.sdk_stream import (
    MODEL,
    assistant,
    boundary,
    feed,
    init,
    result,
    task_started,
    tool_result,
    tool_use,
    usage,
)

REFUSED = "400 invalid_request_error: prompt is too long: 203114 tokens > 200000 maximum"


@pytest.fixture
def tracker() -> ContextTracker:
    return ContextTracker()


def test_subagents_have_windows_of_their_own(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 120_000), assistant("b", 9_000, parent="toolu_1"))
    feed(tracker, assistant("c", 15_000, parent="toolu_2"), result(), assistant("d", 11_000, parent="toolu_1"))
    assert tracker.snapshot().tokens == 120_000
    assert {key: each.tokens for key, each in tracker.agents().items()} == {"toolu_1": 11_000, "toolu_2": 15_000}
    assert tracker.snapshot("nobody").tokens is None


def test_either_id_of_a_subagent_finds_it(tracker: ContextTracker) -> None:
    feed(tracker, init(), task_started("a17", "toolu_9"), assistant("b", 9_000, parent="toolu_9"))
    by_id, by_call = tracker.snapshot("a17"), tracker.snapshot("toolu_9")
    assert (by_id.agent_id, by_id.tool_use_id, by_id.tokens) == ("a17", "toolu_9", 9_000)
    assert by_id.as_dict() == by_call.as_dict()


def test_an_opening_that_is_told_later(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 14_700), assistant("z", 183_000))
    skills = Appended(None, "s1", "attachment", {"type": "skill_listing", "rendered": "y" * 2_000})
    before = tracker.snapshot().as_dict()
    tracker.note_opening([Appended(None, "s1", "user", "x" * 300), skills, Response(None, "s1", "a", None, None)])
    assert tracker.snapshot().as_dict() == before
    feed(tracker, boundary(183_500, 9_100))
    assert tracker.snapshot().accuracy == "estimate"


def test_reset_forgets_the_conversation_but_not_the_window(tracker: ContextTracker) -> None:
    feed(
        tracker, assistant("a", 150_000), result(usage(150_000), model_usage={"claude-opus-4-8": {"contextWindow": 77}})
    )
    tracker.reset()
    snapshot = tracker.snapshot()
    assert (snapshot.session_id, snapshot.tokens, snapshot.responses, snapshot.window_source) == (
        None,
        None,
        0,
        "model_usage",
    )


def test_what_the_cli_says_about_the_window_wins_over_the_table(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 310_000))
    assert tracker.snapshot().window_source == "table"
    windows = {"claude-haiku-4-5": {"contextWindow": 200_000}, "claude-opus-4-8": {"contextWindow": 1_000_000}}
    feed(tracker, result(usage(310_000), model_usage=windows))
    snapshot = tracker.snapshot()
    assert (snapshot.window, snapshot.ratio, snapshot.window_source) == (1_000_000, 0.31, "model_usage")


def test_three_numbers_of_three_names() -> None:
    tracker = ContextTracker(window=200_000, auto_compact_window=200_000)
    feed(tracker, assistant("a", 150_300))
    snapshot = tracker.snapshot()
    assert snapshot.auto_compact_threshold == 167_000
    assert (snapshot.ratio, snapshot.usable_ratio, snapshot.tokens_left) == (0.7515, 0.9, 16_700)


def test_without_a_proactive_cli_there_is_no_threshold(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 150_300, model="claude-sonnet-4-5"))
    snapshot = tracker.snapshot()
    assert (snapshot.auto_compact_threshold, snapshot.usable_ratio, snapshot.tokens_left) == (None, None, 49_700)


def test_a_persisted_output_counts_as_what_the_model_got(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 20_000, output=40, content=[tool_use("Bash", command="make")]))
    before = tracker.snapshot().projected
    preview = "<persisted-output>\nOutput too large (5.0MB). Preview (first 2KB):\n" + "lorem ipsum " * 170
    row = {
        "type": "user",
        "sessionId": "s1",
        "message": {"content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": preview}]},
        "toolUseResult": {"stdout": "x" * 30_000, "persistedOutputSize": 5_225_999},
    }
    for event in read_row(row):
        tracker.apply(event)
    after = tracker.snapshot().projected
    assert before is not None
    assert after is not None
    assert 450 < after - before < 1_000


def test_a_placeholder_output_counts_the_text(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 20_000, output=1, content=[TextBlock("some words " * 200)]))
    projected = tracker.snapshot().projected
    assert projected is not None
    assert 20_400 < projected < 20_900


def test_a_model_that_is_named_late_prices_what_was_asked_about_before() -> None:
    said = []
    for asks in (False, True):
        tracker = ContextTracker()
        tracker.apply(Response(None, "s1", "m1", None, Usage(20_000, 0, 0, 1)))
        if asks:
            assert tracker.snapshot().projected is not None
        tracker.apply(Response(None, "s1", "m1", "claude-opus-4-8", None, [TextBlock("some words " * 200)]))
        said.append(tracker.snapshot().projected)
    assert said[0] == said[1]


def test_the_cli_counts_a_quarter_of_the_characters(tracker: ContextTracker) -> None:
    feed(tracker, assistant("a", 20_000, output=300), tool_result("z" * 4_000))
    assert tracker.snapshot().cli_estimate == 20_000 + 300 + 1_000


@pytest.mark.parametrize(
    ("model", "alarm_at", "learns"),
    [("claude-opus-6", None, True), (MODEL, None, False), (MODEL, 0.05, True)],
    ids=["prices that were not measured", "measured prices", "measured prices that miss twice by the same"],
)
def test_a_session_teaches_what_text_costs_where_prices_are_in_doubt(
    model: str, alarm_at: float | None, learns: bool
) -> None:
    tracker, size, text = ContextTracker(alarm_at=alarm_at), 20_000, "word " * 4_000
    for number in range(13):
        answer = assistant(f"m{number}", size, output=100, content=[tool_use()], model=model)
        feed(tracker, answer, tool_result(text))
        size += 100 + 9_000
    off = size - (tracker.snapshot().projected or 0)
    assert off < 500 if learns else off > 2_000


@pytest.mark.parametrize("shares", [[0, 4_000, 12_000, 0, 0], [0, 9_000, 0, 9_000, 0]])
def test_what_is_unseen_in_two_requests_teaches_no_price(shares: list[int]) -> None:
    """Neither where it is another share each time, nor where prices hold for a request between."""
    tracker, size = ContextTracker(), 20_000
    for number, unseen in enumerate(shares):
        size += unseen
        feed(tracker, assistant(f"m{number}", size, output=100, content=[tool_use()]), tool_result("word " * 4_000))
        snapshot = tracker.snapshot()
        assert snapshot.projected == snapshot.projected_by_table
        size = snapshot.projected or 0
    assert len(tracker.alarms()) == 2


def test_a_snapshot_keeps_its_numbers(tracker: ContextTracker) -> None:
    (kept,) = feed(tracker, assistant("a", 20_000, output=300))
    feed(tracker, tool_result("z" * 4_000), assistant("b", 25_000, output=10), tool_result("z" * 9_000))
    assert kept.tokens == 20_000
    assert kept.cli_estimate == 20_000 + 300
    assert tracker.snapshot().tokens == 25_000


def test_the_chosen_estimator_makes_the_ratio() -> None:
    tracker = ContextTracker(estimator="max_cache_read", window=100_000)
    feed(tracker, assistant("a", 10_903, output=50), assistant("b", 20_903, output=70))
    snapshot = tracker.snapshot()
    assert snapshot.estimate == 20_000 + 6 + 120
    assert snapshot.ratio == snapshot.estimate / 100_000
    assert snapshot.tokens == 20_903


def test_an_unknown_estimator_is_refused() -> None:
    with pytest.raises(ValueError, match="occupancy"):
        ContextTracker(estimator="guess")


def test_openai_compatible_answers() -> None:
    tracker = ContextTracker(estimator="total_tokens")
    chunk = {"model": "qwen", "choices": [], "usage": {"prompt_tokens": 60_000, "completion_tokens": 4_000}}
    chunk["usage"]["total_tokens"] = 64_000  # type: ignore[index]
    for event in read_openai(chunk):
        tracker.apply(event)
    tracker.apply(TotalTokens(None))
    snapshot = tracker.snapshot()
    assert (snapshot.estimate, snapshot.window, snapshot.ratio, snapshot.model) == (64_000, 128_000, 0.5, "qwen")


# -- for those who read many events ------------------------------------------------------------------------------------


def test_states_are_those_behind_the_snapshots(tracker: ContextTracker) -> None:
    part = Response("toolu_1", None, "m2", "claude-sonnet-4-5", Usage(700, 0, 0, 5), uuid="u2")
    main = tracker.advance(Response(None, "s1", "m1", "claude-sonnet-4-5", Usage(1_000, 0, 0, 5), uuid="u1"))
    sub = tracker.advance(part)
    assert main is tracker.main
    assert sub is tracker.subagents["toolu_1"] is tracker.state_of(part)
    assert tracker.snapshot_of(sub) == tracker.snapshot("toolu_1") == tracker.agents()["toolu_1"]
    assert tracker.estimates_of(main) == tracker.estimates()
    assert [tracker.holds_row(uuid) for uuid in ("u1", "u2", "u3")] == [True, True, False]
    assert (tracker.session_id, tracker.sessions_seen) == ("s1", 1)


def test_what_changed_nothing_has_no_snapshot(tracker: ContextTracker) -> None:
    response = Response(None, "s1", "m1", "claude-sonnet-4-5", Usage(1_000, 0, 0, 5))
    snapshot = tracker.apply(response)
    assert snapshot is not None
    assert (snapshot.tokens, snapshot.event) == (1_000, "Response")
    assert tracker.apply(response) is None


def test_the_automatic_window_may_be_told_later(tracker: ContextTracker) -> None:
    assert tracker.snapshot().auto_compact_threshold is None
    tracker.auto_compact_window = 150_000
    assert tracker.auto_compact_window == 150_000
    assert tracker.snapshot().auto_compact_threshold == 117_000


def test_a_models_window(tracker: ContextTracker) -> None:
    assert tracker.window_of("claude-sonnet-4-5[1m]") == (1_000_000, "suffix", False)
    assert ContextTracker(window=5_000).window_of("any") == (5_000, "config", False)


# -- values of another kind --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [7, 1.5, True, [], ["claude-opus-5"], {}, None, "", "x" * 10_000])
def test_a_models_name_that_is_no_text_stops_nothing(odd: Any) -> None:
    tracker = ContextTracker()
    for number, model in enumerate([odd, MODEL, odd, odd]):
        feed(
            tracker, assistant(f"m{number}", 1_000, model=model), assistant(f"m{number}", 1_000, model=model, uuid="u")
        )
        assert tracker.snapshot().tokens == 1_000
    assert tracker.snapshot().model in (MODEL, odd)


@pytest.mark.parametrize("odd", [7, float("nan"), True, [], {}, ["s1"]])
def test_a_session_id_that_is_no_text_begins_no_session(odd: Any) -> None:
    """NaN is equal to nothing, so each message began a session, and the context was unknown again."""
    tracker = ContextTracker()
    feed(tracker, assistant("m1", 1_000), assistant("m2", 2_000, session=odd), assistant("m3", 3_000, session=odd))
    assert tracker.snapshot().tokens == 3_000
    assert (tracker.session_id, tracker.sessions_seen) == ("s1", 1)


@pytest.mark.parametrize(
    "given",
    [{"model": 7}, {"model": []}, {"window": "200000"}, {"window": True}, {"window": 1.5}, {"window": 2**50 - 1}],
)
def test_a_wrong_argument_is_said_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="would be right"):
        ContextTracker(**given)
