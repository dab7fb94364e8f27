"""Nobody else can read or replace what we write, whatever the umask and whoever made the directories first."""

import io
import os
import stat
import sys

import pytest

from mala_context.archive.full_outputs import Spills
from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import run
from tests.helpers.small_transcripts import SID, dump, session

UMASKS = [0o000, 0o022, 0o077]


@pytest.fixture(params=UMASKS, ids=oct)
def umask(request):
    old = os.umask(request.param)
    yield request.param
    os.umask(old)


class Place:
    """A repository with an archive, a transcript, and a folder for what the user asks for."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.runs, self.repo, self.out = root / "runs", root / "repo", root / "out"
        self.projects = root / "claude" / "projects"
        self.folder = self.projects / "-home-dev-project"
        for each in (self.repo, self.out, self.folder):
            each.mkdir(parents=True)
        for name, value in (("MALA_RUNS_DIR", self.runs), ("CLAUDE_CONFIG_DIR", root / "claude"), ("HOME", root)):
            monkeypatch.setenv(name, str(value))
        monkeypatch.chdir(self.repo)
        self.transcript = self.folder / f"{SID}.jsonl"
        self.transcript.write_bytes(dump(session(2)))
        beside = self.folder / SID
        (beside / "tool-results").mkdir(parents=True)
        (beside / "subagents").mkdir()
        (beside / "tool-results" / "a.txt").write_text("a result")
        (beside / "subagents" / "agent-a1.jsonl").write_bytes(dump(session(0)))

    def archive(self):
        archive = TranscriptArchive(repo_path=self.repo)
        archive.register_session(SID, str(self.transcript), cwd=str(self.repo))
        archive.archive_session(self.transcript, SID, trigger="session_end", agent="main")
        archive.record_outcome(SID, "compacted", tokens_before=2, tokens_after=1, agent="main")
        return archive

    def run(self, monkeypatch, *words, status=0):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["mala-context", *map(str, words)])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as end:
                run()
        err.flush()
        assert (end.value.code or 0) == status, err.buffer.getvalue().decode()


@pytest.fixture
def place(tmp_path, monkeypatch):
    return Place(tmp_path, monkeypatch)


def modes(top):
    """Path below a directory → its permissions, the directory itself included."""
    found = {".": stat.S_IMODE(os.lstat(top).st_mode)}
    for folder, names, files in os.walk(top):
        for name in [*names, *files]:
            path = os.path.join(folder, name)
            found[os.path.relpath(path, top)] = stat.S_IMODE(os.lstat(path).st_mode)
    return found


def wide(top):
    """What others may read, write or enter."""
    return {path: oct(mode) for path, mode in modes(top).items() if mode & 0o077}


def test_all_that_is_kept_of_a_session(place, umask, monkeypatch):
    archive = place.archive()
    place.run(monkeypatch, "archives", "search", "message")
    Spills(str(place.repo)).write(SID, b"a long result", str(place.transcript))
    found = modes(place.runs)
    kinds = ("_transcript.jsonl", ".manifest.jsonl", ".sqlite", ".repo-path", ".txt")
    assert all(any(path.endswith(kind) for path in found) for kind in kinds), found
    assert wide(place.runs) == {}
    place.run(monkeypatch, "archives", "pack")
    assert any(path.endswith(".zst") for path in modes(place.runs))
    assert wide(place.runs) == {}
    assert archive.sessions()


def test_what_a_user_asks_for_of_a_session(place, umask, monkeypatch):
    place.archive()
    before = set(place.folder.iterdir())
    place.run(monkeypatch, "archives", "export", SID, place.out / "plain.jsonl")
    place.run(monkeypatch, "archives", "export", SID, place.out / "masked.jsonl", "--redact")
    place.run(monkeypatch, "report", place.folder, "-o", place.out / "page.html")
    place.run(monkeypatch, "report", place.folder, "-o", place.out / "picture.svg")
    place.run(monkeypatch, "archives", "restore", SID)
    (restored,) = {*place.projects.glob("*/*.jsonl")} - before - {place.transcript}
    for path in [*place.out.iterdir(), restored]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert len(list(place.out.iterdir())) == 4


def test_files_without_a_sessions_words_are_nobody_elses_to_write(place, umask, monkeypatch):
    place.run(monkeypatch, "config", "init", place.out)
    place.run(monkeypatch, "replay", place.folder, "-o", place.out / "a.csv", "--format", "csv")
    place.run(monkeypatch, "audit", place.folder, "--plot", place.out / "b.svg")
    for path in place.out.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o644 & ~umask, path
    assert len(list(place.out.iterdir())) == 3


def test_directories_that_somebody_made_first(place, umask, monkeypatch):
    for name in ("archives", "search", "spills"):
        made = place.runs / str(place.repo).replace("/", "-") / name
        made.mkdir(parents=True, exist_ok=True)
        made.chmod(0o777)
    archive = place.archive()
    assert os.path.dirname(archive.location) == str(made.parent), "the directories were made elsewhere"
    place.run(monkeypatch, "archives", "search", "message")
    assert wide(archive.location) == {}
    assert wide(made.parent / "search") == {}


def test_what_was_wide_before_is_reported_and_mended(place, monkeypatch):
    archive = place.archive()
    for name in os.listdir(archive.location):
        os.chmod(os.path.join(archive.location, name), 0o666)
    place.run(monkeypatch, "archives", "verify", status=1)
    place.run(monkeypatch, "archives", "verify", "--repair")
    assert wide(archive.location) == {}
