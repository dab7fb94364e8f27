"""The table of `mala-context watch`: rows in, lines of text out, as wide as the terminal.

Names of directories, branches and models come from transcripts, which hold whatever an agent read; each is made
printable before it is drawn.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from mala_context._util.formatting import percent, plural
from mala_context._util.printable import printable
from mala_context.analysis.watch.view import ACTIVE, WatchRow
from mala_context.cli.live_gauge import FULL, HIGH
from mala_context.tracking.windows import plain_name

LEAST: Final = 80
"""Columns that the table needs; a narrower terminal cuts it."""


class Marks(NamedTuple):
    """Characters that an encoding may lack."""

    full: str = "━"
    empty: str = "╌"
    acts: str = "┃"
    reports: str = "┊"
    unknown: str = "\u2013"
    about: str = "≈"
    at_least: str = "≥"
    branch: str = "└ "
    cut: str = "…"


PLAIN: Final = Marks("#", ".", "|", ":", "-", "~", ">=", "` ", "~")
"""For encodings without them."""


class Look(NamedTuple):
    """What a table is drawn with."""

    width: int
    """Columns of the terminal."""
    now: float
    """Seconds since 1970."""
    marks: Marks = Marks()
    height: int | None = None
    """Lines of the terminal; `None` for no bound."""
    older: int = 0
    """Sessions that were active lately and are not among the rows."""


class _Line(NamedTuple):
    """A row with its place in the table."""

    row: WatchRow
    name: str
    is_below: bool


class _Column(NamedTuple):
    heading: str
    width: int
    cell: Callable[[_Line, Look], str]
    on_the_left: bool = False
    from_width: int = 0


def lines(rows: Sequence[WatchRow], look: Look) -> list[Text]:
    """Return the whole table: headings, a line for each agent, what the marks mean."""
    columns = [each for each in COLUMNS if look.width >= each.from_width]
    name, bar = _widths(columns, look.width)
    body = list(_body(rows, look, name))
    foot = _legend([line.row for line in body], look)
    if look.older:
        older = f"{look.marks.cut} and {look.older:,} that were active before these: --most shows more"
        foot.insert(0, Text(older, style="dim"))
    left_out = 0
    if look.height is not None and len(body) + 1 + len(foot) > look.height:
        keep = max(1, look.height - 2 - len(foot))
        left_out, body = len(body) - keep, body[:keep]
    drawn = [Text(_headings(columns, name, bar), style="bold")]
    drawn += [_draw(line, columns, look, name, bar) for line in body]
    if left_out:
        drawn.append(Text(f"{look.marks.cut} {left_out} more: a taller window shows them", style="dim"))
    drawn += foot
    for text in drawn:
        text.truncate(look.width)
        text.no_wrap = True
    return drawn


def _widths(columns: Sequence[_Column], width: int) -> tuple[int, int]:
    """Return the columns of the name and of the bar: what the others leave, shared."""
    left = max(width, LEAST) - sum(each.width + 1 for each in columns) - 1
    bar = min(40, max(11, left * 2 // 5))
    return min(48, left - bar), bar


def _body(rows: Sequence[WatchRow], look: Look, width: int) -> Iterator[_Line]:
    names = [_name(row) for row in rows]
    alike = Counter(names)
    for row, name in zip(rows, names, strict=True):
        shown = name
        if alike[name] > 1 and row.session_id is not None and look.width < _ID_FROM:
            shown = f"{_cut(name, width - 5, look)} {printable(row.session_id[:4])}"
        yield _Line(row, shown, is_below=False)
        for agent in row.subagents:
            if look.now - agent.last <= ACTIVE:
                yield _Line(agent, look.marks.branch + printable(agent.agent_id or ""), is_below=True)


def _name(row: WatchRow) -> str:
    """Return what people call a session: the directory that it works in."""
    if row.agent_id is not None:
        return f"agent {printable(row.agent_id)}"
    return printable(os.path.basename((row.cwd or "").rstrip("/")) or row.cwd or row.session_id or row.path)


def _headings(columns: Sequence[_Column], name: int, bar: int) -> str:
    cells = ["SESSION".ljust(name), "CONTEXT".ljust(bar)]
    cells += [
        each.heading.ljust(each.width) if each.on_the_left else each.heading.rjust(each.width) for each in columns
    ]
    return " ".join(cells)


def _draw(line: _Line, columns: Sequence[_Column], look: Look, name: int, bar: int) -> Text:
    row = line.row
    idle = look.now - row.last > ACTIVE
    colour = _colour(row)
    text = Text(_cut(line.name, name, look), style="dim" if idle or line.is_below else "")
    text.append(" ")
    text.append_text(_bar(row, bar, look, colour))
    for column in columns:
        cell = column.cell(line, look)
        cell = _cut(cell, column.width, look) if column.on_the_left else cell.rjust(column.width)
        text.append(" ")
        text.append(cell, style=colour if column.heading == "%" else "")
    return text


def _bar(row: WatchRow, width: int, look: Look, colour: str) -> Text:
    marks = look.marks
    filled = min(width, round(width * (row.ratio or 0.0)))
    if row.ratio and not filled:
        filled = 1
    text = Text()
    mark = None
    if row.threshold is not None:
        mark = min(width - 1, int(width * row.threshold.tokens / row.window))
    for place in range(width):
        if place == mark and row.threshold is not None:
            acts = row.threshold.acted_on
            text.append(marks.acts if acts else marks.reports, style="bold" if acts else "dim")
        else:
            text.append(marks.full if place < filled else marks.empty, style=colour if place < filled else "dim")
    return text


def _colour(row: WatchRow) -> str:
    if row.tokens is None:
        return "dim"
    share = row.tokens / row.limit
    return "red" if share >= FULL else "yellow" if share >= HIGH else "green"


def _cut(text: str, width: int, look: Look) -> str:
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + look.marks.cut


# -- cells ---------------------------------------------------------------------------------------------------------


def _model(line: _Line, look: Look) -> str:
    model = line.row.model
    return look.marks.unknown if model is None else printable(plain_name(model)).removeprefix("claude-")


def _ratio(line: _Line, look: Look) -> str:
    return look.marks.unknown if line.row.ratio is None else percent(line.row.ratio)


def _tokens(line: _Line, look: Look) -> str:
    row = line.row
    if row.tokens is None:
        return look.marks.unknown
    return f"{'' if row.accuracy == 'exact' else look.marks.about}{row.tokens:,}"


def _window(line: _Line, look: Look) -> str:
    del look
    row = line.row
    size = f"{row.window / 1e6:g}M" if row.window >= 1_000_000 else f"{row.window / 1000:g}k"
    return size + ("?" if row.window_source == "guess" else "")


def _change(line: _Line, look: Look) -> str:
    change = line.row.change
    return look.marks.unknown if change is None else f"{change:+,}" if abs(change) < 100_000 else f"{change:+.1e}"


def _left(line: _Line, look: Look) -> str:
    left = line.row.turns_left
    return look.marks.unknown if left is None else str(left) if left < 1_000 else "999+"


def _compactions(line: _Line, look: Look) -> str:
    return (look.marks.at_least if line.row.compactions_at_least else "") + str(line.row.compactions)


def _archived(line: _Line, look: Look) -> str:
    archived = line.row.archived
    return look.marks.unknown if archived is None else age(look.now - archived.time)


def _seen(line: _Line, look: Look) -> str:
    return age(look.now - line.row.last)


def _id(line: _Line, look: Look) -> str:
    return look.marks.unknown if line.row.session_id is None else printable(line.row.session_id[:8])


def _branch(line: _Line, look: Look) -> str:
    return look.marks.unknown if line.row.branch is None else printable(line.row.branch)


def age(seconds: float) -> str:
    """Return a time that is over in at most four characters: `now`, `5m`, `3h`, `12d`."""
    if seconds < 60:
        return "now"
    minutes = int(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


_ID_FROM: Final = 100

COLUMNS: Final = (
    _Column("%", 6, _ratio),
    _Column("TOKENS", 8, _tokens),
    _Column("OF", 5, _window),
    _Column("+/TURN", 7, _change),
    _Column("LEFT", 4, _left),
    _Column("COMP", 4, _compactions),
    _Column("ARCH", 4, _archived),
    _Column("MODEL", 10, _model, on_the_left=True),
    _Column("SEEN", 4, _seen, from_width=96),
    _Column("ID", 8, _id, on_the_left=True, from_width=_ID_FROM),
    _Column("BRANCH", 16, _branch, on_the_left=True, from_width=140),
)
"""Columns behind the name and the bar."""


def _legend(rows: Sequence[WatchRow], look: Look) -> list[Text]:
    """Return what the marks mean that are in the table, and how many sessions it has."""
    marks = look.marks
    thresholds = [row.threshold for row in rows if row.threshold is not None]
    parts = []
    if any(each.acted_on for each in thresholds):
        parts.append(f"{marks.acts} compacts here")
    if any(not each.acted_on for each in thresholds):
        parts.append(f"{marks.reports} threshold, not known to be acted on")
    if any(row.tokens is not None and row.accuracy != "exact" for row in rows):
        parts.append(f"{marks.about} estimate")
    if any(row.compactions_at_least for row in rows):
        parts.append(f"{marks.at_least} counting")
    if any(row.window_source == "guess" for row in rows):
        parts.append("? a guess")
    words = [plural(len({row.session_id for row in rows}), "session"), *parts]
    text, line = [], ""
    for word in words:
        if line and cell_len(line) + 2 + cell_len(word) > max(look.width, LEAST):
            text.append(Text(line, style="dim"))
            line = word
        else:
            line = f"{line}, {word}" if line else word
    return [*text, Text(line, style="dim")]


def sentence(row: WatchRow) -> str:
    """Return a row as one line of words, for a log or a pipe; nothing in it moves a terminal."""
    about = "" if row.accuracy == "exact" else "about "
    size = "unknown" if row.ratio is None else f"{about}{percent(row.ratio)} ({row.tokens:,} of {row.window:,} tokens)"
    parts = [printable(row.model) if row.model else "model unknown"]
    if row.change is not None:
        parts.append(f"{row.change:+,} this turn")
    if row.turns_left is not None:
        parts.append(f"{plural(row.turns_left, 'turn')} left")
    if row.compactions:
        parts.append(("at least " if row.compactions_at_least else "") + plural(row.compactions, "compaction"))
    name = _name(row) if row.agent_id is None else f"{_name(row)} of {printable(row.session_id or '')[:8]}"
    identity = "" if row.agent_id is not None or row.session_id is None else f" {printable(row.session_id[:8])}"
    return f"{name}{identity}: {size}, {', '.join(parts)}"
