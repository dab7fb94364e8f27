"""`TranscriptArchive`: chains, modes, outcomes, what is logged."""

import errno
import fcntl
import logging
import os
import stat
import sys
import threading
import time

import pytest

from mala_context.archive import layout
from mala_context.archive.atomic_write import temporary_prefix
from mala_context.archive.remote.address import Target
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import (
    ArchiveBusyError,
    InvalidSessionIdError,
    TranscriptError,
)
from tests.helpers.archive_tools import cat, names, rows, set_age
from tests.helpers.small_transcripts import SID, dump, session


@pytest.fixture(autouse=True)
def _log(caplog):
    caplog.set_level(logging.INFO, logger="mala_context.archive")


@pytest.fixture
def archive(tmp_path):
    return TranscriptArchive(tmp_path / "archives")


@pytest.fixture
def transcript(tmp_path):
    return tmp_path / "s1.jsonl"


def messages(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def test_pieces_of_a_growing_transcript_are_the_transcript(archive, transcript):
    for step in range(1, 6):
        transcript.write_bytes(rows(0, step * 10))
        assert archive.archive(transcript, "s1", trigger="auto").archived
    pieces = archive.pieces("s1")
    assert cat(archive) == transcript.read_bytes()
    assert [piece.offset for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
    assert sum(os.path.getsize(os.path.join(archive.location, name)) for name in names(archive)) == len(rows(0, 50))


def test_nine_calls_on_an_unchanged_transcript_write_one_piece(archive, transcript, caplog):
    transcript.write_bytes(rows(0, 5))
    results = [archive.archive(transcript, "s1", trigger="auto") for _ in range(9)]
    assert len(names(archive)) == 1
    assert len(archive.manifest("s1").rows) == 1
    assert [result.reason for result in results] == ["archived", *["nothing new"] * 8]
    assert sum("nothing new" in line for line in messages(caplog, logging.INFO)) == 8


def test_nine_full_copies_have_nine_names(tmp_path, transcript):
    archive = TranscriptArchive(tmp_path / "archives", mode="full")
    transcript.write_bytes(rows(0, 5) + b'{"torn')
    for _ in range(9):
        archive.archive(transcript, "s1", trigger="auto")
    assert len(set(names(archive))) == 9
    for name in names(archive):
        with open(os.path.join(archive.location, name), "rb") as file:
            assert file.read() == transcript.read_bytes()
    assert {(piece.mode, piece.offset, piece.chain) for piece in archive.pieces("s1")} == {("full", 0, 1)}


def test_the_log_line_of_a_compaction_has_the_words_that_people_search_for(archive, transcript, caplog):
    transcript.write_bytes(b"x" * 12_594 + b"\n")
    result = archive.archive(transcript, "s1", trigger="auto")
    assert messages(caplog, logging.INFO) == [
        f"PreCompact: archived transcript (trigger=auto) to {result.path} (12.6 KB)"
    ]
    archive.archive(transcript, "s1", trigger="session_end")
    assert "Nothing new to archive (trigger=session_end) in session s1" in messages(caplog, logging.INFO)


def test_a_changed_byte_in_the_middle_starts_a_new_chain(archive, transcript, caplog):
    old = rows(0, 10_000)
    transcript.write_bytes(old)
    archive.archive(transcript, "s1")
    place = old.index(b'{"n":5000,') + 20
    transcript.write_bytes(old[:place] + b"y" + old[place + 1 :] + rows(10_000, 10_100))
    result = archive.archive(transcript, "s1")
    assert (result.new_chain, result.chain, result.offset) == (True, 2, 0)
    assert os.path.basename(result.path).startswith("s1.2_")
    assert cat(archive, chain=1) == old
    assert cat(archive, chain=2) == transcript.read_bytes()
    assert len([line for line in messages(caplog, logging.WARNING) if "was rewritten" in line]) == 1
    transcript.write_bytes(transcript.read_bytes() + rows(10_100, 10_110))
    assert archive.archive(transcript, "s1").chain == 2
    assert cat(archive) == transcript.read_bytes()


def test_an_emptied_transcript_leaves_the_only_copy_alone(archive, transcript, caplog):
    old = rows(0, 40_000)
    transcript.write_bytes(old)
    archive.archive(transcript, "s1")
    transcript.write_bytes(b"")
    assert archive.archive(transcript, "s1").reason == "empty"
    assert any("shrank" in line for line in messages(caplog, logging.WARNING))
    transcript.write_bytes(rows(50_000, 50_010))
    result = archive.archive(transcript, "s1")
    assert result.new_chain
    assert cat(archive, chain=1) == old
    assert cat(archive, chain=2) == rows(50_000, 50_010)


def test_a_piece_ends_at_a_newline_and_the_next_begins_with_the_torn_row(archive, transcript):
    transcript.write_bytes(rows(0, 3) + b'{"torn":')
    assert archive.archive(transcript, "s1").bytes == len(rows(0, 3))
    assert archive.archive(transcript, "s1").reason == "incomplete row"
    transcript.write_bytes(rows(0, 3) + b'{"torn":1}\n')
    result = archive.archive(transcript, "s1")
    with open(result.path, "rb") as file:
        assert file.read() == b'{"torn":1}\n'


def test_the_last_piece_takes_what_is_there(archive, transcript):
    transcript.write_bytes(rows(0, 3) + b'{"torn":')
    archive.archive(transcript, "s1", final=True)
    assert cat(archive) == transcript.read_bytes()
    transcript.write_bytes(rows(0, 3) + b'{"torn":1}\n')
    archive.archive(transcript, "s1")
    assert cat(archive) == transcript.read_bytes()


def test_what_is_written_after_the_hook_belongs_to_the_next_piece(archive, transcript):
    transcript.write_bytes(rows(0, 10))
    archive.archive(transcript, "s1", trigger="auto")
    transcript.write_bytes(rows(0, 10) + b'{"prompt":1}\n{"type":"system","subtype":"compact_boundary"}\n{"summary":1}')
    archive.compaction_seen(transcript, "s1")
    archive.archive_session(transcript, "s1")
    assert cat(archive) == transcript.read_bytes()


def test_a_failed_compaction_keeps_its_piece_and_the_next_goes_on_behind_it(archive, transcript):
    transcript.write_bytes(rows(0, 10))
    first = archive.archive(transcript, "s1", trigger="auto", agent="main", tokens=180_000, model="m", cwd="/w")
    archive.record_outcome("s1", "failed", trigger="auto", error="API error")
    transcript.write_bytes(rows(0, 12))
    second = archive.archive(transcript, "s1", trigger="auto")
    manifest = archive.manifest("s1")
    (outcome,) = manifest.of_kind("outcome")
    assert (outcome["outcome"], outcome["piece"], outcome["error"]) == (
        "failed",
        os.path.basename(first.path),
        "API error",
    )
    assert second.offset == first.bytes
    row = manifest.of_kind("piece")[0]
    assert {key: row[key] for key in ("agent", "tokens", "model", "cwd", "trigger", "offset", "length")} == {
        "agent": "main",
        "tokens": 180_000,
        "model": "m",
        "cwd": "/w",
        "trigger": "auto",
        "offset": 0,
        "length": first.bytes,
    }


def test_an_outcome_is_one_of_those_known(archive):
    with pytest.raises(ValueError, match="blocked, by_reference, compacted, failed, hook_skipped"):
        archive.record_outcome("s1", "fine")


def test_a_compaction_without_precompact_is_archived_at_once(archive, transcript, caplog):
    transcript.write_bytes(rows(0, 30))
    archive.archive(transcript, "s1", trigger="manual")
    archive.record_outcome("s1", "compacted")
    transcript.write_bytes(rows(0, 50))
    result = archive.compaction_seen(transcript, "s1", tokens_before=9, tokens_after=3, summary="so far")
    assert (result.offset, result.bytes) == (len(rows(0, 30)), len(rows(30, 50)))
    outcome = archive.manifest("s1").of_kind("outcome")[-1]
    assert (outcome["outcome"], outcome["piece"]) == ("hook_skipped", os.path.basename(result.path))
    assert (outcome["tokens_before"], outcome["tokens_after"], outcome["summary"]) == (9, 3, "so far")
    assert len([line for line in messages(caplog, logging.WARNING) if "without PreCompact" in line]) == 1


def test_a_subagents_compaction_is_none_of_the_main_agents(archive, transcript):
    """Both come with the main transcript's path; a piece of the one does not wait for the boundary of the other."""
    transcript.write_bytes(rows(0, 30))
    first = archive.archive(transcript, "s1", trigger="auto", agent="a1")
    transcript.write_bytes(rows(0, 50))
    second = archive.compaction_seen(transcript, "s1")
    archive.record_outcome("s1", "compacted", agent="a1")
    outcomes = archive.manifest("s1").of_kind("outcome")
    assert [(row["outcome"], row["agent"], row["piece"]) for row in outcomes] == [
        ("hook_skipped", "main", os.path.basename(second.path)),
        ("compacted", "a1", os.path.basename(first.path)),
    ]


def test_a_skipped_hook_is_written_down_even_where_the_transcript_is_gone(archive, transcript):
    with pytest.raises(TranscriptError):
        archive.compaction_seen(transcript, "s1", hook_ran=False, tokens_before=9)
    (outcome,) = archive.manifest("s1").of_kind("outcome")
    assert (outcome["outcome"], outcome["tokens_before"], "missing" in outcome["error"]) == ("hook_skipped", 9, True)


@pytest.mark.parametrize(("once", "count"), [(True, 1), (False, 2)])
def test_two_compactions_may_have_the_same_summary(archive, transcript, once, count):
    """One process tells each once; of hooks that are installed twice, both tell each."""
    transcript.write_bytes(rows(0, 30))
    archive.archive(transcript, "s1", trigger="auto")
    for _ in range(2):
        archive.compaction_seen(transcript, "s1", hook_ran=True, summary="We did it.", once=once)
    assert [row["outcome"] for row in archive.manifest("s1").of_kind("outcome")] == ["compacted"] * count


@pytest.mark.parametrize("grown", [0, 5])
def test_a_compaction_after_precompact_gets_no_second_piece(archive, transcript, caplog, grown):
    transcript.write_bytes(rows(0, 30))
    archive.archive(transcript, "s1", trigger="auto")
    archive.record_outcome("s1", "compacted")
    transcript.write_bytes(rows(0, 30 + grown))
    archive.archive(transcript, "s1", trigger="auto")
    assert archive.compaction_seen(transcript, "s1") is None
    assert [row["outcome"] for row in archive.manifest("s1").of_kind("outcome")] == ["compacted", "compacted"]
    assert messages(caplog, logging.WARNING) == []


def test_an_outcome_in_another_process_closes_the_piece_of_the_command_hook(archive, transcript, tmp_path):
    transcript.write_bytes(rows(0, 30))
    archive.archive(transcript, "s1", trigger="auto")
    other = TranscriptArchive(tmp_path / "archives")
    assert other.compaction_seen(transcript, "s1") is None
    assert other.manifest("s1").open_piece() is None


def test_a_transcript_that_moved_keeps_its_chain(archive, transcript, tmp_path):
    transcript.write_bytes(rows(0, 30))
    archive.archive(transcript, "s1")
    moved = tmp_path / "elsewhere.jsonl"
    moved.write_bytes(rows(0, 40))
    result = archive.archive(moved, "s1")
    assert (result.chain, result.offset) == (1, len(rows(0, 30)))


def test_a_forks_file_is_archived_under_the_hooks_session(archive, transcript):
    transcript.write_bytes(b'{"sessionId":"another"}\n')
    result = archive.archive(transcript, "s1")
    assert os.path.basename(result.path).startswith("s1_")


def test_a_subagents_transcript_has_its_own_name_and_leaves_the_glob_alone(archive, transcript, tmp_path):
    transcript.write_bytes(rows(0, 3))
    archive.archive(transcript, "s1")
    agent = tmp_path / "agent-a1.jsonl"
    agent.write_bytes(rows(100, 103))
    result = archive.archive(agent, "s1", subagent="a1")
    assert os.path.basename(result.path).startswith("s1.agent-a1_")
    assert cat(archive) == rows(0, 3)
    assert cat(archive, subagent="a1") == rows(100, 103)
    with pytest.raises(InvalidSessionIdError):
        archive.archive(agent, "s1", subagent="../x")


def test_names_follow_one_another_whatever_the_clock_does(archive, transcript, monkeypatch):
    year = 365 * 86_400 * 10**6
    clock = iter([10**15, 10**15 + year, 10**15 + 5, 10**15 + 6])
    monkeypatch.setattr(layout, "now", lambda: next(clock))
    results = []
    for step in range(1, 5):
        transcript.write_bytes(rows(0, step))
        results.append(os.path.basename(archive.archive(transcript, "s1").path))
    assert results == sorted(results)
    assert cat(archive) == rows(0, 4)


def test_a_change_of_mode_starts_a_new_chain(archive, transcript, tmp_path, caplog):
    transcript.write_bytes(rows(0, 3))
    archive.archive(transcript, "s1")
    full = TranscriptArchive(tmp_path / "archives", mode="full")
    assert full.archive(transcript, "s1").chain == 2
    assert full.archive(transcript, "s1").chain == 2
    assert archive.archive(transcript, "s1").chain == 3
    assert messages(caplog, logging.WARNING) == []


def test_missing_pieces_start_a_new_chain(archive, transcript, caplog):
    for step in range(1, 4):
        transcript.write_bytes(rows(0, step))
        archive.archive(transcript, "s1")
    os.unlink(os.path.join(archive.location, names(archive)[1]))
    assert [piece.offset for piece in archive.pieces("s1")] == [0, None]
    assert archive.archive(transcript, "s1").chain == 2
    assert cat(archive) == rows(0, 3)
    assert any("missing from the archive" in line for line in messages(caplog, logging.WARNING))


@pytest.mark.parametrize("damage", ["lost", "cut", "edited", "newer"])
def test_a_damaged_manifest_is_made_again_from_the_files(archive, transcript, damage, caplog):
    for step in range(1, 4):
        transcript.write_bytes(rows(0, step * 3))
        archive.archive(transcript, "s1", trigger="auto")
    hashes = [piece.sha256 for piece in archive.pieces("s1")]
    path = os.path.join(archive.location, layout.manifest_name("s1"))
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        if damage == "cut":
            file.write(data[: len(data) - 50])
        elif damage == "edited":
            file.write(b"\xff\xfe not JSON\n[1]\n" + data.replace(b'"chain":1', b'"chain":"x"', 1))
        elif damage == "newer":
            file.write(data.replace(b'"v":1', b'"v":9,"later":{"a":[1]}') + b'{"row":"comet","v":9}\n')
    transcript.write_bytes(rows(0, 20))
    assert archive.archive(transcript, "s1").chain == 1
    assert [piece.sha256 for piece in archive.pieces("s1")][:3] == hashes
    assert cat(archive) == rows(0, 20)
    kinds = {row["row"] for row in archive.manifest("s1").rows}
    assert ("comet" in kinds) == (damage == "newer")
    if damage == "newer":
        assert archive.manifest("s1").of_kind("piece")[0]["later"] == {"a": [1]}


def test_full_copies_are_known_again_without_their_manifest(tmp_path, transcript):
    archive = TranscriptArchive(tmp_path / "archives", mode="full")
    for step in range(1, 4):
        transcript.write_bytes(rows(0, step))
        archive.archive(transcript, "s1")
    os.unlink(os.path.join(archive.location, layout.manifest_name("s1")))
    assert archive.archive(transcript, "s1").chain == 1
    assert {piece.mode for piece in archive.pieces("s1")} == {"full"}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "missing"),
        (os.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: os.symlink("/etc/hostname", path), "not a regular file"),
    ],
    ids=["missing", "directory", "fifo", "link"],
)
def test_what_is_no_regular_file_is_refused(archive, transcript, make, reason):
    make(transcript)
    with pytest.raises(TranscriptError) as caught:
        archive.archive(transcript, "s1")
    assert caught.value.reason == reason
    assert not os.path.exists(archive.location)


