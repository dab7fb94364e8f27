"""What the cache did in recorded sessions."""

import pathlib

from mala_context.analysis.cache import read_cache, total
from tests.helpers.recordings import OTHER, Rows

RECORDED = pathlib.Path(__file__).parents[2] / "data" / "recorded"


def answer(rows, identity, written, read, **fields):
    """A response that wrote and read so many tokens."""
    row = rows.response(identity, 10, **fields)
    usage = {"input_tokens": 3, "cache_creation_input_tokens": written, "cache_read_input_tokens": read}
    row["message"]["usage"] |= usage
    return row


def lapsed(session_id=None):
    rows = Rows() if session_id is None else Rows(session_id)
    rows.prompt()
    answer(rows, "a", 30_000, 0)
    rows.prompt()
    answer(rows, "b", 31_000, 0, timestamp="2026-05-01T11:30:00.000Z")
    return rows


def test_a_lapse_is_named_with_its_row_and_time(tmp_path):
    (agent,) = read_cache([lapsed().write(tmp_path / "a.jsonl")])
    row = agent.as_dict()
    assert (row["responses"], row["written_5m"], row["rewritten"]) == (2, 61_000, 30_000)
    first, again = row["rewrites"]
    assert first["cause"] == "first"
    assert (again["cause"], again["row"], again["time"]) == ("lapsed", 4, "2026-05-01T11:30:00.000Z")


def test_rows_of_one_response_count_once(tmp_path):
    rows = lapsed()
    again = dict(rows.rows[-1], uuid="another", parentUuid=rows.rows[-1]["uuid"])
    rows.rows.append(again)
    (agent,) = read_cache([rows.write(tmp_path / "a.jsonl")])
    assert agent.use.written_5m == 61_000
    assert len(agent.written) == 2


def test_a_forks_copies_count_where_they_were_made(tmp_path):
    lapsed().write(tmp_path / "a.jsonl")
    fork = lapsed(OTHER)
    for row in fork.rows:
        row["forkedFrom"] = {"sessionId": "x"}
    fork.prompt()
    answer(fork, "c", 500, 31_000, timestamp="2026-05-01T11:31:00.000Z")
    fork.write(tmp_path / "b.jsonl")
    found = {agent.session_id: agent for agent in read_cache([str(tmp_path)])}
    assert found[OTHER].use[:4] == (3, 500, 0, 31_000)
    assert found[OTHER].written == []
    assert total(list(found.values())).rewritten == 30_000


def test_subagents_are_told_apart(tmp_path):
    rows = Rows(agent="a1")
    rows.prompt()
    answer(rows, "s", 5_000, 2_000)
    (agent,) = read_cache([rows.write(tmp_path / "agent-a1.jsonl")])
    assert (agent.agent_id, agent.use.read) == ("a1", 2_000)


def test_sums_equal_those_of_the_replay():
    from mala_context.analysis.replay import replay

    use = total(read_cache([str(RECORDED)]))
    sums = [session.totals for session in replay([str(RECORDED)])]
    assert use.read == sum(each.cache_read_tokens for each in sums)
    assert use.written_5m + use.written_1h == sum(each.cache_creation_tokens for each in sums)
