"""A bar on the terminal for work that takes longer than two seconds: how much of it is done, how long it will be."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from mala_context.cli.streams import can_encode, can_redraw

PATIENCE = 2.0
"""Seconds before the first word."""
_PAUSE = 0.2
_MB = 1 << 20
_BAR = 20
_MARKS = "━╌"


class Wait:
    """Counts the bytes that it is called with, and shows them once the work has taken `PATIENCE`.

    Args:
        doing: what is done, in a word or two.
        counts: whether each call is one file; else only bytes are counted.
    """

    def __init__(self, doing: str, *, counts: bool = True) -> None:
        self._doing = doing
        self._counts = counts
        self._begun = self._shown = time.monotonic()
        self._done = self._calls = self._within = self._found = 0
        self._total: int | None = None
        self._files: int | None = None
        self._visible = False
        self._said = ""

    def expect(self, total: int, files: int | None = None) -> None:
        """Say how many bytes there will be in all, and of how many files; then there is a bar and an estimate."""
        self._said = ""
        self._total = (self._total or 0) + total
        self._files = None if files is None else (self._files or 0) + files

    def __call__(self, size: int) -> None:
        """Take the bytes done since the last call."""
        self._done += size
        self._calls += 1
        self._within = 0
        self._said = ""
        self._show()

    @property
    def found(self) -> Found:
        """What is to be called with the bytes of each session that is there, before the work on it begins."""
        return Found(self.passed)

    def passed(self, count: int) -> None:
        """Take note of how many files or sessions were found since the last call, before the work on them begins."""
        self._found += count
        self.say(f"{self._found:,} found")

    def within(self, size: int) -> None:
        """Take the bytes done so far of what is worked on, until the call that counts it as done."""
        self._within = size
        self._show()

    def say(self, words: str) -> None:
        """Show these words instead until bytes are counted, for work that is not."""
        self._said = f"{self._doing}: {words}"
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._begun >= PATIENCE and now - self._shown >= _PAUSE and can_redraw(sys.stderr):
            self._shown, self._visible = now, True
            import shutil

            line = self._said or self.words(now - self._begun)
            sys.stderr.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
            sys.stderr.flush()

    def words(self, seconds: float) -> str:
        """Return the line to show after so many seconds."""
        done = self._done + self._within
        rate = done / seconds if seconds > 0 else 0.0
        total = self._total if self._total is not None and self._total >= done else None
        parts = [f"{done / _MB:,.0f} MB" if total is None else f"{done / _MB:,.0f} of {total / _MB:,.0f} MB"]
        if self._counts:
            of_all = "" if self._files is None or self._files < self._calls else f" of {self._files:,}"
            parts.append(f"{self._calls:,}{of_all} files")
        if total is None or not rate:
            parts.append(f"{rate / _MB:,.0f} MB/s")
        else:
            parts.append(f"{_clock((total - done) / rate)} left")
        return " ".join((f"{self._doing}:", *self._bar(done, total), ", ".join(parts)))

    def _bar(self, done: int, total: int | None) -> Iterator[str]:
        if total:
            full = round(_BAR * done / total)
            marks = _MARKS if can_encode(sys.stderr.encoding, _MARKS) else "#."
            yield marks[0] * full + marks[1] * (_BAR - full)

    def close(self) -> None:
        """Take the line away."""
        if self._visible:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Found(NamedTuple):
    """A progress of looking what there is to do, which counts sessions; of their names, too, where there are many."""

    passed: Callable[[int], object]
    """Told how many names were read since the last call."""

    def __call__(self, size: int) -> None:
        """Take note of a session of so many bytes."""
        del size
        self.passed(1)


@contextmanager
def waiting(doing: str, *, counts: bool = True) -> Iterator[Wait]:
    """Yield what is called with the bytes done since it was called last, and shows them on standard error.

    Nothing is shown where standard error is no terminal; the line is gone when the block ends.
    """
    wait = Wait(doing, counts=counts)
    try:
        yield wait
    finally:
        wait.close()


def _clock(seconds: float) -> str:
    """`7 s`, `2 min`, `1 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes = round(whole / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
