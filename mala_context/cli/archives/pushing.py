"""`push`: send what is archived to the object store that `mala.yaml` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mala_context._util.formatting import plural, size_text
from mala_context._util.printable import printable
from mala_context.cli.archives.common import (
    configured,
    fields_of,
    find_session,
    json_option,
    say_json,
)
from mala_context.cli.exit_status import CHECK_FAILED
from mala_context.cli.paths import ThereDirectory
from mala_context.cli.progress import waiting

if TYPE_CHECKING:
    from mala_context.archive.remote.push import PushResult
    from mala_context.archive.store import TranscriptArchive


@click.command()
@click.argument("sessions", nargs=-1)
@click.option("--repo", type=ThereDirectory(), help="The archive of this repository.")
@json_option
def push(sessions: tuple[str, ...], repo: str | None, as_json: bool) -> None:
    """Upload what the object store in `archive.directory` does not have yet, and wait for it.

    An agent uploads by itself while it runs; this is for what is left, at the end of a job say. Each file is read back
    and compared before it counts as uploaded. Exit status 1 where something is not there yet.
    """
    archive = configured(repo)
    ids = [find_session(repo, None, each)[1] for each in sessions] if sessions else None
    result = run(archive, ids)
    if as_json:
        say_json(fields_of(result))
    else:
        say(result)
    if result.pending:
        click.get_current_context().exit(CHECK_FAILED)


def run(archive: TranscriptArchive, session_ids: list[str] | None) -> PushResult:
    """Push, with a line on the terminal where it takes long."""
    with waiting("uploaded") as progress:
        return archive.push(session_ids, progress=progress)


def say(result: PushResult) -> None:
    """Print what was uploaded, and what is not."""
    for session_id in result.pending:
        click.echo(f"not all there: {session_id}")
    click.echo(
        f"{plural(result.files, 'file')}, {size_text(result.bytes)} uploaded; "
        f"{plural(result.sessions, 'session')} complete in {printable(result.address)}"
    )
