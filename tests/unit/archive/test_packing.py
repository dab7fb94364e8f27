"""Packing without ever being without a whole copy."""

import io
import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive import layout, manifests, packing
from mala_context.archive.codecs import Codec
from mala_context.archive.increment import open_plain
from mala_context.archive.source import fill
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError
from tests.helpers.archive_memory import MemoryStore
from tests.helpers.archive_tools import cat, names, rows


@pytest.fixture
def archive(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives", compress="zstd", projects_dirs=[])
    for step in range(1, 4):
        (tmp_path / "s1.jsonl").write_bytes(rows(0, step * 500))
        archive.archive(tmp_path / "s1.jsonl", "s1", trigger="auto")
    return archive


def packed(data):
    out = io.BytesIO()
    Codec().compress(io.BytesIO(data), out.write, len(data))
    return out.getvalue()


def test_without_the_package_pieces_stay_plain(archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ArchiveError, match=r"mala-context\[zstd\]"):
        archive.pack()
    assert len(names(archive)) == 3


def test_packed_pieces_are_the_transcript_and_the_next_piece_follows(archive, tmp_path):
    before = {piece.plain: (piece.mtime_ns, piece.sha256) for piece in archive.pieces("s1")}
    plain = archive.usage_bytes()
    saved = archive.pack()
    assert names(archive) == []
    assert {piece.plain: (piece.mtime_ns, piece.sha256) for piece in archive.pieces("s1")} == before
    assert cat(archive) == rows(0, 1500)
    assert archive.usage_bytes() < plain - saved + 2000
    assert len(archive.manifest("s1").of_kind("packed")) == 3
    assert archive.pack() == 0
    (tmp_path / "s1.jsonl").write_bytes(rows(0, 1600))
    assert archive.archive(tmp_path / "s1.jsonl", "s1").chain == 1
    assert cat(archive) == rows(0, 1600)


def test_a_change_under_packed_pieces_is_seen_by_their_hash(archive, tmp_path):
    archive.pack(["s1"])
    data = bytearray(rows(0, 1500))
    data[700] ^= 1
    (tmp_path / "s1.jsonl").write_bytes(data)
    assert archive.archive(tmp_path / "s1.jsonl", "s1").chain == 2


@pytest.mark.parametrize("with_package", [True, False])
def test_packed_pieces_without_a_manifest_are_known_again(archive, tmp_path, with_package, monkeypatch):
    archive.pack()
    os.unlink(f"{archive.location}/s1.manifest.jsonl")
    if not with_package:
        monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "s1.jsonl").write_bytes(rows(0, 1600))
    result = archive.archive(tmp_path / "s1.jsonl", "s1")
    assert (result.chain, result.offset) == ((1, len(rows(0, 1500))) if with_package else (2, 0))
    monkeypatch.undo()
    assert cat(archive) == rows(0, 1600)


def test_tidying_packs_where_that_is_wanted_and_possible(archive, tmp_path, monkeypatch, caplog):
    TranscriptArchive(tmp_path / "archives").tidy()
    assert len(names(archive)) == 3
    monkeypatch.setitem(sys.modules, "zstandard", None)
    archive.tidy()
    assert "is not packed" in caplog.text
    monkeypatch.undo()
    archive.catch_up()
    assert names(archive) == []


def test_the_zstd_program_unpacks_all_of_it(archive):
    program = shutil.which("zstd")
    if program is None:  # where it is not installed, its library has to do
        assert cat(archive) == rows(0, 1500)
        return
    archive.pack()
    files = [f"{archive.location}/{piece.name}" for piece in archive.pieces("s1")]
    assert subprocess.run([program, "-dcf", *files], capture_output=True, check=True).stdout == rows(0, 1500)


def test_a_piece_that_is_not_what_its_manifest_says_is_left(archive, caplog):
    path = f"{archive.location}/{names(archive)[0]}"
    with open(path, "r+b") as file:
        file.write(b"X")
    archive.pack()
    assert len(names(archive)) == 1
    assert "not what its manifest says" in caplog.text


@pytest.mark.parametrize("content", ["whole", "cut", "damaged"])
def test_an_interrupted_packing_is_finished(archive, content):
    name = names(archive)[0]
    with open(f"{archive.location}/{name}", "rb") as file:
        frame = packed(file.read())
    with open(f"{archive.location}/{name}.zst", "wb") as file:
        file.write({"whole": frame, "cut": frame[:-9], "damaged": frame[:9] + bytes(len(frame) - 9)}[content])
    assert cat(archive) == rows(0, 1500)
    archive.pack()
    assert names(archive) == []
    assert cat(archive) == rows(0, 1500)


def test_a_packed_piece_that_does_not_unpack_to_the_plain_one_is_dropped(archive, monkeypatch, caplog):
    monkeypatch.setattr(packing, "_unpacks_to", lambda *_: False)
    archive.pack()
    assert len(names(archive)) == 3
    assert names(archive, ".zst") == []
    assert "stays plain" in caplog.text


def test_a_packed_piece_that_is_not_listed_is_no_reason_to_drop_the_plain_one(archive, monkeypatch, caplog):
    """A network file system may be late with a name, or show a file as somebody else's."""
    from mala_context.archive.writer import LocalView

    real = LocalView.list
    monkeypatch.setattr(LocalView, "list", lambda self: [each for each in real(self) if not each.name.endswith(".zst")])
    assert archive.pack() == 0
    monkeypatch.undo()
    assert "cannot be found again" in caplog.text
    assert len(names(archive)) == 3
    assert cat(archive) == rows(0, 1500)
    archive.pack()
    assert names(archive) == []
    assert cat(archive) == rows(0, 1500)


@given(data=st.binary(max_size=3_000), twice=st.booleans())
def test_any_bytes_come_back(data, twice):
    with MemoryStore().lock("s1", 1.0) as files:
        name = layout.piece_name("s1", None, 1, layout.stamp(10**15), ".jsonl")
        files.publish(name, lambda write: write(data * (1 + twice)), mtime_ns=10**18)
        (plain,) = manifests.pieces_of(files.list(), manifests.parse(b""))
        saved = packing.pack_piece(files, plain, 10**15)
        (piece,) = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
        assert (piece.name, piece.mtime_ns, piece.stored) == (f"{name}.zst", 10**18, len(data) * (1 + twice) - saved)
        reader, buffer = open_plain(files, piece), bytearray(len(data) * 2 + 1)
        assert bytes(buffer[: fill(reader, buffer)]) == data * (1 + twice)
        reader.close()
