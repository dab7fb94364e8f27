"""Add one piece to a session: choose its chain, its first and its last byte, and write its row in the manifest.

What is archived of a transcript is a chain of pieces that lie end to end from its first byte. Before a piece is added
the transcript must still begin with exactly those bytes. If it does, the piece holds what comes after them. If it
does not (another program rewrote it, the CLI truncated it, pieces were deleted), the old chain stays as it is, for it
may be the only copy, and a new chain begins with the whole transcript. A chain is of one mode: all pieces
incremental, or all full copies.
"""

from __future__ import annotations

import errno
from contextlib import closing
from itertools import count

from mala_context.archive import layout, log, manifests
from mala_context.archive.layout import ArchiveResult, Frozen
from mala_context.archive.source import digest_of, fill
from mala_context.transcripts.session_ids import check_session_id, session_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any

    from mala_context.archive.interface import Archiver, Reader, SessionFiles, SessionView, Write
    from mala_context.archive.layout import Piece
    from mala_context.archive.source import Source


_BESIDE = 2_000_000
"""Microseconds by which the piece of a hook that runs beside this one may be later than this one's start.

A piece from further ahead is one from before the clock was set back, and no hook's of this compaction.
"""
_LAST = "99991231T235959"
"""From this stamp on there is no later one. A piece with such a stamp has a planted name (attack of the year 9999)."""

_BROKEN = {
    "rewritten": "was rewritten: its first %d bytes are not what was archived",
    "shrunk": "shrank: %d bytes of it were archived and it is shorter now",
    "gap": "cannot be continued: pieces of its first %d bytes are missing from the archive",
    "damaged": "cannot be continued: pieces of its first %d bytes are damaged in the archive",
    "late": "cannot be continued: a piece after its first %d bytes is of the year 9999",
    "unreadable": "cannot be compared: pieces of its first %d bytes cannot be read",
    "mode": "is archived in another mode from now on, after %d bytes",
}
"""Why a new chain begins, as the log says it."""

_FOUND_BY_NAME = frozenset({"empty path", "missing", "not a regular file"})
"""Where the path of a hook's input fails for one of these reasons, the transcript is looked for by its session's id."""

_SAID = b'"role"'
"""Stands in each row of a transcript that is a part of the conversation."""


class ArchiveRequest(Frozen):
    """What is to be archived, and how."""

    session_id: str
    subagent: str | None
    mode: str
    final: bool
    now: int
    """Microseconds since 1970."""
    fields: Mapping[str, Any]
    """What the manifest's row shall say: trigger, agent, tokens, model, cwd."""
    since: int | None = None
    """An agent's piece without an outcome that is no older than this (microseconds since 1970) is this compaction's."""


class Plan(Frozen):
    """Where the next piece goes."""

    chain: int
    offset: int
    broken: str | None = None
    """A key of `_BROKEN` if a new chain begins although there was one."""
    archived: int = 0
    """Bytes that the previous chain holds."""


