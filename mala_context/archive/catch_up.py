"""Archive what no hook archived: the rest of ended sessions, and the outcomes of their compactions.

A catch-up looks at the sessions that the archive knows, by a piece or by a `session` row. It skips a session whose
transcript is exactly as long as what is archived and was not written to since: it neither reads the transcript nor
touches the session's files, because a touched session never reaches an age limit. It also skips a session that a living
process of this host archives itself.

A process that hosts only a command hook sees PreCompact and nothing after it. So the bytes that a catch-up adds are
searched for `compact_boundary` rows. Each boundary closes the piece that waits for an outcome. If none waits, the
compaction's hook did not run.
"""

from __future__ import annotations

import os
import stat

from mala_context.archive import layout, log, manifests
from mala_context.transcripts.compactions import MARKS, is_main_boundary, may_hold

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from mala_context.archive.interface import Archiver, SessionView
    from mala_context.archive.layout import ArchiveResult, Piece
    from mala_context.archive.manifests import Manifest
    from mala_context.archive.reader import ArchiveReader

IDLE = 60.0
"""Seconds without a write after which a transcript's last row counts as complete, even without a newline.

A time of modification that is so far in the future is from before the clock was set back, and counts as old too.
"""


def transcript_of(archive: Archiver | ArchiveReader, session_id: str, manifest: Manifest) -> str | None:
    """Return where a session's transcript is now, or `None` if it is gone.

    The last known place comes first. If it is not there, it may have moved: then the archive looks for its name.
    """
    for row in reversed(manifest.rows):
        path = row.get("transcript")
        if row.get("row") in ("piece", "session") and row.get("subagent") is None and isinstance(path, str):
            if _status(path) is not None:
                return path
            break
    return archive.find_transcript(session_id)


def _status(path: str) -> os.stat_result | None:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def is_current(path: str, pieces: Sequence[Piece], subagent: str | None) -> bool:
    """Tell from size and time alone whether a transcript is as it was when it was archived last."""
    chains = manifests.chains_of(pieces, subagent)
    status = _status(path)
    if not chains or status is None:
        return False
    newest = chains[-1][-1]
    return newest.end == status.st_size and status.st_mtime_ns <= newest.mtime_ns


