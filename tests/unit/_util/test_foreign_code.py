"""What foreign code raised is its own fault, unless a handler of a signal raised it or it is Ctrl-C."""

import functools
import os
import signal
import sys

import pytest

from mala_context._util.foreign_code import passes


class Ending:
    """Ends the process as an object, as a method, and once it has put the default handler back."""

    def __call__(self, number, frame):
        sys.exit(3)

    def restoring(self, number, frame):
        signal.signal(number, signal.SIG_DFL)
        sys.exit(3)


def ends(number, frame):
    raise SystemExit


def gives_up(number, frame):
    raise TimeoutError


def wrapped(number=None, frame=None, *rest, say=None, **more):
    return ends(number, frame)


def last(*given, say=None):
    sys.exit(3)


HANDLERS = {
    "function": ends,
    "error": gives_up,
    "wrapped": wrapped,
    "arguments": last,
    "lambda": lambda *_: sys.exit(3),
    "object": Ending(),
    "method": Ending().restoring,
    "partial": functools.partial(lambda mine, number, frame: sys.exit(mine), 5),
}


def interrupted():
    os.kill(os.getpid(), signal.SIGUSR1)
    return list(range(10))


def interrupted_below():
    return sorted([2, 1], key=lambda each: interrupted())


@pytest.mark.parametrize("work", [interrupted, interrupted_below])
@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_what_a_handler_of_a_signal_raised_passes(handler, work):
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises((SystemExit, TimeoutError)) as caught:
            work()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert passes(caught.value)


def same_shape(number, frame):
    sys.exit(3)


@pytest.mark.parametrize(
    "work",
    [
        lambda: sys.exit(3),
        lambda: same_shape(15, None),
        lambda: same_shape(15, sys._getframe().f_back),
        lambda: next(each for each in map(same_shape, [15], [(1,)])),
    ],
)
def test_the_end_that_code_asks_for_by_itself_is_its_fault(work):
    with pytest.raises(SystemExit) as caught:
        work()
    assert not passes(caught.value)


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [(KeyboardInterrupt(), True), (SystemExit(), False), (GeneratorExit(), False), (OSError(), False)],
)
def test_an_error_that_nothing_raised_is_known_by_its_class(error, goes_on):
    assert passes(error) is goes_on