@pytest.mark.parametrize(
    "session_id", ["../../outside", "a/b", "..", "", "x\0y", "n" * 300, ".hidden", "con\n", "é" * 200, None, 5]
)
def test_a_session_id_is_no_path(archive, transcript, tmp_path, session_id):
    transcript.write_bytes(rows(0, 3))
    with pytest.raises(InvalidSessionIdError):
        archive.archive(transcript, session_id)
    assert sorted(os.listdir(tmp_path)) == ["s1.jsonl"]


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 5000 + b"\n",
        b"\xff\xfe\n\x80\n",
        b"no json at all",
        b"\n\n\n",
        b"\xe2\x80\xa8\n",
        b"x" * 3_000_000 + b"\n",
    ],
    ids=["nul", "not utf-8", "no json", "newlines", "separator", "one long line"],
)
@pytest.mark.parametrize("ext", [".jsonl", ".log", ""])
def test_any_bytes_are_kept(archive, tmp_path, content, ext):
    transcript = tmp_path / f"t{ext}"
    transcript.write_bytes(content)
    archive.archive(transcript, "s1", final=True)
    assert cat(archive) == content
    assert archive.pieces("s1")[0].ext == (ext or ".txt")


def test_other_formats_take_what_is_there(archive, tmp_path):
    transcript = tmp_path / "t.log"
    transcript.write_bytes(b"one\ntw")
    archive.archive(transcript, "s1")
    transcript.write_bytes(b"one\ntwo")
    archive.archive(transcript, "s1")
    assert cat(archive) == b"one\ntwo"


