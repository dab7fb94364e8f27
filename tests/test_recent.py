"""A table that forgets the oldest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mala_context.recent import Recent


@given(st.lists(st.integers(0, 30)), st.integers(1, 8))
def test_the_newest_are_there_and_the_number_is_bounded(keys: list[int], half: int) -> None:
    table: Recent[int] = Recent(half)
    for number, key in enumerate(keys):
        table.put(str(key), number)
        assert table.get(str(key)) == number
    newest = list(dict.fromkeys(map(str, reversed(keys))))[:half]
    assert all(key in table for key in newest[: max(1, half // 2)] if newest)
    assert len(table) <= 2 * half
    assert bool(table) is bool(keys)


def test_an_empty_table() -> None:
    table: Recent[int | None] = Recent(2)
    assert not table
    assert table.get("x") is None
    assert None not in table
    table.put("x", None)
    assert "x" in table
