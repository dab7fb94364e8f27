"""`mala-context report`: recorded sessions as one page, a picture or JSON."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from mala_context._util.text import printable, size_text
from mala_context.cli.archives.common import find_session, place_options
from mala_context.cli.files import publish, writer
from mala_context.cli.inputs import auto_compact_option, complete_session, must_hold_rows, own_options, recordings
from mala_context.cli.progress import waiting
from mala_context.errors import InvalidSessionIdError, MalaContextError, SessionNotFoundError
from mala_context.tracking.auto_compact import LARGEST_WINDOW
from mala_context.transcripts.projects import find_transcript

if TYPE_CHECKING:
    from mala_context.analysis.report import ContextReport

DEFAULT: Final = "report.html"
STDOUT: Final = "-"
_KINDS: Final = (".html", ".htm", ".svg", ".png")


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH|SESSION]...", shell_complete=complete_session)
@click.option(
    "-o", "--output", metavar="FILE", help=f"A .html, .svg or .png; - for the page on stdout.  [default: {DEFAULT}]"
)
@click.option("--open", "opens", is_flag=True, help="Open the page in your browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the data of the page as JSON instead.")
@click.option(
    "--newest", type=click.IntRange(1), default=50, show_default=True, help="Number of sessions to show at most."
)
@click.option(
    "--warn-at", type=float, metavar="SHARE", help="Mark where this share is reached.  [default: mala.yaml, or 0.7]"
)
@click.option(
    "--big",
    type=click.IntRange(1),
    default=5_000,
    show_default=True,
    help="Size in tokens from which a tool result is marked.",
)
@click.option(
    "--window",
    type=click.IntRange(1, LARGEST_WINDOW),
    metavar="TOKENS",
    help="The context window, where the recording does not tell it.",
)
@auto_compact_option
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Number of processes.  [default: one per core]")
@own_options
@place_options
def report(
    paths: tuple[str, ...],
    output: str | None,
    opens: bool,
    as_json: bool,
    newest: int,
    warn_at: float | None,
    big: int,
    window: int | None,
    auto_compact_window: int | None,
    jobs: int | None,
    project: str | None,
    session: str | None,
    since: str | None,
    repo: str | None,
    directory: str | None,
) -> None:
    """Draw recorded sessions as one HTML file that needs no network, or as a picture.

    PATH is a transcript, a folder of them, an archive, a pattern in quotes, or - for standard input; SESSION the first
    letters of an archived session, or the whole id of one whose transcript is there. Without any, all your own sessions
    are drawn. Of more than --newest sessions the newest are shown, in a picture the newest 6. An existing FILE is
    replaced in one step.
    """
    from mala_context.analysis.report import ReportOptions, build_report

    target = DEFAULT if output is None else output
    kind = _kind(target, as_json=as_json, named=output is not None)
    if opens and (kind == "json" or target == STDOUT):
        raise click.UsageError("--open needs a file: leave out --json, and name no - with --output")
    _check_place(target, kind)
    options = ReportOptions(window, auto_compact_window, _warn_at(warn_at), big)
    given = recordings(paths, project=project, session=session, since=since)
    recorded, archived = _inputs(given, repo, directory)
    with waiting("reading") as progress:
        found = build_report(recorded, options, archived=archived, newest=newest, jobs=jobs, progress=progress)
    if not found.sessions:
        must_hold_rows(recorded)
        raise MalaContextError(f"no session with a response in {', '.join(given)}")
    for note in found.notes:
        click.echo(f"mala-context: {printable(note)}", err=True)
    _WRITERS[kind](found, target)
    if opens:
        _open(target)


def _open(path: str) -> None:
    import webbrowser  # not above: it loads subprocess

    if not webbrowser.open(pathlib.Path(os.path.realpath(path)).as_uri()):
        raise MalaContextError("no browser could be started; open the file yourself")


def _kind(target: str, *, as_json: bool, named: bool) -> str:
    """Return the kind of output: an extension, or `json`."""
    if as_json:
        if named and target != STDOUT:
            raise click.UsageError("--output and --json exclude each other: --json prints")
        return "json"
    extension = ".html" if target == STDOUT else os.path.splitext(target)[1].lower()
    if extension not in _KINDS:
        raise click.UsageError(f"--output is {target}: it must end in .html, .svg or .png")
    return extension


def _check_place(target: str, kind: str) -> None:
    """Raise before anything is read if the output could not be written."""
    if kind == "json" or target == STDOUT:
        return
    folder = os.path.dirname(target) or "."
    if os.path.isdir(target) or not os.path.isdir(folder):
        words = "it is a folder" if os.path.isdir(target) else f"there is no folder {folder}"
        raise click.UsageError(f"--output is {target}: {words}")
    if not os.access(folder, os.W_OK):
        raise MalaContextError(f"{folder}: cannot be written to; --output names another place")


def _warn_at(given: float | None) -> float | None:
    if given is not None:
        if not 0 < given <= 1:
            raise click.BadParameter(f"{given:g} is no share; write 0.7 for 70 %", param_hint="--warn-at")
        return given
    from mala_context.config import load_config

    return load_config(os.getcwd()).warn_at


def _inputs(paths: Iterable[str], repo: str | None, directory: str | None) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the recordings among the arguments, and the archived sessions with their archives' directories."""
    recorded: list[str] = []
    archived: list[tuple[str, str]] = []
    for path in paths:
        if path == STDOUT or os.path.exists(path) or any(letter in path for letter in "*?[./\\"):
            recorded.append(path)
            continue
        try:
            archive, session_id = find_session(repo, directory, path)
        except InvalidSessionIdError:
            recorded.append(path)
        except SessionNotFoundError as error:
            transcript = find_transcript(path)
            if transcript is None:
                raise MalaContextError(f"no file or folder of this name, and {error}") from None
            recorded.append(transcript)
        else:
            if not os.path.isdir(archive.location):
                way = f"mala-context archives cat {session_id} --dir {archive.location} | mala-context report -"
                raise MalaContextError(f"an archive in an object store is read through a pipe: {way}")
            archived.append((archive.location, session_id))
    return recorded, archived


