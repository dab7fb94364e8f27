"""Archives behind an object store: what is sent, what is believed, what may go here and is read from there."""

import contextlib
import errno
import fcntl
import hashlib
import http.server
import io
import json
import os
import re
import sys
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive.catch_up import close_compactions
from mala_context.archive.layout import manifest_name
from mala_context.archive.manifests import Manifest, parse
from mala_context.archive.remote.address import SCHEMES, Target, check_address, check_prefix, is_address, segment
from mala_context.archive.remote.bucket import PART, Bucket, _reason, bucket_at
from mala_context.archive.remote.push import _turn, push
from mala_context.archive.remote.uploaded import elsewhere, is_complete, pending, uploads
from mala_context.archive.restore import restore_session
from mala_context.archive.search import search_session
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.errors import (
    ArchiveBusyError,
    ArchiveUnavailableError,
    CorruptArchiveError,
    ObjectStoreError,
    SessionNotFoundError,
)
from tests.helpers.archive_tools import cat, grow, names, rows, set_age
from tests.helpers.s3_server import environment
from tests.helpers.small_transcripts import SID, dump, message, session


@pytest.fixture
def address():
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def archive(tmp_path, address):
    target = Target(address=address, prefix="h/r")
    return TranscriptArchive(tmp_path / "archives", target=target, projects_dirs=[])


@pytest.fixture
def transcript(tmp_path):
    return tmp_path / "s1.jsonl"


def three_pieces(archive, transcript):
    for number in range(3):
        grow(transcript, 10 * number, 10 * number + 10)
        archive.archive(transcript, "s1", trigger="auto")


def there(archive):
    return sorted(each.name for each in archive.bucket().list())


def drop(archive, *sessions):
    return archive.prune(session_ids=sessions, dry_run=False)


class TestAddress:
    @pytest.mark.parametrize("address", ["s3://b", "s3://b/p/q", "gs://b", "az://c", "file:///x/y", "memory://"])
    def test_right(self, address):
        assert check_address(address) == address
        assert check_address(address + "/") in {address, "memory://"}
        assert is_address(address)

    @pytest.mark.parametrize("address", ["/x", "b", "http://b", "s3://", "s3://u:p@b", "s3://b?x=1", "s3://b c"])
    def test_wrong(self, address):
        with pytest.raises(ValueError):  # noqa: PT011  # the words are looked at elsewhere
            check_address(address)

    @given(st.text())
    def test_no_error_repeats_what_it_was_given(self, text):
        for scheme in SCHEMES:
            said = ""
            try:
                check_address(f"{scheme}://\N{SNOWMAN}{text}")
            except ValueError as error:
                said = str(error)
            assert f"\N{SNOWMAN}{text}" not in said  # without the mark a word of the error's own is found

    @given(st.text(min_size=1))
    def test_a_segment_is_plain_and_keeps_names_apart(self, name):
        plain = segment(name)
        assert check_prefix(plain) == plain
        assert "/" not in plain
        assert segment(name + "/") != plain

    def test_host_and_repo_are_filled_in(self):
        target = Target(address="s3://b/top/", prefix="{host}/x/{repo}")
        assert (
            target.base("/runs/-home-me-a b")
            == f"s3://b/top/{segment(os.uname().nodename)}/x/{segment('-home-me-a b')}"
        )
        assert Target(address="s3://b", prefix="").base("/runs/x") == "s3://b"

    def test_an_archive_refuses_a_secret_in_its_address(self, tmp_path):
        with pytest.raises(ValueError, match="credentials come from the environment") as raised:
            TranscriptArchive("s3://key:hunter2@b", repo_path=tmp_path)
        assert "hunter2" not in str(raised.value)


