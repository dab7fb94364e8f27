"""Run blocking work beside an event loop, in order and under a deadline, on asyncio and trio.

The thread is a daemon and not one of a pool: an abandoned pool worker holds the process at its exit until the disk
answers, a daemon does not. Work that misses its deadline goes on; only the waiting ends.

Three things must not stop a worker for good. A thread may fail to start (RLIMIT_NPROC, no memory, Ctrl-C): the jobs
stay, and whoever submits or waits next tries again. A fork does not copy the thread: the child begins with no jobs and
no thread, since the parent does its own. And a loop may stop while a job is waited for: its end is told without waiting
for the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

START_SECONDS = 0.25
"""How often whoever waits tries to start a thread that could not be started."""


class Worker:
    """Does one job after the other, in the order of `submit`, in a daemon thread that lives while there are jobs."""

    def __init__(self, name: str = "mala-context") -> None:
        self._name = name
        self._after_fork()
        in_forks(self)

    def _after_fork(self) -> None:
        self._jobs: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._running = False

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Queue `work` and return its future; it runs even if no caller waits. Never blocks."""
        future: _Job[T] = _Job(self)
        with self._lock:
            self._jobs.append((work, future))
        self.start()
        return future

    def start(self) -> None:
        """Start the thread where there are jobs and it does not run; where it cannot be started, the jobs stay."""
        with self._lock:
            if self._running or not self._jobs:
                return
            self._running = True
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except BaseException as error:  # no more threads or memory just now, or Ctrl-C
            self._running = False  # also where the thread did start: `_turn` keeps two of them in order
            if not isinstance(error, Exception):
                raise

    def _run(self) -> None:
        try:
            while self._do_next():
                pass
        except BaseException:
            self._running = False
            raise

    def _do_next(self) -> bool:
        """Do the next job; false where there is none."""
        with self._turn:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return False
                work, future = self._jobs.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    result = work()
                except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                    future.set_exception(error)
                else:
                    future.set_result(result)
            return True


class _Job(Future[T]):
    """The future of a worker's job."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self.worker = worker


_in_forks: weakref.WeakSet[Any] = weakref.WeakSet()
"""What is made again in the child of a fork, where no thread but the forking one is left."""


def _after_fork() -> None:
    for each in list(_in_forks):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_forks(thing: Any) -> None:
    """Have a thing's `_after_fork` called in the child of each fork, for locks, queues and threads that it has."""
    _in_forks.add(thing)


async def wait_for(future: Future[T], *, seconds: float) -> T:
    """Return the result of a worker's future.

    Raises what the work raised, and `TimeoutError` when it has not finished after `seconds`; it then goes on by
    itself. A cancelled caller leaves it running too.
    """
    finished = anyio.Event()
    soon = _soon()

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(Exception):  # the loop is gone, and with it the caller
            soon(finished.set)

    future.add_done_callback(wake)
    worker = getattr(future, "worker", None)
    with anyio.fail_after(seconds):
        while not finished.is_set():
            with anyio.move_on_after(START_SECONDS):
                await finished.wait()
            if worker is not None:
                worker.start()
    return future.result()


def _soon() -> Callable[[Callable[[], object]], object]:
    """Return what has this event loop call a function soon, from any thread, and does not wait until it did."""
    if "trio" in sys.modules:
        import trio

        with contextlib.suppress(RuntimeError):  # trio is there, but does not run here
            return trio.lowlevel.current_trio_token().run_sync_soon
    return asyncio.get_running_loop().call_soon_threadsafe
