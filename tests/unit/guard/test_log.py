"""WARNING lines and the debug topics."""

import io
import logging

import pytest

from mala_context.guard import ContextGuard, TargetContextConfig
from mala_context.guard.log import STILL_OVER, debug_printer, log_guard_event


def guard(**kwargs):
    return ContextGuard([TargetContextConfig(provider="p", model="m", window=1000)], current=5000, **kwargs)


def test_the_forced_final_turn_is_a_warning(caplog):
    caplog.set_level(logging.DEBUG)
    guard(on_event=log_guard_event).preflight()
    record = caplog.records[0]
    assert record.levelname == "WARNING"
    assert record.getMessage() == "Context limit exceeded; forcing final turn."
    assert record.trigger == "turn_preflight"
    assert record.limit_tokens == 744
    assert [record.getMessage() for record in caplog.records[1:]] == [STILL_OVER]


def test_one_that_fits_in_the_final_turn_is_one_warning(caplog):
    caplog.set_level(logging.DEBUG)
    fits = TargetContextConfig(provider="p", model="m", window=1256)
    ContextGuard([fits], current=900, schema=200, finishing_schema=50, on_event=log_guard_event).preflight()
    assert [record.getMessage() for record in caplog.records] == ["Context limit exceeded; forcing final turn."]


def test_a_skipped_provider_is_a_warning(caplog):
    caplog.set_level(logging.DEBUG)
    small = TargetContextConfig(provider="p", model="small", window=500)
    big = TargetContextConfig(provider="p", model="big", window=5000)
    ContextGuard([small, big], current=1000, on_event=log_guard_event).preflight()
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "Context limit exceeded; skipping a provider.")
    ]


@pytest.mark.parametrize("value", [None, "", "false", "1"])
def test_no_printer_unless_asked_for(value):
    assert debug_printer({} if value is None else {"CONTEXT_DEBUG": value}) is None


def test_printer():
    stream = io.StringIO()
    guard(on_debug=debug_printer({"CONTEXT_DEBUG": "true"}, stream)).preflight()
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith('[context-guard/init-counters] {"current": 5000, ')
    assert any(line.startswith("[context-guard/enforce] ") for line in lines)


def test_printer_writes_to_standard_error(monkeypatch, capsys):
    monkeypatch.setenv("CONTEXT_DEBUG", "TRUE")
    guard(on_debug=debug_printer())
    assert capsys.readouterr().err.startswith("[context-guard/init-counters] ")
