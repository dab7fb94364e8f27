"""What the commands on archives share: which archive, errors, and text that is safe on a terminal."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from mala_context.archive import layout
from mala_context.archive.directory import is_for_archives
from mala_context.archive.layout import known_archives
from mala_context.archive.remote.address import is_address
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.inputs import OFFERED, ExistingDirectory, one_session, upwards
from mala_context.cli.progress import waiting
from mala_context.errors import ArchiveUnavailableError, MalaContextError, SessionNotFoundError
from mala_context.transcripts.session_ids import check_session_id

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from mala_context.archive.layout import SessionSummary

F = TypeVar("F", bound=Callable[..., Any])

MOST_GUESSED: Final = 2_000
"""Newest sessions among which a similar id is looked for, if no id begins with the given letters."""


@contextmanager
def wrong_values() -> Iterator[None]:
    """Report a size or a time that the library refuses as wrong usage."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise click.UsageError(str(error), click.get_current_context()) from error


def complete_archived(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer a shell the ids of archived sessions, with their repository."""
    from click.shell_completion import CompletionItem

    chosen = archives_of(ctx.params.get("repo"), ctx.params.get("directory"), everywhere=False)
    found = [
        (each.newest_ns, each.session_id, name) for name, archive in chosen for each in archive.sessions(incomplete)
    ]
    return [CompletionItem(session_id, help=name) for _, session_id, name in sorted(found, reverse=True)[:OFFERED]]


def session_argument(command: F) -> F:
    """Give a command a SESSION that may be left out: then it is the one that was archived last."""
    option = click.argument("session", required=False, metavar="[SESSION]", shell_complete=complete_archived)
    return option(command)


def place_options(command: F) -> F:
    """Give a command `--repo` and `--dir`."""
    command = click.option(
        "--dir", "directory", type=click.Path(file_okay=False), help="The archive in this directory, or at s3://…."
    )(command)
    return repo_option(command)


def transcript_options(command: F) -> F:
    """Give a command `--agent` and `--chain`, which choose one of a session's transcripts."""
    number = click.IntRange(min=1)
    command = click.option("--chain", type=number, help="A chain by its number; else the newest.")(command)
    return click.option("--agent", help="A subagent's own transcript, by its id.")(command)


repo_option = click.option("--repo", type=ExistingDirectory(), help="The archive of this repository.")


all_option = click.option(
    "--all", "everywhere", is_flag=True, help="The archives of all repositories; the default where this one has none."
)


json_option = click.option("--json", "as_json", is_flag=True, help="JSON for machines.")


def open_archive(
    repo: str | None, directory: str | None, *, there: bool = False, new: bool = False
) -> TranscriptArchive:
    """Return the archive that the options name: by default that of the repository around the working directory.

    With `there`, a directory that was named must exist, because a check of a missing one would find nothing wrong. A
    directory of other files is no archive; with `new` the command may begin one in it. `directory` may also be the
    address of an object store.
    """
    if directory is not None:
        if repo is not None:
            raise click.UsageError("--repo and --dir exclude each other")
        if there and not is_address(directory) and not os.path.lexists(directory):
            raise ArchiveUnavailableError(f"there is no directory {directory}")
        if (
            not new
            and not is_address(directory)
            and os.path.isdir(directory)
            and not is_for_archives(os.path.abspath(directory))
        ):
            raise ArchiveUnavailableError(f"no archive here: {directory}")
        return TranscriptArchive(directory)
    return TranscriptArchive(repo_path=repo if repo is not None else repository())


def configured(repo: str | None) -> TranscriptArchive:
    """Return the archive of a repository as its `mala.yaml` configures it; raises `ConfigError`."""
    from mala_context.config import archive_of, load_config

    path = repo if repo is not None else repository()
    config = load_config(path).archive
    if not config.enabled:
        raise ArchiveUnavailableError(f"mala.yaml of {path} switches the archive off")
    return archive_of(path, config)


def know_object_store(archive: TranscriptArchive) -> None:
    """Tell an archive which object store its repository's `mala.yaml` names; raises `ConfigError`."""
    from mala_context.config import load_config, target_of

    if archive.repo_path is not None and archive.target is None:
        archive.target = target_of(load_config(archive.repo_path).archive)


def repository() -> str:
    """Return the nearest directory from here upwards that has an archive, else the working directory."""
    places = upwards(os.getcwd())
    has_archive = (each for each in places if os.path.isdir(os.path.join(layout.repo_runs_dir(each), layout.ARCHIVES)))
    return next(has_archive, os.path.realpath(os.getcwd()))


def all_archives() -> Iterator[tuple[str, TranscriptArchive]]:
    """Yield the path of each repository that has an archive (its key where that is unknown), and the archive."""
    for name, directory in known_archives():
        yield name, TranscriptArchive(directory)


def archives_of(
    repo: str | None, directory: str | None, *, everywhere: bool
) -> Iterator[tuple[str, TranscriptArchive]]:
    """Yield the archive that the options name; all of them with `everywhere`, or if this repository has none."""
    if everywhere and (repo or directory):
        raise click.UsageError("--all is for all archives, --repo and --dir are for one")
    if not everywhere:
        archive = open_archive(repo, directory, there=True)
        if repo or directory or os.path.isdir(archive.location):
            yield "", archive
            return
    yield from all_archives()


def find_session(repo: str | None, directory: str | None, session: str | None) -> tuple[TranscriptArchive, str]:
    """Return the archive that holds a session and its whole id, from the first letters of it.

    Without `session` it is the session that was archived last in the archive that the options name. Raises
    `SessionNotFoundError`, `InvalidSessionIdError`, and `click.UsageError` if several ids begin with these letters.
    """
    archive = open_archive(repo, directory)
    if session is None:
        newest = listed(archive)[:1]
        if not newest:
            raise MalaContextError(f"no session is archived in {archive.location}; name a SESSION")
        return archive, newest[0].session_id
    check_session_id(session)
    found = _begin_with(archive, session)
    if not found and repo is None and directory is None:
        for _, other in all_archives():
            more = _begin_with(other, session)
            if more:
                archive, found = other, found + more
    one = one_session(session, found)
    if one is None:
        raise SessionNotFoundError(session, archive.location, _nearest(archive, session))
    return archive, one


def _nearest(archive: TranscriptArchive, session: str) -> str | None:
    """Return the session whose first letters are nearly these."""
    from difflib import get_close_matches

    heads = {each.session_id[: len(session)]: each.session_id for each in reversed(listed(archive)[:MOST_GUESSED])}
    near = get_close_matches(session, heads, n=1, cutoff=0.75)
    return heads[near[0]] if near else None


def _begin_with(archive: TranscriptArchive, session: str) -> list[str]:
    return [each.session_id for each in archive.sessions(session)]


def listed(archive: TranscriptArchive) -> list[SessionSummary]:
    """Return all sessions of an archive, the one that was archived last first; shows progress if that takes long."""
    with waiting("listing") as progress:
        return archive.sessions(progress=progress)


def say_json(value: object) -> None:
    """Print a value as JSON, in ASCII, so that no text in it can control a terminal."""
    click.echo(json.dumps(value, indent=2, default=str))


def fields_of(record: Any, **more: Any) -> dict[str, Any]:
    """Return a record's fields for JSON."""
    values = {
        name: fields_of(value) if hasattr(type(value), "__annotations__") and hasattr(value, "__dict__") else value
        for name, value in vars(record).items()
    }
    return {**values, **more}
