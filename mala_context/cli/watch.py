"""`mala-context watch`: all sessions on this machine, live."""

from __future__ import annotations

import calendar
import errno
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from mala_context._util.text import printable
from mala_context.analysis.watch.view import ORDERS, ordered
from mala_context.analysis.watch.watcher import MOST
from mala_context.cli.agent_runner import ended_like_ctrl_c
from mala_context.cli.inputs import (
    TRANSCRIPT,
    ExistingDirectory,
    Moment,
    auto_compact_option,
    complete_session,
    in_words,
    one_session,
    transcripts,
)
from mala_context.cli.keyboard import GONE, SUSPEND, keys, suspend
from mala_context.cli.progress import waiting
from mala_context.cli.streams import can_redraw
from mala_context.errors import MalaContextError
from mala_context.transcripts.projects import default_projects_dirs, entries

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from mala_context.analysis.watch import Watcher, WatchRow
    from mala_context.cli.watch_screen import WatchScreen
    from mala_context.cli.watch_table import Look

AGES: Final = 10.0
"""Seconds after which the table is drawn again although nothing changed: its ages do."""
WHILE_READING: Final = 0.3
"""The same while transcripts are looked for: the screen shows how many were found."""
LONG_AGO: Final = 30 * 86_400
"""Seconds; only a later `--since` gets the hint that `--since 30d` looks further back."""


@click.command()
@click.argument("sessions", nargs=-1, metavar="[SESSION]...", shell_complete=complete_session)
@click.option(
    "--since",
    type=Moment(),
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Sessions written to after: 30m, 7d.",
)
@click.option(
    "--projects",
    type=ExistingDirectory(),
    multiple=True,
    metavar="DIR",
    help="The CLI's projects directory.  [default: the one in your home]",
)
@click.option("--once", is_flag=True, help="Print one table and end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: each session, then each change.")
@click.option(
    "--sort",
    "order",
    type=click.Choice(list(ORDERS)),
    default="context",
    show_default=True,
    help="The order of the table: fullest first, last active first, by project, fewest turns left first.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=0.15,
    show_default=True,
    metavar="SECONDS",
    help="Time between two looks at the files.",
)
@click.option(
    "--most",
    type=click.IntRange(1),
    default=MOST,
    show_default=True,
    metavar="SESSIONS",
    help="Number of sessions to follow, the last used first; the others are counted.",
)
@auto_compact_option
def watch(
    sessions: tuple[str, ...],
    since: str,
    projects: tuple[str, ...],
    once: bool,
    as_json: bool,
    order: str,
    interval: float,
    most: int,
    auto_compact_window: int | None,
) -> None:
    """Show how full each session on this machine is, live from the transcripts.

    SESSION is a session's id, the first letters of one, or a transcript; without any, all sessions that were active
    lately are shown. A terminal gets a table that follows the sessions until q or Ctrl-C; in it, ? lists the keys to
    scroll, filter, sort and open a session. A pipe gets a line for each change.

    COMP is the number of compactions, ARCH how long ago the last archive was made, LEFT the turns that are left at the
    pace of the last ones.
    """
    from mala_context.analysis.watch import Watcher

    begin = calendar.timegm(time.strptime(since, "%Y-%m-%dT%H:%M:%S"))
    directories = list(projects) or default_projects_dirs()
    nothing = f"no session was active after {since} UTC in {in_words(directories)}"
    if time.time() - begin < LONG_AGO:
        nothing += "; --since 30d looks further back"
    watcher = Watcher(
        directories,
        [_transcript(each, directories) for each in sessions],
        since=time.time() - begin,
        most=most,
        auto_compact_window=auto_compact_window,
    )
    with ended_like_ctrl_c():
        if once:
            _once(watcher, nothing, order, as_json=as_json)
        elif as_json:
            _follow(watcher, interval, lambda row: json.dumps(row.as_dict()))
        elif can_redraw(sys.stdout):
            _live(watcher, interval, nothing, order)
        else:
            _follow(watcher, interval, _stamped)


# -- what to watch -----------------------------------------------------------------------------------------------------


def _transcript(session: str, directories: Sequence[str]) -> str:
    """Return the path of the transcript that an argument names."""
    from mala_context.analysis.watch.watcher import check_readable

    if os.sep in session or session.endswith(TRANSCRIPT) or os.path.isfile(session):
        return check_readable(session)
    folders = [each.path for directory in directories for each in entries(directory) if each.is_dir()]
    found = list(transcripts(folders, session))
    one = one_session(session, {each.session_id for each in found})
    if one is None:
        raise MalaContextError(f"no session {session} in {in_words(directories)}")
    return max(each for each in found if each.session_id == one).path


# -- how to show it ----------------------------------------------------------------------------------------------------


def _settle(watcher: Watcher) -> None:
    """Read every transcript as it is now."""
    with waiting("reading") as progress:
        watcher.tick()
        while watcher.busy:
            progress.say(_doing(watcher))
            watcher.tick()


