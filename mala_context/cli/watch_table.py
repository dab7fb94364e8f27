"""The table of `mala-context watch`: rows in, lines of text out, as wide as the terminal.

A terminal that is too narrow for all columns loses whole columns, the least important first; a figure is never cut.
Names of directories, branches and models, and prompts, come from transcripts, which hold whatever an agent read; each
is made printable before it is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from mala_context._util.text import percent, plural, printable, window_words
from mala_context.analysis.watch.view import ACTIVE, WatchRow
from mala_context.cli.live_gauge import colour_of
from mala_context.tracking.windows import plain_name

LEGEND_WIDTH: Final = 40
"""Least width of the lines below the table, however narrow the terminal is."""
_BAR_FIRST: Final = 20
"""Columns that the bar grows to before names and prompts get more room."""


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
    older: int = 0
    """Sessions that were active lately and are not among the rows."""


class AgentLine(NamedTuple):
    """An agent's line in the table."""

    row: WatchRow
    session: WatchRow
    """The session's row; the same for a main agent."""

    @property
    def is_below(self) -> bool:
        """Whether it is a subagent's, below its session."""
        return self.row is not self.session


class Column(NamedTuple):
    """One column of the table."""

    heading: str
    rank: int
    """Order in which columns are chosen for the width of a terminal; 0 is the first."""
    cell: Callable[[AgentLine, Look], str | None]
    """Its text of an agent; `None` where that is unknown."""
    most: int = 0
    """Columns at most, for text; 0 for figures, which are never cut."""
    least: int = 0
    """Columns that text needs to be of use."""


def lines(rows: Sequence[WatchRow], look: Look) -> list[Text]:
    """Return the whole table: headings, a line for each agent, and what the marks mean."""
    body = list(agent_lines(rows, look))
    return [*table(body, look), *legend(body, look)]


def agent_lines(rows: Sequence[WatchRow], look: Look) -> Iterator[AgentLine]:
    """Yield a line for each session, and below it one for each of its subagents that is active."""
    for row in rows:
        yield AgentLine(row, row)
        yield from (AgentLine(each, row) for each in row.subagents if look.now - each.last <= ACTIVE)


def table(
    body: Sequence[AgentLine], look: Look, widest: dict[str, int] | None = None, selected: AgentLine | None = None
) -> list[Text]:
    """Return headings and a line for each agent.

    `widest` keeps the widths of cells by heading from one drawing to the next, so that columns do not jump.
    """
    widest = {} if widest is None else widest
    known = ([column.cell(line, look) for column in COLUMNS] for line in body)
    cells = [[look.marks.unknown if text is None else text for text in texts] for texts in known]
    for place, column in enumerate(COLUMNS):
        found = max([cell_len(column.heading), *(cell_len(each[place]) for each in cells)])
        widest[column.heading] = max(found, widest.get(column.heading, 0))
    widths = _widths(widest, look.width)
    drawn = [Text(" ".join(_placed(column, column.heading, width, look) for column, width in widths), style="bold")]
    for line, texts in zip(body, cells, strict=True):
        cell = dict(zip((column.heading for column in COLUMNS), texts, strict=True))
        drawn.append(_draw(line, [(column, cell[column.heading], width) for column, width in widths], look))
        if line is selected:
            drawn[-1].stylize("reverse")
    for text in drawn:
        text.no_wrap = True
    return drawn


def _widths(widest: dict[str, int], width: int) -> list[tuple[Column, int]]:
    """Choose the columns that fit, and share what is left among those that can use it."""
    natural = {column.heading: min(widest[column.heading], column.most or width * 2) for column in COLUMNS}
    natural["CONTEXT"] = next(each.most for each in COLUMNS if each.heading == "CONTEXT")
    given: dict[str, int] = {}
    left = width
    # Step 1: take the columns by rank, each at its least width, until one does not fit. The first one is always there.
    for column in sorted(COLUMNS, key=lambda each: each.rank):
        name = column.heading
        least = min(natural[name], column.least or natural[name])
        if not given:
            least = min(least, width)
        if least + (1 if given else 0) > left:
            break
        left -= least + (1 if given else 0)
        given[name] = least
    # Step 2: give what is left to the bar up to a readable size, then to the names, and then to the bar again.
    for name, most in (("CONTEXT", _BAR_FIRST), *((each, natural[each]) for each in _FLEXIBLE)):
        if name in given:
            more = max(0, min(left, most - given[name]))
            given[name] += more
            left -= more
    return [(column, given[column.heading]) for column in COLUMNS if column.heading in given]


