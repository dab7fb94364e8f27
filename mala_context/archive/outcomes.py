"""Writing down how a compaction ended, and archiving one whose hook did not run."""

from __future__ import annotations

import os

from mala_context.archive import log
from mala_context.archive import manifest as manifests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mala_context.archive.interface import Archiver
    from mala_context.archive.reader import ArchiveReader
    from mala_context.archive.records import ArchiveResult


def note(
    archive: ArchiveReader, session_id: str, outcome: str, piece: str | None, fields: Mapping[str, Any], now: int
) -> None:
    """Add an outcome's row; without `piece` it is that of the newest piece that waits for one.

    Raises `ValueError` for an outcome that there is not, and what taking the lock and writing raise.
    """
    if outcome not in manifests.OUTCOMES:
        raise ValueError(f"outcome is {outcome!r}; it must be one of {', '.join(sorted(manifests.OUTCOMES))}")
    with archive.store(create=True).lock(session_id, archive.timeout) as files:
        if piece is None:
            row = manifests.parse(files.manifest()).open_piece(fields.get("agent"))
            piece = None if row is None else row.get("name")
        files.append(manifests.dump([manifests.new_row("outcome", now, outcome=outcome, piece=piece, **fields)]))


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
    from mala_context.errors import TranscriptError

    log.warning("Compaction without PreCompact in session %s: archiving what is there now", session_id)
    try:
        result = archive.archive(transcript_path, session_id, trigger="boundary", agent=outcome.get("agent"))
    except TranscriptError as error:
        archive.record_outcome(session_id, "hook_skipped", **{"error": str(error), **outcome})
        raise
    piece = None if result.path is None else os.path.basename(result.path)
    lost = {} if measure is None else {"lost": measure()}
    archive.record_outcome(session_id, "hook_skipped", piece=piece, **{**outcome, **lost})
    return result
