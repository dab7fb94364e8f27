"""Rows to draw, from what is known."""

import json
from dataclasses import replace

import pytest

from mala_context.analysis.watch.archived import LastArchive
from mala_context.analysis.watch.state import TranscriptState
from mala_context.analysis.watch.view import (
    ORDERS,
    Threshold,
    WatchRow,
    joined,
    matches,
    ordered,
    row_of,
    threshold_of,
)
from tests.helpers.recordings import SID, Rows, plain


def state(rows=None, **options):
    made = TranscriptState(SID, **options)
    made.take(plain().rows if rows is None else rows)
    return made


KEYS = """session_id agent_id path cwd branch model tokens accuracy window window_source window_doubtful ratio change
    pace turns_left compactions compactions_at_least last microcompactions silent_changes auto_compact_threshold
    auto_compact_source last_archive subagents"""


def made(name, agent=None, last=1_000.0, cwd="/home/dev/project"):
    values = dict.fromkeys(WatchRow.__dataclass_fields__)
    values |= {"session_id": name, "agent_id": agent, "path": f"/p/{name}.jsonl", "cwd": cwd, "accuracy": "unknown"}
    values |= {"window": 200_000, "window_source": "table", "compactions": 0, "compactions_at_least": False}
    return WatchRow(**values | {"last": last, "subagents": ()})


def test_a_session():
    found = row_of(state(), "/p/s.jsonl", 5.0)
    assert (found.session_id, found.tokens, found.window, found.compactions) == (SID, 20_900, 200_000, 1)
    assert found.ratio == 20_900 / 200_000
    assert (found.change, found.turns_left) == (None, None)
    assert not found.compactions_at_least


def test_what_is_not_known_is_none_and_never_zero():
    found = row_of(TranscriptState(SID), "/p/s.jsonl", 5.0)
    assert (found.tokens, found.ratio, found.change, found.pace, found.turns_left, found.model) == (None,) * 6


def test_compactions_that_were_counted_apart():
    found = row_of(state(), "/p/s.jsonl", 5.0, before=3)
    assert (found.compactions, found.compactions_at_least) == (4, False)
    found = row_of(state(), "/p/s.jsonl", 5.0, before=None)
    assert (found.compactions, found.compactions_at_least) == (1, True)


def turns(*sizes, model="claude-sonnet-4-5"):
    rows = Rows()
    for number, size in enumerate(sizes):
        rows.prompt()
        rows.response(f"r{number}", size, model=model)
    return rows.rows


def test_turns_left_count_to_the_window_where_no_threshold_is_acted_on():
    assert row_of(state(turns(100_000, 110_000, 120_000)), "", 0).turns_left == 8


def test_turns_left_count_to_the_threshold_where_it_is():
    found = row_of(state(turns(100_000, 110_000, 120_000), auto_compact_window=200_000), "", 0)
    assert (found.limit, found.turns_left) == (167_000, 4)


def test_no_turns_are_left_above_the_limit():
    assert row_of(state(turns(100_000, 150_000, 199_999), auto_compact_window=200_000), "", 0).turns_left == 0


@pytest.mark.parametrize(
    ("window", "last", "threshold"),
    [
        (None, None, (167_000, "reported")),
        (150_000, None, (117_000, "given")),
        (None, 167_400, (167_000, "seen")),
        (None, 196_585, (167_000, "reported")),
        (None, 21_000, (167_000, "reported")),
    ],
)
def test_the_threshold_and_how_it_is_known(window, last, threshold):
    snapshot = state(turns(100_000), auto_compact_window=window).snapshot()
    assert threshold_of(snapshot, last) == threshold
    assert threshold_of(snapshot, last).acted_on is (threshold[1] != "reported")


def test_a_window_that_is_too_small_for_a_threshold():
    assert threshold_of(state().snapshot()._replace(window=30_000)) is None


def test_subagents_inside_the_transcript_are_below_it():
    sub = Rows(agent="a1")
    sub.prompt()
    sub.response("s", 7_000)
    (agent,) = row_of(state(plain().rows + sub.rows), "/p/s.jsonl", 5.0).subagents
    assert (agent.agent_id, agent.tokens) == ("a1", 7_000)


def test_json_has_stable_keys_and_can_be_written():
    found = row_of(state(), "/p/s.jsonl", 0.0)
    values = json.loads(json.dumps(found.as_dict()))
    assert values["auto_compact_threshold"] == 167_000
    assert values["auto_compact_source"] == "reported"
    assert (values["last"], values["last_archive"], values["subagents"]) == ("1970-01-01T00:00:00Z", None, [])
    assert list(values) == KEYS.split()


def test_an_archive_in_json():

    found = replace(made("s"), archived=LastArchive(60.0, "auto", "compacted"), subagents=(made("s", "a1"),))
    values = found.as_dict()
    assert values["last_archive"] == {"time": "1970-01-01T00:01:00Z", "trigger": "auto", "outcome": "compacted"}
    assert [each["agent_id"] for each in values["subagents"]] == ["a1"]


def test_subagents_go_below_their_session_newest_first():
    (found,) = joined([made("s")], [made("s", "a1", 1_001.0), made("s", "a2", 1_002.0)])
    assert [each.agent_id for each in found.subagents] == ["a2", "a1"]
    assert found.last == 1_002.0


def test_a_subagent_without_its_session_stands_alone():
    assert joined([made("s")], [made("t", "a1")]) == [made("s"), made("t", "a1")]


def test_of_a_session_that_moved_the_newer_file_counts():
    assert [each.last for each in joined([made("s", last=1.0), made("s", last=2.0)], [])] == [2.0]
    assert [each.last for each in joined([made("s", last=2.0), made("s", last=1.0)], [])] == [2.0]


def test_orders_of_a_table():
    rows = [
        replace(made("a", last=1.0, cwd="/x/z"), tokens=10_000, turns_left=3),
        replace(made("b", last=3.0, cwd="/y/b"), tokens=90_000, turns_left=None),
        replace(made("c", last=2.0, cwd="/a/c/"), tokens=None, turns_left=9),
        replace(made("d", last=0.0, cwd=None), tokens=None, turns_left=9),
    ]
    found = {name: "".join(each.session_id for each in ordered(rows, name)) for name in ORDERS}
    assert found == {"context": "bacd", "activity": "bcad", "project": "bcad", "turns": "acdb"}
    assert ordered(rows) == ordered(rows[::-1], "context")


def test_fullness_goes_by_what_is_usable():
    row = replace(made("a"), tokens=80_000, window=100_000, threshold=Threshold(80_000, "given"))
    assert row.fullness == 1.0
    assert replace(row, threshold=Threshold(80_000, "reported")).fullness == 0.8


@pytest.mark.parametrize(
    ("words", "found"),
    [("", True), ("Shop", True), ("shop MAIN", True), ("opus", False), ("rounding", True), ("shop api", False)],
)
def test_a_row_matches_all_words_of_a_filter(words, found):
    row = replace(made("4d11", cwd="/home/dev/web-shop"), branch="main", model=None, first_prompt="Fix the rounding")
    assert matches(row, words) is found