def add_piece(files: SessionFiles, source: Source, request: ArchiveRequest) -> ArchiveResult:
    """Archive what is new. The caller holds the session's lock, and has taken the source's size under it.

    Raises `TranscriptError` with reason `changing` where the transcript loses bytes meanwhile (call again), and
    `OSError` where the piece cannot be written; nothing is published then.
    """
    manifest = manifests.parse(files.manifest())
    if manifest.unreadable:
        log.warning("Manifest of session %s: %d unreadable rows ignored", files.session_id, len(manifest.unreadable))
    # Step 1: is this compaction archived already?
    # Plugin, SDK hook and a subagent's hook may all run at one compaction: nine identical archives in eight minutes
    # (happyclaw#321; cases archive-01 and archive-17). The session's lock makes the second one find the first one's.
    if request.since is not None:
        between = request.since, request.now + _BESIDE
        done = manifest.open_piece(request.fields.get("agent") or "main", between)
        if done is not None:
            mine = [each for each in manifest.of_kind("piece") if each.get("transcript") == source.path]
            if not _said_since(source, mine[-1] if mine else done):
                return _done(source, request, done)
            # Something was said since: the user gave that compaction up, and this is another one (attack
            # names:108-111). Its rows are archived, but the two count as one compaction.
            request = request.but(since=None, fields={**request.fields, "trigger": "catch_up"})
    # Step 2: give every piece its row, then decide whether the newest chain continues.
    pieces = repair_pieces(files, manifests.pieces_of(files.list(), manifest), request.now)
    chains = manifests.chains_of(pieces, request.subagent)
    rows = manifest.pieces()
    gone = [rows[name] for name in manifests.gone(pieces, manifest)]
    lost = [row.get("chain") for row in gone if row.get("subagent") == request.subagent and row.get("mode") != "full"]
    plan = make_plan(files, source, chains[-1] if chains else [], request.mode, lost)
    # Step 3: end at a whole row. The CLI may be in the middle of writing the last one; its rest would begin the next
    # piece, and no reader of one piece could decode it. At the session's end (`final`) no process completes it.
    ext = layout.extension(source.path)
    end = source.size
    if ext == ".jsonl" and request.mode == "incremental" and not request.final:
        end = source.last_newline(plan.offset, source.size)
    _say_broken(source, request, plan)
    if end == plan.offset:
        result = _nothing(source, request, plan)
        if chains and plan.broken is None:
            _note_nothing(files, request, manifest, chains[-1][-1])
    else:
        # Only within a chain do stamps say the order: a planted name in an older chain sets no time for this one.
        here = (request.subagent, plan.chain)
        newest = max((piece.stamp for piece in pieces if (piece.subagent, piece.chain) == here), default=None)
        result = _write(files, source, request, plan, (end, ext, newest))
    # Also where nothing is new: a session is as old as its newest file, and this one is in use.
    files.touch([each.name for each in files.list()])
    return result


def make_plan(
    files: SessionView, source: Source, chain: Sequence[Piece], mode: str, lost: Collection[object] = ()
) -> Plan:
    """Decide where the next piece goes: compare everything that the chain holds with the transcript.

    `lost` has the numbers of chains of which a piece is gone. Such a chain is never whole again and never continued.
    """
    number = chain[-1].chain if chain else 0
    # Never the number of a lost chain: with the same number the new piece would join it, and `cat` and `restore` would
    # refuse the chain for ever although every byte is there.
    fresh = next(each for each in count(number + 1) if each not in lost)
    if not chain:
        return Plan(chain=fresh, offset=0)
    archived = sum(piece.length or 0 for piece in chain)
    if chain[-1].stamp >= _LAST:
        return Plan(chain=fresh, offset=0, broken="late", archived=archived)
    if any(piece.mode != mode for piece in chain):
        return Plan(chain=fresh, offset=0, broken="mode", archived=archived)
    if mode == "full":
        return Plan(chain=number, offset=0)
    end = chain[-1].end
    if number in lost:
        return Plan(chain=fresh, offset=0, broken="gap", archived=archived)
    # Lengths before bytes: a cut piece still equals the transcript as far as it goes. Compared first, it would be
    # continued with a hole in it, or be reported as a transcript that shrank.
    stated = [manifests.count((piece.row or {}).get("length", piece.length)) for piece in chain]
    if any(not piece.packed and piece.length != length for piece, length in zip(chain, stated, strict=True)):
        return Plan(chain=fresh, offset=0, broken="damaged", archived=archived)
    if end is None:
        return Plan(chain=fresh, offset=0, broken="gap", archived=archived)
    if source.size < end:
        return Plan(chain=fresh, offset=0, broken="shrunk", archived=end)
    broken = _compare(files, source, chain)
    if broken is not None:
        return Plan(chain=fresh, offset=0, broken=broken, archived=end)
    return Plan(chain=number, offset=end, archived=end)


def _compare(files: SessionView, source: Source, chain: Sequence[Piece]) -> str | None:
    """Return why a chain cannot be continued (a key of `_BROKEN`), or `None` if it can.

    If a piece cannot be read, a new chain is better than no archive. Raises `TranscriptError` if the transcript cannot
    be read.
    """
    try:
        packed = manifests.parse(files.manifest()).packed()
        for piece in chain:
            if piece.packed and piece.remote is None and not _is_stored(files, piece, packed.get(piece.plain)):
                return "damaged"
            # Different bytes have two causes. If the stored piece still has its hash, the transcript was rewritten;
            # else the piece was damaged. The log names the right one, and both begin a new chain.
            if not _same_again(files, source, piece):
                return "rewritten" if piece.packed or _is_stored(files, piece, piece.sha256) else "damaged"
    except Exception as error:
        from mala_context.errors import ArchiveError, TranscriptError  # an import that only a failure pays for

        if isinstance(error, TranscriptError) or not isinstance(error, ArchiveError | OSError):
            raise
        log.warning("Archive of session %s: %s", files.session_id, error)
        return "unreadable"
    return None


