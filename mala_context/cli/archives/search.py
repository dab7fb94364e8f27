"""`search`: find words in what is archived."""

from __future__ import annotations

import heapq

import click

from mala_context._util.printable import printable
from mala_context.archive.search import LIMIT, Hit
from mala_context.archive.search import search as find
from mala_context.cli.archives.common import (
    fields_of,
    find_session,
    json_option,
    listed,
    open_archive,
    place_options,
    say_json,
)
from mala_context.cli.progress import waiting


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--session", help="Only in this session; the first letters of its id are enough.")
@click.option("--limit", type=click.IntRange(1, 1000), default=LIMIT, show_default=True, help="Places at most.")
@place_options
@json_option
def search(
    words: tuple[str, ...], session: str | None, limit: int, repo: str | None, directory: str | None, as_json: bool
) -> None:
    """Find words in archived sessions, the best places first.

    All of it must stand in one message, within 200,000 characters; words in one argument ("in a row") must stand in a
    row. End a word with * for any ending. The first search of a session makes its index, beside the archive and as
    private.
    """
    query = " ".join(f'"{word}"' if " " in word and '"' not in word else word for word in words)
    if session is None:
        archive = open_archive(repo, directory).listed()
        sessions = listed(archive)
    else:
        archive, session_id = find_session(repo, directory, session)
        sessions = [each for each in archive.sessions(session_id) if each.session_id == session_id]
    hits: list[Hit] = []
    with waiting("searching") as progress:
        progress.expect(sum(each.stored for each in sessions), len(sessions))
        for each in sessions:
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
