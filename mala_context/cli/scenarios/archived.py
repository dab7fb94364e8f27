"""Whether an archive holds what a compaction threw away, checked against the transcript byte for byte."""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mala_context.archive.compactions import compactions
from mala_context.transcripts.rows import rows

if TYPE_CHECKING:
    from mala_context.archive.store import TranscriptArchive


@dataclass(frozen=True)
class ArchivedPiece:
    """One file of the archive."""

    path: str
    mode: str
    """Permission bits, as `0600`."""
    bytes: int
    rows: int
    trigger: str | None


@dataclass(frozen=True)
class ArchiveFindings:
    """What the archive of one session holds; `asdict` of it is its JSON."""

    directory: str
    directory_mode: str
    pieces: tuple[ArchivedPiece, ...]
    rows_before_compaction: int
    """Rows of the transcript before its last boundary."""
    rows_held: int
    """How many of them the archive holds, byte for byte, from the first one on."""
    rows_held_before_it_began: int
    """How many of them were archived before that compaction began."""
    whole_transcript: bool
    """Whether the pieces, in order, are the whole transcript."""

    @property
    def complete(self) -> bool:
        """Whether it holds every row from before the compaction."""
        return self.rows_held == self.rows_before_compaction > 0

    @property
    def words(self) -> str:
        """How many of these rows it holds."""
        of = f"{self.rows_held} of {self.rows_before_compaction}"
        return f"archive: {of} rows from before the compaction, byte for byte"

    @property
    def private(self) -> bool:
        """Whether every file is 0600 in a directory of 0700."""
        return self.directory_mode == "0700" and all(piece.mode == "0600" for piece in self.pieces)


def examine(archive: TranscriptArchive, session_id: str, transcript: bytes) -> ArchiveFindings:
    """Compare a session's pieces with its transcript; reads all of both. Raises `OSError` where a file is gone."""
    directory = archive.location
    pieces, contents = [], []
    for piece in archive.pieces(session_id):
        if piece.subagent is not None:
            continue
        path = os.path.join(directory, piece.name)
        with open(path, "rb") as file:
            content = file.read()
            status = os.fstat(file.fileno())
        trigger = piece.row.get("trigger") if piece.row else None
        pieces.append(ArchivedPiece(path, mode_text(status), len(content), content.count(b"\n"), trigger))
        contents.append(content)
    before = transcript[: max((each.offset for each in compactions(rows([transcript]))), default=0)]
    in_time = b"".join(
        content for piece, content in zip(pieces, contents, strict=True) if piece.trigger != "session_end"
    )
    held = b"".join(contents)
    return ArchiveFindings(
        directory=directory,
        directory_mode=mode_text(os.stat(directory)) if pieces else "0000",
        pieces=tuple(pieces),
        rows_before_compaction=before.count(b"\n"),
        rows_held=common_rows(before, held),
        rows_held_before_it_began=common_rows(before, in_time),
        whole_transcript=held == transcript,
    )


def mode_text(status: os.stat_result) -> str:
    """Return a file's permission bits, as `0600`."""
    return f"{stat.S_IMODE(status.st_mode):04o}"


def common_rows(expected: bytes, held: bytes) -> int:
    """Count the whole rows at the start of both that are the same, byte for byte."""
    same = 0
    for ours, theirs in zip(io.BytesIO(expected), io.BytesIO(held), strict=False):
        if ours != theirs:
            break
        same += 1
    return same
