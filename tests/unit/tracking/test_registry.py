"""Agents, their ids, and the places of rows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import ContextState
from mala_context.tracking.events import Appended
from mala_context.tracking.registry import AGENTS, LIVE, RECORDED, SHIFT, AgentRegistry, BoundedDict, RowIndex


def said(agent: str | None, uuid: str, parent: str | None) -> Appended:
    return Appended(agent, None, "user", "text", uuid, parent)


def test_keys() -> None:
    roster = AgentRegistry("m")
    by_call, by_id = roster.agent("toolu_1"), roster.agent("a2")
    assert (by_call.tool_use_id, by_call.agent_id) == ("toolu_1", None)
    assert (by_id.tool_use_id, by_id.agent_id) == (None, "a2")
    assert [roster.key(agent) for agent in (roster.main, by_call, by_id)] == [None, "toolu_1", "a2"]


def test_joining_before_and_after_the_agent_is_known() -> None:
    roster = AgentRegistry()
    assert roster.join("a1", "toolu_1") is None
    agent = roster.agent("a1")
    assert agent is roster.agent("toolu_1")
    assert (agent.agent_id, agent.tool_use_id) == ("a1", "toolu_1")
    late = roster.agent("a2")
    assert roster.join("a2", "toolu_2") is late
    assert roster.join("a2", "toolu_2") is None
    assert list(roster.subagents) == ["toolu_1", "toolu_2"]


def test_old_sidechains_are_told_apart_by_their_roots() -> None:
    roster = AgentRegistry()
    first, second = roster.owner(said("sidechain", "u1", "")), roster.owner(said("sidechain", "u2", ""))
    assert first is not second
    roster.place("u1", first)
    assert roster.owner(said("sidechain", "u3", "u1")) is first


def test_agents_are_bounded() -> None:
    roster = AgentRegistry()
    for number in range(AGENTS + 50):
        roster.agent(f"a{number}")
    assert len(roster.subagents) == AGENTS
    assert roster.find("a0") is None
    assert roster.find(f"a{AGENTS + 49}") is not None


def test_live_messages_are_only_remembered() -> None:
    roster = AgentRegistry()
    roster.note("u1", None, roster.main)
    assert roster.knows("u1")
    assert roster.rows.place("u1") is None
    roster.note(None, None, roster.main)
    assert not roster.knows(None)
    roster.note("u2", "u1", roster.main)
    assert roster.rows.place("u2") == (roster.main.context, 0)


def test_a_row_of_an_earlier_context_goes_back_to_it() -> None:
    roster, main = AgentRegistry(), AgentRegistry().main
    main = roster.main
    roster.place("r1", main)
    old = main.context
    main.context = main.fresh()
    assert not roster.follow(main, "r1", begins=False)
    assert not roster.follow(main, "unknown", begins=True)
    assert roster.follow(main, "r1", begins=True)
    assert main.context is not old
    assert len(main.context.interval) == 0


def test_a_prompt_gives_way_to_the_next_one_after_the_same_row() -> None:
    roster = AgentRegistry()
    main = roster.main
    result = [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}]
    for uuid, kind, content in (("r1", "response", ()), ("p1", "user", "do"), ("x1", "attachment", {"type": "x"})):
        main.add(kind, content)
        roster.place(uuid, main)
    assert not roster.take_back(main, "unknown")
    assert not roster.take_back(main, "p1")
    assert not roster.take_back(main, "x1")
    assert roster.take_back(main, "r1")
    assert [kind for kind, _ in main.context.parts] == ["response"]
    assert not roster.take_back(main, "r1")
    main.add("user", result)
    roster.place("g1", main)
    assert not roster.take_back(main, "r1")
    main.add("user", "what the CLI says to it")
    assert not roster.take_back(main, "g1")


def test_a_root_begins_a_new_conversation_only_after_a_response() -> None:
    roster = AgentRegistry()
    main = roster.main
    assert not roster.follow(main, "", begins=True)
    assert main.rooted is True
    main.responses = 1
    assert not roster.follow(main, "", begins=False)
    assert roster.follow(main, "", begins=True)
    assert main.resets == 1


@pytest.mark.parametrize("remembers", [LIVE, RECORDED])
def test_live_messages_and_responses_are_forgotten_in_time(remembers: int) -> None:
    roster = AgentRegistry(remembers=remembers)
    for number in range(2 * remembers):
        roster.note(f"u{number}", None, roster.main)
        assert not roster.was_counted(f"m{number}", None)
    assert len(roster.seen) <= remembers // 2
    assert all(roster.knows(f"u{number}") for number in range(2 * remembers - remembers // 4, 2 * remembers))
    assert not roster.was_counted("m0", None)


def test_a_response_is_counted_once_unless_another_request_has_its_id() -> None:
    roster = AgentRegistry()
    assert [roster.was_counted("m1", request) for request in ("r1", "r1", "r2", None)] == [False, True, False, True]


class TestRowsThatNoRequestHolds:
    """What a progress row, a hook's row or `/clear` leaves in a transcript."""

    def test_a_row_behind_it_goes_on_from_where_it_lies(self) -> None:
        roster = AgentRegistry()
        main = roster.main
        main.add("user", "one")
        roster.place("r1", main)
        main.add("user", "two")
        roster.link(main, "p1", "r1")
        roster.link(main, "p2", "p1")
        assert roster.rows.place("p2") == roster.rows.place("r1") == (main.context, 1)

    def test_one_that_goes_on_from_nothing_known_lies_at_the_end(self) -> None:
        roster = AgentRegistry()
        main = roster.main
        main.add("user", "one")
        roster.link(main, "p1", None)
        assert (roster.rows.place("p1"), main.rooted) == ((main.context, 1), None)
        roster.link(main, "p2", "forgotten")
        assert (roster.rows.place("p2"), main.rooted) == ((main.context, 1), False)

    def test_a_root_before_the_first_response_begins_nothing(self) -> None:
        roster = AgentRegistry()
        main = roster.main
        roster.link(main, "root", "")
        assert (roster.rows.place("root"), main.rooted) == ((main.context, 0), True)
        assert not roster.follow(main, "root", begins=True)

    def test_a_prompt_behind_a_root_begins_a_new_conversation(self) -> None:
        roster = AgentRegistry()
        main = roster.main
        main.responses, main.first_input = 1, 15_000
        old = main.context
        roster.link(main, "root", "")
        roster.link(main, "p1", "root")
        assert main.context is old  # what only lies there may be followed by a row of the old conversation
        assert not roster.follow(main, "p1", begins=False)
        assert roster.follow(main, "p1", begins=True)
        assert (main.resets, {main.context.tokens, main.first_input}) == (1, {None})
        assert roster.rows.place("p1") == (main.context, 0)
        assert not roster.follow(main, "p1", begins=True)
        assert main.resets == 1

    def test_a_subagents_root_is_no_new_conversation(self) -> None:
        roster = AgentRegistry()
        agent = roster.agent("a1")
        agent.responses = 1
        roster.link(agent, "root", "")
        assert roster.rows.place("root") == (agent.context, 0)
        assert not roster.follow(agent, "", begins=True)


