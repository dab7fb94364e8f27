"""What a policy would have done on a recording."""

import pathlib

import pytest

from mala_context.analysis.simulate import LEFT_OVER, simulate_policies
from mala_context.config import ContextConfig, load_config
from mala_context.config.settings import GuardConfig
from tests.helpers.recordings import Rows, plain

ROOT = pathlib.Path(__file__).parents[3]
RECORDED = ROOT / "tests" / "data" / "recorded"
QUIET = {"warn_at": None}


def run(path, **fields):
    (outcome,) = simulate_policies([path], {"p": ContextConfig(**(QUIET | fields))})
    return outcome


def growing(*sizes):
    """A session whose requests have these sizes, with a prompt before each."""
    rows = Rows()
    for place, size in enumerate(sizes):
        rows.prompt()
        rows.response(f"m{place}", size)
    return rows


def test_a_policy_that_does_nothing_changes_nothing(tmp_path):
    outcome = run(plain().write(tmp_path / "a.jsonl"))
    row = outcome.as_dict()
    assert row["compactions"] == {"recorded": 1, "simulated": 1, "avoided": 0}
    assert (row["responses"], row["warnings"], row["capped"]) == (3, [], {})
    assert row["turns_until_first"] == {"recorded": 3, "simulated": 3}


@pytest.mark.parametrize("trigger", ["auto", "manual"])
def test_a_recording_that_begins_full_is_what_it_was_under_an_empty_policy(tmp_path, trigger):
    """A resumed session's first request is no fresh one's; a manual compaction does not show where the CLI compacts."""
    rows = growing(150_000, 155_000)
    rows.boundary(155_100, 5_000, trigger)
    rows.summary()
    for place, size in enumerate((30_000, 60_000, 90_000, 120_000, 160_000)):
        rows.prompt()
        rows.response(f"n{place}", size)
    outcome = run(rows.write(tmp_path / "a.jsonl"))
    assert outcome.simulated_tokens == outcome.recorded_tokens
    assert outcome.simulated_compactions == outcome.recorded_compactions == 1


@pytest.mark.parametrize("name", ["tests/data/recorded", "tests/data/core"])
def test_a_policy_that_does_nothing_saves_nothing(name):
    for outcome in simulate_policies([str(ROOT / name)], {"empty": ContextConfig()}):
        row = outcome.as_dict()
        assert row["tokens_saved"] == 0
        assert row["cost"]["recorded"] == row["cost"]["simulated"] > 0
        assert row["compactions"]["avoided"] == 0


def paused(*gaps, size=150_000, hour=False):
    """A session whose cache lapsed after pauses of so many minutes."""
    rows = Rows()
    minute = 0
    for place, gap in enumerate((0, 0, *gaps)):
        minute += gap
        when = f"2026-05-01T{10 + minute // 60:02d}:{minute % 60:02d}:00.000Z"
        rows.prompt(timestamp=when)
        answer = rows.response(f"m{place}", 10, timestamp=when)
        cold = gap >= (60 if hour else 5) or not place
        sizes = (20_000, 0) if not place else (size, 0) if cold else (500, size - 500)
        sizes = (size - 20_000, 20_000) if place == 1 else sizes
        creation = {"ephemeral_1h_input_tokens": sizes[0] if hour else 0}
        answer["message"]["usage"] |= {"cache_creation_input_tokens": sizes[0], "cache_read_input_tokens": sizes[1]}
        answer["message"]["usage"]["cache_creation"] = creation
    return rows


def test_an_idle_compaction_comes_before_the_lapse_and_saves(tmp_path):
    outcome = run(paused(1, 30, 1).write(tmp_path / "a.jsonl"), compact_idle=True)
    assert outcome.idle_compactions == [7]
    assert outcome.costs.simulated < outcome.costs.recorded


def test_an_idle_compaction_at_the_end_is_for_nothing(tmp_path):
    path = paused(1, size=120_000).write(tmp_path / "a.jsonl")
    outcome = run(path, compact_idle=True)
    assert outcome.idle_compactions == [6]
    assert outcome.costs.simulated > outcome.costs.recorded


@pytest.mark.parametrize(("hour", "minutes", "times"), [(False, 3, 0), (False, 4, 1), (True, 30, 0), (True, 61, 1)])
def test_an_idle_compaction_waits_as_long_as_the_cache_lives(tmp_path, hour, minutes, times):
    outcome = run(paused(minutes, 1, hour=hour).write(tmp_path / "a.jsonl"), compact_idle=True)
    assert len([row for row in outcome.idle_compactions if row == 5]) == times


def test_a_compaction_after_the_lapse_is_dear(tmp_path):
    late = run(paused(30, 1).write(tmp_path / "a.jsonl"), compact_at=0.6).costs.simulated
    idle = run(paused(30, 1).write(tmp_path / "b.jsonl"), compact_idle=True).costs.simulated
    assert idle < late