def _draw(line: AgentLine, cells: Sequence[tuple[Column, str, int]], look: Look) -> Text:
    row = line.row
    colour = _colour(row)
    text = Text()
    for place, (column, cell, width) in enumerate(cells):
        text.append(" " if place else "")
        if column.heading == "CONTEXT":
            text.append_text(bar(row, width, look.marks))
        else:
            is_dim = place == 0 and (line.is_below or look.now - row.last > ACTIVE)
            style = colour if column.heading == "%" else "dim" if is_dim else ""
            text.append(_placed(column, cell, width, look), style=style)
    return text


def _placed(column: Column, cell: str, width: int, look: Look) -> str:
    if column.most:
        return cut(cell, width, look.marks)
    return " " * (width - cell_len(cell)) + cell


def bar(row: WatchRow, width: int, marks: Marks) -> Text:
    """Return the bar of a window, with a mark at the threshold."""
    filled = min(width, round(width * (row.ratio or 0.0)))
    if row.ratio and not filled:
        filled = 1
    text = Text()
    threshold, colour = row.threshold, _colour(row)
    mark = -1 if threshold is None else min(width - 1, int(width * threshold.tokens / row.window))
    for place in range(width):
        if place == mark and threshold is not None:
            acts = threshold.acted_on
            text.append(marks.acts if acts else marks.reports, style="bold" if acts else "dim")
        else:
            text.append(marks.full if place < filled else marks.empty, style=colour if place < filled else "dim")
    return text


def _colour(row: WatchRow) -> str:
    return "dim" if row.fullness is None else colour_of(row.fullness)


