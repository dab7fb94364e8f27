"""Records of a replay, and their JSON."""

from array import array

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mala_context.analysis.replay.record import (
    MOST_PROBLEMS,
    AgentRecord,
    Best,
    CompactionRecord,
    Problem,
    Problems,
    SessionRecord,
    Totals,
    identify,
)

KEYS = [
    "session_id",
    "path",
    "model",
    "window",
    "window_source",
    "window_doubtful",
    "responses",
    "tokens",
    "accuracy",
    "peak_tokens",
    "peak_ratio",
    "compactions",
    "resets",
    "overflows",
    "microcompactions",
    "subagents",
    "started_at",
    "ended_at",
    "problems",
]


def test_the_keys_of_a_session_are_the_documented_ones_in_order():
    main = AgentRecord(None, "m", 2, 50, 60, window=200, window_source="table")
    compaction = CompactionRecord(4, "auto", 100, 10, 98, 97, parent_missing=False, uuid="u")
    session = SessionRecord("s", "p", main, [], [compaction], 0, 1, "a", "b", [], Totals())
    row = session.as_dict()
    assert list(row) == KEYS
    assert row["peak_ratio"] == 0.3
    assert row["compactions"] == [
        {
            "row": 4,
            "trigger": "auto",
            "pre_tokens": 100,
            "post_tokens": 10,
            "cli_estimate": 98,
            "projected": 97,
            "error": -0.02,
            "parent_missing": False,
        }
    ]


def test_an_unknown_estimate_has_no_error():
    assert CompactionRecord(1, None, None, None, 5, 5, None).error is None
    assert CompactionRecord(1, None, 9, None, None, None, None).error is None


def test_neighbours_with_the_same_words_are_one_problem():
    problems = Problems("f")
    for row in (3, 4, 5, 9):
        problems.add(row, "bad")
    problems.add(None, "file gone")
    assert [(each.row, each.rows) for each in problems.found] == [(3, 3), (9, 1), (None, 0)]


def test_problems_are_counted_without_end_and_kept_to_a_bound():
    problems = Problems("f")
    for row in range(1, 4_001, 2):
        problems.add(row, "bad")
    assert len(problems.found) == MOST_PROBLEMS
    assert sum(each.rows for each in problems.found) == 2_000


def test_an_id_is_the_same_number_on_every_machine():
    """It travels between processes, and Python's own hash differs in each."""
    assert identify("msg_01") == 54_083_828_806_509
    assert identify("0b5e0000-0000-4000-8000-000000000001") == 563_505_289_436_387_012
    assert identify("\ud800") == identify("\ud800") != identify("\ud801")


@given(st.lists(st.uuids().map(str), unique=True, max_size=50))
def test_ids_stay_apart_and_fit_where_they_are_kept(ids):
    numbers = array("q", map(identify, ids))
    assert len(set(numbers)) == len(ids)
    assert all(0 <= number < 1 << 63 for number in numbers)


def test_subagents_and_problems_are_in_a_sessions_json():
    main, agent = (
        AgentRecord(None, None, 0, None, None),
        AgentRecord("a1", "m", 3, 70, 90, compactions=1, accuracy="exact"),
    )
    session = SessionRecord("s", "p", main, [agent], [], 0, 0, None, None, [Problem("f", 3, 2, "bad")], Totals())
    row = session.as_dict()
    assert row["subagents"] == [
        {
            "agent_id": "a1",
            "model": "m",
            "responses": 3,
            "tokens": 70,
            "accuracy": "exact",
            "peak_tokens": 90,
            "compactions": 1,
        },
    ]
    assert row["problems"] == [{"file": "f", "row": 3, "rows": 2, "problem": "bad"}]
    assert row["peak_ratio"] is None


@given(st.lists(st.tuples(*[st.integers(0, 1 << 50)] * 4)))
def test_totals_are_sums_of_each_count(counts):
    totals = Totals()
    for each in counts:
        totals.add(each)
    sums = [sum(column) for column in zip(*counts, strict=True)] or [0] * 4
    assert [
        totals.input_tokens,
        totals.cache_creation_tokens,
        totals.cache_read_tokens,
        totals.output_tokens,
    ] == sums


COUNT = st.integers(0, 2**62)


@given(st.dictionaries(st.text(st.characters(exclude_categories=[])), st.tuples(COUNT, COUNT, COUNT, COUNT)))
@example({"": (0, 0, 0, 0), "\0": (1, 2, 3, 4), "msg_01" + "x" * 500: (2**62, 0, 0, 0)})
@example({"msg_01": (1, 2, 3, 4), "\ud800": (5, 6, 7, 8)})
@example({"msg_01": (2**62, 0, 0, 1), "msg_02": (2**62, 0, 0, 1), "msg_03": (2**62, 0, 0, 1)})
def test_ids_and_counts_are_kept_as_arrays_with_their_sums(responses):
    ids, counts, sums = Best(responses).arrays()
    assert list(ids) == [identify(each) for each in responses]
    assert list(counts) == [count for counts in responses.values() for count in counts]
    assert sums == tuple(sum(each[place] for each in responses.values()) for place in range(4))


def test_a_count_that_is_too_large_is_refused():
    with pytest.raises(OverflowError):
        Best({"msg_01": (2**63, 0, 0, 0)}).arrays()
