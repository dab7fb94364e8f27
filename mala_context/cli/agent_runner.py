"""Running an agent from the command line: loading the SDK, errors in one line, and Ctrl-C.

A terminal sends Ctrl-C to the CLI too, but a signal may also reach this process alone. Then the session ends in order:
the CLI gets the end of its input, its transcript is archived, and temporary files are removed.

For this, Ctrl-C cancels a scope. asyncio by itself cancels the task, and no shield stops that: a session that was just
being left would not wait for its CLI. The CLI would end after the loop, and asyncio would complain below our last
line.
"""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click

from mala_context.cli.exit_status import INTERRUPTED
from mala_context.errors import MalaContextError

T = TypeVar("T")


class AgentUnusableError(MalaContextError):
    """The CLI could not be started, has no login, or ended before it answered."""


def load_sdk() -> None:
    """Import the SDK, which takes up to two seconds; Ctrl-C during that ends the process at once.

    Do it before anything temporary is made. A `KeyboardInterrupt` inside of the import may come out as another error.
    """
    with _exit_on_interrupt():
        import claude_agent_sdk  # noqa: F401  # for its import alone


def run_agent(main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run an async function to its end and return what it returns.

    Raises `AgentUnusableError` in place of the SDK's errors, with one line, and `KeyboardInterrupt` once everything
    that was begun has been ended: after Ctrl-C, and also when the process is told to end or its terminal is closed. A
    second Ctrl-C waits for nothing.
    """
    import anyio
    from claude_agent_sdk import ClaudeSDKError, CLINotFoundError

    results: list[T] = []
    ctrl_c = _CtrlC()

    async def to_the_end() -> None:
        try:
            with ctrl_c.cancels():
                results.append(await main(*args))
        finally:
            if not results:
                gc.collect()  # closes the pipes of a CLI that was still talking, while there is a loop to do it

    try:
        with ended_like_ctrl_c(), ctrl_c.handled():
            anyio.run(to_the_end)
    except CLINotFoundError as error:
        raise AgentUnusableError(f"the Claude Code CLI was not found: {first_line(str(error))}") from error
    except ClaudeSDKError as error:
        raise AgentUnusableError(f"the Claude Code CLI failed: {first_line(str(error))}") from error
    return results[0]


def first_line(text: str | None) -> str:
    """Return the first line that is not empty."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0] if lines else "it gave no reason"


def terminal_reason(result: Any) -> str | None:
    """Return why the CLI ended the turn, as `completed` or `prompt_too_long`; `None` where an older SDK drops it."""
    reason = getattr(result, "terminal_reason", None)
    return None if reason is None else str(reason)


def why_failed(result: Any) -> str:
    """Return in the CLI's words why a turn that `is_error` failed."""
    errors = getattr(result, "errors", None) or ()
    return str(result.result or "; ".join(map(str, errors)) or terminal_reason(result) or result.subtype)


class _CtrlC:
    """What Ctrl-C does while an agent runs; a handler of signals."""

    def __init__(self) -> None:
        self._presses = 0
        self._cancel: Callable[[], object] = _nothing

    def __call__(self, _number: int, _frame: object) -> None:
        self._presses += 1
        if self._presses > 1:
            raise KeyboardInterrupt
        self._cancel()

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle SIGINT while the block runs, and raise `KeyboardInterrupt` at its end, however the block ended."""
        try:
            with _handling([signal.SIGINT], self):
                yield
        finally:
            if self._presses:
                raise KeyboardInterrupt

    @contextmanager
    def cancels(self) -> Iterator[None]:
        """Cancel the block at the first Ctrl-C, also at one that came before it; the running loop must be asyncio's."""
        import asyncio

        import anyio

        loop = asyncio.get_running_loop()
        with anyio.CancelScope() as scope:
            self._cancel = lambda: loop.call_soon_threadsafe(scope.cancel)
            try:
                if self._presses:
                    scope.cancel()
                yield
            finally:
                self._cancel = _nothing


def _nothing() -> None:
    pass


@contextmanager
def _exit_on_interrupt() -> Iterator[None]:
    def leave(_number: int, _frame: object) -> None:
        click.echo("mala-context: interrupted", err=True)
        os._exit(INTERRUPTED)

    with _handling([signal.SIGINT], leave):
        yield


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Take SIGTERM and SIGHUP for Ctrl-C while the block runs, so that it ends in good order."""

    def interrupt(_number: int, _frame: object) -> None:
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a job in the background of a script
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGINT)

    there = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP
    with _handling(there, interrupt):
        yield


@contextmanager
def _handling(numbers: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handle signals while the block runs; only a program's main thread can."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, handled in before.items():
            signal.signal(number, handled)
