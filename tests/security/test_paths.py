"""No name that a session, a hook's input or a tool's argument holds leads anywhere else."""

import json
import os
import pathlib
import shlex
import stat
import subprocess
import sys

import pytest

from mala_context.agent.search_tool import HistorySearch
from mala_context.archive.atomic_write import place
from mala_context.archive.restore import restore_session
from mala_context.archive.search import search_session
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import InvalidSessionIdError, TranscriptError
from tests.helpers.small_transcripts import boundary, dump, message, session, summary

SID = "6d616c61-0000-4000-8000-00000000000c"
OTHER = "6d616c61-0000-4000-8000-00000000000d"
HOOK = pathlib.Path(__file__).parents[2] / "hooks" / "hook.py"
WAYS_OUT = ("../../x", "..", ".", "/etc/passwd", "a/b", "a\0b", "~", "$(id)", "-rf", "x.jsonl", "", "é", "\x1b[2J")


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    made = TranscriptArchive(repo_path=tmp_path / "repo")
    for each, word in ((SID, "mine"), (OTHER, "theirs")):
        path = tmp_path / f"{each}.jsonl"
        path.write_bytes(dump([message(1, f"needle {word}")]))
        made.archive(str(path), each)
    elsewhere = TranscriptArchive(repo_path=tmp_path / "elsewhere")
    path.write_bytes(dump([message(1, "needle elsewhere")]))
    elsewhere.archive(str(path), SID)
    return made


async def test_the_search_tool_sees_one_session(archive, tmp_path):
    tool = HistorySearch(archive, lambda: SID)
    ways = {"session": OTHER, "session_id": OTHER, "repo": str(tmp_path / "elsewhere"), "path": "/", "dir": "/"}
    for query in ("needle", f"needle {OTHER}", 'needle" OR piece:"', "../../needle", "needle*", "body:needle"):
        answer = await tool.answer({"query": query, "limit": 50, **ways})
        text = answer["content"][0]["text"]
        assert "theirs" not in text, query
        assert "needle elsewhere" not in text, query
    assert "mine" in (await tool.answer({"query": "needle", **ways}))["content"][0]["text"]


@pytest.mark.parametrize("arguments", [{}, {"query": None}, {"query": ["x"]}, {"query": "x", "limit": -1}])
async def test_the_search_tool_takes_any_arguments(arguments, archive):
    assert not (await HistorySearch(archive, lambda: SID).answer(arguments))["is_error"]


@pytest.mark.parametrize("name", WAYS_OUT)
def test_an_id_names_a_file_of_the_archive_or_none(name, archive, tmp_path):
    transcript = tmp_path / f"{SID}.jsonl"
    with pytest.raises(InvalidSessionIdError):
        archive.archive(str(transcript), name)
    with pytest.raises(InvalidSessionIdError):
        archive.archive(str(transcript), SID, subagent=name)
    with pytest.raises(InvalidSessionIdError):
        archive.record_outcome(name, "compacted")


