"""Join pieces into the transcript that they were made from, byte for byte.

A chain is read piece by piece in the order of its names and unpacked on the way. The hash of each piece is compared
while its bytes pass. So damage is an error for every reader, and no second pass is needed. In mode `full` the newest
piece alone is the transcript.
"""

from __future__ import annotations

from contextlib import closing
from hashlib import sha256

from mala_context.archive import manifests
from mala_context.archive.increment import open_plain
from mala_context.archive.source import CHUNK, fill

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mala_context.archive.interface import Reader, SessionView
    from mala_context.archive.layout import Piece


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
    """Return the names of this chain's pieces that the manifest knows and that are not there."""
    if not pieces or pieces[-1].mode == "full":
        return []
    key = (pieces[0].subagent, pieces[0].chain)
    manifest = manifests.parse(files.manifest())
    rows = manifest.pieces()
    gone = [(name, rows[name]) for name in manifests.gone(pieces, manifest)]
    of_chain = [(name, row) for name, row in gone if (row.get("subagent"), row.get("chain")) == key]
    return [name for name, row in of_chain if row.get("mode") != "full"]


def chunks(files: SessionView, pieces: Sequence[Piece], *, strict: bool = True) -> Iterator[bytes]:
    """Yield the plain bytes of a chain, at most 256 KiB at a time.

    Raises `CorruptArchiveError` before the first byte if a piece is missing, after the bytes of a piece that does not
    match its hash, and where a piece unpacks to more than was archived. With `strict` false, everything that is there
    is yielded in spite of gaps, and a damaged packed piece ends where it breaks.
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

    digest = sha256() if check else None
    length = 0
    with closing(open_current(files, piece)) as reader:
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
            # A small file may unpack to any size (a bomb): stop at the first byte too many.
            if piece.packed and piece.length is not None and length > piece.length:
                raise CorruptArchiveError("unpacks to more than was archived", path=files.path(piece.name))
            if digest is not None:
                digest.update(data)
            yield data
    if digest is not None and piece.sha256 is not None and digest.hexdigest() != piece.sha256:
        raise CorruptArchiveError("a piece is not what its hash says", path=files.path(piece.name))


def open_current(files: SessionView, piece: Piece) -> Reader:
    """Open a piece's plain bytes, even if it was packed after it was listed."""
    try:
        return open_plain(files, piece)
    except FileNotFoundError:
        for each in manifests.pieces_of(files.list(), manifests.parse(files.manifest())):
            if each.plain == piece.plain:
                return open_plain(files, each)
        raise
