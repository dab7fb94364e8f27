"""Run blocking work beside an event loop, in order and under a deadline, on asyncio and trio.

The thread is a daemon and not one of a pool: an abandoned pool worker delays the end of the process until the disk
answers, a daemon does not. Work that misses its deadline continues; only the waiting ends.

Three things must not stop a worker for good. A thread may fail to start (RLIMIT_NPROC, no memory, Ctrl-C): the jobs
stay, and the next caller that submits or waits tries again. A fork does not copy the thread: the child begins without
jobs and without a thread, because the parent does its own jobs. And an event loop may stop while a job is waited for:
the thread notifies the loop without waiting for it.
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
"""Seconds after which a waiting caller tries again to start a thread that could not be started."""


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
        """Start the thread if there are jobs and it does not run; if it cannot be started, the jobs stay."""
        with self._lock:
            if self._running or not self._jobs:
                return
            self._running = True
        try:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()
        except BaseException as error:  # no more threads or memory just now, or Ctrl-C
            # After a Ctrl-C in `start` the thread may run all the same, and the next `start` makes a second one: then
            # `_turn` keeps their jobs in order. Left true here, no job would ever be done again.
            self._running = False
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
        """Do the next job; false if there is none."""
        with self._turn:
            # "No jobs" and "not running" change together under the lock: a job that `submit` adds in between would
            # otherwise see a running thread that is about to end.
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
"""Objects whose locks, queues and threads are made again in the child of a fork: only the forking thread lives on."""


def _after_fork() -> None:
    for each in list(_in_forks):
        each._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_forks(thing: Any) -> None:
    """Have the `_after_fork` of an object called in the child of each fork, to make its locks and threads again."""
    _in_forks.add(thing)


async def wait_for(future: Future[T], *, seconds: float) -> T:
    """Return the result of a worker's future.

    Raises what the work raised, and `TimeoutError` when it has not finished after `seconds`; it then goes on by
    itself. A cancelled caller leaves it running too.
    """
    finished = anyio.Event()
    soon = _soon()

    def wake(_: Future[T]) -> None:
        with contextlib.suppress(Exception):  # the loop was closed, so no caller waits any more
            soon(finished.set)

    future.add_done_callback(wake)
    worker = getattr(future, "worker", None)
    with anyio.fail_after(seconds):
        while not finished.is_set():
            # Wake up now and then: if the thread could not be started, no other call may ever try again.
            with anyio.move_on_after(START_SECONDS):
                await finished.wait()
            if worker is not None:
                worker.start()
    return future.result()


def _soon() -> Callable[[Callable[[], object]], object]:
    """Return a function that any thread may use to call something in this event loop, without waiting for it."""
    if "trio" in sys.modules:
        import trio

        with contextlib.suppress(RuntimeError):  # trio is loaded, but this is no trio task
            return trio.lowlevel.current_trio_token().run_sync_soon
    return asyncio.get_running_loop().call_soon_threadsafe
