"""Joining pieces into the transcript that they were made from, byte for byte, and cutting bytes into rows.

A chain is read piece by piece in the order of its names, unpacked on the way, and each piece is held against its hash
while it passes. So a reader never takes damaged bytes for the transcript without being told, and needs no second
pass. In mode `full` the transcript is the newest piece alone.

Rows end at newline bytes and nowhere else: U+2028 and the like stand inside rows, so text functions that split lines
are no use here. A row is never held beyond `long_rows.LONG`: `rows` gives such a one shortened, `lines` block by block.
"""

from __future__ import annotations

import os
from hashlib import sha256

from mala_context.archive import manifest as manifests
from mala_context.archive.increment import open_plain
from mala_context.archive.source import CHUNK, fill
from mala_context.transcripts.long_rows import LONG, shortened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mala_context.archive.interface import Reader, SessionView
    from mala_context.archive.records import Piece

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Row:
    """One row of a transcript, without its newline. No `record`: there are many, and these cost as much as decoding."""

    __slots__ = ("data", "ended", "left_out", "offset")

    def __init__(self, offset: int, data: bytes, *, ended: bool = True, left_out: int = 0) -> None:
        self.offset = offset
        """Where it starts in the transcript, in bytes."""
        self.data = data
        self.ended = ended
        """Whether a newline followed."""
        self.left_out = left_out
        """Bytes that a row too long to be held was shortened by."""

    @property
    def size(self) -> int:
        """Its bytes in the transcript."""
        return len(self.data) + self.left_out


class LongRow:
    """A row that is too long to be held, which is read while it passes by: use it before the next one."""

    def __init__(self, offset: int, held: list[bytes], data: Iterator[bytes]) -> None:
        self.offset = offset
        self.size = 0
        """Its bytes that were read."""
        self.ended = False
        """Whether a newline followed, once it was read."""
        self._held = held
        self._data = data
        self._behind = b""

    def parts(self) -> Iterator[bytes]:
        """Yield its bytes, once."""
        while self._held:
            yield self._read(self._held.pop(0))
        while not self.ended and (chunk := next(self._data, None)) is not None:
            line, newline, behind = chunk.partition(b"\n")
            self.ended, self._behind = bool(newline), behind
            yield self._read(line)

    def _read(self, part: bytes) -> bytes:
        self.size += len(part)
        return part

    def finish(self) -> bytes:
        """Read what was not read of it; returns the bytes that were read behind it."""
        for _ in self.parts():
            pass
        return self._behind


def choose_chain(
    pieces: Sequence[Piece], session_id: str, location: str, *, subagent: str | None = None, chain: int | None = None
) -> list[Piece]:
    """Return the pieces that together are a transcript: the main agent's or a subagent's, its newest chain by default.

    Raises `SessionNotFoundError` where nothing of the session is archived, and `PartNotFoundError` where it is but
    not that agent or chain.
    """
    from mala_context.errors import PartNotFoundError, SessionNotFoundError

    if not pieces:
        raise SessionNotFoundError(session_id, location)
    chains = manifests.chains_of(pieces, subagent)
    if not chains:
        agents = sorted({piece.subagent for piece in pieces if piece.subagent is not None})
        there = ", ".join(agents) or "only the main agent"
        raise PartNotFoundError(session_id, f"agent {subagent or 'main'}", f"archived: {there}")
    for found in chains if chain is not None else chains[-1:]:
        if chain is None or found[0].chain == chain:
            return found[-1:] if found[-1].mode == "full" else found
    there = ", ".join(str(found[0].chain) for found in chains)
    raise PartNotFoundError(session_id, f"chain {chain}", f"there are {there}")


def missing_pieces(files: SessionView, pieces: Sequence[Piece]) -> list[str]:
    """Return the names of pieces that the manifest knows of this chain and that are not there."""
    if not pieces or pieces[-1].mode == "full":
        return []
    key = (pieces[0].subagent, pieces[0].chain)
    manifest = manifests.parse(files.manifest())
    known = manifest.pieces()
    there = {piece.plain for piece in pieces} | manifest.removed()
    return sorted(
        name
        for name, row in known.items()
        if name not in there and (row.get("subagent"), row.get("chain")) == key and row.get("mode") != "full"
    )


