"""Work that nobody waits for longer than a bound."""

import subprocess
import sys
import threading
import time

import pytest

from mala_context.archive.bounded import start


def test_the_result_and_the_error_come_back():
    handle = start(lambda: 5)
    assert handle.wait(10)
    assert (handle.done(), handle.result(), handle.error()) == (True, 5, None)

    def broken():
        raise KeyError("x")

    handle = start(broken)
    assert handle.wait(10)
    with pytest.raises(KeyError):
        handle.result()
    assert isinstance(handle.error(), KeyError)


def test_waiting_ends_and_the_work_goes_on():
    gate = threading.Event()
    handle = start(gate.wait)
    assert not handle.wait(0.01)
    with pytest.raises(RuntimeError, match="has not ended"):
        handle.result()
    gate.set()
    assert handle.wait(10)


def test_callbacks_are_called_once_before_or_after_the_end():
    gate = threading.Event()
    called = []
    done = threading.Event()
    handle = start(gate.wait)

    def broken(_handle):
        raise RuntimeError("the loop is closed")

    handle.add_done_callback(broken)
    handle.add_done_callback(called.append)
    handle.add_done_callback(lambda _handle: done.set())
    gate.set()
    assert done.wait(10)
    handle.add_done_callback(called.append)
    assert called == [handle, handle]


def test_work_that_hangs_does_not_hold_the_process_at_exit():
    code = (
        "import time\n"
        "from mala_context.archive.bounded import start\n"
        "assert not start(lambda: time.sleep(60)).wait(0.05)\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=50)
    assert done.returncode == 0
    assert time.monotonic() - started < 30
