"""The plugin's slash commands: what each prints, and that they need the standard library alone."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from mala_context.archive.store import TranscriptArchive
from mala_context.cli import slash
from tests.helpers.small_transcripts import SID, dump, session

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A session in a repository, compacted twice; the archive is written by the test."""
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.delenv("CLAUDE_PROJECT_DIR", raising=False)
    (tmp_path / "repo").mkdir()
    monkeypatch.chdir(tmp_path / "repo")
    folder = tmp_path / "claude" / "projects" / "-repo"
    folder.mkdir(parents=True)
    path = folder / f"{SID}.jsonl"
    path.write_bytes(dump(session(2)))
    return TranscriptArchive(repo_path=tmp_path / "repo"), path


def answer(*arguments):
    return slash.answer(arguments, os.environ)


def test_before_anything_is_archived(world):
    assert "nothing yet" in answer("status", SID)
    assert answer("lost", SID) == "No compaction of this session is archived.\n"


def test_status(world):
    archive, path = world
    archive.archive(path, SID, trigger="auto", agent="main")
    archive.record_outcome(SID, "compacted", tokens_before=180_000, tokens_after=20_000)
    text = answer("status", SID)
    assert text.startswith("Context: ")
    assert "Compactions: 1\n" in text
    assert re.search(r"Archive: 1 piece, .* UTC, in " + re.escape(archive.location), text)
    assert all(line.isprintable() for line in text.splitlines())


def test_status_names_the_size_at_which_the_cli_compacts(world, monkeypatch):
    monkeypatch.setenv("CLAUDE_CODE_AUTO_COMPACT_WINDOW", "150000")
    assert re.search(r"^Context: .*; Claude Code compacts at 1\d\d,000 tokens$", answer("status", SID), re.MULTILINE)


def test_undo_makes_a_session_and_names_it(world):
    archive, path = world
    archive.archive(path, SID, trigger="auto", agent="main")
    text = answer("undo", SID)
    assert "before compaction 2" in text
    (new,) = re.findall(r"/resume ([0-9a-f-]{36})", text)
    assert f"claude --resume {new}" in text
    assert (path.parent / f"{new}.jsonl").exists() or list(path.parent.parent.rglob(f"{new}.jsonl"))
    assert path.read_bytes() == dump(session(2))


def test_a_session_without_a_compaction_has_nothing_to_undo(world):
    archive, path = world
    path.write_bytes(dump(session(0)))
    archive.archive(path, SID, trigger="session_end", agent="main")
    assert answer("undo", SID).startswith("This session was not compacted")
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_lost(world):
    archive, path = world
    archive.archive(path, SID, trigger="auto", agent="main")
    lost = {"read": {"total": 1, "named": 0, "missing": ["/p/\x1b[31mb.py"]}}
    archive.record_outcome(SID, "compacted", trigger="auto", tokens_before=5, lost=lost)
    assert "1. " in answer("lost", SID)
    assert "   - /p/\\x1b[31mb.py\n" in answer("lost", SID)


def test_the_archive_of_another_repository_is_found(world, tmp_path, monkeypatch):
    archive, path = world
    archive.archive(path, SID, trigger="auto", agent="main")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert archive.location in answer("status", SID)


@pytest.mark.parametrize("arguments", [(), ("status",), ("status", "../x"), ("nothing", SID), ("status", "")])
def test_mistakes_are_a_line(world, arguments):
    text = answer(*arguments)
    assert text.startswith("mala-context: ")
    assert text.count("\n") == 1


def test_an_archive_that_cannot_be_read_is_a_line(world, monkeypatch):
    monkeypatch.delenv("MALA_RUNS_DIR")
    monkeypatch.setenv("HOME", "/")
    assert answer("undo", SID).startswith("mala-context: ")


@pytest.mark.parametrize("name", slash.COMMANDS)
def test_the_script_of_the_plugin_needs_no_package(world, name):
    archive, path = world
    archive.archive(path, SID, trigger="auto", agent="main")
    command = [sys.executable, "-I", "-S", str(ROOT / "hooks" / "command.py"), name, SID]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == answer(name, SID) or name == "undo"


@pytest.mark.parametrize("name", slash.COMMANDS)
def test_each_has_its_page_in_the_plugin(name):
    page = (ROOT / "commands" / f"{name}.md").read_text()
    assert f'hooks/command.py" {name} "${{CLAUDE_SESSION_ID}}"' in page
    assert "disable-model-invocation: true" in page
    assert {path.stem for path in (ROOT / "commands").iterdir()} == set(slash.COMMANDS)
