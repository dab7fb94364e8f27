"""Agents, their ids, and the places of rows."""

from __future__ import annotations

import pytest

from mala_context.events import Appended
from mala_context.roster import AGENTS, LIVE, RECORDED, Roster


def said(agent: str | None, uuid: str, parent: str | None) -> Appended:
    return Appended(agent, None, "user", "text", uuid, parent)


def test_keys() -> None:
    roster = Roster("m")
    by_call, by_id = roster.agent("toolu_1"), roster.agent("a2")
    assert (by_call.tool_use_id, by_call.agent_id) == ("toolu_1", None)
    assert (by_id.tool_use_id, by_id.agent_id) == (None, "a2")
    assert [roster.key(agent) for agent in (roster.main, by_call, by_id)] == [None, "toolu_1", "a2"]


def test_joining_before_and_after_the_agent_is_known() -> None:
    roster = Roster()
    assert roster.join("a1", "toolu_1") is None
    agent = roster.agent("a1")
    assert agent is roster.agent("toolu_1")
    assert (agent.agent_id, agent.tool_use_id) == ("a1", "toolu_1")
    late = roster.agent("a2")
    assert roster.join("a2", "toolu_2") is late
    assert roster.join("a2", "toolu_2") is None
    assert list(roster.subagents) == ["toolu_1", "toolu_2"]


def test_old_sidechains_are_told_apart_by_their_roots() -> None:
    roster = Roster()
    first, second = roster.owner(said("sidechain", "u1", "")), roster.owner(said("sidechain", "u2", ""))
    assert first is not second
    roster.place("u1", first)
    assert roster.owner(said("sidechain", "u3", "u1")) is first


def test_agents_are_bounded() -> None:
    roster = Roster()
    for number in range(AGENTS + 50):
        roster.agent(f"a{number}")
    assert len(roster.subagents) == AGENTS
    assert roster.find("a0") is None
    assert roster.find(f"a{AGENTS + 49}") is not None


def test_live_messages_are_only_remembered() -> None:
    roster = Roster()
    roster.note("u1", None, roster.main)
    assert roster.knows("u1")
    assert roster.rows.place("u1") is None
    roster.note(None, None, roster.main)
    assert not roster.knows(None)
    roster.note("u2", "u1", roster.main)
    assert roster.rows.place("u2") == (roster.main.context, 0)


def test_a_row_of_an_earlier_context_goes_back_to_it() -> None:
    roster, main = Roster(), Roster().main
    main = roster.main
    roster.place("r1", main)
    old = main.context
    main.context = main.fresh()
    assert not roster.follow(main, "r1", begins=False)
    assert not roster.follow(main, "unknown", begins=True)
    assert roster.follow(main, "r1", begins=True)
    assert main.context is not old
    assert len(main.context.interval) == 0


def test_a_root_begins_a_new_conversation_only_after_a_response() -> None:
    roster = Roster()
    main = roster.main
    assert not roster.follow(main, "", begins=True)
    assert main.rooted is True
    main.responses = 1
    assert not roster.follow(main, "", begins=False)
    assert roster.follow(main, "", begins=True)
    assert main.resets == 1


@pytest.mark.parametrize("remembers", [LIVE, RECORDED])
def test_live_messages_and_responses_are_forgotten_in_time(remembers: int) -> None:
    roster = Roster(remembers=remembers)
    for number in range(2 * remembers):
        roster.note(f"u{number}", None, roster.main)
        assert not roster.was_counted(f"m{number}", None)
    assert len(roster.seen) <= remembers // 2
    assert all(roster.knows(f"u{number}") for number in range(2 * remembers - remembers // 4, 2 * remembers))
    assert not roster.was_counted("m0", None)


def test_a_response_is_counted_once_unless_another_request_has_its_id() -> None:
    roster = Roster()
    assert [roster.was_counted("m1", request) for request in ("r1", "r1", "r2", None)] == [False, True, False, True]
