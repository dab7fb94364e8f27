"""Log lines go through the standard library, message and key-values both."""

import logging
import subprocess
import sys

from mala_context._util.log import get_logger


def test_the_line_is_the_message_and_key_values_are_attributes(caplog):
    caplog.set_level(logging.INFO)
    get_logger("mala_context.x").info("Context: %s", "12 %", tokens=12, window=100)
    (record,) = caplog.records
    assert record.getMessage() == "Context: 12 %"
    assert (record.name, record.tokens, record.window) == ("mala_context.x", 12, 100)


def test_a_silent_level_costs_no_rendering(caplog):
    caplog.set_level(logging.INFO)
    get_logger("mala_context.x").debug("never", tokens=1)
    assert caplog.records == []


def test_nothing_reaches_standard_output_without_configuration():
    program = "from mala_context._util.log import get_logger\nget_logger('mala_context.x').info('hello', tokens=1)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_a_literal_percent_sign_is_left_alone(caplog):
    caplog.set_level(logging.INFO)
    get_logger("mala_context.x").info("Context: 63.4% (126,812 of 200,000 tokens)")
    assert caplog.messages == ["Context: 63.4% (126,812 of 200,000 tokens)"]
