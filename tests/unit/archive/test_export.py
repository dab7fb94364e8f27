"""One transcript, one file."""

import os

import pytest

from mala_context.archive.export import export_transcript
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError, CorruptArchiveError, SessionNotFoundError

SECRET = b'{"text":"AKIAIOSFODNN7EXAMPLE"}\n'


@pytest.fixture
def archive(tmp_path):
    archive = TranscriptArchive(tmp_path / "archives")
    path = tmp_path / "s1.jsonl"
    for n in range(3):
        with path.open("ab") as file:
            file.write(SECRET if n == 1 else b'{"n":%d}\n' % n)
        archive.archive(path, "s1")
    return archive


def test_the_transcripts_bytes_in_a_private_file(archive, tmp_path):
    umask = os.umask(0)
    try:
        result = export_transcript(archive, "s1", tmp_path / "out.jsonl")
    finally:
        os.umask(umask)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "s1.jsonl").read_bytes()
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert (result.bytes, result.redacted) == ((tmp_path / "s1.jsonl").stat().st_size, None)


def test_masked_in_the_copy_and_not_in_the_archive(archive, tmp_path):
    before = {file.name: file.read_bytes() for file in (tmp_path / "archives").iterdir()}
    result = export_transcript(archive, "s1", tmp_path / "out.jsonl", redact=True)
    assert b"AKIA" not in (tmp_path / "out.jsonl").read_bytes()
    assert (tmp_path / "out.jsonl").read_bytes().count(b"\n") == 3
    assert result.redacted == 1
    assert {file.name: file.read_bytes() for file in (tmp_path / "archives").iterdir()} == before


def test_nothing_is_written_when_it_fails(archive, tmp_path, monkeypatch):
    (tmp_path / "there").write_text("old")
    with pytest.raises(FileExistsError):
        export_transcript(archive, "s1", tmp_path / "there")
    with pytest.raises(SessionNotFoundError):
        export_transcript(archive, "s2", tmp_path / "out")
    piece = tmp_path / "archives" / archive.pieces("s1")[2].name
    piece.write_bytes(b'{"n":9}\n')
    with pytest.raises(CorruptArchiveError):
        export_transcript(archive, "s1", tmp_path / "out")
    assert (tmp_path / "there").read_text() == "old"
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".tmp*"))


def test_without_the_detector_library(archive, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "detect_secrets.core.plugins.util", None)
    with pytest.raises(ArchiveError, match=r"pip install 'mala-context\[redact\]'"):
        export_transcript(archive, "s1", tmp_path / "out", redact=True)
    assert not (tmp_path / "out").exists()


def test_an_interrupt_leaves_nothing_half(archive, tmp_path):
    def interrupt(count):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_transcript(archive, "s1", tmp_path / "out", progress=interrupt)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["archives", "s1.jsonl"]
