"""Change a turn and turns left."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.pace import TURNS, Pace


def turns(*sizes):
    """A pace after turns of one response each, the last of which is still under way."""
    pace = Pace()
    for size in sizes:
        pace.prompt()
        pace.size(size)
    return pace


def test_nothing_is_known_before_two_sizes():
    pace = Pace()
    assert (pace.change, pace.per_turn, pace.turns_left(1_000)) == (None, None, None)
    pace.size(20_000)
    assert pace.change is None


def test_the_first_turn_counts_from_its_first_request():
    pace = turns(20_000)
    pace.size(23_000)
    assert pace.change == 3_000
    pace.prompt()
    assert (pace.change, pace.per_turn) == (3_000, 3_000)


def test_the_change_is_of_the_turn_under_way():
    pace = turns(20_000, 21_000, 24_000)
    assert pace.change == 3_000
    assert pace.per_turn == 1_000
    pace.prompt()
    assert pace.per_turn == 2_000


def test_prompts_that_nobody_answered_are_one():
    pace = turns(20_000, 21_000)
    for _ in range(4):
        pace.prompt()
    pace.size(22_000)
    pace.prompt()
    assert pace.per_turn == 1_000


def test_turns_left_are_whole_ones():
    pace = turns(20_000, 21_000, 22_000)
    assert pace.turns_left(2_999) == 2
    assert pace.turns_left(0) == 0
    assert pace.turns_left(None) is None


def test_a_context_that_does_not_grow_has_no_turns_left():
    assert turns(20_000, 20_000, 20_000).turns_left(1_000) is None
    assert turns(20_000, 19_000, 18_000).turns_left(1_000) is None


def test_a_compaction_makes_the_pace_unknown():
    pace = turns(20_000, 21_000, 22_000)
    pace.forget()
    assert (pace.change, pace.per_turn) == (None, None)
    pace.size(9_000)
    assert pace.change is None


@given(st.lists(st.integers(0, 1_000_000), min_size=2, max_size=30))
def test_the_pace_is_the_mean_of_the_last_turns(sizes):
    pace = turns(*sizes)
    pace.prompt()
    changes = [after - before for before, after in pairwise(sizes)][-TURNS:]
    assert pace.per_turn == sum(changes) / len(changes)
    assert pace.change == changes[-1]