def test_two_writers_never_write_the_same_bytes_twice(archive, transcript, tmp_path):
    transcript.write_bytes(rows(0, 2000))
    archives = [TranscriptArchive(tmp_path / "archives") for _ in range(6)]
    results = []
    barrier = threading.Barrier(6)

    def hook(each):
        barrier.wait()
        results.append(each.archive(transcript, "s1", trigger="auto"))

    threads = [threading.Thread(target=hook, args=(each,)) for each in archives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.bytes for result in results) == len(rows(0, 2000))
    assert cat(archive) == rows(0, 2000)


def test_a_busy_session_is_given_up_after_the_bound(tmp_path, transcript):
    transcript.write_bytes(rows(0, 3))
    archive = TranscriptArchive(tmp_path / "archives", timeout=0.05)
    with archive.store(create=True).lock("s1", 1), pytest.raises(ArchiveBusyError) as caught:
        archive.archive(transcript, "s1")
    assert caught.value.session_id == "s1"
    assert archive.archive(transcript, "s1").archived


def test_a_transcript_that_loses_bytes_while_it_is_read_is_tried_again(archive, transcript, monkeypatch):
    from mala_context.archive.source import Source

    transcript.write_bytes(rows(0, 30))
    real, calls = Source.copy, []

    def copy(self, start, end, write):
        calls.append(end)
        if len(calls) == 1:
            os.truncate(transcript, len(rows(0, 20)))
        return real(self, start, end, write)

    monkeypatch.setattr(Source, "copy", copy)
    archive.archive(transcript, "s1")
    assert cat(archive) == rows(0, 20)
    assert calls == [len(rows(0, 30)), len(rows(0, 20))]
    assert len(names(archive)) == 1


