"""`lost`: what each compaction of a session dropped that its summary does not mention."""

from __future__ import annotations

import click

from mala_context._util.text import printable
from mala_context.cli.archives.common import find_session, json_option, place_options, say_json, session_argument
from mala_context.cli.progress import waiting
from mala_context.cli.slash import compactions_of, lost_lines, measured


@click.command()
@session_argument
@place_options
@json_option
def lost(session: str | None, repo: str | None, directory: str | None, as_json: bool) -> None:
    """Show what compactions dropped and their summaries do not mention.

    A file counts as mentioned if the summary has its name, an instruction if the summary has half of its words. What
    was not measured when the session was compacted is measured now. Without SESSION: the session archived last.
    """
    archive, session_id = find_session(repo, directory, session)
    with waiting("measuring", counts=False) as progress:
        lengths = {piece.plain: piece.length or 0 for piece in archive.pieces(session_id)}
        compactions = list(compactions_of(archive, session_id))
        progress.expect(sum(lengths.get(str(row.get("piece")), 0) for row in compactions))
        found = []
        for row in compactions:
            found.append(measured(archive, session_id, row))
            progress(lengths.get(str(row.get("piece")), 0))
    if as_json:
        say_json({"session": session_id, "location": archive.location, "compactions": found})
        return
    if not found:
        click.echo(f"{printable(session_id)}: no compaction is archived")
    for number, each in enumerate(found, 1):
        for line in lost_lines(number, each):
            click.echo(printable(line))
