"""Stretches into sessions, whatever their order."""

import itertools
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.analysis.replay.record import AgentRecord, CompactionRecord, Stretch
from mala_context.analysis.replay.sessions import join, key_of


def agent(ids, agent_id=None, tokens=100, **fields):
    counts = array("q", itertools.chain.from_iterable((1, 2, 3, each) for each in ids))
    ids = array("q", ids)
    sums = (len(ids), 2 * len(ids), 3 * len(ids), sum(ids))
    return AgentRecord(agent_id, "m", len(ids), tokens, tokens, ids=ids, counts=counts, sums=sums, **fields)


def stretch(path, session_id, ids=(), agents=(), start="1", end="2", **fields):
    main = agent(ids) if ids else AgentRecord()
    return Stretch(path, session_id, main, list(agents), [], started_at=start, ended_at=end, **fields)


def test_a_subagents_file_joins_its_session():
    main = stretch("/p/s.jsonl", "s", [1, 2])
    sub = stretch("/p/s/subagents/agent-a.jsonl", "s", agents=[agent([3], "a", tokens=50)], end="3")
    (session,) = join([sub, main])
    assert (session.path, session.main.responses, session.ended_at) == ("/p/s.jsonl", 2, "3")
    assert [each.as_dict() for each in session.subagents] == [agent([3], "a", tokens=50).as_dict()]
    assert session.totals.output_tokens == 6


@pytest.mark.parametrize("odd", ["", "\0", "\0/p/a.jsonl", None])
def test_what_can_be_no_id_joins_nothing(odd):
    """A report looks for the parts of a session by what they have in common."""
    stretches = [stretch(f"/p/{name}.jsonl", odd, [number]) for number, name in enumerate("ab", 1)]
    sessions = join(stretches)
    assert [(each.session_id, each.path) for each in sessions] == [(None, "/p/a.jsonl"), (None, "/p/b.jsonl")]
    assert list(map(key_of, sessions)) == list(map(key_of, stretches))


def test_a_subagents_file_alone_is_a_session_of_which_the_main_agent_is_unknown():
    (session,) = join([stretch("/p/agent-a.jsonl", "s", agents=[agent([3], "a")])])
    row = session.as_dict()
    assert [row[key] for key in ("model", "window", "responses", "tokens", "peak_ratio")] == [None, None, 0, None, None]
    assert len(row["subagents"]) == 1


def test_a_fork_keeps_its_sizes_and_counts_only_its_own_responses():
    origin = stretch("/p/o.jsonl", "o", [1, 2, 3], start="1")
    fork = stretch("/p/f.jsonl", "f", [1, 2, 9], start="1", is_fork=True)
    sessions = {each.session_id: each for each in join([fork, origin])}
    assert sessions["o"].main.responses == 3
    assert sessions["f"].main.responses == 1
    assert sessions["f"].main.tokens == 100
    assert sessions["f"].totals.output_tokens == 9


def test_a_copy_of_the_main_agents_responses_in_a_subagents_file_counts_for_the_main_agent():
    main = stretch("/p/z.jsonl", "s", [1, 2], start="5")
    sub = stretch("/p/agent-acompact-a.jsonl", "s", agents=[agent([1, 2, 3], "acompact-a")], start="1")
    (session,) = join([main, sub])
    assert (session.main.responses, session.subagents[0].responses) == (2, 1)


def test_two_files_of_one_session_are_one_and_the_newer_has_the_last_word():
    old = stretch("/p/a.jsonl", "s", [1, 2], end="2")
    new = stretch("/q/a.jsonl", "s", [1, 2, 3], end="4")
    new.main.tokens, new.main.peak_tokens = 70, 90
    same = CompactionRecord(3, "auto", 9, None, None, None, None, uuid="b")
    old.compactions, new.compactions = [same], [same, CompactionRecord(8, None, None, None, None, None, None)]
    (session,) = join([new, old])
    assert (session.path, session.main.responses, session.main.tokens, session.main.peak_tokens) == (
        "/q/a.jsonl",
        3,
        70,
        100,
    )
    assert [each.row for each in session.compactions] == [3, 8]


def test_recordings_without_any_id_stay_apart():
    assert len(join([stretch("/p/a", None), stretch("/p/b", None)])) == 2


@given(st.permutations(range(6)), st.sampled_from([False, True]))
def test_the_order_of_files_does_not_matter(order, forked):
    def make():
        return [
            stretch("/p/1", "a", [1, 2], start="1"),
            stretch("/p/2", "b", [1, 2, 3], start="1", is_fork=forked),
            stretch("/p/3", "a", [2, 4], start="2", end="9"),
            stretch("/p/4", "a", agents=[agent([5, 1], "x")], start="0"),
            stretch("/p/5", "b", agents=[agent([5, 6], "x")], start="0"),
            stretch("/p/6", None, [1]),
        ]

    wanted = [each.as_dict() for each in join(make())]
    mixed = make()
    assert [each.as_dict() for each in join([mixed[place] for place in order])] == wanted


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_gives_nothing(count):
    assert len(join([stretch("/p", "s")] * count)) == count