def test_a_transcript_that_keeps_losing_bytes_is_given_up(archive, transcript, monkeypatch):
    from mala_context.archive.source import Source

    transcript.write_bytes(rows(0, 30))
    real = Source.copy

    def copy(self, start, end, write):
        os.truncate(transcript, end - 1)
        return real(self, start, end, write)

    monkeypatch.setattr(Source, "copy", copy)
    with pytest.raises(TranscriptError, match="changing"):
        archive.archive(transcript, "s1", final=True)
    assert os.listdir(archive.location) == []


def test_rows_that_arrive_while_it_is_read_belong_to_the_next_piece(archive, transcript, monkeypatch):
    from mala_context.archive.source import Source

    transcript.write_bytes(rows(0, 30))
    real = Source.copy

    def copy(self, start, end, write):
        with open(transcript, "ab") as file:
            file.write(rows(30, 40))
        return real(self, start, end, write)

    monkeypatch.setattr(Source, "copy", copy)
    archive.archive(transcript, "s1")
    monkeypatch.undo()
    assert cat(archive) == rows(0, 30)
    archive.archive(transcript, "s1")
    assert cat(archive) == rows(0, 40)


def test_the_whole_session_grows_young_with_each_archive(archive, transcript, tmp_path):
    transcript.write_bytes(rows(0, 3))
    archive.archive(transcript, "s1")
    archive.archive(transcript, "other")
    for name in os.listdir(archive.location):
        os.utime(os.path.join(archive.location, name), (10**9, 10**9))
    archive.archive(transcript, "s1")
    old = [name for name in os.listdir(archive.location) if os.stat(f"{archive.location}/{name}").st_mtime == 10**9]
    assert {layout.session_of(name) for name in old} == {"other"}


