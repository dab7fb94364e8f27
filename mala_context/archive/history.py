"""A session's rows from the place where they are whole: the transcript if it is there, else the archive.

A transcript that still begins with the archived bytes has these and everything after them, so it is read. If the
transcript was rewritten or cut, it is not what was archived: then the archive's newest chain is read, or the chain
whose number was asked for.
"""

from __future__ import annotations

import os
from contextlib import closing

from mala_context.archive import manifests
from mala_context.archive.catch_up import transcript_of
from mala_context.archive.reading import choose_chain, chunks, missing_pieces, open_current
from mala_context.archive.source import Source
from mala_context.errors import ArchiveError
from mala_context.transcripts.projects import find_transcript
from mala_context.transcripts.rows import LongRow, file_chunks, lines, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Self

    from mala_context.archive.interface import SessionView
    from mala_context.archive.layout import Piece
    from mala_context.archive.manifests import Manifest
    from mala_context.archive.reader import ArchiveReader
    from mala_context.transcripts.rows import Row


class History:
    """The rows of one session's main transcript. Close it, or use it as a context manager.

    Args:
        archive: the archive. The session need not be archived if its transcript is there.
        session_id: the session.
        chain: a chain of the archive, by number; then the transcript is not looked at.
        progress: called with the bytes of each row that is read.
        projects: projects directories to look for the transcript in, instead of where it was last and the archive's.

    Raises `SessionNotFoundError`, `PartNotFoundError` and `InvalidSessionIdError`.
    """

    def __init__(
        self,
        archive: ArchiveReader,
        session_id: str,
        *,
        chain: int | None = None,
        projects: Sequence[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self.session_id = session_id
        self._progress = progress
        self.files: SessionView = archive.store(create=False).view(session_id)
        """The session's files in the archive."""
        try:
            self.manifest = manifests.parse(self.files.manifest())
            pieces = manifests.pieces_of(self.files.list(), self.manifest)
            path = None
            if chain is None and projects is not None:
                path = find_transcript(session_id, projects_dirs=projects)
            elif chain is None:
                path = transcript_of(archive, session_id, self.manifest)
            self.pieces: list[Piece] = []
            if path is None or manifests.chains_of(pieces, None):
                self.pieces = choose_chain(pieces, session_id, archive.location, chain=chain)
            self.transcript = path if path is not None and continues(self.files, path, self.pieces) else None
            """The transcript that is read; `None` where the archive is."""
            self.beside = path
            """The transcript that is there, whether or not it is read."""
            archived, self.cwds = _known(self.manifest)
            self.last_path = path or archived
            """Where the transcript is, or was when it was archived last."""
        except BaseException:
            self.files.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.files.close()

    def size(self) -> int:
        """Return the bytes of all rows, as far as that is known without reading them."""
        if self.transcript is not None:
            return os.path.getsize(self.transcript)
        return sum(piece.length or 0 for piece in self.pieces)

    def rows(self) -> Iterator[Row]:
        """Yield the rows from the first on; may be called again. Raises `CorruptArchiveError` and `OSError`."""
        for row in rows(self._data()):
            self.told(row.size)
            yield row

    def lines(self) -> Iterator[Row | LongRow]:
        """Yield the same rows, but a long row as a `LongRow`, which is read in parts."""
        for line in lines(self._data()):
            yield line
            if isinstance(line, LongRow):
                line.finish()  # the caller may not have read all of it, but the bytes were read
            self.told(line.size)

    def _data(self) -> Iterator[bytes]:
        return file_chunks(self.transcript) if self.transcript is not None else chunks(self.files, self.pieces)

    def expect(self, size: int) -> None:
        """Announce bytes that will be read to `progress`, if it has `expect`."""
        expect = getattr(self._progress, "expect", None)
        if expect is not None:
            expect(size)

    def told(self, size: int) -> None:
        """Report bytes that were read to `progress`."""
        if self._progress is not None:
            self._progress(size)

    def side_file(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a side file by its name in the archive; raises `OSError`."""
        with closing(self.files.open(name)) as reader:
            buffer = bytearray(1 << 18)
            while count := reader.readinto(buffer):
                yield bytes(memoryview(buffer)[:count])


def _known(manifest: Manifest) -> tuple[str | None, tuple[str, ...]]:
    """Return the transcript's path when it was archived last, and the working directories, the newest first."""
    transcript: str | None = None
    cwds: dict[str, None] = {}
    for row in reversed(manifest.rows):
        if row.get("row") not in ("piece", "session") or row.get("subagent") is not None:
            continue
        path, cwd = row.get("transcript"), row.get("cwd")
        if transcript is None and isinstance(path, str):
            transcript = path
        if isinstance(cwd, str) and os.path.isabs(cwd):
            cwds[cwd] = None
    return transcript, tuple(cwds)


def continues(files: SessionView, path: str, pieces: Sequence[Piece]) -> bool:
    """Tell whether a transcript can be read and begins with exactly the bytes of these pieces."""
    if missing_pieces(files, pieces):
        return True  # the chain has a gap, so the transcript is the better copy in any case
    try:
        with Source(path) as source:
            start = 0
            for piece in pieces:
                length = piece.length
                if length is None or start + length > source.size:
                    return False
                # By hash, so that a packed piece needs no zstd package and an uploaded one no network.
                if (piece.packed or piece.remote is not None) and piece.sha256 is not None:
                    if source.digest(start, start + length) != piece.sha256:
                        return False
                else:
                    with closing(open_current(files, piece)) as reader:
                        if not source.same_as(reader, start, length):
                            return False
                start += length
            return source.size > 0
    except (ArchiveError, OSError):
        return False
