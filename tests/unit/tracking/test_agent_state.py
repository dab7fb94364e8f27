"""Base and interval of one agent's context: they move together or not at all."""

from __future__ import annotations

from typing import Any
from weakref import ref

import pytest
from claude_agent_sdk import ThinkingBlock, ToolUseBlock
from hypothesis import given, settings
from hypothesis import strategies as st

from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.estimators import Estimate
from mala_context.tracking.usage import Usage


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


@pytest.mark.parametrize(
    ("blocks", "gone"),
    [
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}], True),
        ([ThinkingBlock("", "s" * 9_000)], True),
        ([{"type": "redacted_thinking", "data": "x"}], True),
        ([{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "So"}], False),
        ([ThinkingBlock("", "s"), ToolUseBlock("t", "Bash", {"command": "ls"})], False),
        ("So", False),
    ],
)
def test_the_cli_drops_only_a_thought_that_is_cut(blocks: Any, *, gone: bool) -> None:
    """It asks the model to go on from what was said; a thought alone it leaves out of the next request."""
    agent = AgentState()
    agent.begin("m1")
    agent.count(Usage(1_000, 0, 0, 9_000), "message")
    agent.add("response", blocks)
    agent.stop("max_tokens")
    assert agent.context.cut is gone
    agent.stop("tool_use")
    assert not agent.context.cut


def grown(agent: AgentState, responses: int, text: str = "word " * 200) -> None:
    for number in range(responses):
        answered(agent, f"m{number}", 1_000 + 400 * number)
        agent.add("user", text)


def test_text_that_nobody_asks_for_is_let_go() -> None:
    agent = AgentState()
    grown(agent, 3)
    assert agent.left is not None
    older = ref(agent.left[0])
    grown(agent, 3)
    assert older() is None
    assert agent.estimate("characters").tokens is None


def test_what_was_asked_of_an_old_interval_stays_and_its_text_goes() -> None:
    agent, text = AgentState(), "word " * 200
    answered(agent, "m", 1_000)
    agent.add("user", text)
    interval = agent.context.interval
    grown(agent, 3)
    assert all(content is None for _, content in interval.parts)
    assert interval.chars(2) == len("hello") + len(text)


def test_text_is_learned_from_whether_somebody_asks_or_not() -> None:
    asked, silent = AgentState(), AgentState()
    learned = []
    for number in range(280):
        for agent in (asked, silent):
            known = agent.ratios.chars_per_token(None)
            answered(agent, f"m{number}", 1_000 + 600 * number)
            agent.add("user", "word " * 200)
        if silent.ratios.chars_per_token(None) != known:
            learned.append(silent.responses)
        asked.context.interval.projected(1_000, 90, cut=False, parts=2)
    assert learned == [*range(2, 17), 144, 272]
    assert asked.ratios.get("prompt") == silent.ratios.get("prompt") > 1


def test_counted_text_is_complete() -> None:
    agent = AgentState()
    agent.counts_text = True
    for number in range(200):
        answered(agent, f"m{number}", 1_000 + 400 * number)
        agent.add("user", "word " * 200)
    assert agent.estimate("characters").audit["chars"] == 200 * 1_005


def test_text_before_the_last_response_is_unknown_where_nobody_counts_it() -> None:
    agent = AgentState()
    grown(agent, 1)
    assert agent.estimate("characters").audit["chars"] == 1_005
    grown(agent, 2)
    assert agent.estimate("characters") == Estimate(None, {"chars": None}, is_estimate=True)
    agent.compacted(1_000, 250, None)
    assert agent.estimate("characters").tokens == 250
    answered(agent, "m9", 2_000)
    assert agent.estimate("characters").audit["chars"] == 1_005


@pytest.mark.parametrize("responses", [0, 1, 2, 5])
def test_going_back(responses: int) -> None:
    agent = AgentState()
    answered(agent, "m", 1_000)
    old, parts = agent.context, len(agent.context.parts)
    old.pinned = True
    agent.add("user", "abandoned")
    grown(agent, responses)
    agent.go_to(old, parts)
    assert (agent.context.tokens, agent.current) == (1_000, "m" if responses < 2 else None)
    assert agent.context.interval.chars(len(agent.context.interval)) == len("hello")


def test_far_back_only_the_length_of_text_is_known() -> None:
    agent = AgentState()
    answered(agent, "m", 1_000)
    agent.add("user", "1234567890" * 100)
    old = agent.context
    old.pinned = True
    near = old.interval.projected(1_000, 100, cut=False, parts=2)
    grown(agent, 5)
    assert old.parts == []
    agent.go_to(old, 2)
    assert [kind for kind, _ in agent.context.parts] == ["response", "user"]
    far = agent.context.interval.projected(1_000, 100, cut=False, parts=2)
    assert far < near  # a digit costs more than a character of unknown kind
    assert far > 1_000 + 100 + 250


def test_beginning_again_forgets_what_a_fresh_context_holds() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    agent.begin_again()
    assert (agent.context.tokens, agent.first_input, agent.resets, agent.responses) == (None, None, 1, 1)


RESPONSES = st.lists(st.tuples(st.integers(1, 200_000), st.integers(0, 900), st.booleans()), min_size=1, max_size=20)
"""Size of each request, output of its answer, and whether somebody asks then."""


