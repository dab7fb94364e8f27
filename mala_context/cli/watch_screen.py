"""What `mala-context watch` shows on a terminal, and what its keys do. Rows and keys in, lines of text out.

It draws with rich, which the package needs anyway. Textual was tried: it is 7 MB more and takes 0.2 s of a core to
import, where rich takes 0.09 s. This module is the keys and the scrolling that Textual would bring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from textwrap import wrap
from typing import Final

from rich.text import Text

from mala_context._util.text import percent, plural
from mala_context.analysis.watch.view import ACTIVE, ORDERS, WatchRow, matches, ordered
from mala_context.cli.keyboard import QUIT
from mala_context.cli.watch_table import AgentLine, Look, agent_lines, cut, meanings, project, table, wrapped

HELP: Final = (
    ("up, down (k, j)", "move the selection"),
    ("page up, page down", "move by a screen"),
    ("home, end (g, G)", "go to the first or the last session"),
    ("enter", "open the selected session: what fills its context, its compactions, commands to go back"),
    (
        "/",
        "show only sessions with these words in project, branch, model, id or first prompt; enter keeps, escape clears",
    ),
    ("s", "next order; 1 fullest first, 2 last active first, 3 by project, 4 fewest turns left first"),
    ("q, Ctrl-C", "end"),
    ("LEFT", "turns until the context is full at the pace of the last turns"),
    ("COMP, ARCH, SEEN", "compactions; how long ago the last archive was made, and the last row written"),
    ("+/TURN", "what the turn added so far"),
)
"""What `?` shows: keys and columns, and what they do."""
_HINTS: Final = ("? help", "/ filter", "s sort", "enter open", "q quit")


class WatchScreen:
    """What a user has chosen to see: the order, the filter, the selected session, the part of the table.

    Args:
        describe: returns the lines about one session, for the view that `enter` opens.
        order: one of `ORDERS`.
    """

    def __init__(self, describe: Callable[[WatchRow, Look], list[Text]], order: str = "context") -> None:
        self.order = order
        self.filter = ""
        self._describe = describe
        self._is_typing = False
        self._has_help = False
        self._opened: WatchRow | None = None
        self._details: list[Text] = []
        self._detail = 0
        """Number of the first of these lines that is shown."""
        self._selected: str | None = None
        self._top = 0
        self._room = 1
        self._widest: dict[str, int] = {}
        self._lines: list[AgentLine] = []

    def press(self, key: str, look: Look) -> bool:
        """Do what a key says; return whether it ends the view. Draw next."""
        if self._is_typing:
            self._type(key)
        elif self._has_help:
            self._has_help = False
        elif self._opened is not None:
            if key in QUIT or key in {"escape", "left", "backspace", "enter"}:
                self._opened = None
            elif key in _MOVES:
                lines, screens = _MOVES[key]
                self._detail += lines + 10 * screens
        elif key in QUIT:
            return True
        elif key in _MOVES:
            self._move(*_MOVES[key])
        else:
            self._choose(key, look)
        return False

    def _choose(self, key: str, look: Look) -> None:
        names = list(ORDERS)
        if key == "s":
            self.order = names[(names.index(self.order) + 1) % len(names)]
        elif key in "1234":
            self.order = names[int(key) - 1]
        elif key == "/":
            self._is_typing = True
        elif key == "?":
            self._has_help = True
        elif key == "escape":
            self.filter = ""
        elif key == "enter" and self._lines:
            self._opened = self._lines[self._place()].session
            self._details, self._detail = self._describe(self._opened, look), 0

    def _type(self, key: str) -> None:
        if key in {"enter", "escape"}:
            self._is_typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _place(self) -> int:
        """Return which line is selected; the first one where the selected session is gone."""
        paths = [line.row.path for line in self._lines]
        return paths.index(self._selected) if self._selected in paths else 0

    def _move(self, by: int, screens: int) -> None:
        if self._lines:
            place = min(max(0, self._place() + by + screens * self._room), len(self._lines) - 1)
            self._selected = self._lines[place].row.path

    # -- drawing ----------------------------------------------------------------------------------------------------

    def frame(self, rows: Sequence[WatchRow], look: Look, height: int) -> list[Text]:
        """Return the lines of the terminal, at most `height` of them."""
        if self._has_help:
            return [Text(line, no_wrap=True) for line in _help(look.width)][:height]
        if self._opened is not None:
            room = max(1, height - 1)
            self._detail = max(0, min(self._detail, len(self._details) - room))
            hint = Text("up, down: scroll, escape: back to the table", style="dim", no_wrap=True)
            return [*self._details[self._detail : self._detail + room], hint][:height]
        shown = ordered([row for row in rows if matches(row, self.filter)], self.order)
        self._lines = list(agent_lines(shown, look))
        foot = self._foot(look)
        self._room = max(1, height - 2 - len(foot))
        place = self._place()
        # Scroll no further than needed to show the selected line, and leave no empty lines after the last one.
        self._top = min(max(self._top, place - self._room + 1, 0), place, max(0, len(self._lines) - self._room))
        visible = self._lines[self._top : self._top + self._room]
        selected = self._lines[place] if self._lines and self._selected is not None else None
        status = self._status(rows, shown, look)
        return [status, *table(visible, look, self._widest, selected), *foot][:height]

    def _status(self, rows: Sequence[WatchRow], shown: Sequence[WatchRow], look: Look) -> Text:
        """Return the first line: how many there are, and the fullest one, wherever the table is scrolled to."""
        active = sum(look.now - row.last <= ACTIVE for row in rows)
        parts = [plural(len(rows), "session"), f"{active:,} active"]
        fullest = max(rows, key=lambda row: row.fullness or 0.0, default=None)
        if fullest is not None and fullest.ratio is not None:
            parts.append(f"fullest {project(fullest)} {percent(fullest.ratio)}{fullest.mark}")
        if self.filter or self._is_typing:
            parts.insert(0, f"{len(shown):,} with /{self.filter}{'_' if self._is_typing else ''}")
        if len(self._lines) > self._room > 1:
            parts.append(f"lines {self._top + 1}-{min(self._top + self._room, len(self._lines))} of {len(self._lines)}")
        return Text(cut(", ".join(parts), look.width, look.marks).rstrip(), style="bold", no_wrap=True)

    def _foot(self, look: Look) -> list[Text]:
        hints = (_HINTS[0], _HINTS[1], f"{_HINTS[2]}: {ORDERS[self.order].words}", *_HINTS[3:])
        found = [wrapped(each, look.width)[0] for each in (meanings(self._lines, look), hints)]
        return [Text(each, style="dim", no_wrap=True) for each in found if each]


def _help(width: int) -> Iterator[str]:
    """Yield the lines of the help, in columns where the terminal has room for them."""
    for keys, words in HELP:
        if width < _ROOMY:
            yield from wrap(f"{keys}: {words}", max(10, width), subsequent_indent="  ")
            continue
        for number, line in enumerate(wrap(words, min(width, 80) - 20)):
            yield f"{'' if number else keys:20}{line}"


_ROOMY: Final = 60
_FAR: Final = 10**9
_MOVES: Final = {
    "up": (-1, 0),
    "k": (-1, 0),
    "down": (1, 0),
    "j": (1, 0),
    "page up": (0, -1),
    "page down": (0, 1),
    " ": (0, 1),
    "home": (-_FAR, 0),
    "g": (-_FAR, 0),
    "end": (_FAR, 0),
    "G": (_FAR, 0),
}
"""Key → lines and screens that the selection moves."""