def test_a_row_of_another_agent_is_not_gone_back_to() -> None:
    roster = AgentRegistry()
    roster.place("r1", roster.main)
    assert not roster.follow(roster.agent("a1"), "r1", begins=True)


def test_the_main_agent_has_no_key() -> None:
    roster = AgentRegistry()
    assert roster.agent(None) is roster.find(None) is roster.owner(said(None, "u", None)) is roster.main
    assert roster.find("unknown") is None


def test_text_is_counted_of_those_that_are_there_and_of_those_that_come() -> None:
    roster = AgentRegistry()
    there = roster.agent("a1")
    assert not there.counts_text
    roster.count_text()
    assert [each.counts_text for each in (roster.main, there, roster.agent("a2"))] == [True] * 3
    assert AgentRegistry(counts_text=True).agent("a1").counts_text


IDS = st.sampled_from(["a1", "a2", "toolu_1", "toolu_2"])


@given(st.lists(st.one_of(IDS, st.tuples(st.sampled_from(["a1", "a2"]), st.sampled_from(["toolu_1", "toolu_2"])))))
def test_an_agent_is_one_by_either_id_whenever_they_are_joined(steps: list[str | tuple[str, str]]) -> None:
    roster = AgentRegistry()
    joined: dict[str, str] = {}
    for step in steps:
        if isinstance(step, str):
            assert roster.agent(step) is roster.find(step)
        elif step[1] not in joined and step[0] not in joined.values():
            roster.join(*step)
            joined[step[1]] = step[0]
        for call, agent_id in joined.items():
            assert roster.find(call) is roster.find(agent_id)
            if (agent := roster.find(call)) is not None:
                assert (agent.tool_use_id, agent.agent_id, roster.key(agent)) == (call, agent_id, call)


@given(st.lists(st.integers(0, 30)), st.integers(2, 16))
def test_the_newest_are_there_and_the_number_is_bounded(keys: list[int], most: int) -> None:
    table = BoundedDict[int, int](most)
    for number, key in enumerate(keys):
        table[key] = number
        if len(table) > table.most:
            table.trim()
        assert table[key] == number
        assert len(table) <= most
    firsts = list(dict.fromkeys(reversed(keys)))[: most // 2]
    if len(set(keys)) == len(keys):
        assert all(key in table for key in firsts)


def test_an_empty_table() -> None:
    table = BoundedDict[int, int](2)
    assert not table
    table.trim()
    assert not table


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(2, 16))
def test_a_row_that_is_remembered_has_its_own_place(rows: list[int], most: int) -> None:
    agent, places = AgentState(), RowIndex(most)
    expected: dict[str, tuple[ContextState, int]] = {}
    for number, row in enumerate(rows):
        uuid, context = f"u{row}", agent.fresh()
        expected[uuid] = (context, number)
        places.put(uuid, context, number)
        assert places.place(uuid) == expected[uuid]
        assert len(places) <= most
    for uuid, place in expected.items():
        there = hash(uuid) >> SHIFT in places
        assert places.place(uuid) == (place if there else None)
        assert places.context(uuid) is (place[0] if there else None)


def test_contexts_that_no_row_has_are_let_go() -> None:
    agent, places = AgentState(), RowIndex(8)
    for number in range(100):
        places.put(f"u{number}", agent.fresh(), 0)
    assert len(places._contexts) <= 9