def test_a_full_disk_is_an_oserror_and_leaves_what_was_there(archive, transcript, monkeypatch):
    from mala_context.archive import writer

    transcript.write_bytes(rows(0, 3))
    archive.archive(transcript, "s1")
    transcript.write_bytes(rows(0, 9))
    real = os.write

    def full(fd, data):
        if len(data) > 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    monkeypatch.setattr(writer.os, "write", full)
    with pytest.raises(OSError, match="No space"):
        archive.archive(transcript, "s1")
    monkeypatch.undo()
    assert cat(archive) == rows(0, 3)
    assert not [name for name in os.listdir(archive.location) if name.startswith(".tmp")]
    archive.archive(transcript, "s1")
    assert cat(archive) == rows(0, 9)


def test_a_row_that_cannot_be_written_is_made_again_by_the_next_archive(archive, transcript, monkeypatch, caplog):
    from mala_context.archive.writer import LocalFiles

    def full(self, rows):
        raise OSError(errno.ENOSPC, "No space left on device")

    transcript.write_bytes(rows(0, 3))
    monkeypatch.setattr(LocalFiles, "append", full)
    assert archive.archive(transcript, "s1").archived
    monkeypatch.undo()
    assert archive.manifest("s1").rows == ()
    archive.archive(transcript, "s1")
    assert archive.manifest("s1").of_kind("piece")[0]["rebuilt"] is True


