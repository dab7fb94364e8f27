"""Archiving what nobody archived."""

import json
import logging
import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from mala_context.archive.atomic_write import process_start
from mala_context.archive.catch_up import boundary, close_compactions, has_live_owner
from mala_context.archive.store import TranscriptArchive
from tests.helpers.archive_tools import cat, names, rows


def boundary_row(**fields):
    meta = {"trigger": "auto", "preTokens": 167_000, "postTokens": 20_000}
    row = {"type": "system", "subtype": "compact_boundary", "compactMetadata": meta, **fields}
    return json.dumps(row).encode() + b"\n"


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(tmp_path / "archives", projects_dirs=[str(tmp_path / "projects")])


@pytest.fixture
def transcript(tmp_path):
    path = tmp_path / "projects" / "-w" / "s1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(rows(0, 9))
    return path


def grow(transcript, data, idle=True):
    with open(transcript, "ab") as file:
        file.write(data)
    if idle:
        long_ago = time.time() - 3600
        os.utime(transcript, (long_ago, long_ago))


def test_the_rest_of_a_session_that_ended_is_archived_to_its_last_byte(archive, transcript):
    archive.archive(transcript, "s1", trigger="auto")
    grow(transcript, rows(9, 12) + b'{"torn')
    (result,) = archive.catch_up()
    assert result.offset == len(rows(0, 9))
    assert cat(archive) == transcript.read_bytes()


def test_a_session_that_still_runs_keeps_its_torn_row(archive, transcript):
    archive.archive(transcript, "s1", trigger="auto")
    grow(transcript, rows(9, 12) + b'{"torn', idle=False)
    archive.catch_up()
    assert cat(archive) == rows(0, 12)


def test_a_session_without_news_is_not_read_and_not_made_young(archive, transcript):
    archive.archive(transcript, "s1", trigger="auto")
    for name in names(archive, ""):
        os.utime(f"{archive.location}/{name}", (2 * 10**9, 2 * 10**9))
    transcript.chmod(0)
    assert archive.catch_up() == []
    assert {os.stat(f"{archive.location}/{name}").st_mtime for name in names(archive, "")} == {2 * 10**9}


def test_a_session_that_was_only_noted_is_archived(archive, transcript):
    archive.register_session("s1", str(transcript))
    grow(transcript, b"")
    assert [result.reason for result in archive.catch_up()] == ["archived"]
    assert cat(archive) == rows(0, 9)


def test_a_transcript_that_moved_is_found_by_its_name(archive, transcript, tmp_path):
    archive.archive(transcript, "s1", trigger="auto")
    moved = tmp_path / "projects" / "-elsewhere" / "s1.jsonl"
    moved.parent.mkdir()
    os.rename(transcript, moved)
    grow(moved, rows(9, 10))
    (result,) = archive.catch_up()
    assert (result.transcript, result.chain) == (str(moved), 1)
    os.unlink(moved)
    assert archive.catch_up() == []


def test_side_files_are_caught_up_with(archive, transcript, tmp_path):
    archive.archive(transcript, "s1", trigger="auto")
    agents = tmp_path / "projects" / "-w" / "s1" / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-a1.jsonl").write_bytes(rows(0, 2))
    archive.catch_up()
    assert cat(archive, subagent="a1") == rows(0, 2)


def test_the_outcome_of_a_command_hooks_compaction_is_read_from_the_transcript(archive, transcript):
    first = archive.archive(transcript, "s1", trigger="auto")
    grow(transcript, rows(9, 10) + boundary_row() + rows(10, 12))
    archive.catch_up()
    (outcome,) = archive.manifest("s1").of_kind("outcome")
    assert (outcome["outcome"], outcome["piece"]) == ("compacted", os.path.basename(first.path))
    assert (outcome["tokens_before"], outcome["tokens_after"], outcome["trigger"]) == (167_000, 20_000, "auto")


