"""A command that only looks leaves every file, mode and time as it was, in an archive and in any other directory."""

import os
import stat

import pytest
from click.testing import CliRunner

from mala_context.archive.store import TranscriptArchive
from mala_context.cli.app import app
from tests.helpers.archive_tools import rows

READERS = (
    ("archives", "list"),
    ("archives", "list", "--json"),
    ("archives", "show", "s1"),
    ("archives", "verify"),
    ("archives", "search", "x"),
    ("archives", "lost", "s1"),
    ("archives", "cat", "s1"),
    ("archives", "catch-up"),
    ("archives", "restore", "s1", "--dry-run"),
    ("archives", "prune", "--days", "1"),
    ("report", "s1"),
)


def tree(top):
    """Everything below a directory: kind and mode, owner, time and contents; `search` is an index of our own."""
    found = {}
    for folder, folders, files in os.walk(top):
        folders[:] = [each for each in folders if each != "search"]
        for name in [*folders, *files, "."]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            data = b""
            if stat.S_ISREG(status.st_mode) and os.access(path, os.R_OK):
                with open(path, "rb") as file:
                    data = file.read()
            when = 0 if name == "." or name in folders else status.st_mtime_ns
            found[path] = (status.st_mode, status.st_uid, when, data)
    return found


@pytest.fixture
def homes(tmp_path, monkeypatch):
    for name in ("HOME", "MALA_RUNS_DIR", "CLAUDE_CONFIG_DIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path / "HOME")
    return tmp_path


def run(arguments, directory):
    return CliRunner().invoke(app, [*arguments, "--dir", str(directory)])


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_a_directory_of_other_programs_stays_as_it_is(homes, arguments):
    place = homes / "etc"
    (place / "ssl").mkdir(parents=True)
    for name, mode in (("passwd", 0o644), (".tmp-s1.0123", 0o644), (".tmp-s1.manifest.jsonl", 0o600), ("odd", 0o000)):
        (place / name).write_text("words")
        (place / name).chmod(mode)
    place.chmod(0o755)
    before = tree(homes)
    done = run(arguments, place)
    assert tree(homes) == before
    assert done.exit_code
    assert "no archive here" in done.output + str(done.exception)


@pytest.mark.parametrize("mode", [0o755, 0o700])
@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_an_archive_with_wide_modes_stays_as_it_is(homes, arguments, mode):
    place = homes / "archives"
    transcript = homes / "s1.jsonl"
    transcript.write_bytes(rows(0, 9))
    TranscriptArchive(place).archive(transcript, "s1")
    transcript.unlink()
    for each in place.iterdir():
        each.chmod(0o644)
    (place / "notes.txt").write_text("mine")
    place.chmod(mode)
    before = tree(homes)
    run(arguments, place)
    assert tree(homes) == before


def test_an_index_that_cannot_be_kept_is_made_in_memory(homes, monkeypatch):
    place = homes / "archives"
    transcript = homes / "s1.jsonl"
    transcript.write_bytes(b'{"type":"user","message":{"content":"the word"}}\n')
    TranscriptArchive(place).archive(transcript, "s1")

    def refuse(path, *_, **__):
        raise OSError(30, "Read-only file system", path)

    before = tree(homes)
    monkeypatch.setattr(os, "mkdir", refuse)
    assert "the word" in run(("archives", "search", "word"), place).output
    assert tree(homes) == before


def test_no_index_is_kept_where_others_may_swap_it(homes):
    place = homes / "archives"
    transcript = homes / "s1.jsonl"
    transcript.write_bytes(b'{"type":"user","message":{"content":"the word"}}\n')
    TranscriptArchive(place).archive(transcript, "s1")
    place.chmod(0o777)
    before = tree(homes)
    assert "the word" in run(("archives", "search", "word"), place).output
    assert tree(homes) == before
    assert not list(homes.rglob("search"))


@pytest.mark.parametrize("arguments", [*READERS, ("replay", "{}"), ("audit", "{}"), ("report", "{}")], ids=" ".join)
def test_a_folder_that_is_a_store_is_not_made_by_a_reader(homes, arguments):
    address = f"file://{homes}/store/host/repo"
    words = [each.format(address) for each in arguments]
    done = CliRunner().invoke(app, words if address in words else [*words, "--dir", address])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert not (homes / "store").exists()
