"""Archiving what nobody archived: the rest of sessions that ended, and how their compactions ended.

The sessions looked after are those that the archive knows, by a piece or by a `session` row. One whose transcript is
exactly as long as what is archived and was not written to since is passed over without reading it and without
touching its files, for otherwise it would never grow old. One that a living process of this host looks after is left
to it.

A process that hosts only a command hook sees PreCompact and nothing after it. So the bytes that a catch-up adds are
searched for `compact_boundary` rows: each closes the piece that waits for an outcome, or else stands for a compaction
whose hook was skipped.
"""

from __future__ import annotations

import os
import stat

from mala_context.archive import log
from mala_context.archive import manifest as manifests
from mala_context.transcripts.compactions import MARKS, is_main_boundary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from mala_context.archive.interface import Archiver, SessionView
    from mala_context.archive.manifest import Manifest
    from mala_context.archive.reader import ArchiveReader
    from mala_context.archive.records import ArchiveResult, Piece

IDLE = 60.0
"""Seconds without a write after which a transcript's last row, newline or not, is taken for its end.

A time so far ahead of the clock is one from before the clock was set back, and no write of now either.
"""

_MOST = 1 << 20


def transcript_of(archive: Archiver | ArchiveReader, session_id: str, manifest: Manifest) -> str | None:
    """Return where a session's transcript is now, or `None` where it is gone.

    First where it was when it was last seen, then by its name where the archive looks for it (it may have moved).
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
    """Say whether a transcript looks as it did when it was archived last, by its size and time alone."""
    chains = manifests.chains_of(pieces, subagent)
    status = _status(path)
    if not chains or status is None:
        return False
    newest = chains[-1][-1]
    return newest.end == status.st_size and status.st_mtime_ns <= newest.mtime_ns


def is_looked_after(manifest: Manifest) -> bool:
    """Say whether the process that archives this session itself is still there: its compactions are its to tell of."""
    owner = next((row for row in reversed(manifest.of_kind("session")) if isinstance(row.get("pid"), int)), None)
    if owner is None or owner.get("host") != os.uname().nodename or owner["pid"] <= 0:
        return False
    try:
        os.kill(owner["pid"], 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    stated, here = owner.get("started"), process_start(owner["pid"])
    return stated is None or here is None or stated == here


def process_start(pid: int) -> str | None:
    """Return what tells a process from another of the same number, one of a container before say.

    The kernel's boot and the ticks since then at which the process began; `None` where the system does not say it.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as boot, open(f"/proc/{pid}/stat", "rb") as stat_file:
            # The name of the program stands in brackets and may hold spaces and brackets itself.
            ticks = stat_file.read(4096).rpartition(b")")[2].split()[19]
            return f"{boot.read(64).strip().decode()}:{ticks.decode()}"
    except (OSError, ValueError, IndexError):
        return None


def catch_up(
    archive: Archiver,
    session_ids: Iterable[str],
    now: float,
    progress: Callable[[int], object] | None = None,
) -> Iterator[ArchiveResult]:
    """Archive the rest of each session, one after the other; one that cannot be archived is a WARNING.

    `progress` is told the bytes that the archive has of each session, once it was looked after; one that has
    `expect(bytes, sessions)` is told first what there will be in all, and one that has `found(bytes)` of each session
    before that.
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
    """Return the bytes of each session; of very many nothing else is held while they are worked on."""
    return {each.session_id: each.stored for each in archive.sessions(progress=getattr(progress, "found", None))}


def _catch_up_on(archive: Archiver, session_id: str, now: float) -> Iterator[ArchiveResult]:
    from mala_context.errors import ArchiveBusyError, ArchiveError

    try:
        with archive.store(create=False).view(session_id) as files:
            manifest = manifests.parse(files.manifest())
            pieces = manifests.pieces_of(files.list(), manifest)
        if is_looked_after(manifest):
            return
        path = transcript_of(archive, session_id, manifest)
        status = None if path is None else _status(path)
        if path is None or status is None:
            return
        if not is_current(path, pieces, None):
            result = archive.archive(path, session_id, trigger="catch_up", final=abs(now - status.st_mtime) > IDLE)
            if result.archived:
                close_compactions(archive, session_id, os.path.basename(result.path or ""))
            yield result
        yield from archive.archive_side_files(path, session_id, trigger="catch_up")
    except ArchiveBusyError:
        pass  # somebody is archiving it right now
    except (ArchiveError, OSError) as error:
        log.warning("Catching up on session %s failed: %s", session_id, error)


def close_compactions(archive: Archiver, session_id: str, piece: str) -> int:
    """Give each compaction that a new piece shows its outcome; returns how many there are."""
    with archive.store(create=False).view(session_id) as files:
        found = [meta for row in rows_with(files, piece, MARKS[0]) if (meta := boundary(row)) is not None]
    for meta in found:
        waiting = archive.manifest(session_id).open_piece("main")
        if waiting is not None and waiting.get("name") != piece:
            archive.record_outcome(session_id, "compacted", piece=waiting["name"], **meta)
        else:
            log.warning("Compaction without PreCompact in session %s: archived now, in %s", session_id, piece)
            archive.record_outcome(session_id, "hook_skipped", piece=piece, **meta)
    return len(found)


def boundary(row: bytes) -> dict[str, Any] | None:
    """Return what a `compact_boundary` row says of a compaction of the main agent, `None` for other rows."""
    import json

    try:
        value = json.loads(row)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not is_main_boundary(value):
        return None
    meta = value.get("compactMetadata")
    known = meta if isinstance(meta, dict) else {}
    before, after, trigger = known.get("preTokens"), known.get("postTokens"), known.get("trigger")
    return {
        "trigger": trigger if isinstance(trigger, str) else None,
        "tokens_before": before if isinstance(before, int) else None,
        "tokens_after": after if isinstance(after, int) else None,
        "agent": "main",
    }


def rows_with(files: SessionView, name: str, needle: bytes) -> Iterator[bytes]:
    """Yield the rows of a piece that hold the needle; of a row over 1 MB, which is no boundary, at most its end."""
    reader = files.open(name)
    try:
        rest = b""
        buffer = bytearray(_MOST)
        while count := reader.readinto(buffer):
            data = rest + bytes(buffer[:count])
            cut = data.rfind(b"\n") + 1
            rest = data[cut:] if len(data) - cut <= _MOST else data[-len(needle) :]
            if data.find(needle, 0, cut) >= 0:
                yield from (row for row in data[:cut].split(b"\n") if needle in row)
        if needle in rest:
            yield rest
    finally:
        reader.close()