def _page(found: ContextReport, target: str) -> None:
    from mala_context.analysis.report.page import page

    _write(target, (part.encode("utf-8", "backslashreplace") for part in page(found)))


def _picture(found: ContextReport, target: str) -> None:
    from mala_context.analysis.report.svg_chart import MOST_PANELS, svg
    from mala_context.analysis.svg import png

    if len(found.sessions) > MOST_PANELS:
        more = f"the newest {MOST_PANELS} of {len(found.sessions)} sessions are drawn; a .html shows all"
        click.echo(f"mala-context: {more}", err=True)
    is_png = target.lower().endswith(".png")
    data = png(svg(found.sessions), scale=2) if is_png else svg(found.sessions).encode("utf-8", "backslashreplace")
    _write(target, [data])


def _data(found: ContextReport, target: str) -> None:
    json.dump(found.as_dict(), sys.stdout)
    sys.stdout.write("\n")


_WRITERS: Final[dict[str, Callable[[ContextReport, str], None]]] = {
    ".html": _page,
    ".htm": _page,
    ".svg": _picture,
    ".png": _picture,
    "json": _data,
}


def _write(target: str, parts: Iterable[bytes]) -> None:
    """Write a file that only its owner can read, whole or not at all."""
    if target == STDOUT:
        for part in parts:
            sys.stdout.buffer.write(part)
        sys.stdout.buffer.flush()
        return
    size = 0
    with publish(target, private=True) as temporary, writer(temporary) as file:
        for part in parts:
            size += file.write(part)
    target = os.path.realpath(target)
    click.echo(f"{printable(target)}: {size_text(size)}", err=True)
