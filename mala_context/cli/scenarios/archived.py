"""Whether an archive holds what a compaction threw away, checked against the transcript byte for byte."""

from __future__ import annotations

import io
import json
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mala_context.transcripts.compactions import is_main_boundary

if TYPE_CHECKING:
    from mala_context.archive.store import TranscriptArchive


@dataclass(frozen=True)
class ArchivedPiece:
    """One file of the archive."""

    path: str
    mode: int
    """Permission bits."""
    bytes: int
    trigger: str | None
    rows: int

    def as_dict(self) -> dict[str, Any]:
        """Return the piece for JSON, its mode as `0600`."""
        return {
            "path": self.path,
            "mode": f"{self.mode:04o}",
            "bytes": self.bytes,
            "rows": self.rows,
            "trigger": self.trigger,
        }


@dataclass(frozen=True)
class Archived:
    """What the archive of one session holds."""

    directory: str
    directory_mode: int
    pieces: tuple[ArchivedPiece, ...]
    rows_before: int
    """Rows of the transcript before its last boundary."""
    rows_held: int
    """How many of them the archive holds, byte for byte, from the first one on."""
    rows_in_time: int
    """How many of them were archived before that compaction began."""
    whole: bool
    """Whether the pieces, in order, are the whole transcript."""

    @property
    def private(self) -> bool:
        """Whether every file is 0600 in a directory of 0700."""
        return self.directory_mode == 0o700 and all(piece.mode == 0o600 for piece in self.pieces)

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "directory": self.directory,
            "directory_mode": f"{self.directory_mode:04o}",
            "pieces": [piece.as_dict() for piece in self.pieces],
            "rows_before_compaction": self.rows_before,
            "rows_held": self.rows_held,
            "rows_held_before_it_began": self.rows_in_time,
            "whole_transcript": self.whole,
        }


def examine(archive: TranscriptArchive, session_id: str, transcript: bytes) -> Archived:
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
        mode = stat.S_IMODE(status.st_mode)
        pieces.append(ArchivedPiece(path, mode, len(content), trigger, content.count(b"\n")))
        contents.append(content)
    before = transcript[: last_boundary(transcript)]
    in_time = b"".join(
        content for piece, content in zip(pieces, contents, strict=True) if piece.trigger != "session_end"
    )
    held = b"".join(contents)
    return Archived(
        directory=directory,
        directory_mode=stat.S_IMODE(os.stat(directory).st_mode) if pieces else 0,
        pieces=tuple(pieces),
        rows_before=before.count(b"\n"),
        rows_held=common_rows(before, held),
        rows_in_time=common_rows(before, in_time),
        whole=held == transcript,
    )


def last_boundary(transcript: bytes) -> int:
    """Return where the row of the last compaction boundary begins, in bytes; 0 where there was no compaction."""
    place = found = 0
    for line in io.BytesIO(transcript):  # splits at newline bytes alone
        if b'"compact_boundary"' in line and _is_boundary(line):
            found = place
        place += len(line)
    return found


def _is_boundary(line: bytes) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and is_main_boundary(row)


def common_rows(expected: bytes, held: bytes) -> int:
    """Count the whole rows at the start of both that are the same, byte for byte."""
    same = 0
    for ours, theirs in zip(io.BytesIO(expected), io.BytesIO(held), strict=False):
        if ours != theirs:
            break
        same += 1
    return same
