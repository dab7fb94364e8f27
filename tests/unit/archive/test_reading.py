"""Joining pieces byte for byte, and cutting bytes into rows."""

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive.reading import Row, choose_chain, chunks, file_chunks, lines, rows
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import CorruptArchiveError, PartNotFoundError, SessionNotFoundError


def grow(archive, path, parts, **fields):
    for part in parts:
        with path.open("ab") as file:
            file.write(part)
        archive.archive(path, "s1", final=True, **fields)


def join(archive, session="s1", *, strict=True, **which):
    with archive.store(create=False).view(session) as files:
        chain = choose_chain(archive.pieces(session), session, archive.location, **which)
        return b"".join(chunks(files, chain, strict=strict))


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 7))
def test_rows_are_the_lines_of_the_bytes(parts, size):
    data = b"".join(parts)
    found = list(rows(data[start : start + size] for start in range(0, len(data), size)))
    assert [row.data for row in found] == [line for line in data.split(b"\n") if line]
    for row in found:
        assert data[row.offset : row.offset + len(row.data)] == row.data
        assert row.ended == (data[row.offset + len(row.data) :][:1] == b"\n")


def test_a_row_says_whether_it_ended():
    assert [(row.offset, row.data, row.ended) for row in rows([b"a\n\nb"])] == [(0, b"a", True), (3, b"b", False)]


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
    with archive.store(create=False).view("s1") as files:
        assert b"".join(chunks(files, listed)) == b"a\nbb\nccc\n"


def test_a_file_is_read_up_to_a_size_and_never_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 600_000)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert sum(len(data) for data in file_chunks(str(tmp_path / "file"))) == 600_000
    assert b"".join(file_chunks(str(tmp_path / "file"), 3)) == b"xxx"
    for name in ("link", "", "none"):
        with pytest.raises(OSError, match=r".+"):
            list(file_chunks(str(tmp_path / name)))


@given(st.lists(st.binary(max_size=60) | st.just(b"\n") | st.just(b'"\n"'), max_size=30), st.integers(1, 40))
def test_long_rows_pass_by_in_parts(parts, most):
    """Every row is there with its bytes and its place, also behind a long one that nobody read."""
    found = []
    for line in lines(parts, most):
        short = isinstance(line, Row)
        told = line.data if short else b"".join(line.parts())
        found.append((line.offset, told, line.ended, line.size))
    assert found == [(row.offset, row.data, row.ended, row.size) for row in rows(parts, None)]
    assert [line.offset for line in lines(parts, most)] == [each[0] for each in found]


def test_a_long_row_is_shortened_and_keeps_its_place():
    long = b'{"type":"user","text":"' + b"x " * 100_000 + b'","uuid":"u"}'
    data = b'{"n":1}\n' + long + b'\n{"n":2}\n'
    first, second, third = rows([data[start : start + 4_096] for start in range(0, len(data), 4_096)], 100_000)
    assert (first.data, third.data) == (b'{"n":1}', b'{"n":2}')
    assert (second.offset, second.size, third.offset) == (8, len(long), 9 + len(long))
    assert second.ended
    assert 0 < len(second.data) < 70_000
    assert second.left_out == len(long) - len(second.data)


def test_a_packed_piece_that_unpacks_to_more_is_read_no_further(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives", compress="zstd")
    grow(archive, tmp_path / "s1.jsonl", [b'{"n":1}\n'])
    archive.pack()
    (piece,) = (tmp_path / "archives").glob("*.zst")
    piece.write_bytes(zstandard.compress(b'{"n":1}\n' + bytes(10 << 20)))
    with archive.store(create=False).view("s1") as files:
        given, found = [], chunks(files, archive.pieces("s1"))
        with pytest.raises(CorruptArchiveError, match="unpacks to more"):
            given.extend(found)
        assert given == []
    assert join(archive, strict=False) == b""
