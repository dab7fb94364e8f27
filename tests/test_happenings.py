"""The records that observers get."""

import dataclasses

import pytest

from mala_context.happenings import FinalTurn, SessionRestarted


def test_a_final_turn_in_one_line():
    stopped = FinalTurn("s1", "context", 0.951, stopped=True, denials=4, missing=("saved work", "final answer"))
    assert stopped.line == (
        "Context: the final turn was stopped (95.1% of the window, 4 tools denied); missing: saved work, final answer"
    )
    fine = dataclasses.replace(stopped, stopped=False, denials=0, missing=(), ratio=1.2)
    assert fine.line == "Context: the final turn ended (120.0% of the window, 0 tools denied); nothing is missing"


def test_records_are_frozen():
    record = SessionRestarted("old", "new", "overflow", 1, checkpoint=False)
    assert record.result is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.restarts = 2
