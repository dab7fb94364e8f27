"""The last archive of a session."""

import json

import pytest

from mala_context.analysis.watch.archived import LatestArchives, last_of
from mala_context.archive import manifests
from mala_context.archive.layout import get_repo_runs_dir
from mala_context.archive.store import TranscriptArchive
from tests.helpers.recordings import SID, plain


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    return tmp_path / "runs"


@pytest.fixture
def look(monkeypatch):
    """Look at once, however soon after the last time."""
    monkeypatch.setattr("mala_context.analysis.watch.archived.PAUSE", 0.0)


def archive(tmp_path, trigger="auto"):
    path = plain().write(tmp_path / f"{SID}.jsonl")
    return TranscriptArchive(repo_path=tmp_path).archive(path, SID, trigger=trigger)


def test_a_session_that_nobody_archived(runs):
    archives = LatestArchives()
    assert not archives.look({SID, None})
    assert archives.last(SID) is None
    assert archives.last(None) is None


def test_an_archive_is_noticed(runs, tmp_path, look):
    archives = LatestArchives()
    archives.look({SID})
    archive(tmp_path)
    assert archives.look({SID})
    last = archives.last(SID)
    assert (last.trigger, last.outcome) == ("auto", None)
    assert not archives.look({SID})


def test_how_its_compaction_ended_is_noticed_too(runs, tmp_path, look):
    archives = LatestArchives()
    name = archive(tmp_path).path.rpartition("/")[2]
    archives.look({SID})
    manifest = get_repo_runs_dir(tmp_path) / "archives" / f"{SID}.manifest.jsonl"
    with manifest.open("ab") as file:
        file.write(manifests.dump([manifests.new_row("outcome", 1, piece=name, outcome="compacted")]))
    assert archives.look({SID})
    assert archives.last(SID).outcome == "compacted"


def test_it_looks_only_now_and_then(runs, tmp_path):
    archives = LatestArchives(str(runs))
    runs.mkdir()
    archives.look({SID})
    archive(tmp_path)
    assert not archives.look({SID})
    assert archives.last(SID) is None


def test_no_place_for_archives(monkeypatch):
    monkeypatch.delenv("MALA_RUNS_DIR", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", "/")
    archives = LatestArchives()
    assert not archives.look({SID})


def test_a_manifest_that_cannot_be_read_says_nothing(runs, tmp_path, look):
    archive(tmp_path)
    manifest = get_repo_runs_dir(tmp_path) / "archives" / f"{SID}.manifest.jsonl"
    manifest.unlink()
    manifest.symlink_to("/nowhere")
    archives = LatestArchives()
    archives.look({SID})
    assert archives.last(SID) is None


def rows(*given):
    return manifests.parse(b"".join(json.dumps(row).encode() + b"\n" for row in given))


def test_the_newest_piece_of_the_sessions_own_transcript():
    piece = {"row": "piece", "trigger": "auto", "time": "2026-05-01T10:00:00.000000Z", "name": "one"}
    late = piece | {"time": "2026-05-02T10:00:00.000000Z", "trigger": "session_end", "name": "two"}
    sub = late | {"subagent": "a1", "time": "2026-05-03T10:00:00.000000Z"}
    bad = piece | {"time": 5}
    assert last_of(rows(late, piece, sub, bad)).trigger == "session_end"
    assert last_of(rows(sub, bad)) is None
    assert last_of(rows(piece, {"row": "outcome", "piece": "one", "outcome": "failed"})).outcome == "failed"
