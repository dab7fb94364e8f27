"""WARNING lines."""

import logging

from mala_context.guard import ContextGuard, TargetContextConfig
from mala_context.guard.log import STILL_OVER, log_guard_event


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
