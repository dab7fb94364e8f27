"""`list`, `show`, `cat`, `lost`, `search`, `verify`: commands that change nothing, unless `verify` gets `--repair`."""

from __future__ import annotations

import heapq
import json
import sys
from codecs import getincrementaldecoder
from contextlib import contextmanager, suppress
from operator import attrgetter
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, TypeVar

import click

from mala_context._util.text import plural, printable, size_text
from mala_context.archive.compactions import compactions, cut_before, moment_of
from mala_context.archive.reading import choose_chain, chunks
from mala_context.archive.verify import verify_archive
from mala_context.cli.archives import conversation, listing
from mala_context.cli.archives.common import (
    F,
    all_option,
    archives_of,
    complete_archived,
    fields_of,
    find_session,
    json_option,
    listed,
    place_options,
    say_json,
    session_argument,
    transcript_options,
)
from mala_context.cli.exit_status import CHECK_FAILED, status_of
from mala_context.cli.progress import Wait, waiting
from mala_context.cli.session_names import named
from mala_context.cli.slash import compactions_of, lost_lines, measured
from mala_context.errors import ArchiveError, MalaContextError, PartNotFoundError
from mala_context.transcripts.rows import LongRow, Row, lines, rows
from mala_context.transcripts.tail import opening

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from mala_context.archive.interface import SessionView
    from mala_context.archive.layout import Piece, SessionSummary
    from mala_context.archive.search import Hit
    from mala_context.archive.store import TranscriptArchive

R = TypeVar("R", Row, Row | LongRow)


@click.command("list")
@place_options
@all_option
@json_option
def list_(repo: str | None, directory: str | None, everywhere: bool, as_json: bool) -> None:
    """List sessions and what is archived of each.

    `c2` before a piece: the transcript was rewritten or shrank, and its archive began again. `*` after an agent: the
    piece is of the subagent's own transcript. `z` after a size: the piece is packed. `r`: it is no longer here and is
    read from the object store.
    """
    archives = list(archives_of(repo, directory, everywhere=everywhere))
    parts = _as_json(archives) if as_json else _as_table(archives)
    for part in parts:  # one by one: the lines of a million sessions are not held together
        sys.stdout.write(part)


def _as_json(archives: Iterable[tuple[str, TranscriptArchive]]) -> Iterator[str]:
    """Yield the parts of one list, each session on lines of its own."""
    opening = "["
    for name, archive in archives:
        known = archive.listed()
        about = json.dumps({"repo": name or None, "location": archive.location})
        yield f'{opening}\n{about[:-1]}, "sessions": ['
        opening = ","
        for place, summary in enumerate(listed(known)):
            text = json.dumps(listing.describe(known, summary), indent=2, default=str)
            yield ("," if place else "") + "\n" + text
        yield "\n]}"
    yield "[]\n" if opening == "[" else "\n]\n"


def _as_table(archives: Iterable[tuple[str, TranscriptArchive]]) -> Iterator[str]:
    none = True
    for name, archive in archives:
        known = archive.listed()
        summaries = listed(known)
        title = printable(name or archive.location)
        size = size_text(sum(summary.stored for summary in summaries))
        yield f"{title}: {plural(len(summaries), 'session')}, {size}\n"
        if summaries:
            yield listing.row(listing.HEAD) + "\n"
        for summary in summaries:
            first, *others = listing.lines(listing.describe(known, summary))
            yield named(first, _opening(known, summary.session_id), sys.stdout, get_terminal_size().columns) + "\n"
            yield from (f"{line}\n" for line in others)
        none = False
    if none:
        yield "no archives\n"


def _opening(archive: TranscriptArchive, session_id: str) -> Iterator[dict[str, Any]]:
    """Yield an archived session's first rows, once they are asked for; none where they are in the object store only."""
    with suppress(OSError, MalaContextError), archive.view(session_id) as files:
        pieces = [each for each in archive.pieces(session_id) if each.subagent is None]
        if pieces and not pieces[0].remote:
            yield from opening(chunks(files, pieces[:1], strict=False))


def _part_options(command: F) -> F:
    option = click.option("--dropped-by", type=click.IntRange(min=1), help="Only what compaction N discarded.")
    return transcript_options(option(command))