def _same_again(files: SessionView, source: Source, piece: Piece) -> bool:
    """Compare one piece; a second time if a network file system answers that the open file is stale (ESTALE)."""
    try:
        return _same(files, source, piece)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return _same(files, source, piece)


def _is_stored(files: SessionView, piece: Piece, expected: str | None) -> bool:
    """Say whether a piece's file has the hash that the manifest states, if it states one."""
    if expected is None or piece.remote is not None:
        return True
    return digest_of(files.open(piece.name))[0] == expected


def _same(files: SessionView, source: Source, piece: Piece) -> bool:
    """Compare one piece with its place in the transcript: byte by byte, or by hash where it is packed or remote."""
    if piece.offset is None or piece.length is None or (piece.remote is not None and piece.sha256 is None):
        return False  # without a hash only the object store could tell, and a hook never waits for the network
    if (piece.packed or piece.remote is not None) and piece.sha256:
        return source.digest(piece.offset, piece.offset + piece.length) == piece.sha256
    with closing(open_plain(files, piece)) as reader:
        return source.same_as(reader, piece.offset, piece.length)


def open_plain(files: SessionView, piece: Piece) -> Reader:
    """Open a piece's plain bytes; raises `ArchiveError` where it is packed and no zstd package is there."""
    reader = files.open(piece.name)
    if not piece.packed:
        return reader
    from mala_context.archive.codecs import Codec

    try:
        return Codec().reader(reader)
    except BaseException:
        reader.close()
        raise


def _write(
    files: SessionFiles, source: Source, request: ArchiveRequest, plan: Plan, target: tuple[int, str, str | None]
) -> ArchiveResult:
    end, ext, newest = target
    digest = ""

    def copy(write: Write) -> None:
        nonlocal digest
        digest = source.copy(plan.offset, end, write)

    # The file first, its row second: a kill in between leaves a piece without a row, which `repair_pieces` makes from
    # the file. The other order would leave a row for a piece that never existed.
    name, newest = publish_next(files, request.subagent, plan.chain, ext, newest, copy, now=request.now)
    length = end - plan.offset
    row = manifests.new_row(
        "piece",
        newest,
        name=name,
        chain=plan.chain,
        mode=request.mode,
        offset=plan.offset,
        length=length,
        sha256=digest,
        subagent=request.subagent,
        began=plan.broken,
        transcript=source.path,
        clock=None if newest == layout.stamp(request.now) else layout.stamp(request.now),
        **request.fields,
    )
    try:
        files.append(manifests.dump([row]))
    except OSError as error:
        # The bytes are safe, so a row that cannot be written (a full disk) does not make the archive fail.
        log.warning("Manifest of session %s: row not written (%s); it is made again later", files.session_id, error)
    path = files.path(name)
    trigger = request.fields.get("trigger")
    what = "PreCompact: archived transcript" if trigger in manifests.PRECOMPACT_TRIGGERS else "Archived transcript"
    log.info("%s (trigger=%s) to %s (%s)", what, trigger, path, f"{length / 1000:.1f} KB")
    return ArchiveResult(
        session_id=request.session_id,
        path=path,
        reason="archived",
        bytes=length,
        offset=plan.offset,
        chain=plan.chain,
        new_chain=plan.broken is not None,
        sha256=digest,
        transcript=source.path,
    )


def publish_next(
    files: SessionFiles,
    subagent: str | None,
    chain: int,
    ext: str,
    newest: str | None,
    fill: Callable[[Write], object],
    now: int | None = None,
) -> tuple[str, str]:
    """Write the next piece of a chain with a stamp later than that of its `newest` piece; return its name and stamp."""
    moment = layout.now() if now is None else now
    while True:
        newest = layout.next_stamp(moment, newest)
        name = layout.piece_name(files.session_id, subagent, chain, newest, ext)
        try:
            files.publish(name, fill)
        except FileExistsError:
            continue  # never replace a file; try the next microsecond
        return name, newest