@pytest.mark.parametrize("name", [each for each in WAYS_OUT if each in {"..", ".", ""} or "/" in each or "\0" in each])
def test_a_part_of_a_path_is_a_plain_name(name, tmp_path):
    with pytest.raises(ValueError, match="name of a file"):
        place(str(tmp_path), [name, "x"], lambda write: write(b"x"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("event", ["PreCompact", "PostCompact", "SessionStart", "SessionEnd", "UserPromptSubmit"])
@pytest.mark.parametrize("field", ["session_id", "agent_id", "cwd", "transcript_path"])
def test_a_hooks_fields_lead_nowhere(event, field, tmp_path):
    """Whatever a field holds, nothing is written outside of the runs directory, and what is there is private."""
    transcript = tmp_path / "in" / f"{SID}.jsonl"
    transcript.parent.mkdir()
    transcript.write_bytes(dump(session(1)))
    before = sorted(tmp_path.rglob("*"))
    for value in ("../../x", "/dev/zero", {"a": []}):
        given = {"hook_event_name": event, "session_id": SID, "transcript_path": str(transcript), "cwd": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-I", str(HOOK)],
            input=json.dumps({**given, "compact_summary": "s", field: value}).encode(),
            capture_output=True,
            env={"MALA_RUNS_DIR": str(tmp_path / "runs"), "HOME": str(tmp_path), "MALA_WARN_AT": "0.9"},
            cwd=tmp_path,
            timeout=60,
            check=True,
        )
        undo = f"archived; undo with mala-context archives restore {SID[:8]}\n".encode()
        assert done.stdout in {b"{}\n", undo if event == "PostCompact" else b"{}\n"}
        assert b"Traceback" not in done.stderr
    new = set(tmp_path.rglob("*")) - set(before)
    assert all(each.is_relative_to(tmp_path / "runs") for each in new)


@pytest.mark.parametrize("make", [os.symlink, os.link], ids=["symlink", "hardlink"])
def test_links_in_an_archive(make, archive, tmp_path):
    """A link that took a piece's name: a symbolic one is no piece; a hard one is not written through."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep me\n")
    name = f"{SID}_20990101T000000.000000Z_transcript.jsonl"
    make(victim, os.path.join(archive.location, name))
    make(victim, os.path.join(archive.location, ".tmp-1.abc"))
    transcript = tmp_path / f"{SID}.jsonl"
    with transcript.open("ab") as file:
        file.write(dump([message(2, "more")]))
    archive.archive(str(transcript), SID)
    archive.drop_leftovers()
    archive.pack([SID])
    assert victim.read_bytes() == b"keep me\n"


@pytest.mark.parametrize("listed", [False, True])
def test_a_hard_link_in_place_of_a_manifest(listed, archive, tmp_path):
    """Rows go to a copy; the file that has another name keeps its bytes and its mode."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"keep me\n")
    victim.chmod(0o644)
    manifest = os.path.join(archive.location, f"{SID}.manifest.jsonl")
    os.unlink(manifest)
    os.link(victim, manifest)
    transcript = tmp_path / f"{SID}.jsonl"
    with transcript.open("ab") as file:
        file.write(dump([message(2, "more")]))
    assert (archive.listed() if listed else archive).archive(str(transcript), SID).archived
    assert victim.read_bytes() == b"keep me\n"
    status = os.stat(manifest)
    assert (status.st_nlink, stat.S_IMODE(status.st_mode)) == (1, 0o600)
    with open(manifest, "rb") as file:
        assert len(file.readlines()) > 1


@pytest.mark.parametrize("data", [b"", b"keep me\n"], ids=["an empty file", "a text"])
def test_a_hard_link_in_place_of_an_index(data, archive, tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(data)
    victim.chmod(0o644)
    search_session(archive, SID, "anything")
    (index,) = tmp_path.rglob(f"{SID}.sqlite")
    index.unlink()
    os.link(victim, index)
    search_session(archive, SID, "anything")
    assert (victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (data, 0o644)
    assert (index.stat().st_nlink, stat.S_IMODE(index.stat().st_mode)) == (1, 0o600)


@pytest.mark.parametrize("target", ["/etc/passwd", "/dev/zero"])
def test_a_transcript_that_is_a_link_is_not_read(target, archive, tmp_path):
    path = tmp_path / f"{OTHER}.jsonl"
    path.unlink()
    path.symlink_to(target)
    with pytest.raises(TranscriptError):
        archive.archive(str(path), OTHER)


@pytest.mark.parametrize(
    "cwd", ["/tmp/a b; touch owned #", "/tmp/$(touch owned)", "/tmp/`touch owned`", "-rf", "/tmp/'\n"]
)
def test_the_command_that_restore_prints_is_quoted(cwd, archive, tmp_path):
    path = tmp_path / "claude" / "projects" / "-p" / f"{SID}.jsonl"
    path.parent.mkdir(parents=True)
    rows = [message(1, "x"), boundary(2), summary(3)]
    path.write_bytes(dump([{**row, "cwd": cwd, "sessionId": SID} for row in rows]))
    archive.archive(str(path), SID)
    command = restore_session(archive, SID).command
    words = shlex.split(command)
    assert not {";", "touch", "owned", "&&;"} & set(words), command
    assert "--resume" in words
