"""Writing a transcript from the archive to one file of the user's choice, private and whole or not at all."""

from __future__ import annotations

import os

from mala_context.archive.placing import place
from mala_context.archive.reading import choose_chain, chunks, rows
from mala_context.archive.records import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mala_context.archive.interface import Write
    from mala_context.archive.store import TranscriptArchive


@record
class ExportResult:
    """The file that was written."""

    path: str
    bytes: int
    redacted: int | None
    """Secrets masked; `None` where none were looked for."""


def export(
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
    redactor = None
    if redact:
        from mala_context.archive.redact import Redactor

        redactor = Redactor()
    directory, name = os.path.split(os.path.abspath(os.fspath(target)))
    size = 0
    with archive.store(create=False).view(session_id) as files:
        pieces = choose_chain(archive.pieces(session_id), session_id, archive.location, subagent=subagent, chain=chain)

        def fill(write: Write) -> None:
            nonlocal size
            if redactor is None:
                parts = chunks(files, pieces)
            else:
                parts = (redactor.row(row) for row in rows(chunks(files, pieces)))
            for part in parts:
                size += len(part)
                write(part)
                if progress is not None:
                    progress(len(part))

        path = place(directory, [name], fill)
    return ExportResult(path=path, bytes=size, redacted=None if redactor is None else redactor.found)
