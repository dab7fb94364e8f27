"""The records themselves: frozen, cheap, all of them in the union."""

from __future__ import annotations

import typing

import pytest

from mala_context.tracking import events
from mala_context.tracking.events import Appended, Event, Response, TurnEnd

RECORDS = typing.get_args(Event)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_record_says_what_it_is(record: type) -> None:
    assert record.__doc__
    assert issubclass(record, tuple)


def test_every_record_of_the_module_is_an_event() -> None:
    here = {value for value in vars(events).values() if isinstance(value, type) and value.__module__ == events.__name__}
    assert here == set(RECORDS)


def test_records_are_frozen() -> None:
    event = Appended(None, "s1", "user", "text")
    with pytest.raises(AttributeError):
        event.kind = "other"  # type: ignore[misc]


def test_what_is_not_known_is_none() -> None:
    response = Response(None, None, None, None, None)
    assert (response.usage, response.stop_reason, response.parent) == (None, None, None)
    assert TurnEnd(None, None).usage is None