def test_a_warning_past_warn_bytes_comes_once(tmp_path, transcript, caplog):
    archive = TranscriptArchive(tmp_path / "archives", warn_bytes=100)
    for step in range(1, 4):
        transcript.write_bytes(rows(0, step * 10))
        archive.archive(transcript, "s1")
    assert len([line for line in messages(caplog, logging.WARNING) if "more than warn_bytes (100 B)" in line]) == 1


def test_sessions_are_listed_with_the_one_archived_last_first(archive, transcript):
    transcript.write_bytes(rows(0, 3))
    for number, session_id in enumerate(("a", "b")):
        archive.archive(transcript, session_id)
        for name in os.listdir(archive.location):
            if name.startswith(session_id):
                os.utime(os.path.join(archive.location, name), (10**9 + number, 10**9 + number))
    found = archive.sessions()
    assert [(each.session_id, each.pieces) for each in found] == [("b", 1), ("a", 1)]
    assert sum(each.stored for each in found) == archive.usage_bytes()
    assert found[0].files == tuple(sorted(found[0].files))


def test_a_session_that_is_noted_is_written_down_once(archive):
    archive.register_session("s1", "/t/s1.jsonl", cwd="/w")
    archive.register_session("s1", "/t/s1.jsonl", cwd="/w")
    (row,) = archive.manifest("s1").rows
    assert (row["row"], row["transcript"], row["cwd"]) == ("session", "/t/s1.jsonl", "/w")


def test_an_archive_needs_a_place_and_known_words(tmp_path):
    with pytest.raises(ValueError, match="needs a directory"):
        TranscriptArchive()
    with pytest.raises(ValueError, match="incremental, full"):
        TranscriptArchive(tmp_path, mode="half")
    with pytest.raises(ValueError, match="none, zstd"):
        TranscriptArchive(tmp_path, compress="lzma")


def test_a_repositorys_archive_is_in_the_runs_directory(tmp_path, monkeypatch, transcript):
    monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
    repo = tmp_path / "repo"
    archive = TranscriptArchive(repo_path=repo)
    transcript.write_bytes(rows(0, 3))
    assert archive.sessions() == []
    result = archive.archive(transcript, "s1")
    assert os.path.dirname(result.path) == str(tmp_path / "runs" / str(repo).replace("/", "-") / "archives")
    assert stat.S_IMODE(os.stat(result.path).st_mode) == 0o600
    assert TranscriptArchive("mine", repo_path=repo).location == str(repo / "mine")


def test_an_address_is_no_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive = TranscriptArchive("memory://an-address", repo_path=tmp_path)
    assert archive.sessions() == []
    assert archive.location == os.path.join(layout.repo_runs_dir(tmp_path), "archives")
    assert os.listdir(tmp_path) == []


