"""Run blocking work beside an event loop, in order and under a deadline, on asyncio and trio.

The thread is a daemon and not one of a pool: an abandoned pool worker holds the process at its exit until the disk
answers, a daemon does not. Work that misses its deadline goes on; only the waiting ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio
from anyio import from_thread, lowlevel

T = TypeVar("T")


class Worker:
    """Does one job after the other, in the order of `submit`, in a daemon thread that lives while there are jobs."""

    def __init__(self, name: str = "mala-context") -> None:
        self._name = name
        self._jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._running = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work` and return its future; it runs even if nobody waits. Never blocks."""
        future: Future[T] = Future()
        with self._lock:
            self._jobs.append((work, future))
            start, self._running = not self._running, True
        if start:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        return future

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return
                work, future = self._jobs.popleft()
            try:
                future.set_result(work())
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                future.set_exception(error)


async def wait_for(future: Future[T], *, seconds: float) -> T:
    """Return the result of a worker's future.

    Raises what the work raised, and `TimeoutError` when it has not finished after `seconds`; it then goes on by
    itself. A cancelled caller leaves it running too.
    """
    finished = anyio.Event()
    token, here = lowlevel.current_token(), threading.get_ident()

    def wake(_: Future[T]) -> None:
        if threading.get_ident() == here:  # it was done before we asked
            finished.set()
            return
        with contextlib.suppress(anyio.RunFinishedError):  # the loop is gone: nobody waits any more
            from_thread.run_sync(finished.set, token=token)

    future.add_done_callback(wake)
    with anyio.fail_after(seconds):
        await finished.wait()
    return future.result()
