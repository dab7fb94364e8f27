"""Undoing a compaction: what the new session holds, where it lies, and what is said about it."""

import json
import os
import time
from datetime import UTC, datetime

import pytest

from mala_context.archive.store import TranscriptArchive
from mala_context.errors import CorruptArchiveError, PartNotFoundError, SessionNotFoundError
from tests.helpers.small_transcripts import SID, Told, boundary, dump, message, session, uuid

CWD = "/home/dev/project"


class World:
    """A projects directory with one session's transcript, and its archive."""

    def __init__(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
        self.projects = tmp_path / "claude" / "projects"
        self.folder = self.projects / "-home-dev-project"
        self.folder.mkdir(parents=True)
        self.transcript = self.folder / f"{SID}.jsonl"
        self.archive = TranscriptArchive(tmp_path / "archives", compress="zstd")

    def write(self, rows):
        self.transcript.write_bytes(rows if isinstance(rows, bytes) else dump(rows))
        return self.archive.archive(self.transcript, SID, trigger="auto", cwd=CWD)

    def restored(self, **where):
        result = self.archive.restore(SID, **where)
        with open(result.path, "rb") as file:
            return result, [json.loads(line) for line in file.read().splitlines()]


@pytest.fixture
def world(tmp_path, monkeypatch):
    return World(tmp_path, monkeypatch)


def texts(rows):
    return [row["message"]["content"] for row in rows if "message" in row]


@pytest.mark.parametrize("deleted", [False, True], ids=["there", "deleted"])
@pytest.mark.parametrize(("at", "count"), [(1, 4), (2, 10), (None, 10)])
def test_what_stood_before_the_compaction(deleted, at, count, world):
    rows = session(2)
    world.write(rows)
    if deleted:
        world.transcript.unlink()
    result, restored = world.restored(at=at)
    conversation = [row for row in restored if row.get("uuid") and row["type"] != "custom-title"]
    assert texts(conversation) == texts(rows[:count])
    assert {row["sessionId"] for row in restored} == {result.session_id}
    assert result.session_id != SID
    assert [row["forkedFrom"] for row in conversation] == [
        {"sessionId": SID, "messageUuid": row["uuid"]} for row in rows[:count]
    ]
    parents = {row["uuid"] for row in conversation} | {None}
    assert all(row["parentUuid"] in parents for row in conversation)
    assert (result.rows, result.compaction.number) == (count, at or 2)
    assert result.through == ("archive" if deleted else "fork_session")


@pytest.mark.parametrize("odd", [["user"], {"a": 1}, 7, None])
def test_rows_of_an_odd_type_are_restored_though_the_sdk_cannot_fork_them(odd, world):
    rows = session(1)
    world.write([{"type": odd, "uuid": "11111111-1111-4111-8111-111111111111", "sessionId": SID}, *rows])
    result, restored = world.restored()
    assert set(texts(rows[:4])) <= set(texts(restored))
    assert result.session_id != SID


def test_it_lies_where_the_cli_looks_private_and_of_today(world):
    world.write(session(1))
    old = time.time() - 40 * 86_400
    for file in os.scandir(world.archive.location):
        os.utime(file.path, (old, old))
    world.transcript.unlink()
    result, _ = world.restored()
    status = os.stat(result.path)
    assert os.path.dirname(result.path) == str(world.folder)
    assert os.path.basename(result.path) == f"{result.session_id}.jsonl"
    assert status.st_mode & 0o777 == 0o600
    assert time.time() - status.st_mtime < 60
    assert result.cwd == CWD
    assert result.command == f"cd {CWD} && claude --resume {result.session_id}"


def test_options_for_the_sdk(world):
    world.write(session(1))
    fields = world.archive.restore_options(SID, at=1)
    assert fields == {"resume": fields["resume"], "cwd": CWD}
    assert (world.folder / f"{fields['resume']}.jsonl").exists()


def test_the_sdk_lists_the_restored_session(world):
    from claude_agent_sdk import get_session_messages

    rows = session(1)
    world.write(rows)
    world.transcript.unlink()
    result, _ = world.restored()
    assert [each.message["content"] for each in get_session_messages(result.session_id)] == texts(rows[:4])


def test_as_it_was_at_a_time(world):
    rows = session(2)
    world.write(rows)
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    result, restored = world.restored(before=noon.replace(second=3))
    assert texts(restored) == texts(rows[:2])
    assert result.compaction is None
    result, restored = world.restored(before="2026-11-01T12:00:08Z")
    assert texts(restored) == texts(rows[:7])
    assert result.compactions == 1
    assert world.restored(before="2027-01-01")[0].rows == len(rows)


def test_a_session_that_was_never_compacted_is_restored_whole(world):
    world.write(session(0))
    result, restored = world.restored()
    assert texts(restored) == texts(session(0))
    assert result.compaction is None


def test_what_was_added_since_the_last_piece_is_not_lost(world):
    rows = session(2)
    world.write(rows[:4])
    world.transcript.write_bytes(dump(rows))
    result, _ = world.restored(at=2)
    assert (result.rows, result.read_from) == (10, "transcript")


@pytest.mark.parametrize("text", ["two\u2028lines", "next\u0085line", "\u2029"], ids=["U+2028", "U+0085", "U+2029"])
def test_rows_that_the_sdks_fork_would_lose(text, world):
    rows = [message(1), message(2, text, "assistant"), message(3), boundary(4)]
    data = b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    world.write(data)
    result, restored = world.restored()
    assert texts(restored) == texts(rows[:3])
    assert result.through == "archive"
    assert sorted(os.listdir(world.folder)) == sorted([f"{SID}.jsonl", f"{result.session_id}.jsonl"])


def test_two_objects_on_one_line(world):
    rows = [message(1), message(2, kind="assistant"), message(3), boundary(4)]
    data = dump(rows[:1]) + dump(rows[1:2]).rstrip() + dump(rows[2:])
    world.write(data)
    assert texts(world.restored()[1]) == texts(rows[:3])


def test_a_half_row_and_a_row_of_nuls_are_left_out(world):
    world.write(dump(session(0)) + b"\0" * 50 + b"\n" + b'{"type":"user","uuid":"x')
    world.transcript.unlink()
    assert texts(world.restored()[1]) == texts(session(0))


@pytest.mark.parametrize("newest", [False, True])
def test_a_long_row_is_there_whole(newest, world):
    rows = [*session(0), message(5, "words " * 900_000), message(6, kind="assistant")]
    rows = rows[:-1] if newest else rows
    world.write(dump(rows) + b'{"type":"user" "' + b"x" * 5_000_000 + b'"}\n')
    world.transcript.unlink()
    result, restored = world.restored()
    assert texts(restored) == texts(rows)
    assert {row["sessionId"] for row in restored} == {result.session_id}
    assert [row["forkedFrom"]["messageUuid"] for row in restored] == [row["uuid"] for row in rows]
    assert restored[-1]["timestamp"] > rows[-1]["timestamp"]


def test_a_transcript_that_was_rewritten_is_not_what_is_restored(world):
    world.write(session(2))
    world.transcript.write_bytes(dump([message(99)]))
    result, restored = world.restored(at=1)
    assert result.read_from == "archive"
    assert texts(restored) == texts(session(2)[:4])


def test_an_older_chain_by_its_number(world):
    world.write(session(1))
    world.write([message(99)])
    assert texts(world.restored(chain=1)[1]) == texts(session(1)[:4])
    assert texts(world.restored()[1]) == ["message 99"]
    with pytest.raises(PartNotFoundError):
        world.archive.restore(SID, chain=3)


@pytest.mark.parametrize("deleted", [False, True])
def test_packed_pieces(deleted, world):
    world.write(session(1))
    world.write(session(2))
    world.archive.pack()
    if deleted:
        world.transcript.unlink()
    assert texts(world.restored(at=2)[1]) == texts(session(2)[:10])


def test_history_copied_into_a_fork(world):
    rows = [message(1, sessionId="another"), message(2, kind="assistant", sessionId="another"), message(3), boundary(4)]
    world.write(rows)
    assert [piece.session_id for piece in world.archive.pieces(SID)] == [SID]
    world.transcript.unlink()
    result, restored = world.restored()
    assert {row["sessionId"] for row in restored} == {result.session_id}
    assert texts(restored) == texts(rows[:3])


def test_missing_side_files_are_named(world):
    gone = f"{world.folder}/{SID}/tool-results/abc.txt"
    there = world.folder / SID / "tool-results" / "def.txt"
    there.parent.mkdir(parents=True)
    there.write_text("there")
    rows = [
        message(1, f"<persisted-output>\nFull output saved to: {gone}\n\nPreview"),
        message(2, f"Full output saved to: {there}\n", toolUseResult={"agentId": "a1b2c3"}),
        boundary(3),
        message(4, f"{world.folder}/{SID}/tool-results/later.txt"),
    ]
    world.write(rows)
    result, _ = world.restored()
    assert set(result.missing) == {gone, f"{world.folder}/{SID}/subagents/agent-a1b2c3.jsonl"}


def test_archived_side_files_come_back_to_their_place(world):
    result_file = world.folder / SID / "tool-results" / "abc.txt"
    result_file.parent.mkdir(parents=True)
    result_file.write_text("the whole result")
    world.write([message(1, f"saved to: {result_file}\n"), message(2, kind="assistant"), boundary(3)])
    world.archive.archive_side_files(str(world.transcript), SID)
    result_file.unlink()
    result, _ = world.restored()
    assert (result.put_back, result.missing) == ((str(result_file),), ())
    assert result_file.read_text() == "the whole result"
    assert result_file.stat().st_mode & 0o777 == 0o600


def test_nothing_is_put_back_outside_the_sessions_folder(world, tmp_path):
    kept = world.folder / SID / "tool-results" / "abc.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("content")
    outside = [f"{tmp_path}/elsewhere/{SID}/tool-results/abc.txt", f"{world.projects}/../x/{SID}/tool-results/abc.txt"]
    world.write([message(1, "saved to: " + "\nsaved to: ".join(outside)), boundary(2)])
    world.archive.archive_side_files(str(world.transcript), SID)
    kept.unlink()
    result, _ = world.restored()
    assert result.put_back == ()
    assert result.missing == (outside[0],), "a path with .. in it is nobody's"
    assert not (tmp_path / "elsewhere").exists()


def test_another_directory_to_resume_in(world, tmp_path):
    world.write(session(1))
    other = tmp_path / "other project"
    other.mkdir()
    result, _ = world.restored(cwd=other)
    assert os.path.dirname(result.path).endswith("-other-project")
    assert result.command.startswith(f"cd '{other}' && ")
    assert result.through == "archive"


def test_another_projects_directory(world, tmp_path):
    world.write(session(1))
    result, _ = world.restored(projects=tmp_path / "new" / "projects")
    assert result.path == str(tmp_path / "new" / "projects" / "-home-dev-project" / f"{result.session_id}.jsonl")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_a_session_that_was_never_archived_but_is_there(world):
    world.transcript.write_bytes(dump(session(1)))
    assert world.restored()[0].read_from == "transcript"


def test_what_cannot_be_restored(world):
    with pytest.raises(SessionNotFoundError):
        world.archive.restore(SID)
    world.write(session(2))
    with pytest.raises(PartNotFoundError, match="no compaction 3; it was compacted 2 times"):
        world.archive.restore(SID, at=3)
    with pytest.raises(PartNotFoundError, match="conversation"):
        world.archive.restore(SID, before="2000-01-01")
    for where in ({"at": 0}, {"at": True}, {"at": 1, "before": "2026-01-01"}, {"before": "soon"}):
        with pytest.raises(ValueError, match=r"at|before"):
            world.archive.restore(SID, **where)
    world.transcript.unlink()
    (piece,) = world.archive.pieces(SID)
    path = os.path.join(world.archive.location, piece.name)
    with open(path, "r+b") as file:
        file.write(b"X")
    with pytest.raises(CorruptArchiveError):
        world.archive.restore(SID)
    assert os.listdir(world.folder) == []


def test_uuids_and_leaf(world):
    world.write(session(1))
    world.transcript.unlink()
    _, restored = world.restored()
    assert [row["uuid"] for row in restored] == [uuid(n) for n in range(1, 5)]
    assert max(restored, key=lambda row: row["timestamp"]) is restored[-1]


@pytest.mark.parametrize("deleted", [False, True])
def test_no_more_bytes_are_told_than_are_expected(world, deleted):
    rows = session(2)
    world.write(rows)
    if deleted:
        world.transcript.unlink()
    told = Told()
    world.archive.restore(SID, progress=told)
    assert told.expected == 3 * len(dump(rows))
    assert 0 < sum(told) <= told.expected


@pytest.mark.parametrize("path", ["\0", "a\0b/s.jsonl", "\ud800/s.jsonl", "x" * 5_000, ""])
def test_a_transcripts_path_that_is_none_stops_no_restore(world, path):
    """A hook's input may hold any text, and a start writes it down."""
    world.write(session())
    world.archive.register_session(SID, path)
    world.transcript.unlink()
    assert world.restored()[0].rows == 10
    assert world.archive.catch_up() == []