class TestPush:
    def test_all_of_it_once(self, archive, transcript):
        three_pieces(archive, transcript)
        seen = []
        result = archive.push(progress=seen.append)
        assert there(archive) == sorted([*names(archive), manifest_name("s1")])
        assert (result.files, result.bytes) == (4, sum(seen))
        assert archive.push().files == 0
        for name in names(archive):
            with open(os.path.join(archive.location, name), "rb") as file:
                assert archive.bucket().read(name) == file.read()

    def test_only_the_sessions_named(self, archive, transcript):
        grow(transcript, 0, 3)
        archive.archive(transcript, "s1")
        archive.archive(transcript, "s2")
        assert archive.push(["s2"]).sessions == 1
        assert {name[:2] for name in there(archive)} == {"s2"}

    def test_an_outcome_makes_the_manifest_pending(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        archive.record_outcome("s1", "compacted", tokens_after=7)
        assert archive.push().files == 1
        rows_there = parse(archive.bucket().read(manifest_name("s1"))).of_kind("outcome")
        assert [row["tokens_after"] for row in rows_there] == [7]

    def test_side_files_go_too(self, archive, transcript, tmp_path):
        side = tmp_path / "s1" / "tool-results"
        side.mkdir(parents=True)
        (side / "x.txt").write_text("result")
        grow(transcript, 0, 3)
        archive.archive_session(str(transcript), "s1")
        archive.push()
        digest = hashlib.sha256(b"result").hexdigest()
        assert archive.bucket().read(f"s1.file-{digest}") == b"result"

    def test_packed_first_where_the_archive_packs(self, tmp_path, address, transcript):
        archive = TranscriptArchive(tmp_path / "a", compress="zstd", target=Target(address=address, prefix=""))
        three_pieces(archive, transcript)
        archive.push()
        assert [name for name in there(archive) if name.endswith(".jsonl.zst")] == names(archive, ".zst")
        assert len(there(archive)) == 4

    def test_packing_later_sends_nothing_again(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        before = there(archive)
        archive.pack()
        archive.push()
        assert there(archive) == before
        assert cat(archive) == transcript.read_bytes()

    def test_a_session_without_a_piece_is_no_work(self, archive, transcript):
        archive.register_session("s1", str(transcript))
        assert archive.push().files == 0
        assert there(archive) == []

    def test_a_damaged_piece_is_not_believed(self, archive, transcript, caplog):
        three_pieces(archive, transcript)
        path = os.path.join(archive.location, names(archive)[1])
        with open(path, "r+b") as file:
            file.write(b"X")
        assert archive.push().pending == ("s1",)
        assert os.path.basename(path) not in there(archive)
        assert caplog.text.count("is not what its manifest says: it is not uploaded") == 1

    def test_found_there_is_not_sent_again(self, archive, transcript, monkeypatch):
        three_pieces(archive, transcript)
        archive.push()
        manifest = os.path.join(archive.location, manifest_name("s1"))
        with open(manifest, "rb") as file:
            kept = [line for line in file if b'"uploaded"' not in line]
        with open(manifest, "wb") as file:
            file.writelines(kept)
        sent = []
        put = Bucket.put
        monkeypatch.setattr(Bucket, "put", lambda self, name, *rest: (sent.append(name), put(self, name, *rest)))
        archive.push()
        assert sent == [manifest_name("s1")]
        assert is_complete("s1", os.listdir(archive.location), archive.manifest("s1"), archive.base())

    def test_rows_that_come_while_the_manifest_is_sent(self, archive, transcript, monkeypatch):
        three_pieces(archive, transcript)
        put, more = Bucket.put, [1]

        def slow(self, name, *rest):
            put(self, name, *rest)
            if name.endswith("manifest.jsonl") and more:
                more.pop()
                archive.record_outcome("s1", "compacted")

        monkeypatch.setattr(Bucket, "put", slow)
        archive.push()
        assert len(parse(archive.bucket().read(manifest_name("s1"))).of_kind("outcome")) == 1

    def test_a_piece_without_a_row_is_given_one(self, archive, transcript):
        three_pieces(archive, transcript)
        manifest = os.path.join(archive.location, manifest_name("s1"))
        with open(manifest, "rb") as file:
            kept = file.readlines()[:-1]
        with open(manifest, "wb") as file:
            file.writelines(kept)
        archive.push()
        assert set(parse(archive.bucket().read(manifest_name("s1"))).pieces()) == set(names(archive))

    def test_one_at_a_time(self, archive, transcript):
        grow(transcript, 0, 3)
        archive.archive(transcript, "s1")
        with _turn(archive.location, 1.0), pytest.raises(ArchiveBusyError), _turn(archive.location, 0.0):
            pass

    def test_another_process_is_waited_for(self, archive, transcript):
        grow(transcript, 0, 3)
        archive.archive(transcript, "s1")
        fd = os.open(archive.location, os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            with pytest.raises(ArchiveBusyError), _turn(archive.location, 0.01):
                pytest.fail("there are two")
        finally:
            os.close(fd)
        with _turn(archive.location, 0.0):
            pass

    def test_what_does_not_come_back_as_it_went_is_not_uploaded(self, archive, transcript, monkeypatch):
        three_pieces(archive, transcript)
        with monkeypatch.context() as patched:
            patched.setattr(Bucket, "digest", lambda *_: "another")
            with pytest.raises(ObjectStoreError, match="is not what was sent"):
                archive.push()
        assert uploads(archive.manifest("s1")) == {}
        assert archive.push().files == 4

    def test_a_piece_that_is_packed_while_others_are_sent_goes_packed(self, archive, transcript, monkeypatch):
        three_pieces(archive, transcript)
        put = Bucket.put

        def put_and_pack(self, *what):
            monkeypatch.undo()
            put(self, *what)
            archive.pack()

        monkeypatch.setattr(Bucket, "put", put_and_pack)
        assert archive.push().pending == ()
        assert [name.rpartition(".")[2] for name in there(archive)] == ["jsonl", "jsonl", "zst", "zst"]
        drop(archive, "s1")
        assert cat(archive) == transcript.read_bytes()

    def test_without_a_store(self, tmp_path):
        with pytest.raises(ArchiveUnavailableError, match="to no object store"):
            TranscriptArchive(tmp_path).push()

    def test_another_store_gets_all_of_it(self, archive, transcript, address):
        three_pieces(archive, transcript)
        archive.push()
        moved = TranscriptArchive(archive.location, target=Target(address=address, prefix="new"))
        assert moved.push().files == 4
        assert len(there(moved)) == 4

    def test_a_folder_is_private(self, tmp_path, transcript):
        archive = TranscriptArchive(tmp_path / "a", target=Target(address=f"file://{tmp_path}/far", prefix="x"))
        three_pieces(archive, transcript)
        archive.push()
        assert set(os.listdir(tmp_path / "far" / "x")) == {*names(archive), manifest_name("s1")}
        assert (tmp_path / "far").stat().st_mode & 0o777 == 0o700


class TestLostHere:
    def test_a_manifest_made_again_gets_back_what_the_store_knows(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.record_outcome("s1", "compacted", tokens_after=7)
        archive.push()
        os.unlink(os.path.join(archive.location, manifest_name("s1")))
        archive.push()
        assert [row["tokens_after"] for row in archive.manifest("s1").of_kind("outcome")] == [7]
        assert cat(archive) == transcript.read_bytes()

    def test_a_session_begun_anew_replaces_nothing(self, archive, transcript, caplog):
        three_pieces(archive, transcript)
        archive.push()
        before = {name: archive.bucket().read(name) for name in there(archive)}
        for name in os.listdir(archive.location):
            os.unlink(os.path.join(archive.location, name))
        grow(transcript, 30, 40)
        archive.archive(transcript, "s1", trigger="auto")
        archive.push()
        assert "was uploaded before by a machine of this name" in caplog.text
        after = {name: archive.bucket().read(name) for name in there(archive)}
        for name, data in before.items():
            assert data in after.values(), name
        far = TranscriptArchive(archive.base())
        assert cat(far) == transcript.read_bytes()
        assert cat(archive) == transcript.read_bytes()


class TestPrunedHere:
    def test_only_what_is_there_goes(self, archive, transcript):
        three_pieces(archive, transcript)
        result = drop(archive, "s1")
        assert (result.removed, result.not_uploaded) == ((), ("s1",))
        assert len(names(archive)) == 3
        archive.push()
        grow(transcript, 30, 40)
        archive.archive(transcript, "s1")  # not there yet: the session is not complete
        assert drop(archive, "s1").not_uploaded == ("s1",)
        archive.push()
        result = drop(archive, "s1")
        assert (result.removed, result.uploaded) == (("s1",), ("s1",))
        assert result.freed == len(transcript.read_bytes())
        assert os.listdir(archive.location) == [manifest_name("s1")]

    def test_a_dry_run_says_the_same_and_does_nothing(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        result = archive.prune(session_ids=["s1"])
        assert (result.removed, result.uploaded, result.dry_run) == (("s1",), ("s1",), True)
        assert len(names(archive)) == 3

    def test_read_as_before(self, archive, transcript, tmp_path):
        transcript.write_bytes(dump(session()))
        archive.archive(transcript, SID, trigger="auto")
        archive.push()
        drop(archive, SID)
        transcript.unlink()
        assert names(archive) == []
        (piece,) = archive.pieces(SID)
        assert piece.remote == archive.base()
        assert verify_archive(archive).ok
        assert cat(archive, SID) == dump(session())
        assert search_session(archive, SID, "message")
        made = restore_session(archive, SID, projects=tmp_path / "projects", cwd=tmp_path)
        assert (made.read_from, made.rows) == ("archive", 10)
        close_compactions(archive, SID, piece.name)
        assert len(archive.manifest(SID).of_kind("outcome")) == 2

    def test_found_by_a_manifest_that_another_program_wrote_again(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        drop(archive, "s1")
        path = os.path.join(archive.location, "s1.manifest.jsonl")
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        with open(path, "w") as file:
            file.writelines(json.dumps(row, separators=(" , ", " : ")) + "\n" for row in rows)
        assert verify_archive(archive).ok
        assert cat(archive, "s1") == transcript.read_bytes()

    def test_gone_on_with_without_asking_the_store(self, archive, transcript, monkeypatch):
        three_pieces(archive, transcript)
        archive.push()
        drop(archive, "s1")
        monkeypatch.setattr(Bucket, "open", lambda *_: pytest.fail("a hook asked a network"))
        grow(transcript, 30, 40)
        result = archive.archive(transcript, "s1", trigger="auto")
        assert (result.chain, result.offset, result.bytes) == (1, len(rows(0, 30)), len(rows(30, 40)))
        monkeypatch.undo()
        assert cat(archive) == transcript.read_bytes()
        assert archive.push().files == 2

    def test_a_rewritten_transcript_is_seen(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        drop(archive, "s1")
        transcript.write_bytes(b"x" + transcript.read_bytes()[1:])
        assert archive.archive(transcript, "s1").chain == 2

    def test_pruned_once(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        assert drop(archive, "s1").removed == ("s1",)
        assert drop(archive, "s1").removed == ()
        set_age(archive, 90, time.time_ns())
        assert archive.prune(days=1, dry_run=False).removed == ()
        assert cat(archive) == transcript.read_bytes()

    def test_keep_holds_what_is_here(self, archive, transcript):
        archive.keep = {"bytes": 0}
        three_pieces(archive, transcript)
        set_age(archive, 2, time.time_ns())
        archive.apply_keep()
        assert len(names(archive)) == 3
        archive.push()
        set_age(archive, 2, time.time_ns())
        archive.apply_keep()
        assert names(archive) == []
        assert cat(archive) == transcript.read_bytes()

    def test_packed_here_and_plain_there(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        archive.pack()
        assert drop(archive, "s1").not_uploaded == ("s1",)  # the row that says so is not there yet
        archive.push()
        drop(archive, "s1")
        assert os.listdir(archive.location) == [manifest_name("s1")]
        assert cat(archive) == transcript.read_bytes()

    def test_a_store_without_the_piece_is_a_problem_that_verify_names(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        drop(archive, "s1")
        archive.bucket().remove(archive.pieces("s1")[1].name)
        report = verify_archive(archive)
        assert [problem.kind for problem in report.problems] == ["unreadable"]
        with pytest.raises((CorruptArchiveError, FileNotFoundError)):
            b"".join(_chunks(archive))

    def test_damage_in_the_store_is_seen(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        drop(archive, "s1")
        piece = archive.pieces("s1")[1]
        data = b"X" + archive.bucket().read(piece.name)[1:]
        archive.bucket().put(piece.name, io.BytesIO(data), len(data))
        assert [problem.kind for problem in verify_archive(archive).problems] == ["hash"]

    @pytest.fixture
    def with_side_files(self, archive, tmp_path):
        """A session whose rows name a large result and a subagent, of which the store has all, and this machine none.

        The transcript is still there.
        """
        path = tmp_path / "projects" / "-p" / f"{SID}.jsonl"
        result = path.with_suffix("") / "tool-results" / "large.txt"
        notes = path.with_suffix("") / "subagents" / "agent-a1.meta.json"
        for each, data in ((result, b"large" * 100), (notes, b"{}"), (notes.with_name("agent-a1.jsonl"), rows(0, 3))):
            each.parent.mkdir(parents=True, exist_ok=True)
            each.write_bytes(data)
        report = message(99, f"see {result}", toolUseResult={"agentId": "a1"})
        path.write_bytes(dump([*session(), report]))
        archive.archive_session(path, SID)
        archive.push()
        drop(archive, SID)
        result.unlink()
        notes.unlink()
        return result

    def test_side_files_are_there_too(self, archive, with_side_files, tmp_path):
        assert verify_archive(archive).ok
        made = restore_session(archive, SID, projects=tmp_path / "projects", cwd=tmp_path, before="2026-12-01")
        assert made.put_back == (str(with_side_files),)
        assert with_side_files.read_bytes() == b"large" * 100
        (agent,) = made.subagents
        assert os.path.exists(agent.replace(".jsonl", ".meta.json"))

    def test_a_store_that_is_down_holds_up_nothing_but_what_it_alone_has(
        self, archive, with_side_files, tmp_path, monkeypatch
    ):
        def down(self, _name):
            raise ObjectStoreError(self.base, "it cannot be reached")

        monkeypatch.setattr(Bucket, "open", down)
        how = {"projects": tmp_path / "projects", "cwd": tmp_path, "before": "2026-12-01"}
        said = restore_session(archive, SID, dry_run=True, **how)
        made = restore_session(archive, SID, **how)
        assert (said.missing, said.put_back) == (made.missing, made.put_back)
        assert (made.read_from, made.rows) == ("transcript", 17)
        assert made.missing == (str(with_side_files),)
        assert len(made.subagents) == 1
        found = verify_archive(archive).problems
        assert sorted(each.kind for each in found) == ["side file", "side file", "unreadable", "unreadable"]
        assert all("cannot be reached" in each.detail for each in found)

    def test_without_its_store_in_the_configuration_nothing_is_lost(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        plain = TranscriptArchive(archive.location, projects_dirs=[])
        assert drop(plain, "s1").uploaded == ("s1",)
        assert cat(plain) == transcript.read_bytes()


def _chunks(archive):
    from mala_context.archive.reading import chunks

    with archive.view("s1") as files:
        yield from chunks(files, archive.pieces("s1"))


class TestFromAnotherMachine:
    def test_everything_is_read(self, archive, transcript, tmp_path):
        transcript.write_bytes(dump(session()))
        archive.archive(transcript, SID, trigger="auto")
        archive.push()
        far = TranscriptArchive(archive.base())
        assert far.location == archive.base()
        assert [each.session_id for each in far.sessions()] == [SID]
        assert cat(far, SID) == transcript.read_bytes()
        assert verify_archive(far).ok
        assert search_session(far, SID, "message")
        transcript.unlink()
        assert restore_session(far, SID, projects=tmp_path / "projects", cwd=tmp_path).rows == 10

    def test_nothing_is_written(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        far = TranscriptArchive(archive.base())
        assert far.pack() == 0
        for work in (lambda: far.archive(transcript, "s1"), lambda: far.record_outcome("s1", "failed")):
            with pytest.raises(ArchiveUnavailableError, match="read only"):
                work()

    def test_pieces_without_a_manifest_are_read(self, archive, transcript):
        three_pieces(archive, transcript)
        archive.push()
        archive.bucket().remove(manifest_name("s1"))
        assert cat(TranscriptArchive(archive.base())) == transcript.read_bytes()

    def test_an_unknown_session_is_none(self, archive):
        far = TranscriptArchive(archive.base())
        assert far.pieces("s9") == []
        with pytest.raises(SessionNotFoundError):
            verify_archive(far, ["s9"])
        with far.view("s9") as files, pytest.raises(FileNotFoundError):
            files.open("s1_x")


class TestBucket:
    def test_without_the_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "obstore", None)
        with pytest.raises(ObjectStoreError, match=r"pip install 'mala-context\[objects\]'") as raised:
            Bucket("s3://b")
        assert not raised.value.installed

    def test_no_address(self):
        with pytest.raises(ObjectStoreError) as raised:
            Bucket("s3://u:hunter2@b")
        assert "hunter2" not in str(raised.value)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("<Code>RequestTimeTooSkewed</Code> hunter2", "this machine's clock"),
            ("<Code>SomethingNew</Code> hunter2", r"it answers \(SomethingNew\)"),
            ("PUT http://169.254.169.254/latest: hunter2", "no credentials"),
            ("status code: 503 hunter2", "status 503"),
            ("Account must be specified hunter2", "AZURE_STORAGE_ACCOUNT_NAME"),
            ("this normally indicates an incorrectly configured region hunter2", "AWS_REGION"),
            ("hunter2", "RuntimeError from the library"),
            ("error sending request hunter2", "cannot be reached"),
        ],
    )
    def test_an_answer_is_never_repeated(self, text, words):
        said = _reason(RuntimeError(text))
        assert re.search(words, said)
        assert "hunter2" not in said

    def test_large_objects_come_back_part_by_part(self, address):
        bucket = bucket_at(address)
        data = os.urandom(PART + 1000)
        bucket.put("x", io.BytesIO(data), len(data))
        assert bucket.size("x") == len(data)
        assert bucket.size("y") is None
        assert bucket.digest("x", len(data)) == hashlib.sha256(data).hexdigest()
        with io.BufferedReader(bucket.open("x")) as reader:
            assert reader.read() == data
        with pytest.raises(FileNotFoundError):
            bucket.open("y")
        bucket.remove("x")
        bucket.remove("x")
        assert bucket.read("x") is None

    @pytest.mark.parametrize("size", [3, PART + 3])
    @pytest.mark.parametrize("scheme", ["memory", "file"])
    def test_what_cannot_be_read_here_is_no_fault_of_the_stores(self, address, tmp_path, scheme, size):
        bucket = bucket_at(address if scheme == "memory" else f"file://{tmp_path}/store")
        for error in (OSError(errno.EIO, "Input/output error"), ObjectStoreError("s3://other", "it is gone")):
            with pytest.raises(type(error)) as raised:
                bucket.put("x", Broken(error), size)
            assert str(raised.value) == str(error)
        with pytest.raises(OSError, match="shorter than it was"):
            bucket.put("x", io.BytesIO(b"12"), size)
        assert bucket.size("x") is None

    def test_from_another_thread_it_is_the_same(self, address):
        with ThreadPoolExecutor(1) as other:
            bucket = other.submit(bucket_at, address).result()
            other.submit(bucket.put, "x", io.BytesIO(b"123"), 3).result()
            assert other.submit(bucket.read, "x").result() == b"123"
            with pytest.raises(FileNotFoundError):
                other.submit(bucket.open, "y").result()

    def test_all_that_is_in_a_place_and_below_it(self, address):
        bucket = bucket_at(address)
        for name in ("a", "b/c", "b/d/e"):
            bucket.put(name, io.BytesIO(b"123"), 3)
        assert sorted(bucket.walk()) == [("a", 3), ("b/c", 3), ("b/d/e", 3)]
        assert [each.name for each in bucket.list()] == ["a"]

    def test_a_bucket_that_is_not_there_is_named_as_such(self, monkeypatch):
        with answering(404, b"<Error><Code>NoSuchBucket</Code><Message>hunter2</Message></Error>") as (port, asked):
            for name, value in environment(port).items():
                monkeypatch.setenv(name, value)
            bucket = Bucket("s3://none/p", "aws:kms", "the-key")
            for ask in (
                lambda: bucket.put("x", io.BytesIO(b"123"), 3),
                lambda: bucket.size("x"),
                lambda: bucket.read("x"),
                lambda: list(bucket.list()),
            ):
                with pytest.raises(ObjectStoreError, match="there is no such bucket") as raised:
                    ask()
                assert "hunter2" not in str(raised.value)
        (put,) = (headers for method, headers in asked if method == "PUT")
        assert put["x-amz-server-side-encryption"] == "aws:kms"
        assert put["x-amz-server-side-encryption-aws-kms-key-id"] == "the-key"
        assert put["x-amz-checksum-sha256"]

    def test_nothing_is_asked_before_there_is_something_to_ask(self, monkeypatch):
        for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))]:
            monkeypatch.delenv(name)
        assert Bucket("s3://b/p", "AES256").base == "s3://b/p"
        assert Bucket("gs://b/").base == "gs://b"
        with pytest.raises(ObjectStoreError, match="AZURE_STORAGE_ACCOUNT_NAME"):
            Bucket("az://b")


class Broken:
    """A reader that fails."""

    def __init__(self, error):
        self.error = error

    def readinto(self, _buffer):
        raise self.error


@contextlib.contextmanager
def answering(status, body):
    """A server on loopback that answers everything so, and what it was asked: methods with their headers."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            asked.append((self.command, {name.lower(): value for name, value in self.headers.items()}))
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = answer  # noqa: N815  # the names that the library asks for

        def log_message(self, *_):
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class TestRows:
    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from(["row", "name", "to", "length", "sha256"]), st.none() | st.text() | st.integers()
            )
        )
    )
    def test_any_rows_are_survived(self, found):
        for row in found:
            row["row"] = "uploaded"
        data = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in found)
        manifest = parse(data)
        assert set(uploads(manifest)) <= {row.get("name") for row in found}
        assert elsewhere("s1", data, []) == []

    def test_nothing_is_complete_without_a_manifest(self):
        assert not is_complete("s1", [], Manifest(rows=()), "s3://b")
        assert pending([], Manifest(rows=()), "s3://b") == []

    def test_push_is_the_archives_push(self, archive):
        assert push(archive).files == archive.push().files == 0


def test_what_a_killed_upload_left_in_a_folder_goes_with_the_next(tmp_path):
    from mala_context.archive.remote.address import Target
    from mala_context.archive.store import TranscriptArchive

    transcript = tmp_path / "s1.jsonl"
    transcript.write_bytes(b'{"n":1}\n')
    archive = TranscriptArchive(tmp_path / "a", target=Target(address=f"file://{tmp_path}/store", prefix=""))
    name = os.path.basename(archive.archive(transcript, "s1").path)
    (tmp_path / "store").mkdir()
    for left in (f".tmp-{name}.01ab", ".tmp-s1.manifest.jsonl.01ab", ".tmp-s2_x.01ab", "s1_notes.one"):
        (tmp_path / "store" / left).write_bytes(b"half")
    assert archive.push().pending == ()
    assert sorted(os.listdir(tmp_path / "store")) == sorted(
        [name, "s1.manifest.jsonl", "s1_notes.one", ".tmp-s2_x.01ab"]
    )


def test_a_file_in_a_folder_is_private_from_its_first_byte(tmp_path, monkeypatch):
    from mala_context.archive import atomic_write

    store = tmp_path / "store"
    modes = []
    real = atomic_write.write_all

    def write_all(fd, data):
        modes.extend(each.stat().st_mode & 0o777 for each in store.iterdir())
        real(fd, data)

    monkeypatch.setattr(atomic_write, "write_all", write_all)
    old = os.umask(0)
    try:
        bucket = Bucket(f"file://{store}")
        for data in (b"secret", b"other"):  # one that is there is replaced
            bucket.put("s1.manifest.jsonl", io.BytesIO(data), len(data))
    finally:
        os.umask(old)
    assert set(modes) == {0o600}
    assert [(each.name, each.read_bytes(), each.stat().st_mode & 0o777) for each in store.iterdir()] == [
        ("s1.manifest.jsonl", b"other", 0o600)
    ]


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    store = tmp_path / "store"
    store.mkdir()
    bucket = Bucket(f"file://{store}")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(ObjectStoreError, match="belongs to user"):
        bucket.put("s1.manifest.jsonl", io.BytesIO(b"secret"), 6)
    monkeypatch.undo()
    store.rmdir()
    store.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(ObjectStoreError, match="symbolic link"):
        bucket.put("s1.manifest.jsonl", io.BytesIO(b"secret"), 6)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_device_that_takes_nothing_is_an_error(monkeypatch):
    from mala_context.archive.atomic_write import write_all

    monkeypatch.setattr(os, "write", lambda *_: 0)
    with pytest.raises(OSError, match="nothing could be written"):
        write_all(1, b"x")
