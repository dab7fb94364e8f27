"""`restore`, `prune`, `catch-up`, `push`, `pack`, `export`, `import`: commands that write.

Those that remove something only show what they would do until they get `--yes`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from mala_context._util.text import plural, printable, size_text
from mala_context.archive.export import ExportResult, export_transcript
from mala_context.archive.importing import find_copies, import_copies
from mala_context.archive.reading import choose_chain
from mala_context.archive.restore import restore_session
from mala_context.cli.archives.changed_files import ChangedFile, changed_lines, changed_since
from mala_context.cli.archives.common import (
    complete_archived,
    configured,
    fields_of,
    find_session,
    json_option,
    know_object_store,
    listed,
    open_archive,
    place_options,
    repo_option,
    say_json,
    session_argument,
    transcript_options,
    wrong_values,
)
from mala_context.cli.archives.conversation import messages
from mala_context.cli.exit_status import CHECK_FAILED, UNUSABLE_INPUT, status_of
from mala_context.cli.files import publish, writer
from mala_context.cli.inputs import ExistingDirectory, must_be_there
from mala_context.cli.progress import waiting
from mala_context.errors import ArchiveBusyError, ArchiveError, ArchiveUnavailableError, MalaContextError
from mala_context.transcripts.rows import file_chunks, rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mala_context.archive.remote.push import PushResult
    from mala_context.archive.restore import RestoreResult
    from mala_context.archive.retention import PruneResult
    from mala_context.archive.store import TranscriptArchive

yes_option = click.option("--yes", is_flag=True, help="Do it; without this it is a dry run.")


@click.command()
@session_argument
@place_options
@click.option(
    "--at",
    type=click.IntRange(min=1),
    metavar="N",
    help="As it was just before compaction N, from 1.  [default: the last]",
)
@click.option("--before", metavar="TIME", help="As it was at a time (2026-11-28T09:30).")
@click.option(
    "--chain", type=click.IntRange(min=1), metavar="N", help="Read this chain of the archive, not the transcript."
)
@click.option("--cwd", type=ExistingDirectory(), help="Directory in which the new session is to be resumed.")
@click.option("--projects-dir", type=click.Path(file_okay=False), help="The CLI's projects directory.")
@click.option("--dry-run", is_flag=True, help="Write nothing; show what would be written and what is missing.")
@json_option
def restore(
    session: str | None,
    repo: str | None,
    directory: str | None,
    at: int | None,
    before: str | None,
    chain: int | None,
    cwd: str | None,
    projects_dir: str | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Undo a compaction: make a new session of what this one held before it.

    The old session is not touched. Prints the command that opens the new session. Lists the files that the session
    names and that are missing or have changed since, with commands that bring back the changed ones. Without SESSION:
    the session archived last.
    """
    archive, session_id = find_session(repo, directory, session)
    where: dict[str, Any] = {"at": at, "before": before, "chain": chain, "cwd": cwd, "projects": projects_dir}
    with waiting("reading", counts=False) as progress, wrong_values():
        result = restore_session(archive, session_id, progress=progress, dry_run=dry_run, **where)
    changed, end = _changed(result, before)
    if as_json:
        say_json(fields_of(result, command=result.command, changed=[each._asdict() for each in changed]))
        return
    lines = changed_lines(changed, end, result.source, result.cwd) if changed and end is not None else ()
    _say_restored(result, before, lines)


def _changed(result: RestoreResult, before: str | None) -> tuple[list[ChangedFile], float | None]:
    """Return the files that changed since the restored conversation ends; a dry run wrote none to look into."""
    if result.dry_run:
        return [], None
    compaction = result.compaction
    try:
        return changed_since(result.path, result.cwd, compaction.time if compaction is not None else before)
    except OSError:
        return [], None


