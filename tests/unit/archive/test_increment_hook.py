"""What a PreCompact hook does with its input."""

import errno
import logging
import os

import pytest

from mala_context.archive.increment import archive_from_hook
from mala_context.archive.store import TranscriptArchive
from tests.helpers.archive_tools import cat, rows


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, logger="mala_context.archive")


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(tmp_path / "archives", projects_dirs=[str(tmp_path / "projects")])


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "projects" / "-w" / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(rows(0, 9))
    return path


def said(caplog):
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_what_the_input_says_is_in_the_manifest(archive, transcript):
    hook_input = {
        "session_id": "s1",
        "transcript_path": str(transcript),
        "trigger": "manual",
        "cwd": "/w",
        "agent_id": "a1",
    }
    result = archive_from_hook(archive, hook_input, tokens=5, model="m")
    assert result.archived
    row = archive.manifest("s1").of_kind("piece")[0]
    assert (row["trigger"], row["cwd"], row["agent"], row["tokens"], row["model"]) == ("manual", "/w", "a1", 5, "m")


@pytest.mark.parametrize("path", ["", None, "/nonexistent/x.jsonl", 7, "/", "x\0y"])
def test_a_transcript_that_is_not_there_is_looked_for_by_its_name(archive, transcript, path, caplog):
    (transcript.parent / "s1.jsonl.bak").write_bytes(b"not this one\n")
    hook_input = {"session_id": "s1", "transcript_path": path}
    result = archive_from_hook(archive, hook_input)
    if path == "x\0y":
        assert result is None
    else:
        assert result.transcript == str(transcript)
        (line,) = [text for level, text in said(caplog) if level == "INFO" and "is not there" in text]
        assert repr(path) in line
        assert str(transcript) in line


@pytest.mark.parametrize("path", ["", None, "/nonexistent/x.jsonl", 7, "/"])
def test_one_warning_where_it_is_nowhere(archive, path, caplog):
    hook_input = {"session_id": "s1", "transcript_path": path}
    assert archive_from_hook(archive, hook_input) is None
    assert [level for level, _ in said(caplog)] == ["WARNING"]


@pytest.mark.parametrize("session_id", [7, None, ["s2"]])
def test_a_session_id_that_is_no_text_counts_as_none(archive, transcript, session_id):
    result = archive_from_hook(archive, {"session_id": session_id, "transcript_path": str(transcript)})
    assert result.session_id == "s1"


@pytest.mark.parametrize("session_id", ["../../outside", "..", "x\0y", "n" * 300, "con\n", "é" * 200])
def test_a_session_id_that_is_no_name_is_named_escaped(archive, transcript, session_id, caplog, tmp_path):
    hook_input = {"session_id": session_id, "transcript_path": str(transcript)}
    assert archive_from_hook(archive, hook_input) is None
    ((level, text),) = said(caplog)
    assert level == "WARNING"
    assert repr(session_id)[:60] in text
    assert not {"\n", "\0"} & set(text)
    assert sorted(os.listdir(tmp_path)) == ["projects"]


@pytest.mark.parametrize("missing", [{}, {"session_id": None}, {"session_id": ""}])
def test_without_a_session_id_the_transcripts_name_is_taken(archive, tmp_path, missing):
    path = tmp_path / "0f8fad5b-d9cb-469f-a165-70867728950e.jsonl"
    path.write_bytes(rows(0, 9))
    result = archive_from_hook(archive, {**missing, "transcript_path": str(path), "trigger": "auto"})
    assert result.session_id == "0f8fad5b-d9cb-469f-a165-70867728950e"
    path.rename(tmp_path / "no id at all.jsonl")
    result = archive_from_hook(archive, {**missing, "transcript_path": str(tmp_path / "no id at all.jsonl")})
    assert result.session_id == "unknown"


@pytest.mark.parametrize("trigger", [None, "", "micro", 7, ["auto"]])
def test_a_trigger_that_is_not_known_is_called_unknown(archive, transcript, trigger, caplog):
    hook_input = {"session_id": "s1", "transcript_path": str(transcript), "trigger": trigger}
    result = archive_from_hook(archive, hook_input)
    assert f"PreCompact: archived transcript (trigger=unknown) to {result.path}" in caplog.text
    assert archive.manifest("s1").open_piece("main") is not None


@pytest.mark.parametrize("hook_input", [None, 5, "text", [], {}])
def test_any_input_is_answered(archive, hook_input, caplog):
    assert archive_from_hook(archive, hook_input) is None
    assert [level for level, _ in said(caplog)] == ["WARNING"]


@pytest.mark.parametrize(
    "swap", [lambda path: os.symlink("/etc/hostname", path), os.mkfifo, lambda path: os.symlink("/dev/zero", path)]
)
def test_a_transcript_that_was_swapped_is_not_copied(archive, transcript, swap, caplog):
    transcript.unlink()
    swap(transcript)
    hook_input = {"session_id": "s1", "transcript_path": str(transcript)}
    assert archive_from_hook(archive, hook_input) is None
    assert archive.pieces("s1") == []
    assert [level for level, _ in said(caplog)] == ["WARNING"]


def test_a_disk_that_is_full_is_an_error(archive, transcript, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mala_context.archive.atomic_write.write_all", full)
    assert archive_from_hook(archive, {"session_id": "s1", "transcript_path": str(transcript)}) is None
    ((level, text),) = said(caplog)
    assert level == "ERROR"
    assert "No space left" in text
    monkeypatch.undo()
    archive_from_hook(archive, {"session_id": "s1", "transcript_path": str(transcript)})
    assert cat(archive) == transcript.read_bytes()


@pytest.mark.parametrize(
    "env",
    [{}, {"HOME": "/"}, {"HOME": "/nonexistent"}, {"XDG_CONFIG_HOME": "relative/dir"}, {"MALA_RUNS_DIR": ""}],
    ids=["unset", "root", "nonexistent", "relative", "empty"],
)
def test_without_a_home_one_warning_names_the_variable(env, transcript, tmp_path, monkeypatch, caplog):
    import pwd

    def nobody(_uid):
        raise KeyError("no such user")

    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "XDG_CONFIG_HOME", "MALA_RUNS_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    archive = TranscriptArchive(repo_path=work)
    assert archive_from_hook(archive, {"session_id": "s1", "transcript_path": str(transcript)}) is None
    ((level, text),) = said(caplog)
    assert level == "WARNING"
    assert "MALA_RUNS_DIR" in text
    assert os.listdir(work) == []
