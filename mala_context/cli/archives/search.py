"""`search`: find words in what is archived."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import click

from mala_context._util.text import printable
from mala_context.archive.search import LIMIT, Hit
from mala_context.archive.search import search as find
from mala_context.cli.archives.common import (
    archives_of,
    complete_archived,
    fields_of,
    find_session,
    json_option,
    listed,
    place_options,
    say_json,
)
from mala_context.cli.progress import waiting

if TYPE_CHECKING:
    from mala_context.archive.layout import SessionSummary
    from mala_context.archive.store import TranscriptArchive


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--session",
    shell_complete=complete_archived,
    help="Only in this session; the first letters of its id are enough.",
)
@click.option("--all", "everywhere", is_flag=True, help="In all archives; the default where this repository has none.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=LIMIT, show_default=True, help="Number of places to show."
)
@place_options
@json_option
def search(
    words: tuple[str, ...],
    session: str | None,
    everywhere: bool,
    limit: int,
    repo: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Find words in archived sessions, the best places first.

    One message must hold all of the words, within 200,000 characters; the words of one argument ("in a row") must
    follow each other. End a word with * for any ending. The first search of a session writes its index beside the
    archive, as private as that.
    """
    query = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    places: list[tuple[TranscriptArchive, SessionSummary]] = []
    if session is None:
        for _, archive in archives_of(repo, directory, everywhere=everywhere):
            known = archive.listed()
            places += ((known, each) for each in listed(known))
    else:
        archive, session_id = find_session(repo, directory, session)
        places = [(archive, each) for each in archive.sessions(session_id) if each.session_id == session_id]
    hits: list[Hit] = []
    with waiting("searching") as progress:
        progress.expect(sum(each.stored for _, each in places), len(places))
        for archive, each in places:
            hits = heapq.nsmallest(limit, [*hits, *find(archive, each.session_id, query, limit=limit)], key=_score)
            progress(each.stored)
    if as_json:
        say_json([fields_of(hit) for hit in hits])
        return
    for hit in hits:
        _show(hit)
    if not hits:
        click.echo("nothing found")


def _score(hit: Hit) -> float:
    return hit.score


def _show(hit: Hit) -> None:
    about = "" if hit.agent == "main" else f" ({printable(hit.agent)})"
    about += ", rewound" if hit.rewound else ""
    click.echo(f"{hit.session_id}  {printable(hit.time or '')}  {printable(hit.role)}{about}")
    click.echo(f"    {printable(hit.text)}")