def _nothing(source: Source, request: ArchiveRequest, plan: Plan) -> ArchiveResult:
    reason = "empty" if source.size == 0 else "nothing new" if source.size == plan.offset else "incomplete row"
    trigger = request.fields.get("trigger")
    what = "PreCompact: nothing new" if trigger in manifests.PRECOMPACT_TRIGGERS else "Nothing new"
    if reason == "empty" and plan.broken is None:
        log.warning("%s to archive (trigger=%s): %s is empty", what, trigger, source.path)
    else:
        log.info("%s to archive (trigger=%s) in session %s", what, trigger, request.session_id)
    return ArchiveResult(
        session_id=request.session_id,
        path=None,
        reason=reason,
        offset=plan.offset,
        chain=plan.chain,
        transcript=source.path,
    )


def _note_nothing(files: SessionFiles, request: ArchiveRequest, manifest: manifests.Manifest, newest: Piece) -> None:
    """Write down that PreCompact ran and that the `newest` piece already holds everything.

    PostCompact may be another process. Without this row it takes the compaction for one whose PreCompact hook did not
    run. Seen in 1 of 12 runs of the CLI on busy cores: the rows of a resumed session had not reached the disk yet.
    """
    trigger, agent = request.fields.get("trigger"), request.fields.get("agent")
    if trigger not in manifests.PRECOMPACT_TRIGGERS or request.subagent is not None:
        return
    if (manifest.open_piece(agent or "main") or {}).get("name") == newest.plain:
        return  # the piece of a compaction that was given up is still open: the outcome of this one closes it
    row = manifests.new_row("nothing_new", request.now, piece=newest.plain, trigger=trigger, agent=agent)
    try:
        files.append(manifests.dump([row]))
    except OSError as error:
        log.warning("Manifest of session %s: row not written (%s)", request.session_id, error)


def _said_since(source: Source, row: Mapping[str, Any]) -> bool:
    """Tell whether the transcript gained words of the conversation since a piece; rows of hooks do not count."""
    offset, length = row.get("offset"), row.get("length")
    if row.get("transcript") != source.path or not isinstance(offset, int) or not isinstance(length, int):
        return False
    found, rest = False, b""

    def look(view: memoryview | bytes) -> None:
        nonlocal found, rest
        # The mark may lie across two buffers, so the end of the last one is kept.
        data = rest + view
        found, rest = found or _SAID in data, data[-len(_SAID) :]

    if source.size > offset + length:
        source.copy(offset + length, source.size, look)
    return found


def _done(source: Source, request: ArchiveRequest, row: Mapping[str, Any]) -> ArchiveResult:
    log.info("PreCompact: another hook has archived session %s for this compaction", request.session_id)
    offset, length, chain = (
        value if isinstance(value := row.get(key), int) else 0 for key in ("offset", "length", "chain")
    )
    return ArchiveResult(
        session_id=request.session_id,
        path=None,
        reason="another hook archived",
        offset=offset + length,
        chain=chain,
        transcript=source.path,
    )


def _say_broken(source: Source, request: ArchiveRequest, plan: Plan) -> None:
    if plan.broken is not None:
        say = log.info if plan.broken == "mode" else log.warning
        say(
            f"Transcript %s {_BROKEN[plan.broken]}; session %s begins chain %d, what was archived stays",
            source.path,
            plan.archived,
            request.session_id,
            plan.chain,
        )


def repair_pieces(files: SessionFiles, pieces: list[Piece], now: int) -> list[Piece]:
    """Make a row from its file for each local piece that the manifest does not know; return all pieces with rows.

    A piece that only an object store has gets no row: this runs in hooks, which never ask the network.
    """
    lost = [piece for piece in manifests.without_row(pieces) if piece.remote is None]
    if not lost:
        return pieces
    known = {(piece.subagent, piece.chain): piece.mode for piece in pieces if piece.row is not None}
    modes: dict[tuple[str | None, int], str] = {}
    rows = []
    for piece in lost:
        key = (piece.subagent, piece.chain)
        if key not in modes:
            chain = [each for each in pieces if (each.subagent, each.chain) == key and each.remote is None]
            modes[key] = known.get(key) or _guess_mode(files, chain)
        rows.append(_row_from_file(files, piece, modes[key], now))
    files.append(manifests.dump(rows))
    log.warning("Manifest of session %s: %d rows made again from the files", files.session_id, len(rows))
    return manifests.pieces_of(files.list(), manifests.parse(files.manifest()))