def chunks(files: SessionView, pieces: Sequence[Piece], *, strict: bool = True) -> Iterator[bytes]:
    """Yield the plain bytes of a chain, at most 256 KiB at a time.

    Raises `CorruptArchiveError` before the first byte where a piece is missing, behind the bytes of a piece that does
    not match its hash, and where one unpacks to more than was archived. With `strict` false what is there is given,
    gaps or not, and a damaged packed piece ends where it breaks.
    """
    from mala_context.errors import CorruptArchiveError

    if strict and (lost := missing_pieces(files, pieces)):
        raise CorruptArchiveError(f"{len(lost)} of the chain's pieces missing", path=files.path(lost[0]))
    position = 0
    for piece in pieces:
        stated = piece.row.get("offset") if piece.row else None
        if strict and piece.mode != "full" and isinstance(stated, int) and stated != position:
            raise CorruptArchiveError(
                f"bytes {position} to {stated} of the transcript are missing", path=files.path(piece.name)
            )
        try:
            for data in _piece_chunks(files, piece, check=strict):
                position += len(data)
                yield data
        except CorruptArchiveError:
            if strict:
                raise


def _piece_chunks(files: SessionView, piece: Piece, *, check: bool) -> Iterator[bytes]:
    from mala_context.errors import ArchiveError, CorruptArchiveError

    digest = sha256()
    length = 0
    reader = open_current(files, piece)
    try:
        buffer = bytearray(CHUNK)
        while True:
            try:
                count = fill(reader, buffer)
            except ArchiveError as error:
                raise CorruptArchiveError(str(error), path=files.path(piece.name)) from error
            if not count:
                break
            data = bytes(memoryview(buffer)[:count])
            length += count
            if piece.packed and piece.length is not None and length > piece.length:
                raise CorruptArchiveError("unpacks to more than was archived", path=files.path(piece.name))
            digest.update(data)
            yield data
    finally:
        reader.close()
    if check and piece.sha256 is not None and digest.hexdigest() != piece.sha256:
        raise CorruptArchiveError("a piece is not what its hash says", path=files.path(piece.name))


def open_current(files: SessionView, piece: Piece) -> Reader:
    """Open a piece's plain bytes, also when it was packed since it was listed."""
    try:
        return open_plain(files, piece)
    except FileNotFoundError:
        for each in manifests.pieces_of(files.list(), manifests.parse(files.manifest())):
            if each.plain == piece.plain:
                return open_plain(files, each)
        raise


def file_chunks(path: str, size: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of a regular file up to a size, without following a link; raises `OSError`."""
    import stat

    fd = os.open(path, _READ)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"not a regular file: {path}")
        left = status.st_size if size is None else min(size, status.st_size)
        while left and (data := os.read(fd, min(CHUNK, left))):
            left -= len(data)
            yield data
    finally:
        os.close(fd)


def rows(data: Iterable[bytes], most: int | None = LONG) -> Iterator[Row]:
    """Yield the rows of a transcript, empty ones left out; those of more than about `most` bytes shortened."""
    for line in lines(data, most):
        if isinstance(line, Row):
            yield line
        else:
            kept = shortened(line.parts())
            yield Row(line.offset, kept, ended=line.ended, left_out=line.size - len(kept))


def lines(data: Iterable[bytes], most: int | None = LONG) -> Iterator[Row | LongRow]:
    """Yield the rows of a transcript, those of more than about `most` bytes to be read in parts."""
    source = iter(data)
    parts: list[bytes] = []
    held = offset = 0
    while (chunk := next(source, None)) is not None:
        behind: bytes | None = chunk
        while behind is not None:
            *whole, rest = behind.split(b"\n")
            behind = None
            for line in whole:
                row = b"".join((*parts, line)) if parts else line
                parts.clear()
                held = 0
                if row:
                    yield Row(offset, row)
                offset += len(row) + 1
            if rest:
                parts.append(rest)
                held += len(rest)
            if most is not None and held > most:
                long = LongRow(offset, parts, source)
                yield long
                behind = long.finish()
                offset += long.size + 1
                parts, held = [], 0
    if parts:
        yield Row(offset, b"".join(parts), ended=False)
