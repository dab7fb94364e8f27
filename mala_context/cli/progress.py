"""A bar on the terminal for work that takes longer than two seconds: how much is done, and how long the rest takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mala_context._util.text import plural, size_text
from mala_context._util.tuples import NamedTuple
from mala_context.cli.streams import can_redraw

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE = 2.0
"""Seconds of work before the bar appears."""
_PAUSE = 0.2


class Wait:
    """Counts the bytes that it is called with, and shows them once the work has taken `PATIENCE`.

    Args:
        doing: what the work is, in a word or two.
        counts: whether each call is one file; else only bytes are counted.
    """

    def __init__(self, doing: str, *, counts: bool = True) -> None:
        self._doing = doing
        self._counts = counts
        self._begun = self._shown = time.monotonic()
        self._done = self._calls = self._within = self._found = 0
        self._total: int | None = None
        self._files: int | None = None
        self._bar: Progress | None = None
        self._said = ""

    def expect(self, total: int, files: int | None = None) -> None:
        """Add to the bytes, and the files, that are expected in all; with a total there is a bar and an estimate."""
        self._said = ""
        self._total = (self._total or 0) + total
        self._files = None if files is None else (self._files or 0) + files

    def __call__(self, size: int) -> None:
        """Take the bytes done since the last call."""
        self._done += size
        self._calls += 1
        self._said = ""
        self.within(0)

    @property
    def found(self) -> SearchProgress:
        """The progress of the listing that comes before the work."""
        return SearchProgress(self.passed)

    def passed(self, count: int) -> None:
        """Count files or sessions that were found since the last call, before the work on them begins."""
        self._found += count
        self.say(f"{self._found:,} found")

    def within(self, size: int) -> None:
        """Take the bytes done so far of the file that is being worked on, until the call that counts it as done."""
        self._within = size
        self._show()

    def say(self, words: str) -> None:
        """Show these words until bytes are counted, for work that has none."""
        self._said = words
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._begun < PATIENCE or now - self._shown < _PAUSE or not can_redraw(sys.stderr):
            return
        self._shown = now
        if self._bar is None:
            self._bar = _new_bar(self._doing)
        done = self._done + self._within
        # Packed pieces give more bytes than they take on disk, so that the total may be too low: then there is none.
        total = None if self._total is None or self._total < done else self._total
        words = self._said or self._words(done, total)
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, words=words, refresh=True)

    def _words(self, done: int, total: int | None) -> str:
        """`25.0 MB of 100.0 MB, 1 of 4 files`."""
        words = size_text(done) if total is None else f"{size_text(done)} of {size_text(total)}"
        if not self._counts:
            return words
        calls = plural(self._calls, "file") if self._files is None else f"{self._calls:,} of {self._files:,} files"
        return f"{words}, {calls}"

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()


def _new_bar(doing: str) -> Progress:
    """Return a bar that is on the terminal; rich is loaded here, after two seconds of work.

    Each report of progress draws it. No thread does, because the work may fork.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mala_context.cli.tables import console

    bar = Progress(
        TextColumn("{task.description}:"),
        BarColumn(20),
        TextColumn("{task.fields[words]}"),
        TimeRemainingColumn(compact=True),
        console=console(sys.stderr),
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task(doing, total=None, words="")
    bar.start()
    return bar


class SearchProgress(NamedTuple):
    """The progress of a listing: call it for each session, and `passed` for names that were only read."""

    passed: Callable[[int], object]
    """Called with the number of names that were read since the last call."""

    def __call__(self, size: int) -> None:
        """Count a session; its size is not needed."""
        self.passed(1)


@contextmanager
def waiting(doing: str, *, counts: bool = True) -> Iterator[Wait]:
    """Yield a progress: call it with the bytes done since the last call, and it shows them on standard error.

    Nothing is shown if standard error is no terminal. The bar disappears when the block ends.
    """
    wait = Wait(doing, counts=counts)
    try:
        yield wait
    finally:
        wait.close()