@click.command()
@session_argument
@place_options
@_part_options
@click.option("--before", help="Only what was said before a time (2026-11-28T09:30).")
@click.option("--full", is_flag=True, help="Do not shorten inputs and results of tools.")
@json_option
def show(
    session: str | None,
    repo: str | None,
    directory: str | None,
    agent: str | None,
    chain: int | None,
    dropped_by: int | None,
    before: str | None,
    full: bool,
    as_json: bool,
) -> None:
    """Show a session as a conversation, a page at a time on a terminal.

    Control characters are shown, not sent to the terminal. Of a row over 4 MiB only beginnings are shown, and the rest
    is counted. With --json: one object a line. Without SESSION: the session archived last.
    """
    moment = moment_of(before)
    if before is not None and moment is None:
        raise click.UsageError(f"--before is {before!r}; write a time like 2026-11-28T09:30")
    archive, session_id = find_session(repo, directory, session)
    with archive.view(session_id) as files:
        pieces = choose_chain(archive.pieces(session_id), session_id, archive.location, subagent=agent, chain=chain)
        with _looking(pieces) as progress:
            start, end = _part(files, pieces, session_id, dropped_by, progress)
            if moment is not None:
                cut = cut_before(rows(_told(chunks(files, pieces), progress)), before=moment)
                end = cut.offset if cut is not None and end is None else end
        said = conversation.messages(_between(rows(chunks(files, pieces)), start, end))
        text = (json.dumps(each) + "\n" for each in said) if as_json else conversation.text(said, full=full)
        if sys.stdout.isatty() and not as_json:
            click.echo_via_pager(text)
        else:
            for part in text:
                click.echo(part, nl=False)


@click.command()
@session_argument
@place_options
@_part_options
@click.option("--salvage", is_flag=True, help="Write what can be read although something is missing or damaged.")
def cat(
    session: str | None,
    repo: str | None,
    directory: str | None,
    agent: str | None,
    chain: int | None,
    dropped_by: int | None,
    salvage: bool,
) -> None:
    """Write a transcript to standard output, byte for byte.

    Exit status 1 if the bytes written are not the bytes archived. Control characters are shown, not sent to a terminal.
    Without SESSION: the session archived last.
    """
    archive, session_id = find_session(repo, directory, session)
    with archive.view(session_id) as files:
        pieces = choose_chain(archive.pieces(session_id), session_id, archive.location, subagent=agent, chain=chain)
        with _looking(pieces) as progress:
            start, end = _part(files, pieces, session_id, dropped_by, progress)
        data = chunks(files, pieces, strict=not salvage)
        if sys.stdout.isatty():
            for line in _between(lines(data), start, end):
                for part in _texts(line):
                    click.echo(printable(part), nl=False)
                click.echo()
            return
        out = sys.stdout.buffer
        position = 0
        for chunk in data:
            first = max(0, start - position)
            last = len(chunk) if end is None else min(len(chunk), end - position)
            if first < last:
                out.write(chunk[first:last])
            position += len(chunk)
            if end is not None and position >= end:
                break
        out.flush()


@contextmanager
def _looking(pieces: Collection[Piece]) -> Iterator[Wait]:
    """Show progress while the part is looked for; once it is printed, the output itself shows progress."""
    with waiting("looking", counts=False) as progress:
        progress.expect(sum(piece.length or 0 for piece in pieces))
        yield progress


def _told(data: Iterable[bytes], progress: Wait) -> Iterator[bytes]:
    for chunk in data:
        progress(len(chunk))
        yield chunk


def _part(
    files: SessionView, pieces: list[Piece], session_id: str, number: int | None, progress: Wait
) -> tuple[int, int | None]:
    """Return where the rows that a compaction discarded begin and end; all of the transcript without a number."""
    if number is None:
        return 0, None
    start = count = 0
    for compaction in compactions(rows(_told(chunks(files, pieces), progress))):
        count = compaction.number
        if count == number:
            return start, compaction.offset
        start = compaction.offset
    raise PartNotFoundError(session_id, f"compaction {number}", f"it was compacted {plural(count, 'time')}")


def _between(found: Iterable[R], start: int, end: int | None) -> Iterator[R]:
    for row in found:
        if end is not None and row.offset >= end:
            return
        if row.offset >= start:
            yield row


