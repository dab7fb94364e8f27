"""Pack pieces after they were archived. At every moment there is a whole copy, and the packed one is verified.

The packed file is published beside the plain one, then read back and unpacked. Only if its hash is that of the plain
bytes, the plain file is removed. After a kill in between, both are there and the plain one counts. The next run
verifies the packed file again before it uses it.
"""

from __future__ import annotations

from contextlib import closing

from mala_context.archive import layout, log, manifests
from mala_context.archive.codecs import Codec
from mala_context.archive.source import digest_of
from mala_context.errors import ArchiveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from mala_context.archive.interface import SessionFiles, Write
    from mala_context.archive.layout import Piece
    from mala_context.archive.reader import ArchiveReader


def pack_sessions(archive: ArchiveReader, session_ids: Sequence[str]) -> int:
    """Pack the plain pieces of sessions; return the bytes saved. Raises what `pack_piece` raises.

    The lock is taken for each piece, so that a hook waits for one piece at most.
    """
    saved = 0
    for session_id in session_ids:
        for piece in archive.pieces(session_id):
            if piece.packed or piece.remote is not None:
                continue
            with archive.lock(session_id) as files:
                current = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
                now = layout.now()
                here = [each for each in current if each.name == piece.name and each.remote is None]
                saved += sum(pack_piece(files, each, now) for each in here)
    return saved


def pack_piece(files: SessionFiles, piece: Piece, now: int) -> int:
    """Pack one plain piece and return the bytes that this saved; the caller holds the session's lock.

    A piece that no longer has its hash, or whose packed form does not unpack to it, stays plain (WARNING, 0). Raises
    `ArchiveError` if no zstd package is installed, and `OSError` if writing failed; the plain piece stays then too.
    """
    codec = Codec()
    digest, _ = digest_of(files.open(piece.name))
    if piece.sha256 is not None and digest != piece.sha256:
        log.warning("Piece %s is not what its manifest says: it is left as it is", files.path(piece.name))
        return 0
    packed = piece.name + layout.PACKED

    def fill(write: Write) -> None:
        with closing(files.open(piece.name)) as reader:
            codec.compress(reader, write, piece.stored)

    try:
        files.publish(packed, fill, mtime_ns=piece.mtime_ns)
    except FileExistsError:
        # An earlier run was killed before it verified this file.
        if not _unpacks_to(files, codec, packed, digest):
            files.remove(packed)
            files.publish(packed, fill, mtime_ns=piece.mtime_ns)
    if not _unpacks_to(files, codec, packed, digest):
        files.remove(packed)
        log.warning("Piece %s does not unpack to what was packed: it stays plain", files.path(piece.name))
        return 0
    length = next((each.size for each in files.list() if each.name == packed), None)
    if length is None:
        log.warning("Piece %s cannot be found again after it was packed: it stays plain", files.path(piece.name))
        return 0
    stored, _ = digest_of(files.open(packed))
    row = manifests.new_row("packed", now, piece=piece.name, length=length, sha256=stored)
    files.append(manifests.dump([row]))
    files.remove(piece.name)
    return piece.stored - length


def _unpacks_to(files: SessionFiles, codec: Codec, packed: str, digest: str) -> bool:
    try:
        return digest_of(codec.reader(files.open(packed)))[0] == digest
    except ArchiveError:
        return False
