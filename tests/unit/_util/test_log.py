"""Log lines go through the standard library, message and key-values both."""

import asyncio
import logging
import os
import signal
import subprocess
import sys

import pytest

from mala_context._util.log import get_logger
from mala_context.agent.stream import MessageStreamProcessor
from mala_context.agent.telemetry.hub import Hub
from mala_context.archive import log as archive_log
from tests.helpers.sdk_stream import assistant


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


class Odd(BaseException):
    """What no `except Exception` catches."""


FAULTS = [ValueError, Odd, RecursionError, MemoryError, SystemExit, GeneratorExit, asyncio.CancelledError]


class Failing(logging.Handler):
    """A handler, and a filter, that raises."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def emit(self, record):
        raise self.error

    def filter(self, record):
        raise self.error


@pytest.fixture(params=["handler", "filter"])
def failing(request):
    """Have every line of ours raise, in a handler or in a filter."""
    undo = []

    def begin(error):
        logger = logging.getLogger("mala_context")
        fault = Failing(error)
        places = [
            logging.getLogger(name) for name in ("mala_context.x", archive_log.LOGGER, "mala_context.agent.stream")
        ]
        level = logger.level
        logger.setLevel(logging.DEBUG)
        undo.append(lambda: logger.setLevel(level))
        if request.param == "handler":
            logger.addHandler(fault)
            undo.append(lambda: logger.removeHandler(fault))
        for place in places if request.param == "filter" else ():
            place.addFilter(fault)
            undo.append(lambda place=place: place.removeFilter(fault))

    yield begin
    for each in undo:
        each()


@pytest.mark.parametrize("error", FAULTS)
def test_a_line_that_cannot_be_logged_raises_into_nobody(failing, error):
    failing(error)
    get_logger("mala_context.x").warning("Context: %s", "12 %", tokens=12)
    archive_log.warning("Archive: %s", "x")
    archive_log.info("Archive: %s", "x")
    processor = MessageStreamProcessor()
    processor.process(object())
    processor.observe(lambda *_: None)
    assert processor.messages_seen == 1


SAYERS = {"shells": get_logger("mala_context.x").warning, "archive": archive_log.warning}


@pytest.mark.parametrize("say", SAYERS.values(), ids=SAYERS)
def test_ctrl_c_goes_through(failing, say):
    failing(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        say("words")


@pytest.fixture
def ended():
    """A process that a signal ends; returns what sends it."""
    before = signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))
    yield lambda *_: os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("say", SAYERS.values(), ids=SAYERS)
def test_a_signal_that_ends_the_process_does_so_inside_a_log_handler_too(ended, say):
    handler = logging.Handler()
    handler.emit = ended
    logging.getLogger("mala_context").addHandler(handler)
    try:
        with pytest.raises(SystemExit):
            say("words")
    finally:
        logging.getLogger("mala_context").removeHandler(handler)


def test_a_signal_that_ends_the_process_does_so_inside_an_observer_too(ended):
    ended.wants = None
    hub = Hub([ended])
    processor = MessageStreamProcessor(on_event=[ended])
    for told in (hub.tell, processor.process):
        with pytest.raises(SystemExit):
            told(assistant("m1", 100))


@pytest.mark.parametrize("error", FAULTS)
def test_an_observer_that_fails_in_any_way_raises_into_nobody(error, caplog):
    def fail(*_):
        raise error

    fail.wants = fail
    hub = Hub([fail])
    assert hub.wants(int)
    hub.tell(1)
    processor = MessageStreamProcessor(on_overflow=[fail])
    processor._notify(fail, 1)
    assert caplog.messages == ["Context: an observer failed"] * 2