def _say_restored(result: RestoreResult, before: str | None, changed: Iterable[str]) -> None:
    what = "whole" if before is None else f"as it was at {before}"
    if result.compaction is not None:
        tokens = result.compaction.tokens_before
        what = f"as it was before compaction {result.compaction.number}" + (f" ({tokens:,} tokens)" if tokens else "")
    done = "Would restore" if result.dry_run else "Restored"
    click.echo(f"{done} {result.source} {printable(what)}, {result.rows} rows, from the {result.read_from}.")
    if result.subagents:
        click.echo(f"with the transcripts of {plural(len(result.subagents), 'subagent')}")
    for path in result.put_back:
        click.echo(f"{'would put back' if result.dry_run else 'put back'}: {printable(path)}")
    for path in result.missing:
        click.echo(f"missing:  {printable(path)}")
    if result.cwd is not None and not os.path.isdir(result.cwd):
        click.echo(f"missing:  {printable(result.cwd)} (its working directory; --cwd names another)")
    for line in changed:
        click.echo(printable(line))
    if result.dry_run:
        click.echo(f"in {printable(os.path.dirname(result.path))}; without --dry-run it is written")
    else:
        click.echo(printable(result.command))


@click.command()
@click.argument("sessions", nargs=-1, shell_complete=complete_archived)
@place_options
@click.option("--days", type=click.FloatRange(min=0), help="Sessions whose newest file is older.")
@click.option("--bytes", "size", help="The oldest sessions, until the archive takes no more than this (5GB, 5GiB).")
@click.option("--sessions", "count", type=click.IntRange(min=0), help="The oldest sessions, until N are left.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed; the default without --yes.")
@yes_option
@json_option
def prune(
    sessions: tuple[str, ...],
    repo: str | None,
    directory: str | None,
    days: float | None,
    size: str | None,
    count: int | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Remove archived sessions, whole: those past a limit, and those named.

    Without --yes it is a dry run. Where a session's transcript is gone, its archive is the only copy, and is removed
    only if you name it. A session that is uploaded is removed here once the object store has all of it, and can be
    read as before.
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes exclude each other")
    if not sessions and days is None and size is None and count is None:
        raise click.UsageError("give a limit (--days, --bytes, --sessions) or name sessions")
    if sessions:
        named = [find_session(repo, directory, each) for each in sessions]
        archive = named[0][0]
        if any(each.location != archive.location for each, _ in named):
            raise click.UsageError("these sessions are in several archives: name one with --repo or --dir")
        ids = [session_id for _, session_id in named]
    else:
        archive, ids = open_archive(repo, directory, there=True), []
    know_object_store(archive)
    limits: dict[str, Any] = {"days": days, "bytes": size, "sessions": count}
    with waiting("removing" if yes else "looking") as progress, wrong_values():
        result = archive.prune(**limits, session_ids=ids, dry_run=not yes, progress=progress)
    if as_json:
        say_json(fields_of(result))
    else:
        _say_pruned(result, yes=yes)
    if result.failed:  # a WARNING named each
        click.get_current_context().exit(UNUSABLE_INPUT)


def _say_pruned(result: PruneResult, *, yes: bool) -> None:
    for session_id in result.removed:
        here = " here; the object store keeps it" if session_id in result.uploaded else ""
        click.echo(f"{'removed' if yes else 'would remove'} {session_id}{here}")
    for session_id in result.not_uploaded:
        click.echo(f"kept {session_id}: not all of it is uploaded yet; `mala-context archives push` does it")
    for session_id in result.only_copies:
        click.echo(f"kept {session_id}: its transcript is gone, this is the only copy; name it to remove it")
    for session_id in result.busy:
        click.echo(f"kept {session_id}: it is being written to")
    tail = "" if yes else " (dry run; --yes does it)"
    click.echo(f"{plural(len(result.removed), 'session')}, {size_text(result.freed)}{tail}")


@click.command("catch-up")
@place_options
@json_option
def catch_up(repo: str | None, directory: str | None, as_json: bool) -> None:
    """Archive what no hook archived: the rest of sessions that ended.

    Uses the repository's `mala.yaml`: mode, compression, retention, and the object store to upload to.
    """
    if directory is not None and repo is not None:
        raise click.UsageError("--repo and --dir exclude each other")
    archive = configured(repo) if directory is None else open_archive(None, directory)
    with waiting("catching up") as progress:
        results = archive.catch_up(progress=progress)
    new = [each for each in results if each.archived]
    if as_json:
        say_json([fields_of(each, archived=each.archived) for each in results])
    else:
        for each in new:
            click.echo(f"{each.session_id}: {size_text(each.bytes)} to {printable(each.path)}")
        click.echo(f"{len(new)} of {len(results)} transcripts had something new")
    if archive.target is not None:
        sent = _push(archive, None)
        if not as_json:
            _say_pushed(sent)


@click.command()
@click.argument("sessions", nargs=-1, shell_complete=complete_archived)
@repo_option
@json_option
def push(sessions: tuple[str, ...], repo: str | None, as_json: bool) -> None:
    """Upload to the object store of `archive.directory` what it does not have yet, and wait for it.

    An agent uploads by itself while it runs; use this for the rest, for example at the end of a job. Each file is read
    back and compared before it counts as uploaded. Exit status 1 if something is not there yet.
    """
    archive = configured(repo)
    ids = [find_session(repo, None, each)[1] for each in sessions] if sessions else None
    result = _push(archive, ids)
    if as_json:
        say_json(fields_of(result))
    else:
        _say_pushed(result)
    if result.pending:
        click.get_current_context().exit(CHECK_FAILED)


def _push(archive: TranscriptArchive, session_ids: list[str] | None) -> PushResult:
    """Push, with progress on the terminal if it takes long."""
    with waiting("uploaded") as progress:
        return archive.push(session_ids, progress=progress)


def _say_pushed(result: PushResult) -> None:
    """Print what was uploaded, and what is not."""
    for session_id in result.pending:
        click.echo(f"not all there: {session_id}")
    click.echo(
        f"{plural(result.files, 'file')}, {size_text(result.bytes)} uploaded; "
        f"{plural(result.sessions, 'session')} complete in {printable(result.address)}"
    )


@click.command()
@click.argument("sessions", nargs=-1, shell_complete=complete_archived)
@place_options
@json_option
def pack(sessions: tuple[str, ...], repo: str | None, directory: str | None, as_json: bool) -> None:
    """Pack pieces with zstd; each is verified before the plain one is removed.

    `zstd -dcf SESSION_*` of the packed pieces is the transcript. Needs the extra `zstd`.
    """
    if sessions:
        chosen = [find_session(repo, directory, each) for each in sessions]
    else:
        archive = open_archive(repo, directory, there=True).listed()
        chosen = [(archive, each.session_id) for each in listed(archive)]
    saved = status = 0
    with waiting("packing", counts=False) as progress:
        plain = [_plain_sizes(archive, sid) for archive, sid in chosen]
        progress.expect(sum(map(sum, plain)))
        for (archive, session_id), sizes in zip(chosen, plain, strict=True):
            try:
                saved += archive.pack([session_id])
            except (ArchiveBusyError, ArchiveUnavailableError, OSError) as error:  # the others are packed all the same
                status = status_of(error)
            progress(sum(sizes))
    if as_json:
        say_json({"saved": saved})
    else:
        click.echo(f"{size_text(saved)} saved")
    click.get_current_context().exit(status)


def _plain_sizes(archive: TranscriptArchive, session_id: str) -> list[int]:
    try:
        return [piece.stored for piece in archive.pieces(session_id) if not piece.packed]
    except (ArchiveError, OSError):  # said when it is packed
        return []


@click.command()
@click.argument("session", shell_complete=complete_archived)
@click.argument("file", type=click.Path(dir_okay=False))
@place_options
@transcript_options
@click.option("--redact", is_flag=True, help="Mask secrets; the documentation lists what is not found.")
@click.option("--html", "as_html", is_flag=True, help="Write the conversation as a page to read in a browser instead.")
@json_option
def export(
    session: str,
    file: str,
    repo: str | None,
    directory: str | None,
    agent: str | None,
    chain: int | None,
    redact: bool,
    as_html: bool,
    as_json: bool,
) -> None:
    """Write a transcript to one new file that only you can read (0600).

    Never replaces a file, and leaves none half-written. A row over 16 MiB cannot be searched for secrets: --redact
    leaves it out and counts it.
    """
    archive, session_id = find_session(repo, directory, session)
    with waiting("writing", counts=False) as progress:
        pieces = choose_chain(archive.pieces(session_id), session_id, archive.location, subagent=agent, chain=chain)
        progress.expect(sum(piece.length or 0 for piece in pieces))
        write = _export_page if as_html else export_transcript
        result = write(archive, session_id, file, redact=redact, subagent=agent, chain=chain, progress=progress)
    if as_json:
        say_json(fields_of(result))
        return
    masked = "" if result.redacted is None else f", {plural(result.redacted, 'secret')} masked"
    short = f"; {size_text(result.left_out)} of rows too long to be searched left out" if result.left_out else ""
    click.echo(f"{printable(result.path)}: {size_text(result.bytes)}{masked}{short}")


def _export_page(archive: TranscriptArchive, session_id: str, file: str, **how: Any) -> ExportResult:
    """Write the conversation of a transcript as a page; what `redact` masks is masked before the page is made."""
    import tempfile

    from mala_context.cli.archives.html_page import conversation_page  # the report's modules, and the tracker

    size = 0
    with publish(file, replace=False, private=True) as target, tempfile.TemporaryDirectory() as folder:
        result = export_transcript(archive, session_id, os.path.join(folder, "transcript.jsonl"), **how)
        with writer(target) as page:
            for part in conversation_page(session_id, messages(rows(file_chunks(result.path)))):
                size += page.write(part.encode("utf-8", "backslashreplace"))
    return ExportResult(path=os.path.abspath(file), bytes=size, redacted=result.redacted, left_out=result.left_out)


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path())
@place_options
@click.option("--remove", is_flag=True, help="Remove each copy whose every byte is in the archive.")
@yes_option
@json_option
def import_(
    paths: tuple[str, ...], repo: str | None, directory: str | None, remove: bool, yes: bool, as_json: bool
) -> None:
    """Import full copies of transcripts that plain copy hooks made.

    PATHS are files, and directories that hold them; by default the archive's own directory. With --remove it is a dry
    run until you give --yes. Exit status 1 if a copy could not be imported, 3 if PATHS hold none.
    """
    archive = open_archive(repo, directory, new=True)
    dry = remove and not yes
    for path in paths:
        must_be_there(path)
    places = paths or (archive.location,)
    with waiting("importing") as progress:
        copies = find_copies(places)
        if paths and not copies:
            raise MalaContextError(f"no transcript directly in {', '.join(paths)}")
        progress.expect(sum(os.path.getsize(each) for each in copies if os.path.isfile(each)), len(copies))
        results = import_copies(archive, places, remove=remove, dry_run=dry, progress=progress)
    if as_json:
        say_json([fields_of(each) for each in results])
    else:
        for each in results:
            note = "".join((", removed" if each.removed else "", f": {printable(each.reason)}" if each.reason else ""))
            new = f" ({size_text(each.bytes)} new)" if each.bytes else ""
            click.echo(f"{each.outcome}{new}{note}  {printable(each.path)}")
        removed = sum(each.removed for each in results)
        tail = " (dry run; --yes does it)" if dry else f", {removed} removed" if remove else ""
        click.echo(f"{plural(len(results), 'copy', 'copies')}, {sum(each.verified for each in results)} verified{tail}")
    if any(each.outcome == "skipped" or (not dry and not each.verified) for each in results):
        click.get_current_context().exit(CHECK_FAILED)