def _texts(line: Row | LongRow) -> Iterator[str]:
    """Yield a line's text, a long one in parts."""
    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    for part in [line.data] if isinstance(line, Row) else line.parts():
        yield decoder.decode(part)
    yield decoder.decode(b"", final=True)


@contextmanager
def _checking(archive: TranscriptArchive, session_ids: Collection[str] | None = None) -> Iterator[Wait]:
    """Show the progress of a check of an archive; packed pieces give more bytes than they take on disk."""
    chosen = listed(archive) if session_ids is None else [each for sid in session_ids for each in archive.sessions(sid)]
    stored, pieces = sum(each.stored for each in chosen), sum(each.pieces for each in chosen)
    del chosen  # about 600 bytes a session, for as long as the check runs; `verify` makes a list of its own
    with waiting("checking") as progress:
        progress.expect(stored, pieces)
        yield progress


@click.command()
@click.argument("sessions", nargs=-1, shell_complete=complete_archived)
@place_options
@all_option
@click.option("--repair", is_flag=True, help="Rebuild manifest rows from the files, and fix permissions.")
@json_option
def verify(
    sessions: tuple[str, ...],
    repo: str | None,
    directory: str | None,
    everywhere: bool,
    repair: bool,
    as_json: bool,
) -> None:
    """Check every hash, every permission and every gap.

    --repair never changes a piece's bytes: a damaged or missing piece stays reported. Exit status 1 if something is
    wrong and was not fixed.
    """
    if everywhere and sessions:
        raise click.UsageError("--all is for all archives and sessions: name none")
    reports = []
    if sessions:
        for each in sessions:
            archive, session_id = find_session(repo, directory, each)
            with _checking(archive, [session_id]) as progress:
                reports.append(verify_archive(archive, [session_id], repair=repair, progress=progress))
    else:
        for _, each_archive in archives_of(repo, directory, everywhere=everywhere):
            archive = each_archive.listed()
            with _checking(archive) as progress:
                reports.append(verify_archive(archive, repair=repair, progress=progress))
    if as_json:
        say_json(
            [
                fields_of(report, ok=report.ok, problems=[fields_of(each, text=each.text) for each in report.problems])
                for report in reports
            ]
        )
    else:
        for report in reports:
            for problem in report.problems:
                mark = "fixed" if problem.fixed else "WRONG"
                click.echo(f"{mark:6}  {printable(problem.path)}: {printable(problem.text)}")
            wrong = sum(not problem.fixed for problem in report.problems)
            state = "sound" if report.ok else plural(wrong, "problem")
            click.echo(
                f"{printable(report.location)}: {plural(report.sessions, 'session')}, "
                f"{plural(report.pieces, 'piece')}, {size_text(report.bytes)}: {state}"
            )
        if not reports:
            click.echo("no archives")
    if not all(report.ok for report in reports):
        click.get_current_context().exit(CHECK_FAILED)


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


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--session",
    shell_complete=complete_archived,
    help="Only in this session; the first letters of its id are enough.",
)
@all_option
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="Number of places to show.")
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
    from mala_context.archive.search import search_session  # not above: other commands need no SQLite

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
    failed: list[Exception] = []
    with waiting("searching") as progress:
        progress.expect(sum(each.stored for _, each in places), len(places))
        for archive, each in places:
            try:
                found = search_session(archive, each.session_id, query, limit=limit)
            except (ArchiveError, OSError) as error:
                if len(places) == 1:
                    raise
                failed.append(error)
                continue
            hits = heapq.nsmallest(limit, [*hits, *found], key=attrgetter("score"))
            progress(each.stored)
    if as_json:
        say_json([fields_of(hit) for hit in hits])
    else:
        _say_hits(hits)
    if failed:
        click.echo(f"{plural(len(failed), 'session')} could not be searched, the first because:", err=True)
        click.get_current_context().exit(status_of(failed[0]))


def _say_hits(hits: list[Hit]) -> None:
    for hit in hits:
        about = "" if hit.agent == "main" else f" ({printable(hit.agent)})"
        about += ", rewound" if hit.rewound else ""
        click.echo(f"{hit.session_id}  {printable(hit.time or '')}  {printable(hit.role)}{about}")
        click.echo(f"    {printable(hit.text)}")
    if not hits:
        click.echo("nothing found")
