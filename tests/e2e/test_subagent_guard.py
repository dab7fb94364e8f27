"""A subagent's own window on the real CLI: warnings, the final turn, and a compaction of its own."""

import logging

import pytest

from mala_context import CompactionSeen, FinalTurn, GuardActed, ThresholdCrossed
from mala_context.testing import too_long, tool

from .driving import prose, results, texts, turn
from .test_guard_actions import FINAL_NOTE, SMALL, WINDOW, look, saves_when_denied
from .test_subagents import task

MAIN = [task(run_in_background=False), "Done."]


def config(**keys):
    """Return a `mala.yaml` whose main agent has no threshold, and whose subagents have these."""
    inner = "".join(f"\n    {key}: {value}" for key, value in keys.items())
    return f"context:\n  window: {WINDOW}\n  warn_at: null\n  subagents:{inner or ' {}'}\n"


async def play(runtime):
    told = []
    runtime.observers.append(told.append)
    async with runtime.session() as session:
        messages = await turn(session, "go")
    return messages, told


def of_kind(told, kind):
    return [record for record in told if isinstance(record, kind)]


async def test_a_subagent_that_hears_the_warning_ends_in_time(agent, caplog):
    def heeds(request):
        return "I stop." if request.contains("Prefer short outputs") else look()

    runtime, watch = agent(MAIN, subagents=heeds, config=config(warn_at=0.6), **SMALL)
    messages, told = await play(runtime)
    watch.check(2)
    assert texts(messages)[-1] == "Done."
    asked = watch.api.of_kind("subagent")
    assert {request.status for request in asked} == {200}
    (crossed,) = of_kind(told, ThresholdCrossed)
    assert (crossed.threshold, crossed.agent, crossed.window) == ("warn_at", asked[0].agent_id, WINDOW)
    assert 0.6 <= crossed.ratio == crossed.tokens / WINDOW
    assert [(record.action, record.agent) for record in of_kind(told, GuardActed)] == [("told", asked[0].agent_id)]
    (line,) = [line for line in caplog.messages if "warn_at" in line]
    assert line.startswith("Context: 6")
    assert asked[0].agent_id in line


async def test_a_subagent_saves_in_its_final_turn(agent, caplog):
    runtime, watch = agent(MAIN, subagents=saves_when_denied, config=config(final_at=0.8), **SMALL)
    messages, told = await play(runtime)
    watch.check(2)
    assert texts(messages)[-1] == "Done."
    asked = watch.api.of_kind("subagent")
    assert {request.status for request in asked} == {200}
    assert asked[-1].contains(FINAL_NOTE)
    assert not watch.api.last.contains(FINAL_NOTE), "the main agent hears of nothing"
    (final,) = of_kind(told, FinalTurn)
    assert (final.agent, final.stopped, final.missing, final.denials) == (asked[0].agent_id, False, (), 1)
    assert runtime.actions.final_turn is None
    assert [line for line in caplog.messages if line.endswith("nothing is missing, in a subagent")]


async def test_a_subagent_that_will_not_finish_is_stopped_and_the_main_agent_goes_on(agent):
    runtime, _ = agent(MAIN, subagents=lambda request: look(), config=config(final_at=0.8), **SMALL)
    messages, told = await play(runtime)
    assert not results(messages)[-1].is_error
    assert texts(messages)[-1] == "Done."
    (final,) = of_kind(told, FinalTurn)
    assert (final.stopped, final.denials) == (True, 4)


@pytest.mark.parametrize("keys", [{}, {"warn_at": 0.5}])
async def test_a_subagent_is_left_alone_where_nothing_is_asked_for(agent, caplog, keys):
    """Without `final_at` a subagent runs into its wall and the CLI compacts it, which is counted and said."""
    caplog.set_level(logging.INFO, "mala_context")
    calls = [tool("Bash", command="seq 3000", description="x"), too_long(201_000, 200_000), prose(400)]
    runtime, watch = agent(MAIN, subagents=calls, config=config(**keys).replace(f"window: {WINDOW}", "window: auto"))
    messages, told = await play(runtime)
    watch.check(2)
    assert texts(messages)[-1] == "Done."
    asked = watch.api.of_kind("subagent")
    (seen,) = of_kind(told, CompactionSeen)
    assert runtime.tracker.snapshot(asked[0].agent_id).compactions == 1
    assert (seen.trigger, seen.tokens_before) == ("auto", asked[0].tokens)
    assert abs(seen.tokens_after - asked[-1].tokens) <= 0.1 * asked[-1].tokens
    assert seen.agent in {asked[0].agent_id, runtime.tracker.snapshot(asked[0].agent_id).tool_use_id}
    (line,) = [line for line in caplog.messages if line.startswith("Compaction: ")]
    assert line.startswith(f"Compaction: {asked[0].tokens:,} → {seen.tokens_after:,} tokens (trigger=auto")
    assert of_kind(told, ThresholdCrossed) == []
