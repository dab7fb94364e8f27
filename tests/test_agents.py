"""Base and interval of one agent's context: they move together or not at all."""

from __future__ import annotations

from mala_context.agents import AgentState
from mala_context.usage import Usage


def answered(agent: AgentState, identity: str, prompt: int, output: int = 100) -> None:
    agent.begin(identity)
    agent.count(Usage(prompt, 0, 0, output), "message")
    agent.add("response", "hello")


def test_counts_of_the_same_response_are_no_news() -> None:
    agent = AgentState()
    agent.begin("m1")
    assert agent.count(Usage(1_000, 0, 0, 1), "message")
    assert not agent.count(Usage(1_000, 0, 0, 1), "message")
    assert agent.output(50)
    assert not agent.output(50)
    assert not agent.count(Usage(1_000, 0, 0, 3), "message")
    assert (agent.context.tokens, agent.context.output) == (1_000, 50)


def test_an_output_without_counts_belongs_to_nobody() -> None:
    agent = AgentState()
    agent.begin("m1")
    assert not agent.output(50)
    assert agent.context.output is None


def test_a_response_without_counts_stays_in_the_interval_until_they_come() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    before = agent.context
    agent.begin("m2")
    agent.add("response", "x" * 400)
    assert agent.context is before
    assert agent.context.interval.chars(2) == 405
    agent.count(Usage(1_500, 0, 0, 90), "row")
    assert agent.context is not before
    assert (agent.context.tokens, agent.context.source) == (1_500, "row")
    assert agent.context.interval.chars(1) == 400


def test_only_a_rooted_first_request_is_what_a_fresh_context_holds() -> None:
    fresh, resumed = AgentState(), AgentState()
    resumed.rooted = False
    for agent in (fresh, resumed):
        answered(agent, "m1", 15_000)
        answered(agent, "m2", 90_000)
    assert (fresh.first_input, resumed.first_input) == (15_000, None)
    assert fresh.after_compaction(9_000) == (24_000, "rough")
    assert fresh.after_compaction(None) == (None, "unknown")
    assert resumed.after_compaction(9_000) == (None, "unknown")


def test_max_tokens_cuts_only_the_current_answer() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    agent.begin("m2")
    agent.stop("max_tokens")
    assert not agent.context.cut
    agent.count(Usage(2_000), "message")
    agent.stop("max_tokens")
    assert agent.context.cut


def test_text_that_nobody_asks_for_is_let_go() -> None:
    agent = AgentState()
    for number in range(200):
        answered(agent, f"m{number}", 1_000 + 400 * number)
        agent.add("user", "word " * 200)
    assert len(agent.backlog) <= 64
    assert agent.estimators["characters"].estimate(None, lambda: 0).tokens is None
    agent.settle()
    assert not agent.backlog


def test_counted_text_is_complete() -> None:
    agent = AgentState()
    agent.counts_text = True
    for number in range(200):
        answered(agent, f"m{number}", 1_000 + 400 * number)
        agent.add("user", "word " * 200)
    pending = agent.context.interval
    chars = agent.estimators["characters"].estimate(None, lambda: pending.chars(len(pending))).audit["chars"]
    assert chars == 200 * 1_005


def test_going_back() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    old, parts = agent.context, len(agent.context.interval)
    agent.add("user", "abandoned")
    answered(agent, "m2", 5_000)
    agent.go_to(old, parts)
    assert (agent.context.tokens, agent.current) == (1_000, "m1")
    assert agent.context.interval.chars(len(agent.context.interval)) == 5


def test_beginning_again_forgets_what_a_fresh_context_holds() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    agent.begin_again()
    assert (agent.context.tokens, agent.first_input, agent.resets, agent.responses) == (None, None, 1, 1)
