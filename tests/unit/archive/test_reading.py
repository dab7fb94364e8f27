"""Joining pieces byte for byte, and cutting bytes into rows."""

import pytest
import zstandard

from mala_context.archive.reading import choose_chain, chunks
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import CorruptArchiveError, PartNotFoundError, SessionNotFoundError


def grow(archive, path, parts, **fields):
    for part in parts:
        with path.open("ab") as file:
            file.write(part)
        archive.archive(path, "s1", final=True, **fields)


def join(archive, session="s1", *, strict=True, **which):
    with archive.view(session) as files:
        chain = choose_chain(archive.pieces(session), session, archive.location, **which)
        return b"".join(chunks(files, chain, strict=strict))


@pytest.mark.parametrize("mode", ["incremental", "full"])
@pytest.mark.parametrize("packed", [0, 1, 3])
def test_pieces_join_to_the_transcript(mode, packed, tmp_path):
    archive = TranscriptArchive(tmp_path / "archives", mode=mode, compress="zstd")
    path = tmp_path / "s1.jsonl"
    for n in range(3):
        grow(archive, path, [b'{"n":%d}\n' % n * 1000])
        if n < packed:
            archive.pack()
    assert join(archive) == path.read_bytes()


def test_chains_and_agents_are_chosen_by_name(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives")
    path = tmp_path / "s1.jsonl"
    grow(archive, path, [b"one\n"])
    path.write_bytes(b"two\n")
    archive.archive(path, "s1")
    archive.archive(path, "s1", subagent="a1")
    assert join(archive) == b"two\n"
    assert join(archive, chain=1) == b"one\n"
    assert join(archive, subagent="a1") == b"two\n"
    with pytest.raises(PartNotFoundError, match="chain 3; there are 1, 2"):
        join(archive, chain=3)
    with pytest.raises(PartNotFoundError, match="agent b2; archived: a1"):
        join(archive, subagent="b2")
    with pytest.raises(SessionNotFoundError):
        join(archive, "s2")


def three_pieces(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives")
    grow(archive, tmp_path / "s1.jsonl", [b"a\n", b"bb\n", b"ccc\n"])
    return archive, [tmp_path / "archives" / piece.name for piece in archive.pieces("s1")]


def test_a_missing_piece_is_no_transcript(tmp_path):
    archive, pieces = three_pieces(tmp_path)
    pieces[1].unlink()
    with pytest.raises(CorruptArchiveError, match="1 of the chain's pieces missing"):
        join(archive)
    assert join(archive, strict=False) == b"a\nccc\n"


def test_a_gap_is_seen_without_the_lost_pieces_row(tmp_path):
    archive, pieces = three_pieces(tmp_path)
    pieces[1].unlink()
    manifest = tmp_path / "archives" / "s1.manifest.jsonl"
    lines = manifest.read_bytes().splitlines(keepends=True)
    manifest.write_bytes(b"".join(line for line in lines if pieces[1].name.encode() not in line))
    with pytest.raises(CorruptArchiveError, match="bytes 2 to 5"):
        join(archive)


def test_a_changed_piece_is_no_transcript(tmp_path):
    archive, pieces = three_pieces(tmp_path)
    pieces[1].write_bytes(b"xx\n")
    with pytest.raises(CorruptArchiveError, match="hash"):
        join(archive)
    assert join(archive, strict=False) == b"a\nxx\nccc\n"


def test_a_damaged_packed_piece_is_no_transcript(tmp_path):
    archive, pieces = three_pieces(tmp_path)
    TranscriptArchive(tmp_path / "archives", compress="zstd").pack()
    packed = pieces[1].with_name(pieces[1].name + ".zst")
    data = bytearray(packed.read_bytes())
    data[-1] ^= 1
    packed.write_bytes(data)
    with pytest.raises(CorruptArchiveError):
        join(archive)


def test_a_piece_packed_meanwhile_is_still_read(tmp_path):
    archive, _ = three_pieces(tmp_path)
    listed = archive.pieces("s1")
    TranscriptArchive(tmp_path / "archives", compress="zstd").pack()
    with archive.view("s1") as files:
        assert b"".join(chunks(files, listed)) == b"a\nbb\nccc\n"


def test_a_packed_piece_that_unpacks_to_more_is_read_no_further(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives", compress="zstd")
    grow(archive, tmp_path / "s1.jsonl", [b'{"n":1}\n'])
    archive.pack()
    (piece,) = (tmp_path / "archives").glob("*.zst")
    piece.write_bytes(zstandard.compress(b'{"n":1}\n' + bytes(10 << 20)))
    with archive.view("s1") as files:
        given, found = [], chunks(files, archive.pieces("s1"))
        with pytest.raises(CorruptArchiveError, match="unpacks to more"):
            given.extend(found)
        assert given == []
    assert join(archive, strict=False) == b""
