"""Options and arguments that name what a command reads (directories, times, recordings), and the engine that reads."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from mala_context._util.text import printable, utc_text
from mala_context.errors import MalaContextError
from mala_context.tracking.auto_compact import AUTO_COMPACT_WINDOW, auto_compact_window_of
from mala_context.transcripts.projects import default_projects_dirs, entries, folder_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mala_context.analysis.replay.engine import Engine

TRANSCRIPT: Final = ".jsonl"
LOCAL, DASK = "local", "dask"
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_Command = TypeVar("_Command", bound=Callable[..., object])


class ExistingDirectory(click.Path):
    """The type of a directory that must be there and readable.

    If it is not, converting raises `OSError` with the path, and the command ends with the status of a missing input.
    """

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path as it was given."""
        path = os.fspath(value)
        if not os.path.isdir(path):
            number = errno.ENOTDIR if os.path.lexists(path) else errno.ENOENT
            raise OSError(number, os.strerror(number), path)
        if not os.access(path, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().convert(value, param, ctx)


def upwards(path: str) -> Iterator[str]:
    """Yield a real path and each directory above it, the nearest first."""
    here = Path(os.path.realpath(path))
    yield from map(str, (here, *here.parents))


def must_be_there(path: str) -> None:
    """Raise `FileNotFoundError` where nothing has this name."""
    if not os.path.lexists(path):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class Moment(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic in newer versions of click
    """The type of a time: a date, a time, or an age such as `7d`; its value is UTC as text, `2026-05-01T12:00:00`."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the UTC time; raises `click.BadParameter`."""
        text = str(value)
        try:
            if text[-1:] in _UNITS and text[:-1].isdigit():
                moment = datetime.now(UTC) - timedelta(**{_UNITS[text[-1]]: int(text[:-1])})
            else:
                moment = datetime.fromisoformat(text)
            return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is no time; write 2026-05-01, 2026-05-01T12:00 or 7d", param, ctx)


# -- this user's own sessions ------------------------------------------------------------------------------------------

OFFERED: Final = 50
"""Most ids that a shell is offered: those of the sessions that were written to last."""


class Transcript(NamedTuple):
    """A session's own transcript in the CLI's projects directory."""

    mtime: float
    """When it was written to last, in seconds since 1970."""
    session_id: str
    path: str


def complete_session(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer a shell the ids of this user's sessions, with their project."""
    from click.shell_completion import CompletionItem

    found = sorted(transcripts(project_folders(None), incomplete), reverse=True)[:OFFERED]
    return [CompletionItem(each.session_id, help=os.path.basename(os.path.dirname(each.path))) for each in found]


def own_options(command: _Command) -> _Command:
    """Add `--project`, `--session` and `--since` to a command; give their values to `recordings`."""
    for option in (
        click.option("--since", type=Moment(), metavar="TIME", help="Only sessions used after: 2026-05-01, 7d, 12h."),
        click.option(
            "--session", metavar="ID", shell_complete=complete_session, help="Only this session, by its first letters."
        ),
        click.option("--project", type=ExistingDirectory(), metavar="DIR", help="Only sessions of this directory."),
    ):
        command = option(command)
    return command


def recordings(
    paths: Sequence[str], *, project: str | None = None, session: str | None = None, since: str | None = None
) -> Sequence[str]:
    """Return the paths to read: those that were given; without any, this user's own sessions.

    `project`, `session` and `since` choose among the latter. Raises `click.UsageError` if they are given
    together with paths, and `MalaContextError` if there are no such sessions.
    """
    if paths:
        if project or session or since:
            raise click.UsageError("--project, --session and --since choose among your own sessions: name no PATH")
        return paths
    folders = project_folders(project)
    if session is None and since is None:
        return folders
    begin = since or ""
    found = [each for each in transcripts(folders, session or "") if utc_text(each.mtime) >= begin]
    if session is not None:
        one = one_session(session, {each.session_id for each in found})
        found = [each for each in found if each.session_id == one]
    if not found:
        after = f" was used after {begin} UTC" if begin else ""
        raise MalaContextError(f"no session {session or ''}{after} in {', '.join(folders)}".replace("  ", " "))
    return [each.path for each in found]


def own_transcript(session: str | None, project: str | None) -> str:
    """Return the path of one transcript. `session` is such a path, or the first letters of a session's id.

    Without it this is the newest transcript of `project`; without that too, of the working directory's project or else
    of all projects. Raises `click.UsageError` if several ids begin with these letters, and `MalaContextError` if there
    is no transcript.
    """
    if session is not None:
        if project is not None:
            raise click.UsageError("--project chooses among your own sessions: name no SESSION")
        if session == "-" or os.path.exists(session) or any(letter in session for letter in "*?./\\"):
            return session
        return next(iter(recordings((), session=session)))
    try:
        found = list(transcripts(project_folders(project or os.getcwd())))
    except MalaContextError:
        if project is not None:
            raise
        found = list(transcripts(project_folders(None)))
    if not found:
        raise MalaContextError(f"no sessions in {project or 'your projects'}; name a transcript")
    return max(found).path


def project_folders(project: str | None) -> list[str]:
    """Return the CLI's project folders: all, or that of a directory, or of the nearest one above it that has one.

    Raises `MalaContextError` where there are none.
    """
    directories = default_projects_dirs()
    if project is None:
        found = [each.path for directory in directories for each in entries(directory) if each.is_dir()]
    else:
        places = (folder_of(directory, each) for each in upwards(project) for directory in directories)
        found = [next(filter(os.path.isdir, places), "")]
    if not any(found):
        of = "" if project is None else f" of {project}"
        raise MalaContextError(f"no sessions{of} in {in_words(directories)}")
    return found


def in_words(directories: Iterable[str]) -> str:
    """Return the directories in which transcripts are looked for, for an error message."""
    return ", ".join(map(printable, directories)) or "any directory, since HOME names no home directory"


def transcripts(folders: Iterable[str], session: str = "") -> Iterator[Transcript]:
    """Yield the transcripts in project folders whose session's id begins with `session`, without those of subagents."""
    for folder in folders:
        for each in entries(folder):
            if each.name.startswith(session) and each.name.endswith(TRANSCRIPT) and each.is_file(follow_symlinks=False):
                yield Transcript(each.stat().st_mtime, each.name.removesuffix(TRANSCRIPT), each.path)


def one_session(session: str, ids: Collection[str]) -> str | None:
    """Return the one of `ids` that `session` means; `None` if there is none. All of them begin with `session`.

    A whole id means itself, even if others begin with it. Raises `click.UsageError` if several ids are left.
    """
    if session in ids or not session or not ids:
        return session if session in ids else None
    if len(ids) > 1:
        raise click.UsageError(f"{len(ids)} sessions begin with {session}: {', '.join(sorted(ids)[:4])}")
    return next(iter(ids))


def must_hold_rows(paths: Iterable[str]) -> None:
    """Explain an empty result: raise `MalaContextError` if there is no file, or if no row in any file can be read.

    Standard input was read already and is not looked at.
    """
    from mala_context.analysis.replay.files import STDIN, find
    from mala_context.analysis.replay.rows import lines

    problems: list[str] = []
    places = [path for path in paths if path != STDIN]
    files = list(find(places))
    if places and not files:
        raise MalaContextError(f"no recorded session in {', '.join(places)}")
    for recording in files:
        unreadable: list[tuple[int, str | None]] = []
        for line in lines(recording, lambda row, words: unreadable.append((row, words))):  # noqa: B023 - called here
            if line.rows:
                return
            unreadable.append((line.number, line.problem))
        problems += [f"{recording.path}:{row}: {words}" for row, words in unreadable[:1]]
    if problems:
        raise MalaContextError(f"nothing could be read: {problems[0]}")


auto_compact_option = click.option(
    "--auto-compact-window",
    type=click.IntRange(1),
    metavar="TOKENS",
    default=lambda: auto_compact_window_of(os.environ),
    help=f"What {AUTO_COMPACT_WINDOW} is for the sessions.  [default: what it is here]",
)


# -- the engine --------------------------------------------------------------------------------------------------------


def engine_options(command: _Command) -> _Command:
    """Add `--jobs`, `--engine` and `--scheduler` to a command; give their values to `chosen`."""
    for option in (
        click.option(
            "--scheduler", metavar="URL", help="Use this Dask cluster, e.g. tcp://host:8786; implies --engine dask."
        ),
        click.option(
            "--engine",
            type=click.Choice((LOCAL, DASK)),
            help="Read with processes of this machine, or with a Dask cluster.  [default: local]",
        ),
        click.option(
            "--jobs", type=click.IntRange(1), metavar="N", help="Number of processes.  [default: one per core]"
        ),
    ):
        command = option(command)
    return command


@contextmanager
def chosen(engine: str | None, scheduler: str | None, jobs: int | None) -> Iterator[Engine]:
    """Yield the engine that the options name; a cluster that was started for it ends with the block."""
    if scheduler is None and engine != DASK:
        from mala_context.analysis.replay.engine import LocalEngine

        yield LocalEngine(jobs)
        return
    if engine == LOCAL:
        raise click.UsageError("--scheduler names a Dask cluster: leave --engine local out")
    if scheduler is not None and jobs is not None:
        raise click.UsageError("--jobs counts processes of this machine: leave it out with --scheduler")
    from mala_context.analysis.cluster import DaskEngine

    with DaskEngine(scheduler, jobs) as cluster:
        yield cluster
