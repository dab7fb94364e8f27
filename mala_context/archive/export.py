"""Write a transcript from the archive to a file that the user names, private, and whole or not at all."""

from __future__ import annotations

import os

from mala_context.archive.atomic_write import place
from mala_context.archive.layout import Frozen
from mala_context.archive.reading import choose_chain, chunks
from mala_context.transcripts.long_rows import LONG, shortened
from mala_context.transcripts.rows import rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from mala_context.archive.interface import Write
    from mala_context.archive.store import TranscriptArchive


class ExportResult(Frozen):
    """The file that was written."""

    path: str
    bytes: int
    redacted: int | None
    """Secrets masked; `None` where none were looked for."""
    left_out: int = 0
    """Bytes that were left out of rows because these are too long to be searched for secrets."""


def export_transcript(
    archive: TranscriptArchive,
    session_id: str,
    target: str | os.PathLike[str],
    *,
    redact: bool = False,
    subagent: str | None = None,
    chain: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> ExportResult:
    """Write one transcript to a new file, 0600 from its first byte; secrets masked if `redact` says so.

    `progress` is called with the bytes read. Raises `FileExistsError` where the file is there already, `ArchiveError`
    (not archived, damaged, no detector library) and `OSError`; then nothing is written.
    """
    masking = _Masking() if redact else None
    directory, name = os.path.split(os.path.abspath(os.fspath(target)))
    size = 0
    with archive.view(session_id) as files:
        pieces = choose_chain(archive.pieces(session_id), session_id, archive.location, subagent=subagent, chain=chain)

        def fill(write: Write) -> None:
            nonlocal size
            data = chunks(files, pieces)
            for part in data if masking is None else masking.of(data):
                size += len(part)
                write(part)
                if progress is not None:
                    progress(len(part))

        path = place(directory, [name], fill)
    if masking is None:
        return ExportResult(path=path, bytes=size, redacted=None)
    return ExportResult(path=path, bytes=size, redacted=masking.found, left_out=masking.left_out)


class _Masking:
    """Masks secrets in a transcript as it passes by; raises `ArchiveError` where the detector library is not there."""

    def __init__(self) -> None:
        from mala_context.archive.redact import MOST, Redactor

        self._redactor = Redactor()
        self._most = MOST
        self.left_out = 0

    @property
    def found(self) -> int:
        return self._redactor.found

    def of(self, data: Iterable[bytes]) -> Iterator[bytes]:
        for row in rows(data, self._most):
            self.left_out += row.left_out
            # Too many values to be decoded, so its strings cannot be searched: better lost than with secrets in it.
            if len(row.data) > LONG and not shortened([row.data]):
                self.left_out += len(row.data)
                continue
            yield self._redactor.row(row)
