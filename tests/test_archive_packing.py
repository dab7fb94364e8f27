"""Packing without ever being without a whole copy."""

import io
import os
import shutil
import subprocess
import sys

import pytest
from archive_tools import cat, names, rows

from mala_context.archive import packing
from mala_context.archive.codecs import Codec
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError


@pytest.fixture
def archive(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives", compress="zstd")
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
    archive.catch_up([])
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


@pytest.mark.parametrize("content", ["whole", "cut"])
def test_an_interrupted_packing_is_finished(archive, content):
    name = names(archive)[0]
    with open(f"{archive.location}/{name}", "rb") as file:
        frame = packed(file.read())
    with open(f"{archive.location}/{name}.zst", "wb") as file:
        file.write(frame if content == "whole" else frame[:-9])
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