def _row_from_file(files: SessionView, piece: Piece, mode: str, now: int) -> Mapping[str, Any]:
    from mala_context.errors import ArchiveError

    digest: str | None = None
    length: int | None = piece.length
    try:
        digest, length = digest_of(open_plain(files, piece))
    except (ArchiveError, OSError) as error:
        # Without the zstd package a packed piece's length stays unknown. Its chain ends there, and the next archive
        # begins one with the whole transcript.
        log.warning("Piece %s cannot be read now: %s", files.path(piece.name), error)
    return manifests.new_row(
        "piece",
        now,
        name=piece.plain,
        chain=piece.chain,
        mode=mode,
        length=length,
        sha256=digest,
        subagent=piece.subagent,
        rebuilt=True,
    )


def _guess_mode(files: SessionView, chain: Sequence[Piece]) -> str:
    """Guess the mode of pieces without rows: full copies of one transcript begin alike, increments never do."""
    if len(chain) < 2 or any(piece.packed for piece in chain):
        return "incremental"
    heads = [head for piece in chain if (head := _head(files, piece, 4096))]
    shortest = min((len(head) for head in heads), default=0)
    alike = len(heads) > 1 and all(head[:shortest] == heads[0][:shortest] for head in heads)
    return "full" if alike else "incremental"


def _head(files: SessionView, piece: Piece, count: int) -> bytes:
    """Return the first bytes of a piece as stored; empty if it cannot be read."""
    buffer = bytearray(count)
    try:
        with closing(files.open(piece.name)) as reader:
            return bytes(buffer[: fill(reader, buffer)])
    except OSError:
        return b""


def archive_from_hook(archive: Archiver, hook_input: Mapping[str, Any], **known: Any) -> ArchiveResult | None:
    """Archive the transcript that a PreCompact hook's input names; returns `None` if that failed, with a log line.

    If the path leads to no file, `{session_id}.jsonl` is looked for where the archive finds transcripts.
    `known` are further keywords of `TranscriptArchive.archive` (tokens, model). Never raises.
    """
    try:
        return _archive(archive, hook_input, known)
    except Exception as error:  # noqa: BLE001  # a hook never raises, whatever its input holds
        from mala_context.errors import ArchiveError  # an import that only a failure pays for

        if isinstance(error, OSError) and not isinstance(error, ArchiveError):
            log.error("PreCompact: could not write the archive: %s", error)
        else:
            shown = error if isinstance(error, ArchiveError) else repr(error)
            log.warning("PreCompact: transcript not archived: %s", shown)
    return None


def _archive(archive: Archiver, hook_input: Mapping[str, Any], known: dict[str, Any]) -> ArchiveResult:
    path = hook_input.get("transcript_path")
    session_id = check_session_id(session_in(hook_input.get("session_id"), path))
    cwd = hook_input.get("cwd")
    trigger = hook_input.get("trigger")
    agent = hook_input.get("agent_id")
    fields: dict[str, Any] = {
        "trigger": trigger if trigger in ("auto", "manual") else "unknown",
        "agent": agent if isinstance(agent, str) and agent else None,
        "cwd": cwd if isinstance(cwd, str) else None,
        **known,
    }
    try:
        return archive.archive(path, session_id, **fields)
    except Exception as error:
        from mala_context.errors import TranscriptError  # an import that only a failure pays for

        if not isinstance(error, TranscriptError) or error.reason not in _FOUND_BY_NAME:
            raise
        found = archive.find_transcript(session_id, cwd=fields["cwd"])
        if found is None or found == path:
            raise
        log.info("PreCompact: transcript %r is not there, archiving %s", path, found)
        return archive.archive(found, session_id, **fields)