def cut(text: str, width: int, marks: Marks) -> str:
    """Return text as wide as this; what is longer ends with a mark."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + marks.cut if width > 1 else set_cell_size(text, width)


def one_line(text: str) -> str:
    """Return text printable, with each run of white space as one space."""
    return printable(" ".join(text.split()))


# -- cells ---------------------------------------------------------------------------------------------------------


def project(row: WatchRow) -> str:
    """Return what people call the directory that an agent works in; without one, the session or the file."""
    if row.agent_id is not None:
        return f"agent {one_line(row.agent_id)}"
    return one_line(row.project or row.session_id or row.path)


def _project(line: AgentLine, look: Look) -> str:
    return look.marks.branch + one_line(line.row.agent_id or "") if line.is_below else project(line.row)


def _one_line(text: str | None) -> str | None:
    return None if text is None else one_line(text)


def _model(line: AgentLine, look: Look) -> str | None:
    model = line.row.model
    return None if model is None else one_line(plain_name(model)).removeprefix("claude-")


def _tokens(line: AgentLine, look: Look) -> str | None:
    row = line.row
    if row.tokens is None:
        return None
    return f"{'' if row.accuracy == 'exact' else look.marks.about}{row.tokens:,}"


def _window(line: AgentLine, look: Look) -> str:
    row = line.row
    size = f"{row.window / 1e6:g}M" if row.window >= 1_000_000 else f"{row.window / 1000:g}k"
    return size + row.mark


def _left(line: AgentLine, look: Look) -> str | None:
    left = line.row.turns_left
    return None if left is None else str(left) if left < 1_000 else "999+"


def _compactions(line: AgentLine, look: Look) -> str:
    row = line.row
    micro = f"+{row.microcompactions}" if row.microcompactions else ""
    micro += f"!{row.silent_changes}" if row.silent_changes else ""
    return f"{look.marks.at_least if row.compactions_at_least else ''}{row.compactions}{micro}"


def _archived(line: AgentLine, look: Look) -> str | None:
    archived = line.row.archived
    return None if archived is None else age(look.now - archived.time)


def age(seconds: float) -> str:
    """Return how long ago something was, in few characters: `now`, `5m`, `3h`, `12d`."""
    if seconds < 60:
        return "now"
    minutes = int(seconds / 60)
    if minutes < 60:
        return f"{minutes}m"
    return f"{minutes // 60}h" if minutes < 48 * 60 else f"{minutes // 1440}d"


COLUMNS: Final = (
    Column("PROJECT", 0, _project, most=40, least=12),
    Column("CONTEXT", 2, lambda *_: "", most=40, least=8),
    Column("%", 1, lambda line, _: None if line.row.ratio is None else percent(line.row.ratio)),
    Column("TOKENS", 5, _tokens),
    Column("OF", 10, _window),
    Column("+/TURN", 9, lambda line, _: None if line.row.change is None else f"{line.row.change:+,}"),
    Column("LEFT", 4, _left),
    Column("COMP", 8, _compactions),
    Column("ARCH", 11, _archived),
    Column("MODEL", 6, _model, most=24, least=10),
    Column("SEEN", 7, lambda line, look: age(look.now - line.row.last)),
    Column("ID", 3, lambda line, _: _one_line(line.row.session_id and line.row.session_id[:8]), most=8),
    Column("BRANCH", 12, lambda line, _: _one_line(line.row.branch), most=24, least=8),
    Column("FIRST PROMPT", 13, lambda line, _: _one_line(line.row.first_prompt), most=120, least=16),
)
"""All columns, from left to right."""
_FLEXIBLE: Final = ("PROJECT", "MODEL", "BRANCH", "FIRST PROMPT", "CONTEXT")


def legend(body: Sequence[AgentLine], look: Look) -> list[Text]:
    """Return how many sessions the table has, and what its marks mean."""
    parts = [plural(len({line.row.session_id for line in body}), "session"), *meanings(body, look)]
    return [Text(each, style="dim", no_wrap=True) for each in wrapped(parts, max(look.width, LEGEND_WIDTH))]


def meanings(body: Sequence[AgentLine], look: Look) -> list[str]:
    """Return the meaning of each mark that stands in the table, and how many sessions it leaves out."""
    marks, rows = look.marks, [line.row for line in body]
    thresholds = [row.threshold for row in rows if row.threshold is not None]
    parts = [f"{plural(look.older, 'older session')} not shown (--most)"] if look.older else []
    if any(each.acted_on for each in thresholds):
        parts.append(f"{marks.acts} compacts here")
    if any(not each.acted_on for each in thresholds):
        parts.append(f"{marks.reports} reported threshold")
    if any(row.tokens is not None and row.accuracy != "exact" for row in rows):
        parts.append(f"{marks.about} estimate")
    if any(row.compactions_at_least for row in rows):
        parts.append(f"{marks.at_least} still counting")
    if any(row.mark for row in rows):
        guessed = any(row.window_source == "guess" for row in rows)
        parts.append("? a guess" if guessed else "? in doubt")
    if any(row.microcompactions for row in rows):
        parts.append("+n microcompactions")
    if any(row.silent_changes for row in rows):
        parts.append("!n requests not as projected")
    return parts


def wrapped(parts: Sequence[str], width: int) -> list[str]:
    """Join words with commas into lines of at most this width; a longer one stands alone."""
    found = [""]
    for part in parts:
        joined = f"{found[-1]}, {part}" if found[-1] else part
        if found[-1] and cell_len(joined) > width:
            found.append(part)
        else:
            found[-1] = joined
    return found


def sentence(row: WatchRow) -> str:
    """Return a row as one line of words, for a log or a pipe; no character in it controls a terminal."""
    about = "" if row.accuracy == "exact" else "about "
    window = window_words(row.window, row.window_source)
    window += " (in doubt)" if row.window_doubtful else ""
    size = "unknown" if row.ratio is None else f"{about}{percent(row.ratio)} ({row.tokens:,} of {window} tokens)"
    parts = [printable(row.model) if row.model else "model unknown"]
    if row.change is not None:
        parts.append(f"{row.change:+,} this turn")
    if row.turns_left is not None:
        parts.append(f"{plural(row.turns_left, 'turn')} left")
    if row.compactions:
        parts.append(("at least " if row.compactions_at_least else "") + plural(row.compactions, "compaction"))
    name = project(row) if row.agent_id is None else f"{project(row)} of {printable(row.session_id or '')[:8]}"
    identity = "" if row.agent_id is not None or row.session_id is None else f" {printable(row.session_id[:8])}"
    return f"{name}{identity}: {size}, {', '.join(parts)}"
