"""The records that observers get."""

import dataclasses
from typing import get_args, get_type_hints

import pytest

from mala_context.agent.telemetry import records
from mala_context.agent.telemetry.records import FinalTurn, SessionEnded, SessionRestarted
from tests.helpers.telemetry_tools import EACH

KINDS = get_args(records.TelemetryRecord)
PLAIN = {str, int, float, bool, type(None)}


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


def test_there_is_a_record_of_every_kind_to_look_at():
    assert {type(record) for record in EACH} | {SessionEnded} == set(KINDS)


@pytest.mark.parametrize("record", [*EACH, SessionEnded("s1")], ids=lambda record: type(record).__name__)
def test_no_record_can_be_changed(record):
    name = next(iter(get_type_hints(type(record))))
    with pytest.raises((dataclasses.FrozenInstanceError, AttributeError)):
        setattr(record, name, "another")
    assert hash(record) == hash(record)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_records_have_room_for_counts_ids_and_words_alone(kind):
    """Nothing that could hold a message: no `Any`, no object, no mapping."""

    def leaves(hint):
        inner = get_args(hint)
        if not inner or all(isinstance(each, str) for each in inner):
            return {str if inner else hint}
        return set().union(*(leaves(each) for each in inner if each is not ...))

    for hint in get_type_hints(kind).values():
        assert leaves(hint) <= PLAIN, hint