def test_a_compaction_whose_hook_was_skipped_is_said(archive, transcript, caplog):
    archive.register_session("s1", str(transcript))
    grow(transcript, boundary_row() + rows(9, 10) + boundary_row(isSidechain=True))
    (result,) = archive.catch_up()
    (outcome,) = archive.manifest("s1").of_kind("outcome")
    assert (outcome["outcome"], outcome["piece"]) == ("hook_skipped", os.path.basename(result.path))
    assert [record.levelno for record in caplog.records if "without PreCompact" in record.getMessage()] == [
        logging.WARNING
    ]


def test_one_session_that_fails_does_not_stop_the_others(archive, transcript, tmp_path, monkeypatch, caplog):
    other = tmp_path / "projects" / "-w" / "s2.jsonl"
    other.write_bytes(rows(0, 2))
    for path, session_id in ((transcript, "s1"), (other, "s2")):
        archive.archive(path, session_id)
        grow(path, rows(50, 51))
    real = TranscriptArchive.archive

    def failing(self, path, session_id, **fields):
        if session_id == "s1":
            raise OSError(28, "No space left on device")
        return real(self, path, session_id, **fields)

    monkeypatch.setattr(TranscriptArchive, "archive", failing)
    assert [result.session_id for result in archive.catch_up()] == ["s2"]
    assert "Catching up on session s1 failed" in caplog.text


def test_progress_is_told_of_every_session(archive, transcript, tmp_path):
    class Told(list):
        expected = None

        def expect(self, size, sessions):
            self.expected = size, sessions

        def __call__(self, size):
            self.append(size)

    other = tmp_path / "projects" / "-w" / "s2.jsonl"
    other.write_bytes(rows(0, 2))
    archive.archive(transcript, "s1")
    archive.archive(other, "s2")
    other.unlink()
    grow(transcript, rows(50, 51))
    sizes = {each.session_id: each.stored for each in archive.sessions()}
    told, plain = Told(), []
    archive.catch_up(progress=told)
    assert told.expected == (sum(sizes.values()), 2)
    assert sorted(told) == sorted(sizes.values())
    archive.catch_up(session_ids=["s1", "unknown"], progress=plain.append)
    assert plain == [archive.sessions()[0].stored, 0]


def test_a_session_that_somebody_archives_now_is_left_to_them(tmp_path, archive, transcript):
    archive.archive(transcript, "s1")
    grow(transcript, rows(9, 10))
    impatient = TranscriptArchive(tmp_path / "archives", timeout=0.01, projects_dirs=[])
    with archive.store(create=True).lock("s1", 1) as files:
        with open(f"{archive.location}/.tmp-s1.0123456789abcdef", "wb"):
            pass
        assert impatient.catch_up() == []
        assert files.list()
    assert impatient.catch_up(session_ids=["s1"])[0].archived
    assert not [name for name in names(archive, "") if name.startswith(".tmp")]


@pytest.mark.parametrize("row", [{}, {"subtype": "microcompact_boundary"}, {"subtype": ["compact_boundary"]}])
def test_other_rows_are_no_boundaries(row):
    assert boundary(row) is None


def test_a_boundary_without_numbers_is_still_one():
    assert boundary({"type": "system", "subtype": "compact_boundary", "compactMetadata": {"preTokens": "x"}}) == {
        "trigger": None, "tokens_before": None, "tokens_after": None, "agent": "main",
    }  # fmt: skip


