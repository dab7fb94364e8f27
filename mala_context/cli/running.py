"""Running an agent from the command line: loading the SDK, errors in one line, and Ctrl-C.

A terminal's Ctrl-C reaches the CLI too, but a signal may also be meant for us alone. Then the session is left in good
order: the CLI gets the end of its input, its transcript is archived, and what is temporary is removed on the way out.
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

from mala_context.cli.ending import INTERRUPTED
from mala_context.errors import MalaContextError

T = TypeVar("T")


class AgentUnusableError(MalaContextError):
    """The CLI could not be started, has no login, or ended before it answered."""


def load_sdk() -> None:
    """Import the SDK, which takes up to two seconds; Ctrl-C ends the process at once meanwhile.

    Do it before anything temporary is made. A `KeyboardInterrupt` inside of the import may come out as another error.
    """
    with _exit_on_interrupt():
        import claude_agent_sdk  # noqa: F401  # for its import alone


def run_agent(main: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run an async function to its end and return what it returns.

    Raises `AgentUnusableError` in place of the SDK's errors, with one line, and `KeyboardInterrupt` once everything
    that was begun has been ended: after Ctrl-C, and also when the process is told to end or its terminal is closed.
    """
    import anyio
    from claude_agent_sdk import ClaudeSDKError, CLINotFoundError

    async def to_the_end() -> T:
        try:
            return await main(*args)
        except BaseException:
            gc.collect()  # closes the pipes of a CLI that was still talking, while there is a loop to do it
            raise

    try:
        with ended_like_ctrl_c():
            return anyio.run(to_the_end)
    except CLINotFoundError as error:
        raise AgentUnusableError(f"the Claude Code CLI was not found: {first_line(str(error))}") from error
    except ClaudeSDKError as error:
        raise AgentUnusableError(f"the Claude Code CLI failed: {first_line(str(error))}") from error


def first_line(text: str | None) -> str:
    """Return the first line that says something."""
    lines = [line.strip() for line in (text or "").splitlines() if line.strip()]
    return lines[0] if lines else "it gave no reason"


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