def test_a_piece_that_cannot_be_read_is_no_reason_to_archive_nothing(archive, transcript, monkeypatch, caplog):
    from mala_context.archive.writer import LocalView

    def broken(self, name):
        raise OSError(errno.EIO, "Input/output error")

    transcript.write_bytes(rows(0, 3))
    archive.archive(transcript, "s1")
    monkeypatch.setattr(LocalView, "open", broken)
    result = archive.archive(transcript, "s1")
    monkeypatch.undo()
    assert (result.chain, result.bytes) == (2, len(rows(0, 3)))
    assert "cannot be compared" in caplog.text


class TestBeside:
    """What the CLI writes beside a transcript: subagents' transcripts, and files that rows name."""

    @pytest.fixture
    def beside(self, transcript):
        transcript.write_bytes(rows(0, 3) + b'{"last":')
        for name, data in (
            ("subagents/agent-a1.jsonl", rows(0, 2)),
            ("subagents/agent-a2.jsonl", rows(0, 4) + b'{"cut":'),
            ("subagents/agent-bad.id.jsonl", rows(0, 1)),
            ("tool-results/large.txt", b"large" * 100),
        ):
            path = transcript.with_suffix("") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return transcript.with_suffix("")

    def test_a_session_that_has_ended_is_archived_to_its_last_byte_with_all_of_it(self, archive, transcript, beside):
        results = archive.archive_session(transcript, "s1")
        assert [each.archived for each in results] == [True, True, True]
        assert cat(archive) == transcript.read_bytes()
        for agent in ("a1", "a2"):
            assert cat(archive, subagent=agent) == (beside / f"subagents/agent-{agent}.jsonl").read_bytes()
        (row,) = archive.manifest("s1").of_kind("file")
        assert (row["path"], row["length"]) == ("tool-results/large.txt", 500)
        assert {row["trigger"] for row in archive.manifest("s1").of_kind("piece")} == {"session_end"}

    def test_one_that_cannot_be_archived_is_said_and_holds_up_no_other(self, archive, transcript, beside, caplog):
        assert len(archive.archive_side_files(str(transcript), "s1")) == 2
        (said,) = messages(caplog, logging.WARNING)
        assert said.startswith("Subagent's transcript of session s1 not archived")

    def test_a_cut_row_waits_as_long_as_somebody_may_write_on(self, archive, transcript, beside):
        archive.archive_side_files(str(transcript), "s1", trigger="subagent_end")
        assert cat(archive, subagent="a2") == rows(0, 4)
        archive.archive_side_files(str(transcript), "s1", final=True)
        assert cat(archive, subagent="a2") == rows(0, 4) + b'{"cut":'

    def test_again_nothing_is_written_and_nobody_is_told(self, archive, transcript, beside):
        archive.archive_session(transcript, "s1")
        before, told = os.listdir(archive.location), []
        archive.on_change(told.append)
        assert archive.archive_side_files(str(transcript), "s1", final=True) == []
        assert sorted(os.listdir(archive.location)) == sorted(before)
        assert told == []

    def test_whoever_wants_to_know_is_told_of_each_change(self, archive, transcript, beside):
        told = []
        archive.on_change(told.append)
        archive.archive(transcript, "s1", trigger="auto")
        archive.record_outcome("s1", "compacted")
        archive.archive_side_files(str(transcript), "s1", final=True)
        assert told == ["s1"] * 5


