"""The archives of the runs directory."""

import pytest

from mala_context.archive.layout import known_archives
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveUnavailableError

SID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_each_archive_with_its_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    env = {"MALA_RUNS_DIR": str(tmp_path / "runs")}
    assert list(known_archives(env)) == []
    transcript = tmp_path / f"{SID}.jsonl"
    transcript.write_text("{}\n")
    (tmp_path / "repo").mkdir()
    archive = TranscriptArchive(repo_path=tmp_path / "repo")
    archive.archive(transcript, SID)
    unmarked = tmp_path / "runs" / "-zzz" / "archives"
    unmarked.mkdir(parents=True)
    (tmp_path / "runs" / "-other").mkdir()
    (tmp_path / "runs" / "-link").mkdir()
    (tmp_path / "runs" / "-link" / "archives").symlink_to(unmarked)
    assert list(known_archives(env)) == [(str(tmp_path / "repo"), archive.location), ("-zzz", str(unmarked))]
    assert list(known_archives()) == list(known_archives(env))


def test_no_place_for_any():
    with pytest.raises(ArchiveUnavailableError):
        list(known_archives({"HOME": "/nowhere"}))