@settings(max_examples=30)
@given(counts_text=st.booleans(), responses=RESPONSES)
def test_a_response_at_once_is_one_step_by_step(*, counts_text: bool, responses: list[tuple[int, int, bool]]) -> None:
    """`start` is the short way of live messages: nothing that can be asked tells it from the long one."""
    short, long = AgentState(), AgentState()
    short.counts_text = long.counts_text = counts_text
    for number, (prompt, output, asked) in enumerate(responses):
        usage = Usage(prompt, 0, 0, output)
        short.start(f"m{number}", usage, prompt, "word " * 20)
        long.begin(f"m{number}")
        long.count(usage, "message")
        long.add("response", "word " * 20)
        for agent in (short, long):
            agent.add("user", "more " * 20)
            if asked:
                agent.context.interval.projected(prompt, output, cut=False, parts=2)
        known = [(each.context.tokens, each.context.parts, each.first_input, each.responses) for each in (short, long)]
        assert known[0] == known[1]
    for name in short.estimators:
        assert short.estimate(name) == long.estimate(name), name
    assert short.ratios.chars_per_token(None) == long.ratios.chars_per_token(None)


class TestTheOpening:
    """What a session's first request held besides the system prompt and the tools."""

    def test_its_prompt_and_its_announcements_are_taken_out_again(self) -> None:
        agent = AgentState()
        agent.opening.add("user", "x" * 300)
        agent.opening.add("attachment", {"type": "skill_listing", "rendered": "x" * 4_000})
        agent.opening.add("attachment", {"type": "environment", "rendered": "x" * 2_000})
        answered(agent, "m1", 20_000)
        assert agent.after_compaction(9_000) == (20_000 - 100 + (36_000 - 6_000) // 3, "estimate")

    @pytest.mark.parametrize(("turn", "gone"), [(False, 300), (True, 6_300)])
    def test_by_reference_what_is_kept_counts_and_in_a_turn_nothing_is_announced_again(self, turn, gone) -> None:
        for told in (True, False):
            agent = AgentState()
            agent.opening.add("user", "x" * 300)
            agent.opening.add("attachment", {"type": "skill_listing", "rendered": "x" * 6_000})
            answered(agent, "m1", 20_000)
            agent.kept_chars = 3_000 if told else None
            agent.compacted(150_000, 9, None, turn=turn)
            assert agent.by_reference is told
            assert agent.keep("x" * 1_000) is not told
            assert agent.keep([{"type": "text", "text": "x" * 2_000 if told else "x" * 1_996}]) is not told
            assert agent.by_reference
            assert agent.context.tokens == pytest.approx(20_000 + (3_000 - gone) / 3, abs=2)

    @pytest.mark.parametrize(
        "attachment",
        [
            {"type": "skill_listing", "content": "x" * 4_000},
            {"type": "skill_listing", "rendered": None},
            {"type": "todo_reminder", "rendered": "x" * 4_000},
            {"type": 3, "rendered": "x"},
            None,
        ],
    )
    def test_what_is_not_announced_again_or_has_no_text_makes_it_rough(self, attachment: object) -> None:
        agent = AgentState()
        agent.opening.add("user", "x" * 300)
        agent.opening.add("attachment", attachment)
        answered(agent, "m1", 20_000)
        assert agent.after_compaction(9_000) == (29_000, "rough")


def test_later_counts_of_a_response_stand_in_the_place_of_the_first() -> None:
    agent = AgentState()
    agent.begin("m1")
    agent.count(Usage(10, 0, 5_000, 40), "message")
    assert agent.count(Usage(10, 0, 9_000, 1), "delta")
    context = agent.context
    assert (context.tokens, context.output, context.source) == (9_010, 40, "delta")
    (cumulative, cached) = (agent.estimators[name] for name in ("cumulative", "max_cache_read"))
    assert cumulative.estimate(None, lambda: 0).tokens == 50
    assert cached.estimate(None, lambda: 0).tokens == 9_050


@pytest.mark.parametrize(("after", "helped"), [(89_999, True), (90_000, False), (120_000, False)])
def test_a_compaction_helped_where_a_tenth_is_gone(after: int, *, helped: bool) -> None:
    agent = AgentState()
    answered(agent, "m1", 100_000)
    agent.pre, agent.due = 100_000, agent.responses + 1
    said: list[bool | None] = [agent.helped]
    for number, prompt in enumerate((after, 100_000)):
        answered(agent, f"n{number}", prompt)
        said.append(agent.helped)
    assert said == [None, helped, helped]


def test_what_a_compaction_kept_is_known_again() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    agent.preserved = frozenset({"u1"})
    assert agent.kept("u1")
    assert not agent.kept("u2")
    assert not agent.kept(None)
    agent.context.source = "boundary"
    assert agent.kept("u2")
    answered(agent, "m2", 1_000)
    assert not agent.kept("u2")


def test_behind_a_compaction_the_size_is_an_estimate_until_the_next_response() -> None:
    agent = AgentState()
    answered(agent, "m1", 15_000)
    agent.add("user", "x" * 4_000)
    agent.compacted(180_000, 9_000, None)
    assert (agent.compactions, agent.context.tokens, agent.context.accuracy) == (1, 24_000, "rough")
    assert (agent.context.source, agent.helped) == ("boundary", None)
    assert agent.estimate("characters").tokens == 9_000
    answered(agent, "m2", 179_000)
    assert (agent.context.accuracy, agent.helped) == ("exact", False)


def test_whoever_goes_back_twice_finds_what_was_there() -> None:
    agent = AgentState()
    answered(agent, "m1", 1_000)
    agent.add("user", "x" * 400)
    for number in (2, 3):
        place = agent.context
        place.pinned = True
        answered(agent, f"m{number}", 1_500)
        answered(agent, f"m{number}, later", 1_600)
        agent.go_to(place, 2)
        assert sum(agent.context.interval.lengths()) == 405
