"""Import full copies that plain copy hooks made: their bytes become pieces, and each byte is verified.

The copies of one session, the shortest first, are the same transcript at later and later moments. Archiving one after
the other gives a piece for what each gained, as if the archive had been there. A copy adds nothing if a chain already
begins with its bytes. A copy may be removed only after it was compared with the archive from its first byte to its
last, and only if it is still the file that was compared.

A copy belongs to the session whose id is in its name (`SESSION_…_transcript.jsonl`, or any UUID), else to that of its
last row: the first rows of a resumed session are copies of another session's rows.
"""

from __future__ import annotations

import io
import os
import re
import stat

from mala_context.archive import log, manifests
from mala_context.archive.layout import Frozen
from mala_context.archive.reading import chunks
from mala_context.archive.source import Source
from mala_context.archive.verify import strays
from mala_context.errors import ArchiveError, InvalidSessionIdError, TranscriptError
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.rows import file_chunks, rows
from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mala_context.archive.interface import SessionView
    from mala_context.archive.layout import Piece
    from mala_context.archive.store import TranscriptArchive

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SEED = re.compile(r"([A-Za-z0-9][A-Za-z0-9-]{0,127})_.*_transcript")
_SUFFIXES = (".jsonl", ".txt", ".json", ".bak")


class Imported(Frozen):
    """What became of one copy."""

    path: str
    session_id: str | None
    """The session that it belongs to; `None` if nothing says it."""
    outcome: str
    """`archived`, `there already`, `would be archived`, or `skipped`."""
    bytes: int = 0
    """Bytes that were new."""
    verified: bool = False
    """Whether the archive was compared with all of it."""
    removed: bool = False
    reason: str = ""
    """Why it was skipped or not removed."""


def find_copies(places: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the copies among files and in directories (not below them), each once; pieces of archives are none."""
    found: dict[str, None] = {}
    for each in places:
        path = os.path.abspath(os.fspath(each))
        if os.path.isdir(path):
            found.update((file, None) for file, _ in strays(path) if file.endswith(_SUFFIXES))
        else:
            found[path] = None
    return list(found)


def session_of_copy(path: str) -> str | None:
    """Return the session that a copy belongs to; `None` if neither its name nor its rows say it. Raises `OSError`."""
    name = os.path.basename(path)
    match = _UUID.search(name) or _SEED.match(name)
    if match is not None:
        return match.group(match.lastindex or 0)
    last: str | None = None
    for row in rows(file_chunks(path)):
        if b'"sessionId"' in row.data:
            for value in objects(row.data):
                session_id = value.get("sessionId")
                last = session_id if isinstance(session_id, str) else last
    return last


def import_copies(
    archive: TranscriptArchive,
    places: Sequence[str | os.PathLike[str]],
    *,
    remove: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], object] | None = None,
) -> list[Imported]:
    """Archive copies; with `remove`, remove each copy that is verified. A dry run only reports what would be done.

    Args:
        archive: where to.
        places: files, and directories that hold them.
        remove: remove each copy of which every byte was found in the archive.
        dry_run: write and remove nothing.
        progress: called with the bytes of each copy that was dealt with.

    A copy that cannot be imported is skipped with the reason, and the next one is tried: a full disk may have room for
    that one.
    """
    groups: dict[str | None, list[tuple[int, str]]] = {}
    results: list[Imported] = []
    for path in find_copies(places):
        try:
            status = os.lstat(path)
            if not stat.S_ISREG(status.st_mode):
                results.append(Imported(path=path, session_id=None, outcome="skipped", reason="not a regular file"))
                continue
            session_id = session_of_copy(path)
        except OSError as error:
            results.append(Imported(path=path, session_id=None, outcome="skipped", reason=str(error.strerror or error)))
            continue
        groups.setdefault(session_id, []).append((status.st_size, path))
    for session_id, copies in groups.items():
        # The shortest first, so that each copy continues the one before it. Only the last one may end in a row without
        # a newline: an earlier copy that was cut there is continued by the next one.
        for index, (size, path) in enumerate(sorted(copies, key=lambda each: (each[0], each[1]))):
            results.append(
                _import(archive, session_id, path, last=index == len(copies) - 1, remove=remove, dry_run=dry_run)
            )
            if progress is not None:
                progress(size)
    return results


def _import(
    archive: TranscriptArchive, session_id: str | None, path: str, *, last: bool, remove: bool, dry_run: bool
) -> Imported:
    def skipped(reason: str) -> Imported:
        return Imported(path=path, session_id=session_id, outcome="skipped", reason=reason)

    if session_id is None:
        return skipped("neither its name nor its rows say whose it is")
    try:
        check_session_id(session_id)
        before = _status(path)
        there = _is_there(archive, session_id, path)
        if dry_run:
            outcome = "there already" if there else "would be archived"
            return Imported(path=path, session_id=session_id, outcome=outcome, verified=there)
        new = 0
        if not there:
            new = archive.archive(path, session_id, trigger="import", final=last).bytes
        verified = there or _is_there(archive, session_id, path)
    except InvalidSessionIdError as error:
        return skipped(str(error))
    except TranscriptError as error:
        return skipped(error.reason)
    except (ArchiveError, OSError) as error:  # a full disk: the result must still say what was imported before it
        return skipped(str(getattr(error, "strerror", None) or error))
    removed, reason = False, ""
    if not verified:
        reason = "its last row is cut: not all of it is archived"
    elif remove:
        removed, reason = _remove(path, before)
    outcome = "there already" if there else "archived"
    return Imported(
        path=path,
        session_id=session_id,
        outcome=outcome,
        bytes=new,
        verified=verified,
        removed=removed,
        reason=reason,
    )


def _status(path: str) -> os.stat_result:
    """Return what a copy is; raises `TranscriptError` where it is gone, or no regular file any more."""
    try:
        status = os.lstat(path)
    except OSError:
        raise TranscriptError(path, "missing") from None
    if not stat.S_ISREG(status.st_mode):
        raise TranscriptError(path, "not a regular file")
    return status


def _is_there(archive: TranscriptArchive, session_id: str, path: str) -> bool:
    """Tell whether a chain of the session begins with all bytes of a file."""
    with archive.view(session_id) as files:
        pieces = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
        for chain in reversed(manifests.chains_of(pieces, None)):
            for candidate in [chain] if chain[-1].mode != "full" else [[piece] for piece in reversed(chain)]:
                if _begins_with(files, candidate, path):
                    return True
    return False


def _begins_with(files: SessionView, chain: Sequence[Piece], path: str) -> bool:
    """Compare a copy with a chain; raises `TranscriptError` where the copy cannot be read."""
    with Source(path) as source:
        offset = 0
        try:
            for data in chunks(files, chain):
                if offset == source.size:
                    return True
                size = min(len(data), source.size - offset)
                if not source.same_as(io.BytesIO(data[:size]), offset, size):
                    return False
                offset += size
        except ArchiveError as error:
            if isinstance(error, TranscriptError):
                raise
            log.warning("An archived chain of session %s cannot be compared: %s", files.session_id, error)
            return False
        return offset == source.size


def _remove(path: str, before: os.stat_result) -> tuple[bool, str]:
    """Remove a copy if it is still the file that was compared."""
    keys = ("st_dev", "st_ino", "st_size", "st_mtime_ns")
    try:
        now = os.lstat(path)
        if any(getattr(now, key) != getattr(before, key) for key in keys):
            return False, "it changed meanwhile"
        os.unlink(path)
    except OSError as error:
        return False, str(error.strerror or error)
    return True, ""
