"""Every record as a line at DEBUG."""

import logging

import pytest

from mala_context.agent.telemetry.structured_log import fields_of, log_happening
from tests.helpers.telemetry_tools import EACH, updated


@pytest.mark.parametrize("record", EACH, ids=lambda record: type(record).__name__)
def test_a_record_is_a_line_and_its_fields(record, caplog):
    caplog.set_level(logging.DEBUG, "mala_context.agent.telemetry")
    log_happening(record)
    if type(record).__name__ == "ContextUpdated":
        assert caplog.records == []  # the processor has its own line
        return
    (line,) = caplog.records
    assert (line.levelname, line.getMessage()) == ("DEBUG", f"Happening: {type(record).__name__}")
    for name, value in fields_of(record).items():
        assert getattr(line, name) == value


def test_without_debug_nothing_is_made(caplog):
    caplog.set_level(logging.INFO, "mala_context.agent.telemetry")
    for record in EACH:
        log_happening(record)
    assert caplog.records == []


def test_names_are_those_of_other_lines():
    assert set(fields_of(EACH[3])) == {"session", "trigger", "pieces", "size", "seconds", "path"}
    assert fields_of(updated(5))["session"] == "s1"