def _doing(watcher: Watcher) -> str:
    left = f"; {watcher.waiting:,} to read" if watcher.waiting else ""
    return f"{watcher.known:,} transcripts found{left}"


def _once(watcher: Watcher, nothing: str, order: str, *, as_json: bool) -> None:
    _settle(watcher)
    rows = ordered(watcher.rows(), order)
    if as_json:
        for row in rows:
            _print(json.dumps(row.as_dict()))
    elif rows:
        from mala_context.cli.tables import console
        from mala_context.cli.watch_table import lines

        out = console()
        for text in lines(rows, _look(out, watcher)):
            out.print(text, soft_wrap=True)
    for error in watcher.problems():
        _complain(error)
    _say_older(watcher, told=not as_json and bool(rows))
    if not rows and not as_json:
        click.echo(nothing, err=True)


def _follow(watcher: Watcher, interval: float, words: Any) -> None:
    """Print a line for each agent, and one for each change of an agent."""
    shown: dict[tuple[str, str | None], tuple[Any, ...]] = {}
    told: set[str] = set()
    _settle(watcher)
    _say_older(watcher)
    while True:
        for row in watcher.rows():
            for each in (row, *(() if words is not _stamped else row.subagents)):
                key, now = (each.path, each.agent_id), _news(each)
                if shown.get(key) != now:
                    shown[key] = now
                    _print(words(each))
        for error in watcher.problems():
            if str(error) not in told:
                told.add(str(error))
                _complain(error)
        sys.stdout.flush()
        while not watcher.tick():
            time.sleep(interval)


def _say_older(watcher: Watcher, *, told: bool = False) -> None:
    """Say how many sessions are left out, unless a table has said it."""
    if watcher.older and not told:
        click.echo(f"and {watcher.older:,} that were active before these: --most shows more", err=True)


def _news(row: WatchRow) -> tuple[Any, ...]:
    """Return the values whose change is worth a new line: a size, a compaction, an archive, a model."""
    below = tuple(_news(each) for each in row.subagents)
    return row.tokens, row.accuracy, row.compactions, row.compactions_at_least, row.model, row.archived, below


def _stamped(row: WatchRow) -> str:
    from mala_context.cli.watch_table import sentence

    return f"{time.strftime('%H:%M:%S', time.localtime(row.last))} {sentence(row)}"


def _live(watcher: Watcher, interval: float, nothing: str, order: str) -> None:
    """Draw the table until q or Ctrl-C; the terminal is put back at the end, and while Ctrl-Z stops the process."""
    from rich.live import Live

    from mala_context.cli.tables import console
    from mala_context.cli.watch_screen import WatchScreen
    from mala_context.cli.watch_session import describe

    out, screen = console(), WatchScreen(describe, order)
    while True:
        with keys() as pressed, Live(console=out, screen=True, auto_refresh=False, transient=True) as live:
            key = _draw(watcher, live, screen, nothing, lambda: pressed(0.0 if watcher.busy else interval))
        if (
            key == GONE
        ):  # Python 3.14 has nothing left to write to the terminal and would exit with 0, older ones with 3
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if key != SUSPEND:
            return
        suspend()


def _draw(watcher: Watcher, live: Live, screen: WatchScreen, nothing: str, pressed: Callable[[], str | None]) -> str:
    """Draw each change until a key ends that; return the key."""
    from rich.text import Text

    out, size, drawn, key = live.console, None, 0.0, None
    while True:
        _fit(out)
        changed = watcher.tick()
        pause = WHILE_READING if watcher.busy else AGES
        if changed or key is not None or size != out.size or time.monotonic() - drawn > pause:
            rows = watcher.rows()
            size, drawn = out.size, time.monotonic()
            none = _doing(watcher) if watcher.busy else nothing
            text = screen.frame(rows, _look(out, watcher), out.height) if rows else [Text(none)]
            live.update(Text("\n").join(text), refresh=True)
        key = pressed()
        if key is not None and (key in {GONE, SUSPEND} or screen.press(key, _look(out, watcher))):
            return key


def _fit(out: Console) -> None:
    """Give a console the size that its terminal has now, whatever `COLUMNS` and `LINES` said at the start.

    A program that has imported readline (pytest, for one) hands its own values on. A table for 24 lines lost its first
    four on a screen of 20.
    """
    try:
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
    except (OSError, ValueError):
        return
    if columns > 0 and lines > 0:
        out.size = columns, lines


def _look(out: Console, watcher: Watcher) -> Look:
    from mala_context.cli.tables import can_encode
    from mala_context.cli.watch_table import PLAIN, Look, Marks

    marks = Marks() if can_encode(out, "".join(Marks())) else PLAIN
    return Look(out.width, time.time(), marks, watcher.older)


def _complain(error: OSError) -> None:
    click.echo(f"mala-context: {printable(f'{error.filename or error}: {error.strerror or error}')}", err=True)


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
