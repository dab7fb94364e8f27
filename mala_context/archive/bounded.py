"""Running archive work so that nobody waits longer than a bound, and nothing waits at exit.

`start` runs a function in a daemon thread. The caller waits as long as it likes; when it stops waiting the work goes
on, and when the process exits the thread goes with it, at any instruction, which the archive survives. A worker of
`concurrent.futures` would not do: the interpreter joins those at exit.

For asyncio and trio alike: `add_done_callback` calls from the worker's thread, so hand it something that is safe to
call from there (`loop.call_soon_threadsafe`, `trio.lowlevel.TrioToken.run_sync_soon`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Generic, TypeVar

    T = TypeVar("T")
else:
    T = None

    class Generic:
        """Stands in for the one of `typing`, which costs an import."""

        def __class_getitem__(cls, item: object) -> type:
            return cls


BOUND = 10.0
"""Seconds within which a hook answers."""


class Handle(Generic[T]):
    """Work that was started; it ends by itself, whether or not somebody waits for it."""

    def __init__(self) -> None:
        from threading import Event, Lock

        self._done = Event()
        self._lock = Lock()
        self._callbacks: list[Callable[[Handle[T]], object]] = []
        self._result: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Say whether the work has ended."""
        return self._done.is_set()

    def wait(self, timeout: float | None = BOUND) -> bool:
        """Wait at most `timeout` seconds; false where the work goes on without us."""
        return self._done.wait(timeout)

    def result(self) -> T:
        """Return what the function returned or raise what it raised; raises `RuntimeError` before it has ended."""
        if not self._done.is_set():
            raise RuntimeError("the work has not ended: wait for it first")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value] # without an error it is what the function returned

    def error(self) -> BaseException | None:
        """Return what the function raised, `None` where it returned or has not ended."""
        return self._error

    def add_done_callback(self, callback: Callable[[Handle[T]], object]) -> None:
        """Call `callback(handle)` when the work ends, in its thread; at once and here where it has ended already.

        What the callback raises is dropped: it is usually an event loop that was closed meanwhile.
        """
        with self._lock:
            if not self._done.is_set():
                self._callbacks.append(callback)
                return
        _call(callback, self)

    def _run(self, function: Callable[[], T]) -> None:
        try:
            self._result = function()
        except BaseException as error:  # noqa: BLE001  # it belongs to whoever waits, not to this thread
            self._error = error
        with self._lock:
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            _call(callback, self)


def _call(callback: Callable[[Handle[T]], object], handle: Handle[T]) -> None:
    try:
        callback(handle)
    except Exception as error:  # noqa: BLE001  # nobody is left to tell
        from mala_context.archive.log import debug

        debug("Nobody to tell that archive work has ended: %r", error)


def start(function: Callable[[], T]) -> Handle[T]:
    """Run a function in a daemon thread of its own and return at once; the handle says when it has ended."""
    from threading import Thread

    handle: Handle[T] = Handle()
    Thread(target=handle._run, args=(function,), name="mala-context-archive", daemon=True).start()  # ours
    return handle
