"""Tables that forget the oldest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.agents import AgentState
from mala_context.tracking.contexts import Context
from mala_context.tracking.recent import SHIFT, Places, Recent


@given(st.lists(st.integers(0, 30)), st.integers(2, 16))
def test_the_newest_are_there_and_the_number_is_bounded(keys: list[int], most: int) -> None:
    table = Recent[int, int](most)
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
    table = Recent[int, int](2)
    assert not table
    table.trim()
    assert not table


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(2, 16))
def test_a_row_that_is_remembered_has_its_own_place(rows: list[int], most: int) -> None:
    agent, places = AgentState(), Places[Context](most)
    expected: dict[str, tuple[Context, int]] = {}
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
    agent, places = AgentState(), Places[Context](8)
    for number in range(100):
        places.put(f"u{number}", agent.fresh(), 0)
    assert len(places._contexts) <= 9
