"""How results look: tables, lines and checks on standard output.

A terminal gets colours unless `NO_COLOR` is set; a pipe gets the same text without them. Tables fit into 80 columns.
Paths are never wrapped, so that they can be copied. Text that others wrote is made printable here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from textwrap import wrap
from typing import IO, Any

import rich.table
from rich.console import Console
from rich.text import Text

from mala_context._util.text import printable
from mala_context.cli.scenarios.report import Check, Lines, Table

PIPE_WIDTH = 80
"""Columns of a table that goes into a file or a pipe; every table fits into them."""


class _Console(Console):
    """A console that leaves a closed pipe to the command line, where rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        raise BrokenPipeError


def console(stream: IO[str] | None = None) -> Console:
    """Return a console on a stream, standard output by default."""
    stream = sys.stdout if stream is None else stream
    width = None if stream.isatty() else PIPE_WIDTH
    made = _Console(file=stream, width=width, highlight=False, emoji=False, markup=False)
    if made.width < 1:  # a terminal that does not know its size
        made.width = PIPE_WIDTH
    return made


def show(out: Console, part: Table | Lines) -> None:
    """Print a part of a report, with an empty line before it."""
    out.print()
    out.print(Text(printable(part.heading), style="bold"))
    if isinstance(part, Lines):
        for line in part.lines:
            out.print(printable(line), soft_wrap=True)
    else:
        _show_table(out, part)


def show_checks(out: Console, checks: Sequence[Check]) -> None:
    """Print a line for each check, ✓ or ✗ before its words."""
    out.print()
    marks = ("✓", "✗") if can_encode(out, "✓✗") else ("ok", "FAILED")
    for check in checks:
        mark = Text(marks[not check.ok], style="green" if check.ok else "bold red")
        if not out.is_terminal:  # a line a check, for grep
            out.print(Text.assemble(mark, " ", check.words), soft_wrap=True)
            continue
        grid = rich.table.Table.grid(padding=(0, 1, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column()
        grid.add_row(mark, Text(check.words))
        out.print(grid)


def can_encode(out: Console, text: str) -> bool:
    """Tell whether the console's stream has these characters."""
    try:
        text.encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _show_table(out: Console, part: Table) -> None:
    """Print a table; a row of one cell is a rule with words between the rows around it.

    Columns are as wide as their cells, even on a narrow terminal: a figure that is cut reads as another figure. At 40
    columns rich showed 140,864 as `140,8…`.
    """
    cells = [[_cell(value) for value in row] for row in part.rows]
    columns = [printable(heading) for heading in part.columns]
    widths = [
        max(1, *map(len, heading.removeprefix("<").split()), *(len(row[place]) for row in cells if len(row) > 1))
        for place, heading in enumerate(columns)
    ]
    left = [heading.startswith("<") for heading in columns]
    for line in _heading_lines(columns, widths):
        out.print(Text(_line(line, widths, left), style="dim"), soft_wrap=True)
    rule = "──" if can_encode(out, "──") else "--"
    for row in cells:
        text = Text(_line(row, widths, left)) if len(row) > 1 else Text(f"{rule} {row[0]}", style="yellow")
        out.print(text, soft_wrap=True)


def _heading_lines(columns: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Break headings that are wider than their cells into lines; all headings end on the last line."""
    broken = [wrap(heading.removeprefix("<"), width) for heading, width in zip(columns, widths, strict=True)]
    height = max(map(len, broken), default=1)
    padded = [[""] * (height - len(words)) + words for words in broken]
    return [list(line) for line in zip(*padded, strict=True)]


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    roomy = sum(widths) + 2 * (len(widths) - 1) <= PIPE_WIDTH
    placed = (
        cell.ljust(width) if on_the_left else cell.rjust(width)
        for cell, width, on_the_left in zip(cells, widths, left, strict=True)
    )
    return (" " * (2 if roomy else 1)).join(placed).rstrip()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else printable(value)
