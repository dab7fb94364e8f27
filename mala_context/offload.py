"""Run blocking work beside an event loop, under a deadline, on asyncio and trio.

The worker is a daemon thread and not one of a pool: an abandoned pool worker holds the process at its exit until the
disk answers, a daemon thread does not. Work that misses its deadline goes on; only the waiting ends.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import anyio
from anyio import from_thread, lowlevel

T = TypeVar("T")


class _Outcome(Generic[T]):
    """What the worker leaves behind: a value or an error."""

    __slots__ = ("error", "value")
    value: T
    error: BaseException | None


async def run_bounded(work: Callable[[], T], *, seconds: float, name: str = "mala-context") -> T:
    """Run `work` in a daemon thread and return its result.

    Raises whatever `work` raises, and `TimeoutError` when it has not finished after `seconds`; it then goes on by
    itself. A cancelled caller leaves it running too.
    """
    outcome: _Outcome[T] = _Outcome()
    outcome.error = None
    finished = anyio.Event()
    token = lowlevel.current_token()

    def worker() -> None:
        try:
            outcome.value = work()
        except BaseException as error:  # noqa: BLE001 - handed to the caller, which raises it
            outcome.error = error
        with contextlib.suppress(anyio.RunFinishedError):  # the loop is gone: nobody waits any more
            from_thread.run_sync(finished.set, token=token)

    threading.Thread(target=worker, name=name, daemon=True).start()
    with anyio.fail_after(seconds):
        await finished.wait()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value