@pytest.mark.parametrize("before", [0, (1 << 18) - 100, (1 << 18) - 10, 5_000_000])
@pytest.mark.parametrize("lines", [True, False])
def test_boundaries_are_found_wherever_a_buffer_ends(archive, tmp_path, before, lines):
    path = tmp_path / "t.jsonl"
    path.write_bytes((b"x" * 99 + b"\n") * (before // 100) if lines else b"y" * before + b"\n")
    grow(
        path,
        boundary_row() * 2
        + rows(0, 2)
        + b'{"type":"system","subtype":"compact_boundary"\n[1]\n'
        + boundary_row().rstrip(),
    )
    result = archive.archive(path, "s1", final=True)
    close_compactions(archive, "s1", os.path.basename(result.path))
    assert len(archive.manifest("s1").of_kind("outcome")) == 3


@pytest.mark.parametrize("mode", ["incremental", "full"])
def test_a_compaction_that_was_told_is_not_told_again_but_gets_its_sizes(tmp_path, mode, caplog):
    """The plugin's PreCompact and PostCompact ran, then the CLI was killed."""
    archive, transcript = TranscriptArchive(tmp_path / "a", mode=mode), tmp_path / "s1.jsonl"
    transcript.write_bytes(rows(0, 9))
    archive.archive(transcript, "s1", trigger="auto", agent="main")
    archive.record_outcome("s1", "compacted", trigger="auto", agent="main", summary="words")
    grow(transcript, boundary_row() + rows(9, 12))
    for _ in range(2):
        archive.catch_up(session_ids=["s1"])
    (outcome,) = archive.manifest("s1").of_kind("outcome")
    assert (outcome["outcome"], outcome["tokens_before"], outcome["tokens_after"]) == ("compacted", 167_000, 20_000)
    assert "without PreCompact" not in caplog.text
    grow(transcript, boundary_row() + rows(12, 13))  # this one's hooks did not run
    archive.catch_up(session_ids=["s1"])
    assert [row["outcome"] for row in archive.manifest("s1").of_kind("outcome")] == ["compacted", "hook_skipped"]


def dead_pid():
    """Return the id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_session_that_a_living_process_looks_after_is_left_to_it(archive, transcript):
    archive.register_session("s1", str(transcript), pid=os.getpid())
    assert archive.catch_up() == []
    archive.register_session("s1", str(transcript), pid=dead_pid())
    assert [result.archived for result in archive.catch_up()] == [True]
    assert cat(archive) == transcript.read_bytes()


def test_a_process_of_another_host_says_nothing_here(archive, transcript, monkeypatch):
    archive.register_session("s1", str(transcript), pid=os.getpid())
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="elsewhere"))
    assert [result.archived for result in archive.catch_up()] == [True]


def test_noting_a_session_again_writes_no_second_row(archive, transcript):
    for _ in range(3):
        archive.register_session("s1", str(transcript), cwd="/w", pid=os.getpid())
    assert len(archive.manifest("s1").of_kind("session")) == 1


def test_a_row_from_before_the_clock_was_set_back_is_not_waited_for(archive, transcript):
    grow(transcript, rows(0, 3))
    archive.archive(transcript, "s1")
    grow(transcript, b'{"last":1}')
    ahead = time.time() + 86_400
    os.utime(transcript, (ahead, ahead))
    (result,) = archive.catch_up()
    assert result.archived
    assert cat(archive) == transcript.read_bytes()


def test_a_process_of_the_same_number_that_began_later_is_another_one(archive, transcript, monkeypatch):
    """In containers each session's process is number 1, or 7: the killed one's session is caught up all the same."""
    archive.register_session("s1", str(transcript), pid=os.getpid())
    assert list(archive.catch_up(session_ids=["s1"])) == []
    assert process_start(os.getpid()) == process_start(os.getpid())
    start = process_start(os.getpid())
    for other in (start + "1", f"another-boot:{start.partition(':')[2]}"):
        monkeypatch.setattr("mala_context.archive.atomic_write.process_start", lambda _, other=other: other)
        archive.register_session("s1", str(transcript), pid=os.getpid())
        monkeypatch.undo()
        grow(transcript, rows(9, 10))
        assert any(result.archived for result in archive.catch_up(session_ids=["s1"]))


def test_where_nothing_tells_when_a_process_began_its_number_counts(archive, transcript, monkeypatch):
    monkeypatch.setattr("mala_context.archive.atomic_write.process_start", lambda _: None)
    archive.register_session("s1", str(transcript), pid=os.getpid())
    monkeypatch.undo()
    assert has_live_owner(archive.manifest("s1"))
    assert process_start(2**22 + 1) is None