def has_live_owner(manifest: Manifest) -> bool:
    """Tell whether the process that archives this session itself still runs. It also records the compactions."""
    owner = next((row for row in reversed(manifest.of_kind("session")) if isinstance(row.get("pid"), int)), None)
    if owner is None or owner.get("host") != os.uname().nodename or owner["pid"] <= 0:
        return False
    try:
        os.kill(owner["pid"], 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    from mala_context.archive.atomic_write import process_start

    # Process ids come again: each container begins at 1, and the session of a killed container counted as alive. The
    # start tells our process from a later one of the same number. Where the system does not say it (macOS), the number
    # has to do.
    stated, here = owner.get("started"), process_start(owner["pid"])
    return stated is None or here is None or stated == here


def catch_up(
    archive: Archiver,
    session_ids: Iterable[str],
    now: float,
    progress: Callable[[int], object] | None = None,
) -> Iterator[ArchiveResult]:
    """Archive the rest of each session, one after the other; a session that cannot be archived is a WARNING.

    `progress` is called after each session with the bytes that the archive has of it. If it has `found(bytes)`, that is
    called for each session that is found first; if it has `expect(bytes, sessions)`, that is called once with the
    totals.
    """
    chosen = list(session_ids)
    stored = {} if progress is None else _stored(archive, progress)
    expect = getattr(progress, "expect", None)
    if expect is not None:
        expect(sum(stored.get(each, 0) for each in chosen), len(chosen))
    for session_id in chosen:
        yield from _catch_up_on(archive, session_id, now)
        if progress is not None:
            progress(stored.get(session_id, 0))


def _stored(archive: Archiver, progress: Callable[[int], object]) -> dict[str, int]:
    """Return the bytes of each session, and nothing else: there may be very many sessions to hold in memory."""
    return {each.session_id: each.stored for each in archive.sessions(progress=getattr(progress, "found", None))}


def _catch_up_on(archive: Archiver, session_id: str, now: float) -> Iterator[ArchiveResult]:
    from mala_context.errors import ArchiveBusyError, ArchiveError

    try:
        with archive.view(session_id) as files:
            manifest = manifests.parse(files.manifest())
            pieces = manifests.pieces_of(files.list(), manifest)
        if has_live_owner(manifest):
            return
        path = transcript_of(archive, session_id, manifest)
        status = None if path is None else _status(path)
        if path is None or status is None:
            return
        if not is_current(path, pieces, None):
            result = archive.archive(path, session_id, trigger="catch_up", final=abs(now - status.st_mtime) > IDLE)
            if result.archived and _may_show(result.path or ""):
                close_compactions(archive, session_id, os.path.basename(result.path or ""))
            yield result
        yield from archive.archive_side_files(path, session_id, trigger="catch_up")
    except ArchiveBusyError:
        pass  # another process is archiving this session right now
    except (ArchiveError, OSError) as error:
        log.warning("Catching up on session %s failed: %s", session_id, error)


def _may_show(path: str) -> bool:
    """Tell whether a new piece may hold a boundary; a cheap look before the whole session is read."""
    from mala_context.transcripts.rows import file_chunks

    try:
        return may_hold(file_chunks(path), MARKS[:1])
    except OSError:  # moved meanwhile: `_shown_by` finds it
        return True


def close_compactions(archive: Archiver, session_id: str, piece: str, *, skipped: bool = True) -> list[dict[str, Any]]:
    """Write the outcome of each compaction whose boundary is in a new piece, or add the sizes from its boundary.

    The first compaction may have its outcome already: PreCompact archived the rows before it and PostCompact wrote the
    outcome, but the CLI wrote the boundary with the sizes after both. Then only the sizes are added. If `skipped` is
    false, a compaction without hooks gets no outcome here; the fields of these compactions are returned.
    """
    told, found = _shown_by(archive, session_id, piece)
    left: list[dict[str, Any]] = []
    for number, meta in enumerate(found):
        waiting = archive.manifest(session_id).open_piece("main", but=piece)
        if waiting is not None:
            archive.record_outcome(session_id, "compacted", piece=waiting["name"], once=True, **meta)
        elif number == 0 and told is not None:
            archive.record_sizes(session_id, told, meta)
        elif skipped:
            log.warning("Compaction without PreCompact in session %s: archived now, in %s", session_id, piece)
            archive.record_outcome(session_id, "hook_skipped", piece=piece, **meta)
        else:
            left.append(meta)
    return left


def close_from_hook(archive: Archiver, session_id: str, path: str) -> None:
    """Record what the boundaries in a hook's new piece say of the compactions before it.

    A boundary is written after its hooks, so it lies in the next hook's piece. A compaction for which no PostCompact
    hook wrote an outcome gets one here, unless a living process will write it.
    """
    if _may_show(path) and not has_live_owner(archive.manifest(session_id)):
        close_compactions(archive, session_id, os.path.basename(path), skipped=False)


def _shown_by(archive: Archiver, session_id: str, name: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the piece whose outcome the first boundary belongs to, and the fields of all new boundaries.

    The piece is `None` if the first boundary's compaction has no outcome yet. A boundary is new if no earlier piece
    holds it.
    """
    with archive.view(session_id) as files:
        manifest = manifests.parse(files.manifest())
        pieces = [each for each in manifests.pieces_of(files.list(), manifest) if each.subagent is None]
        place = next((place for place, each in enumerate(pieces) if each.name == name), len(pieces))
        found = _boundaries(files, pieces, place)
        # A hook's piece ends before its own boundary, so that boundary is the first one after the piece. PostCompact
        # may have written the outcome without sizes. Counted again, it would be a second compaction (cases archive-17
        # and archive-20).
        last = manifest.last_outcome("main") if found else None
        told = next((at for at, each in enumerate(pieces[:place]) if last and each.plain == last.get("piece")), None)
        between = [] if told is None else range(told + 1, place)
        if last is None or told is None or any(pieces[at].remote or _boundaries(files, pieces, at) for at in between):
            return None, found
        # If the hook did not run, the piece may hold the boundary itself: then the sizes are in the outcome already.
        before = last["outcome"] != "hook_skipped" or last.get("tokens_before") is None
        return (pieces[told].plain if before else None), found


def _boundaries(files: SessionView, pieces: Sequence[Piece], place: int) -> list[dict[str, Any]]:
    """Return the fields of the boundaries in a piece, without boundaries that an earlier piece holds too."""
    from mala_context.archive.reading import chunks
    from mala_context.transcripts.json_rows import objects
    from mala_context.transcripts.rows import rows

    def told(each: Piece, start: int = 0) -> Iterator[tuple[object, dict[str, Any]]]:
        for row in rows(chunks(files, [each], strict=False), mark=MARKS[0]):
            if row.offset >= start:
                for value in objects(row.data):
                    if (meta := boundary(value)) is not None:
                        yield value.get("uuid"), meta

    if place == len(pieces):
        return []
    this, before = pieces[place], pieces[place - 1] if place else None
    same = before is not None and before.chain == this.chain
    # A full copy begins with all bytes of the copy before it. The boundaries among these were recorded with that copy.
    found = list(told(this, (before.length or 0) if before is not None and same and this.mode == "full" else 0))
    if found and before is not None and not same:  # a new chain begins with rows that older chains hold too
        known = {uuid for each in pieces[:place] if each.remote is None for uuid, _ in told(each)}
        found = [(uuid, meta) for uuid, meta in found if uuid is None or uuid not in known]
    return [meta for _, meta in found]


def boundary(value: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields of a `compact_boundary` row of the main agent; `None` for other rows."""
    from mala_context.archive.compactions import told_by

    return {**told_by(value), "agent": "main"} if is_main_boundary(value) else None


def _boundary_at_end(path: str | None) -> dict[str, Any]:
    """Return the fields of the last boundary in a piece if no response follows it.

    After the boundary of an earlier compaction the agent has answered, so that boundary is not the one that is wanted.
    """
    from mala_context.transcripts.json_rows import objects
    from mala_context.transcripts.rows import file_chunks, rows

    last: dict[str, Any] = {}
    for row in rows(file_chunks(path or "")):
        if b'"assistant"' in row.data:
            last = {}
        elif MARKS[0] in row.data:
            last = next((meta for value in objects(row.data) if (meta := boundary(value)) is not None), last)
    return last


def boundary_after(path: str, offset: int) -> dict[str, Any] | None:
    """Return the fields of the first boundary after an offset of a transcript; `None` if there is none yet."""
    from mala_context.transcripts.json_rows import objects
    from mala_context.transcripts.rows import file_chunks, rows

    try:
        marked = rows(file_chunks(path, start=offset), mark=MARKS[0])
        found = (boundary(value) for row in marked for value in objects(row.data))
        return next((meta for meta in found if meta is not None), None)
    except OSError:
        return None


def note(
    archive: ArchiveReader,
    session_id: str,
    outcome: str,
    piece: str | None,
    fields: Mapping[str, Any],
    now: int,
    *,
    once: bool = False,
) -> None:
    """Add an outcome's row. Without `piece` it belongs to the newest piece that waits for one.

    With `once`, nothing is added if the newest outcome has this summary already. If a boundary closed the compaction a
    moment ago, while PostCompact was running, a `sizes` row completes that outcome instead. Raises `ValueError` for an
    unknown outcome, and what taking the lock and writing raise.
    """
    if outcome not in manifests.OUTCOMES:
        raise ValueError(f"outcome is {outcome!r}; it must be one of {', '.join(sorted(manifests.OUTCOMES))}")
    with archive.lock(session_id) as files:
        manifest = manifests.parse(files.manifest())
        waiting = None if piece is not None else manifest.open_piece(fields.get("agent"))
        piece = piece if waiting is None else waiting.get("name")
        row = manifests.new_row("outcome", now, outcome=outcome, piece=piece, **fields)
        # No piece waits, so this compaction has an outcome already: from the same hook installed twice, or from its
        # boundary.
        if once and (piece is None or not manifest.waits(piece)):
            if manifest.tells(fields.get("agent"), fields.get("summary")):
                return
            told = manifest.just_told(fields, now)
            if told is not None:
                row = manifests.late_row(now, told["piece"], fields)
        files.append(manifests.dump([row]))


def seen(
    archive: Archiver,
    transcript_path: object,
    session_id: str,
    outcome: Mapping[str, Any],
    measure: Callable[[], Mapping[str, Any] | None] | None,
    *,
    hook_ran: bool,
) -> ArchiveResult | None:
    """Do what `TranscriptArchive.compaction_seen` says, knowing whether the hook ran."""
    if hook_ran:
        lost = {} if measure is None else {"lost": measure()}
        how = "by_reference" if outcome.get("kept") else "compacted"
        archive.record_outcome(session_id, how, **{**outcome, **lost})
        return None
    # The caller is a hook's own process. Before this counts as a compaction without PreCompact, rule out two reports of
    # one compaction: hooks that are installed twice, and a boundary that closed it a moment ago.
    if outcome.get("once"):
        manifest, told_of = archive.manifest(session_id), {"agent": "main", **outcome}
        if manifest.tells(told_of["agent"], outcome.get("summary")):
            return None
        if manifest.just_told(told_of, layout.now()) is not None:
            archive.record_outcome(session_id, "compacted", lost=None if measure is None else measure(), **outcome)
            return None
    from mala_context.errors import TranscriptError

    log.warning("Compaction without PreCompact in session %s: archiving what is there now", session_id)
    try:
        result = archive.archive(transcript_path, session_id, trigger="boundary", agent=outcome.get("agent"))
    except TranscriptError as error:
        archive.record_outcome(session_id, "hook_skipped", **{"error": str(error), **outcome})
        raise
    piece = None if result.path is None else os.path.basename(result.path)
    # The piece may hold this compaction's own boundary with its sizes, and boundaries of earlier compactions before it.
    if piece is not None and outcome.get("tokens_before") is None:
        shown, own = close_compactions(archive, session_id, piece, skipped=False), _boundary_at_end(result.path)
        outcome = {**outcome, **({name: own[name] for name in manifests.SIZES} if own in shown else {})}
    lost = {} if measure is None else {"lost": measure()}
    archive.record_outcome(session_id, "hook_skipped", piece=piece, **{**outcome, **lost})
    return result
