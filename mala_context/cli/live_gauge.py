"""The gauge while an agent runs, on standard error.

On a terminal it is a bar. `progress` moves one bar with each response and prints the library's other log lines above
it. `gauge_lines` draws a new bar each time, for `run`, where the agent's words scroll by. Elsewhere the gauge is the
library's own log lines, as an application that configures logging would see them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mala_context._util.text import window_words
from mala_context.cli.streams import can_redraw

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from mala_context.tracking.tracker import ContextSnapshot

LOGGER = "mala_context"
GAUGE = "Context: "
"""What the gauge's own log lines begin with."""
HIGH, FULL = 0.70, 0.90
"""Shares of the window from which a bar is yellow, and red; the table of `watch` has the same colours."""
BAR = 30
"""Columns of a bar in a line of its own."""


class LiveGauge:
    """Is told of snapshots and turns while an agent runs. This one shows nothing: log lines do it."""

    def snapshot(self, snapshot: ContextSnapshot) -> None:
        """Show how full the context is now."""

    def turn(self, number: int) -> None:
        """Show which turn it is, from 1."""


@contextmanager
def gauge_lines() -> Iterator[Callable[[ContextSnapshot], None]]:
    """Yield what draws the gauge in a line of its own if it has moved; it does nothing if log lines show the gauge."""
    if not can_redraw(sys.stderr):
        with logging_to(logging.StreamHandler(sys.stderr)):
            yield LiveGauge().snapshot
        return
    from mala_context.cli.tables import can_encode, console

    err = console(sys.stderr)
    full, empty = "━╌" if can_encode(err, "━╌") else "#."
    drawn: list[int] = []

    def draw(snapshot: ContextSnapshot) -> None:
        if snapshot.tokens is None or drawn[-1:] == [snapshot.tokens]:
            return
        drawn[:] = [snapshot.tokens]
        filled = min(BAR, round(BAR * snapshot.tokens / snapshot.window))
        err.print(
            f"{full * filled}{empty * (BAR - filled)} {_words(snapshot)}",
            style=colour_of(snapshot.tokens / snapshot.window),
            soft_wrap=True,
        )

    with logging_to(_Above(err)):
        yield draw


def _words(snapshot: ContextSnapshot) -> str:
    """`about 26.4% (52,800 of 200,000)`, and where the CLI compacts, if it does so by itself."""
    if snapshot.tokens is None:
        return "unknown"
    limit = snapshot.auto_compact_threshold
    compacts = "" if limit is None else f", compacts at {limit:,}"
    about = "" if snapshot.exact else "about "
    window = window_words(snapshot.window, snapshot.window_source)
    return f"{about}{snapshot.tokens / snapshot.window:.1%} ({snapshot.tokens:,} of {window}{compacts})"


def colour_of(share: float) -> str:
    """Return the colour of a bar that is filled to this share."""
    return "red" if share >= FULL else "yellow" if share >= HIGH else "green"


@contextmanager
def logging_to(handler: logging.Handler) -> Iterator[None]:
    """Send the library's log lines, from INFO on, to a handler while the block runs."""
    logger = logging.getLogger(LOGGER)
    before, propagates = logger.level, logger.propagate
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        logger.propagate = propagates


class _Bar(LiveGauge):
    def __init__(self, bar: Progress, turns: int) -> None:
        self._bar = bar
        self._turns = turns
        self._task = bar.add_task("", total=1, words="starting the CLI", colour="green")

    def turn(self, number: int) -> None:
        """Name the turn at the bar's left."""
        self._bar.update(self._task, description=f"turn {number} of {self._turns}")

    def snapshot(self, snapshot: ContextSnapshot) -> None:
        """Move the bar."""
        if snapshot.tokens is None:
            return
        self._bar.update(
            self._task,
            total=snapshot.window,
            completed=min(snapshot.tokens, snapshot.window),
            words=_words(snapshot),
            colour=colour_of(snapshot.tokens / snapshot.window),
            refresh=True,
        )


class _Above(logging.Handler):
    """Prints log lines above a bar, except those that the bar itself shows."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print a line."""
        if record.levelno > logging.INFO or not record.getMessage().startswith(GAUGE):
            style = "dim" if record.levelno <= logging.INFO else "yellow"
            self._console.print(self.format(record), style=style, soft_wrap=True)


@contextmanager
def progress(turns: int) -> Iterator[LiveGauge]:
    """Yield the progress of a run of `turns` turns."""
    if not can_redraw(sys.stderr):
        with logging_to(logging.StreamHandler(sys.stderr)):
            yield LiveGauge()
        return
    from rich.progress import BarColumn, Progress, Task, TextColumn
    from rich.progress_bar import ProgressBar

    from mala_context.cli.tables import console

    class GaugeColumn(BarColumn):
        """A bar in the colour of its task, over all the room there is."""

        def render(self, task: Task) -> ProgressBar:
            bar = super().render(task)
            bar.complete_style = bar.finished_style = task.fields["colour"]
            return bar

    columns = (TextColumn("{task.description}"), GaugeColumn(bar_width=None), TextColumn("{task.fields[words]}"))
    with Progress(*columns, console=console(sys.stderr), expand=True) as bar, logging_to(_Above(bar.console)):
        yield _Bar(bar, turns)
