"""What a transcript tells a view."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.analysis.watch.state import TranscriptState, tells_size
from mala_context.analysis.watch.view import row_of
from mala_context.transcripts.prompts import MOST_CHARACTERS
from tests.helpers.recordings import OTHER, SID, Rows, generated, plain


def state(rows, **options):
    made = TranscriptState(SID, **options)
    made.take(rows)
    return made


def test_size_place_and_compactions():
    rows = plain()
    rows.prompt(cwd="/home/dev/project", gitBranch="main")
    found = state(rows.rows)
    assert found.snapshot().tokens == 20_900
    assert (found.compactions, found.last_automatic) == (1, 21_240)
    assert (found.cwd, found.branch) == ("/home/dev/project", "main")
    assert found.last == rows.rows[-1]["timestamp"]


def test_rows_under_an_older_id_are_part_of_the_session():
    older = Rows(OTHER)
    older.prompt()
    older.response("a", 20_000)
    newer = Rows(start=10)
    newer.parent = older.parent
    newer.prompt()
    found = state([*older.rows, *newer.rows])
    assert found.snapshot().tokens == 20_000
    assert found.session_id == SID


def test_without_an_id_in_its_name_the_rows_say_it():
    found = TranscriptState()
    found.take(plain(OTHER).rows)
    assert found.session_id == OTHER


@pytest.mark.parametrize(
    ("fields", "begins"),
    [
        ({}, True),
        ({"isMeta": True}, False),
        ({"origin": {"kind": "task-notification"}}, False),
        ({"message": {"content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}}, False),
        ({"message": {"content": [{"type": "text", "text": "hello"}]}}, True),
    ],
)
def test_what_begins_a_turn(fields, begins):
    rows = Rows()
    rows.prompt()
    rows.response("a", 20_000)
    rows.prompt()
    rows.response("b", 21_000)
    rows.row("user", **({"message": {"content": "hello"}} | fields))
    rows.response("c", 24_000)
    assert state(rows.rows).pace.change == (3_000 if begins else 4_000)


def test_a_subagents_own_transcript():
    rows = Rows(agent="a1")
    rows.prompt()
    rows.response("s", 7_000)
    rows.response("t", 9_000)
    found = state(rows.rows, agent_id="a1")
    assert found.snapshot().tokens == 9_000
    assert found.pace.change == 2_000
    assert found.inside == {}


def test_a_subagents_rows_that_name_no_agent():
    rows = Rows(agent="a1")
    rows.prompt()
    rows.response("s", 7_000)
    for row in rows.rows:
        del row["agentId"]
    assert state(rows.rows, agent_id="a1").snapshot().tokens == 7_000


def test_subagents_inside_a_main_transcript():
    main, sub = plain(), Rows(agent="a1")
    sub.prompt()
    sub.response("s", 7_000)
    found = state(main.rows + sub.rows)
    assert {key: each.tokens for key, each in found.inside.items()} == {"a1": 7_000}
    assert found.snapshot().tokens == 20_900


def test_rows_that_are_left_out_make_counts_partial_and_no_size_wrong():
    rows = plain().rows
    found = TranscriptState(SID)
    found.opening(rows[:2])
    assert found.snapshot().tokens is None
    found.take(rows[4:])
    assert found.partial
    assert found.snapshot().tokens == 20_900
    assert found.compactions == 1


def test_the_opening_makes_the_estimate_after_a_compaction():
    rows = plain().rows[:-1]
    whole, partial = state(rows), TranscriptState(SID)
    partial.opening(rows[:2])
    partial.take(rows[4:])
    assert partial.snapshot().tokens == whole.snapshot().tokens is not None
    assert partial.snapshot().accuracy != "exact"


def test_the_threshold_of_the_environment():
    assert state(plain().rows, auto_compact_window=150_000).snapshot().auto_compact_threshold == 117_000


@pytest.fixture(scope="module")
def long_session():
    return [json.loads(row) for row in generated(1)]


@settings(max_examples=20)
@given(st.floats(0, 1))
def test_rows_in_any_portions_give_the_same(long_session, where):
    rows = long_session
    cut = round(where * len(rows))
    one, two = TranscriptState("s"), TranscriptState("s")
    one.take(rows)
    two.take(rows[:cut])
    two.take(rows[cut:])
    assert one.snapshot().as_dict() == two.snapshot().as_dict()
    assert (one.pace.change, one.pace.per_turn, one.last) == (two.pace.change, two.pace.per_turn, two.last)


@settings(max_examples=25)
@given(st.recursive(st.none() | st.integers() | st.text(), lambda each: st.dictionaries(st.text(), each)))
def test_rows_of_any_kind_raise_nothing(value):
    row = {"type": "user", "message": value, "cwd": value, "timestamp": value, "sessionId": value, "origin": value}
    found = TranscriptState()
    found.take([row, row | {"type": "assistant"}, row | {"type": value}])
    found.snapshot()


def test_which_rows_tell_a_size():
    main, sub = plain().rows, Rows(agent="a1")
    sub.response("s", 7_000)
    assert tells_size(main, subagent=False)
    assert not tells_size(main, subagent=True)
    assert not tells_size(sub.rows, subagent=False)
    assert tells_size(sub.rows, subagent=True)
    assert not tells_size(main[:1], subagent=False)


@pytest.mark.parametrize(
    ("contents", "found"),
    [
        (["<command-name>/clear</command-name>", "  Fix the cart\n"], "Fix the cart"),
        ([[{"type": "image"}, {"type": "text", "text": "What is this?"}], "later"], "What is this?"),
        (["x" * 500], "x" * MOST_CHARACTERS),
        ([[{"type": "tool_result", "tool_use_id": "t", "content": "no prompt"}], "  "], None),
        ([5, None, {"text": 3}, [3]], None),
    ],
)
def test_the_first_prompt_is_what_a_user_wrote_first(contents, found):
    rows = Rows()
    for content in contents:
        rows.row("user", message={"role": "user", "content": content})
    state = TranscriptState()
    state.take(rows.rows)
    assert state.first_prompt == found
    assert row_of(state, "/p", 0.0).first_prompt == found
    assert "first_prompt" not in row_of(state, "/p", 0.0).as_dict()


def test_a_microcompaction_is_counted_apart():
    """Case people-22."""
    rows = Rows()
    rows.prompt()
    rows.response("a", 135_883)
    rows.row("system", subtype="microcompact_boundary")
    rows.row("system", subtype="microcompact_boundary", isSidechain=True)
    rows.response("b", 77_063)
    state = TranscriptState()
    state.take(rows.rows)
    row = row_of(state, "/p", 0.0)
    assert (row.compactions, row.microcompactions, row.tokens) == (0, 1, 77_063)