def test_a_manual_compaction_is_never_avoided(tmp_path):
    rows = growing(50_000, 160_000)
    rows.prompt()
    rows.boundary(160_500, 2_000, trigger="manual")
    rows.summary()
    rows.response("m5", 60_000)
    outcome = run(rows.write(tmp_path / "a.jsonl"), compact_at=0.6)
    assert (outcome.recorded_compactions, outcome.simulated_compactions) == (1, 1)


def test_a_warning_comes_once_at_its_row(tmp_path):
    outcome = run(growing(50_000, 130_000, 141_000, 150_000).write(tmp_path / "a.jsonl"), warn_at=0.7)
    assert outcome.warnings == [6]


def test_a_compaction_is_asked_for_between_turns_and_saves_tokens(tmp_path):
    path = growing(50_000, 130_000, 141_000, 150_000).write(tmp_path / "a.jsonl")
    outcome = run(path, compact_at=0.6)
    assert outcome.compactions_asked == [5]
    assert outcome.simulated_first == 2
    assert outcome.simulated_tokens == 50_000 + 130_000 + (50_000 + LEFT_OVER + 11_000) + (50_000 + LEFT_OVER + 20_000)
    assert outcome.as_dict()["tokens_saved"] == outcome.recorded_tokens - outcome.simulated_tokens


def test_a_restart_begins_where_the_session_began(tmp_path):
    outcome = run(growing(50_000, 190_000, 191_000).write(tmp_path / "a.jsonl"), restart_at=0.9)
    assert outcome.restarts == [5]
    assert outcome.simulated_tokens < outcome.recorded_tokens


def test_a_final_turn_is_counted_where_it_begins(tmp_path):
    outcome = run(growing(50_000, 195_000, 196_000).write(tmp_path / "a.jsonl"), final_at=0.95)
    assert outcome.final_turns == [4]


def test_a_large_result_is_capped_by_its_tool(tmp_path):
    rows = growing(20_000)
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    rows.rows[-1]["message"]["content"].append(call)
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 40_000}
    rows.row("user", message={"role": "user", "content": [result]})
    rows.response("m9", 30_000)
    outcome = run(rows.write(tmp_path / "a.jsonl"), guard=GuardConfig(tool_output_tokens=1_000))
    assert outcome.as_dict()["capped"] == {"Read": {"results": 1, "tokens": 9_000}}
    assert outcome.simulated_tokens == 20_000 + 30_000 - 9_000


def test_a_recorded_compaction_is_avoided_until_the_context_is_that_large(tmp_path):
    rows = growing(50_000, 160_000)
    call = {"type": "tool_use", "id": "t1", "name": "Read", "input": {}}
    rows.rows[1]["message"]["content"].append(call)
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "x" * 160_000}
    rows.rows.insert(2, rows.row("user", message={"role": "user", "content": [result]}))
    rows.rows.pop()
    rows.parent = rows.rows[-1]["uuid"]
    rows.boundary(165_000, 2_000)
    rows.summary()
    rows.response("m5", 60_000)
    path = rows.write(tmp_path / "a.jsonl")
    assert run(path).simulated_compactions == 1
    assert run(path, guard=GuardConfig(tool_output_tokens=100)).simulated_compactions == 0


def test_a_configured_window_counts(tmp_path):
    path = growing(20_000, 40_000).write(tmp_path / "a.jsonl")
    assert run(path, warn_at=0.7).warnings == []
    assert run(path, warn_at=0.7, window=50_000).warnings == [4]


def test_a_clear_starts_over(tmp_path):
    rows = growing(50_000, 150_000)
    rows.prompt(parent=None)
    rows.response("m7", 51_000)
    rows.prompt()
    rows.response("m8", 150_000)
    outcome = run(rows.write(tmp_path / "a.jsonl"), warn_at=0.7)
    assert outcome.warnings[0] == 4
    assert outcome.simulated_tokens == outcome.recorded_tokens


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_documented_policies_on_the_recorded_sessions(jobs):
    policies = {name: load_config(ROOT / "docs" / "policies" / f"{name}.yaml") for name in "ab"}
    outcomes = simulate_policies([str(RECORDED)], policies, jobs=jobs)
    assert [each.policy for each in outcomes] == ["a", "b"] * 3
    capped = [each for each in outcomes if each.policy == "a"]
    early = [each for each in outcomes if each.policy == "b"]
    assert sum(tokens for each in capped for _, tokens in each.capped.values()) > 5_000
    assert sum(each.recorded_compactions - each.simulated_compactions for each in capped) == 1
    assert sum(each.as_dict()["tokens_saved"] for each in early) > 0
    assert all(each.recorded_compactions == 1 for each in outcomes)
    assert all(each.simulated_compactions == 0 and each.compactions_asked for each in early)


def test_a_subagents_own_file_is_not_simulated(tmp_path):
    rows = Rows(agent="a1")
    rows.prompt()
    rows.response("s", 7_000)
    assert simulate_policies([rows.write(tmp_path / "agent-a1.jsonl")], {"p": ContextConfig()}) == []
