"""Thinking that the next request does not hold: another model's, and an answer's that was nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.events import Appended, Compaction, Event, Response, SessionStart, TurnEnd, WindowReport
from mala_context.tracking.readers import read_row, read_stream_json
from mala_context.tracking.token_costs import thinking_in, thinking_tokens
from mala_context.tracking.tracker import ContextTracker
from mala_context.tracking.usage import Usage
from tests.helpers.redacted import redacted

ONE, OTHER = "claude-opus-5", "claude-opus-4-8"
MODELS = (ONE, OTHER, "claude-sonnet-4-5")
SIGNATURE = 20_000
PROMPT = Appended(None, "s1", "user", "Go on.")
SAID = {"type": "text", "text": "Done."}


def cost(model: str = ONE, signature: int = SIGNATURE) -> int:
    return round(thinking_tokens(signature, model))


def thought(signature: int = SIGNATURE) -> dict[str, str]:
    return {"type": "thinking", "thinking": "", "signature": "s" * signature}


def response(number: int, model: str = ONE, tokens: int = 50_000, *blocks: Any, **fields: Any) -> Response:
    content = list(blocks) or [thought(), SAID]
    return Response(None, "s1", f"m{number}", model, Usage(tokens, 0, 0, 1), content, **fields)


def set_to(model: str) -> Appended:
    return Appended(None, "s1", "user", f"<local-command-stdout>Set model to `{model}`</local-command-stdout>")


def started(model: str) -> SessionStart:
    return SessionStart("s1", "init", model)


def told(*events: Event) -> ContextTracker:
    tracker = ContextTracker()
    for event in events:
        tracker.apply(event)
    return tracker


def projected(*events: Event) -> int:
    return told(*events).snapshot().projected or 0


@pytest.mark.parametrize("reader", [read_row, read_stream_json])
def test_redacted_thinking_is_in_the_next_request_of_its_own_model(reader: Any) -> None:
    blocks = [redacted(6_000), redacted(9, header=155)]
    rows: list[dict[str, Any]] = [
        {
            "type": "assistant",
            "sessionId": "s1",
            "session_id": "s1",
            "message": {
                "id": "m1",
                "model": ONE,
                "usage": {**dict.fromkeys(("cache_creation_input_tokens", "cache_read_input_tokens"), 0), **counts},
                "content": [block],
            },
        }
        for counts in ({"input_tokens": 50_000, "output_tokens": 1},)
        for block in (*blocks, SAID)
    ]
    events = [event for number, row in enumerate(rows) for event in reader({**row, "uuid": f"u{number}"})]
    thoughts = round(thinking_in(blocks, ONE))
    assert thoughts == pytest.approx(6_009 * 0.4, rel=0.01)
    plain = projected(response(1, ONE, 50_000, SAID))
    assert projected(*events) == pytest.approx(plain + thoughts, abs=1)
    assert projected(*events, PROMPT, set_to(OTHER)) == pytest.approx(
        projected(response(1, ONE, 50_000, SAID), PROMPT, set_to(OTHER)), abs=1
    )


TELLERS = {
    "init": started,
    "set_model": set_to,
    "/model": lambda model: Appended(
        None, "s1", "user", f"<local-command-stdout>Set model to \x1b[1mopus ({model})\x1b[22m</local-command-stdout>"
    ),
    "attachment": lambda model: Appended(
        None, "s1", "attachment", {"type": "model", "identity": {"modelId": model}, "rendered": "."}
    ),
    "report": lambda model: WindowReport("s1", 200_000, model=model),
    "fallback": lambda model: read_stream_json(
        {"type": "system", "subtype": "model_fallback", "fallback_model": model, "session_id": "s1"}
    )[0],
}


@pytest.mark.parametrize("teller", TELLERS)
def test_another_model_gets_none_of_it(teller: str) -> None:
    """Whoever tells of the model; words that do so are counted too."""
    tell = TELLERS[teller]
    same, other = (projected(response(1), tell(model)) for model in (ONE, OTHER))
    assert same - other == pytest.approx(cost(), abs=5)


def test_each_model_gets_its_own_again() -> None:
    events = [response(1), PROMPT, response(2, ONE), set_to(OTHER), response(3, OTHER, 40_000)]
    away = projected(*events[:-1], started(ONE)) - projected(*events[:-1])
    assert away == pytest.approx(2 * cost(), abs=2)
    back = projected(*events, started(ONE)) - projected(*events)
    assert back == pytest.approx(2 * cost() - cost(OTHER), abs=2)


@given(
    st.lists(st.tuples(st.sampled_from(MODELS), st.integers(0, 30_000)), min_size=1, max_size=8),
    st.sampled_from(MODELS),
)
def test_a_request_holds_its_own_models_thinking_alone(answers: list[tuple[str, int]], model: str) -> None:
    events = [
        response(number, each, 50_000, thought(signature), SAID) for number, (each, signature) in enumerate(answers)
    ]
    tracker = told(*events)
    last = answers[-1][0]

    def held(name: str) -> float:
        return sum(thinking_tokens(signature, each) for each, signature in answers if each == name)

    before = tracker.snapshot().projected or 0
    tracker.apply(started(model))
    assert (tracker.snapshot().projected or 0) - before == pytest.approx(held(model) - held(last), abs=2)


@pytest.mark.parametrize("name", [f"{ONE}[1m]", f"{ONE}-20260101", f"us.anthropic.{ONE}-v1:0", "opus", "glm-4.6", ""])
def test_another_name_is_no_other_model(name: str) -> None:
    assert projected(response(1), started(name)) == projected(response(1))


def test_a_proxy_that_answers_in_another_name_changes_nothing() -> None:
    """Requests are for one model all the time; what its answers are called does not count."""
    events = [started(ONE), response(1, OTHER), started(ONE)]
    assert projected(*events) == projected(*events[:-1])
    assert projected(*events, started("claude-sonnet-4-5")) < projected(*events) - cost(OTHER) + 5


def test_a_response_ends_what_was_said_of_it() -> None:
    """What was said of the request before it no longer counts, and its size is what the API counted."""
    snapshot = told(response(1), set_to(OTHER), response(2, OTHER, 44_000, SAID)).snapshot()
    assert (snapshot.tokens, snapshot.switched) == (44_000, 0)


def test_a_snapshot_says_what_was_known_when_it_was_made() -> None:
    tracker = told(response(1))
    before = tracker.snapshot()
    tracker.apply(started(OTHER))
    after = tracker.snapshot()
    assert (before.switched, after.switched) == (0, -cost())
    assert (before.projected or 0) - (after.projected or 0) == cost()
    assert after.projected_by_table == before.projected_by_table, "the last rows alone tell it"
    assert "switched" not in after.as_dict()


def test_no_alarm_where_a_model_is_switched() -> None:
    """By the response itself, too, where nothing said it before."""
    for switch in ([set_to(OTHER)], [PROMPT]):
        tracker = told(response(1, tokens=60_000), PROMPT, response(2, tokens=66_000))
        tracker.alarms()
        tracker.apply(switch[0])
        tracker.apply(response(3, OTHER, 60_000, SAID))
        assert tracker.alarms() == []


def stating(
    said: object, output: int, *blocks: Any, number: int = 1, model: str = ONE, read: Any = read_row
) -> list[Event]:
    """Rows of one response, a block each, whose usage states how many tokens of the answer were thinking."""
    usage = {"input_tokens": 50_000, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    usage |= {"output_tokens": output, "output_tokens_details": {"thinking_tokens": said}}
    return [
        event
        for place, block in enumerate(blocks)
        for event in read(
            {
                "type": "assistant",
                "sessionId": "s1",
                "uuid": f"m{number}-{place}",
                "message": {"id": f"m{number}", "model": model, "usage": usage, "content": [block]},
            }
        )
    ]


@pytest.mark.parametrize("blocks", [(thought(), SAID), (thought(), SAID, thought(300)), (thought(9), SAID, thought())])
def test_what_the_response_states_is_what_another_model_does_not_get(blocks: tuple[Any, ...]) -> None:
    tracker = told(*stating(5_432, 6_010, *blocks), PROMPT, set_to(OTHER))
    assert tracker.snapshot().switched == -5_432


@pytest.mark.parametrize("said", [0, -1, 6_011, 1 << 60, True, 5_432.0, "5432", None, [], {}, float("nan")])
def test_a_bad_count_of_thinking_leaves_it_to_the_signature(said: object) -> None:
    """A 0 too, because the CLI writes 0 where the API states nothing."""
    tracker = told(*stating(said, 6_010, thought(), SAID), PROMPT, set_to(OTHER))
    assert tracker.snapshot().switched == -cost()


@pytest.mark.parametrize("output", [1, 8, 32])
def test_a_count_beside_a_placeholder_output_is_not_taken(output: int) -> None:
    tracker = told(*stating(1, output, thought(), SAID), PROMPT, set_to(OTHER))
    assert tracker.snapshot().switched == -cost()


@given(
    st.lists(st.integers(1, 30_000), min_size=1, max_size=5),
    st.integers(33, 40_000).flatmap(lambda output: st.tuples(st.integers(1, output), st.just(output))),
    st.sets(st.integers(0, 4)),
)
def test_the_blocks_add_up_to_what_the_response_states(
    signatures: list[int], counts: tuple[int, int], some: set[int]
) -> None:
    said, output = counts
    events = stating(said, output, *map(thought, signatures), SAID)
    registry = told(*events).reducer.registry
    uuids = [f"m1-{place}" for place in range(len(signatures))]
    whole = sum(tokens for _, tokens in registry.kept_thinking(uuids))
    part = sum(tokens for _, tokens in registry.kept_thinking([f"m1-{place}" for place in some]))
    assert registry.main.context.signed == pytest.approx(said)
    assert whole == pytest.approx(said)
    assert part <= whole + 1e-6
    assert whole <= output + 1e-6
    assert told(*events, PROMPT, set_to(OTHER)).snapshot().switched == -said


def delta(said: object, output: int) -> Event:
    usage = {"output_tokens": output, "output_tokens_details": {"thinking_tokens": said}}
    line = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
    return read_stream_json({"type": "stream_event", "session_id": "s1", "event": line})[0]


def test_the_end_of_a_streamed_response_states_it_too() -> None:
    tracker = told(response(1, ONE, 50_000, thought(), SAID, uuid="u1"), delta(5_432, 6_010), PROMPT, set_to(OTHER))
    assert tracker.snapshot().switched == -5_432
    assert list(tracker.reducer.registry.kept_thinking(["u1"])) == [(ONE, 5_432)]


def test_the_end_of_a_response_without_thinking_adds_none() -> None:
    tracker = told(response(1, ONE, 50_000, SAID), delta(5_432, 6_010), PROMPT, set_to(OTHER))
    assert tracker.snapshot().switched == 0


def test_a_count_belongs_to_its_own_response() -> None:
    tracker = told(
        *stating(5_000, 6_010, thought(), SAID),
        PROMPT,
        response(2, ONE, 56_020, thought(), SAID, uuid="u2"),
        PROMPT,
        set_to(OTHER),
    )
    assert tracker.snapshot().switched == -5_000 - cost()
    assert dict(tracker.reducer.registry.kept_thinking(["u2"])) == {ONE: thinking_tokens(SIGNATURE, ONE)}


def test_a_compaction_that_keeps_a_row_keeps_the_stated_count() -> None:
    answer = stating(5_432, 6_010, thought(), SAID)
    boundary = Compaction(None, "s1", "manual", 90_000, 5_000, preserved=frozenset({"m1-0", "m1-1"}))
    kept, bare = (told(*answer, each) for each in (boundary, boundary._replace(preserved=frozenset())))
    assert (kept.snapshot().tokens or 0) - (bare.snapshot().tokens or 0) == 5_432


def test_a_model_that_forgets_a_turns_thinking_forgets_the_stated_count() -> None:
    old = "claude-sonnet-4-5"
    turn = [*stating(3_000, 3_500, thought(), SAID, model=old), PROMPT, response(2, old, 50_520, SAID)]
    tracker = told(*turn, PROMPT, *stating(2_222, 2_900, thought(), SAID, number=3, model=old), PROMPT)
    assert tracker.main.forgets
    assert tracker.snapshot().switched == -2_222


def rows(*specs: tuple[str, str | None, str, Any]) -> list[Event]:
    """Rows by (uuid, parent, model or `user`, content)."""
    found: list[Event] = []
    for uuid, parent, who, content in specs:
        kind = "user" if who == "user" else "assistant"
        usage = {"input_tokens": 50_000, "output_tokens": 1}
        message = {"role": kind, "content": content}
        if kind == "assistant":
            message |= {"id": f"m-{uuid}", "model": who, "usage": usage}
        found += read_row({"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "message": message})
    return found


@pytest.mark.parametrize("asked", [False, True], ids=["let go", "asked for"])
def test_a_rewind_takes_its_thinking_back(asked: bool) -> None:
    answer = [thought(), SAID]
    told_rows = rows(
        ("u1", None, "user", "one"),
        ("a1", "u1", ONE, answer),
        ("u2", "a1", "user", "two"),
        ("a2", "u2", ONE, answer),
        ("u3", "a2", "user", "three"),
        ("a3", "u3", ONE, answer),
        ("u4", "a3", "user", "four"),
        ("a4", "u4", ONE, answer),
        ("u5", "a1", "user", "five"),
        ("a5", "u5", OTHER, [SAID]),
    )
    tracker = ContextTracker()
    for event in told_rows:
        tracker.apply(event)
        if asked:
            assert tracker.snapshot().projected or not tracker.main.responses
    thought_then = tracker.main.context.thought or {}
    assert thought_then == {ONE: pytest.approx(cost(), abs=1)}, "only the first answer is left"


def test_a_compaction_forgets_all_but_what_it_keeps() -> None:
    one, other = rows(("a1", None, ONE, [thought(), SAID]), ("a2", "a1", OTHER, [thought(), SAID]))
    boundary = Compaction(None, "s1", "manual", 90_000, 5_000, preserved=frozenset({"a1", "a2"}))
    for asked, mine in ((OTHER, OTHER), (ONE, ONE)):
        kept, bare = told(one, other, set_to(asked)), told(one, other, set_to(asked))
        kept.apply(boundary)
        bare.apply(boundary._replace(preserved=frozenset()))
        sizes = [tracker.snapshot().tokens or 0 for tracker in (kept, bare)]
        assert sizes[0] - sizes[1] == cost(mine)
        assert bare.main.context.thought is None
    kept.apply(started(OTHER))
    assert kept.snapshot().switched == cost(OTHER) - cost(ONE)


def test_an_old_cli_leaves_nothing_out() -> None:
    """2.1.29 sent a thought that stands alone, 2.1.41 did not (recordings of 12 such answers)."""
    alone = response(1, ONE, 50_000, thought())
    for version, gone in (("2.1.29", False), ("2.1.41", True), ("2.1.332", True), (None, True)):
        tracker = ContextTracker()
        tracker.reducer.written_by(version)
        tracker.apply(alone)
        tracker.apply(PROMPT)
        assert ((tracker.snapshot().projected or 0) < 51_000) is gone
        tracker.apply(started(OTHER))
        assert tracker.snapshot().switched == 0


def test_the_cli_is_still_known_after_another_session_begins() -> None:
    tracker = told(SessionStart("s1", "init", ONE, cli="2.1.29"), SessionStart("s2", "init", ONE))
    assert tracker.reducer.registry.no_thought is None


@pytest.mark.parametrize(("version", "gone"), [("2.1.150", False), ("2.1.167", True), ("2.1.332", True), (None, True)])
def test_a_cli_before_2_1_167_sends_each_model_what_the_others_thought(version: str | None, gone: bool) -> None:
    """2.1.97, 122, 139, 142 and 150 do, 167, 169, 176, 257 and 332 do not: each ran against the scripted API."""
    tracker = ContextTracker()
    tracker.reducer.written_by(version)
    for number in range(1, 4):
        tracker.apply(response(number, ONE, 50_000 + number))
        tracker.apply(PROMPT)
    tracker.apply(started(OTHER))
    assert (tracker.snapshot().switched < -1_000) is gone
    assert gone or tracker.snapshot().switched == 0


def test_names_without_end_are_not_all_kept() -> None:
    tracker = ContextTracker()
    for number in range(100):
        tracker.apply(response(number, f"claude-opus-{number}"))
    assert len(tracker.main.context.thought or {}) == 16


ENDS: dict[str, list[Event]] = {
    "a prompt": [PROMPT],
    "the CLI's own words": [Appended(None, "s1", "user", [{"type": "text", "text": "[No visible output]"}])],
    "the turn's end": [TurnEnd("s1", None, subtype="success")],
    "a reason to stop": [
        *read_stream_json(
            {
                "type": "stream_event",
                "session_id": "s1",
                "event": {
                    "type": "message_delta",
                    "delta": {"stop_reason": "end_turn"},
                    "usage": {"output_tokens": 6_000},
                },
            }
        )
    ],
}


@pytest.mark.parametrize("end", ENDS)
def test_an_answer_that_is_nothing_but_a_thought_is_left_out(end: str) -> None:
    alone, whole = (response(1, ONE, 50_000, *blocks) for blocks in ([thought()], [thought(), SAID]))
    assert projected(alone) > 50_000 + cost() - 5, "more of it may come"
    assert projected(alone, *ENDS[end]) < 50_050
    assert projected(whole, *ENDS[end]) > 50_000 + cost() - 5
    later = alone._replace(content=[SAID])
    assert projected(alone, later, *ENDS[end]) > 50_000 + cost() - 5
    assert told(alone, *ENDS[end], response(2, ONE, 50_040, SAID)).alarms() == []


def test_words_that_come_late_bring_a_thought_back() -> None:
    alone = response(1, ONE, 50_000, thought())
    assert projected(alone, PROMPT, alone._replace(content=[SAID]), PROMPT) > 50_000 + cost() - 5


def test_a_model_that_forgot_a_turns_thinking_forgets_this_ones_too() -> None:
    """As a request of the session has shown; within a turn it keeps it (57 recorded turns: 0.97 % off, now 0.12 %)."""
    old, result = "claude-sonnet-4-5", [{"type": "tool_result", "tool_use_id": "t", "content": "done"}]
    turn = [response(1, old, 50_000), PROMPT]
    tracker = told(*turn, response(2, old, 50_020))
    assert tracker.main.forgets
    tracker.apply(Appended(None, "s1", "user", result))
    within = tracker.snapshot()
    tracker.apply(PROMPT)
    begun = tracker.snapshot()
    assert (within.switched, begun.switched) == (0, -cost(old))
    assert (begun.projected or 0) < 50_200
    assert told(*turn, response(2, old, 50_020 + cost(old)), PROMPT).snapshot().switched == 0, "one that keeps it"