class TestUpkeep:
    """What is never done while a hook waits."""

    @pytest.fixture
    def projects(self, tmp_path):
        folder = tmp_path / "projects" / "-p"
        folder.mkdir(parents=True)
        return folder

    @pytest.fixture
    def known(self, archive, projects):
        """Three sessions, of each of which two rows are archived, and two are not."""
        archive.projects_dirs = [str(projects.parent)]
        for number in (1, 2, 3):
            path = projects / f"s{number}.jsonl"
            with open(path, "wb") as file:
                file.write(rows(0, 2))
            archive.archive(path, f"s{number}", trigger="auto")
            with open(path, "ab") as file:
                file.write(rows(2, 4))
        return archive

    def test_the_rest_of_every_session_is_archived(self, known):
        told = []
        results = known.catch_up(progress=told.append)
        assert sorted(each.session_id for each in results if each.archived) == ["s1", "s2", "s3"]
        assert {cat(known, f"s{number}") for number in (1, 2, 3)} == {rows(0, 4)}
        assert len(told) == 3

    def test_or_of_those_named(self, known):
        known.catch_up(session_ids=["s2", "unknown"])
        assert [cat(known, f"s{number}") for number in (1, 2, 3)] == [rows(0, 2), rows(0, 4), rows(0, 2)]

    def test_then_pieces_are_packed_where_that_is_wanted(self, known):
        known.compress = "zstd"
        known.catch_up(session_ids=["s1"])
        assert [{each.packed for each in known.pieces(f"s{number}")} for number in (1, 2)] == [{True}, {False}]
        assert known.pack() > 0
        assert {cat(known, "s1"), cat(known, "s2")} == {rows(0, 4), rows(0, 2)}

    def test_where_they_cannot_be_packed_they_stay_plain(self, known, monkeypatch, caplog):
        known.compress = "zstd"
        monkeypatch.setitem(sys.modules, "zstandard", None)
        known.tidy()
        assert "is not packed" in caplog.text
        assert cat(known, "s1") == rows(0, 2)

    def test_and_limits_are_held(self, known):
        known.keep = {"sessions": 1}
        age(known, 3)
        known.tidy()
        assert [each.session_id for each in known.sessions()] == ["s3"]

    def test_a_dry_run_only_names_what_would_go(self, known):
        age(known, 3)
        for dry_run, left in ((True, 3), (False, 2)):
            result = known.prune(session_ids=["s2"], dry_run=dry_run)
            assert (result.removed, result.dry_run) == (("s2",), dry_run)
            assert len(known.sessions()) == left
        with pytest.raises(ValueError, match="days"):
            known.prune(days=-1)

    def test_what_killed_writers_left_is_dropped_but_not_of_a_session_at_work(self, known):
        left = [os.path.join(known.location, temporary_prefix(f"s{n}") + "0123456789abcdef") for n in (1, 2)]
        for path in left:
            open(path, "wb").close()
        lock = os.open(os.path.join(known.location, layout.manifest_name("s2")), os.O_RDWR)
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            known.drop_leftovers()
        finally:
            os.close(lock)
        assert [os.path.exists(path) for path in left] == [False, True]

    def test_and_in_a_repositorys_place_the_markers_that_they_left(self, tmp_path, monkeypatch, transcript):
        monkeypatch.setenv("MALA_RUNS_DIR", str(tmp_path / "runs"))
        archive = TranscriptArchive(repo_path=tmp_path / "repo")
        transcript.write_bytes(rows(0, 2))
        archive.archive(transcript, "s1")
        place = os.path.dirname(archive.location)
        before = os.listdir(place)
        with open(os.path.join(place, f"{layout.REPO_MARKER}.0123456789abcdef"), "wb"):
            pass
        archive.drop_leftovers()
        assert sorted(os.listdir(place)) == sorted(before)
        assert cat(archive) == rows(0, 2)

    def test_what_goes_to_an_object_store_is_pushed_packed_if_it_is_kept_so(self, tmp_path, transcript):
        archive = TranscriptArchive(
            tmp_path / "archives", compress="zstd", target=Target(address=f"memory://{tmp_path.name}", prefix="")
        )
        transcript.write_bytes(rows(0, 2))
        archive.archive(transcript, "s1")
        assert archive.push(["s1"]).files == 2
        assert sorted(each.name.rpartition(".")[2] for each in archive.bucket().list()) == ["jsonl", "zst"]


def age(archive, count):
    """Let the sessions s1, s2, … be archived a day after one another, the last one today."""
    for number in range(1, count + 1):
        set_age(archive, count - number, time.time_ns(), f"s{number}")


def test_a_compaction_is_undone(archive, tmp_path):
    path = tmp_path / f"{SID}.jsonl"
    path.write_bytes(dump(session(1, each=4)))
    archive.archive(path, SID, cwd=str(tmp_path))
    path.unlink()
    made = archive.restore(SID, projects=tmp_path / "projects", cwd=tmp_path)
    assert (made.rows, made.source) == (4, SID)
    options = archive.restore_options(SID, projects=tmp_path / "projects", cwd=tmp_path)
    assert options["cwd"] == str(tmp_path)
    assert os.path.exists(os.path.join(os.path.dirname(made.path), f"{options['resume']}.jsonl"))
