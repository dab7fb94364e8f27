"""Records of a replay, and their JSON."""

from mala_context.replay.record import MOST_PROBLEMS, AgentRecord, CompactionRecord, Problems, SessionRecord, Totals

KEYS = [
    "session_id",
    "path",
    "model",
    "window",
    "window_source",
    "responses",
    "tokens",
    "peak_tokens",
    "peak_ratio",
    "compactions",
    "resets",
    "overflows",
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
