"""Uploading in the background: who waits, who is told, and when it is tried again."""

import logging
import sys
import threading
import time
import uuid

import anyio
import pytest

from mala_context.agent.archiving.maintenance import ArchiveMaintenance
from mala_context.agent.archiving.uploads import LONGEST_PAUSE, Uploads
from mala_context.agent.telemetry.records import Uploaded
from mala_context.archive.remote.address import Target
from mala_context.archive.remote.push import PushResult
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveBusyError, ArchiveUnavailableError, ObjectStoreError
from tests.helpers.archive_tools import names, rows


@pytest.fixture
def archive(tmp_path):
    made = TranscriptArchive(tmp_path / "archives", target=Target(address=f"memory://{uuid.uuid4().hex}", prefix=""))
    (tmp_path / "s1.jsonl").write_bytes(rows(0, 10))
    return made


def there(archive):
    return {each.name for each in archive.bucket().list()}


def settle(uploads):
    end = time.monotonic() + 30
    while uploads._running and time.monotonic() < end:
        time.sleep(0.005)
    assert not uploads._running


def no_pause(_event, _seconds):
    return None


class Failing:
    """An archive whose pushes fail as told."""

    target = True

    def __init__(self, *errors):
        self.errors = list(errors)
        self.asked = []

    def on_change(self, observer):
        self.changed = observer

    def base(self):
        return "s3://b"

    def push(self, sessions, *, progress):
        self.asked.append(sessions)
        progress(100)
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        return PushResult(address="s3://b", pending=("s9",))


def test_what_is_archived_is_sent(archive, tmp_path):
    uploads = Uploads(archive)
    archive.archive(tmp_path / "s1.jsonl", "s1")
    anyio.run(uploads.finish, 30.0)
    assert set(names(archive)) <= there(archive)
    settle(uploads)


def test_on_trio(archive, tmp_path):
    uploads = Uploads(archive)
    archive.archive(tmp_path / "s1.jsonl", "s1")
    anyio.run(uploads.finish, 30.0, backend="trio")
    assert set(names(archive)) <= there(archive)


def test_an_archive_without_a_store_has_no_uploads(tmp_path):
    assert ArchiveMaintenance(TranscriptArchive(tmp_path))._uploads is None


def test_the_first_round_is_all_sessions_and_later_ones_those_that_changed():
    archive = Failing()
    uploads = Uploads(archive, pause=no_pause)
    uploads.wake()
    settle(uploads)
    archive.changed("s2")
    settle(uploads)
    uploads.wake()
    settle(uploads)
    assert archive.asked == [None, ["s2"]]


def test_pauses_grow_and_nothing_is_forgotten(caplog):
    caplog.set_level(logging.INFO)
    pauses = []
    archive = Failing(None, *[ObjectStoreError("s3://b", "it cannot be reached")] * 9)
    uploads = Uploads(archive, pause=lambda _, seconds: pauses.append(seconds))
    uploads.wake()
    settle(uploads)
    uploads.wake("s1")
    settle(uploads)
    assert archive.asked == [None] + [["s1"]] * 10
    assert pauses[2:] == [5, 10, 20, 40, 80, 160, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_another_processes_turn_is_waited_for_without_a_word(caplog):
    archive = Failing(ArchiveBusyError("uploads", 60.0))
    uploads = Uploads(archive, pause=no_pause)
    uploads.wake()
    settle(uploads)
    assert archive.asked == [None, None]
    assert caplog.records == []


def test_a_failed_first_round_is_all_sessions_again():
    archive = Failing(OSError("disk"))
    uploads = Uploads(archive, pause=no_pause)
    uploads.wake("s1")
    settle(uploads)
    assert archive.asked == [None, None]


@pytest.mark.parametrize("error", [ArchiveUnavailableError("no place"), RuntimeError("a fault of ours")])
def test_what_no_further_try_mends_is_not_tried_again(error, caplog):
    archive = Failing(error)
    uploads = Uploads(archive, pause=no_pause)
    uploads.wake()
    settle(uploads)
    assert archive.asked == [None]
    assert ("uploading failed" in caplog.text) == isinstance(error, RuntimeError)


def test_without_the_library_there_is_one_warning_and_the_archive_goes_on(archive, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "obstore", None)
    uploads = Uploads(archive, pause=no_pause)
    for count in (10, 20):
        (tmp_path / "s1.jsonl").write_bytes(rows(0, count))
        archive.archive(tmp_path / "s1.jsonl", "s1")
        settle(uploads)
    assert len(names(archive)) == 2
    warned = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warned) == 1
    assert "pip install 'mala-context[objects]'" in caplog.text
    anyio.run(uploads.finish, 5.0)


def test_nobody_waits_for_a_store_that_fails():
    entered = threading.Event()
    hold = threading.Event()

    def pause(_event, seconds):
        if seconds >= 5:
            entered.set()
            hold.wait(30)

    uploads = Uploads(Failing(ObjectStoreError("s3://b", "down")), pause=pause)
    uploads.wake()
    assert entered.wait(30)
    begun = time.monotonic()
    anyio.run(uploads.finish, 20.0)
    assert time.monotonic() - begun < 5
    hold.set()
    settle(uploads)


def test_a_store_that_is_slow_is_waited_for_so_long_only(caplog):
    caplog.set_level(logging.INFO)
    hold = threading.Event()
    archive = Failing()
    archive.push = lambda *_, **__: hold.wait(30)
    uploads = Uploads(archive, pause=no_pause)
    uploads.wake()
    anyio.run(uploads.finish, 0.05)
    assert "not all is uploaded; the next start or" in caplog.text
    hold.set()
    settle(uploads)


def test_rounds_are_told_with_what_arrived(archive, tmp_path):
    told = []
    uploads = Uploads(archive, told.append)
    archive.archive(tmp_path / "s1.jsonl", "s1")
    anyio.run(uploads.finish, 30.0)
    settle(uploads)
    sizes = [each.size for each in archive.bucket().list()]
    assert told[0] == Uploaded("begun")
    done = told[1]
    assert (done.outcome, done.files, done.bytes, done.pending) == ("done", len(sizes), sum(sizes), 0)
    assert 0 < done.seconds < 60


@pytest.mark.parametrize(
    ("error", "outcome", "pending"),
    [
        (None, "done", 1),
        (ObjectStoreError("s3://b", "it cannot be reached"), "failed", 0),
        (ObjectStoreError("s3://b", "not installed", installed=False), "failed", 0),
        (ArchiveUnavailableError("no place"), "failed", 0),
        (ArchiveBusyError("busy", 60.0), "put_off", 0),
        (OSError("no room"), "failed", 0),
        (RuntimeError("a fault of ours"), "failed", 0),
    ],
)
def test_how_a_round_ended(error, outcome, pending):
    told = []
    uploads = Uploads(Failing(error), told.append, pause=no_pause)
    uploads.wake()
    settle(uploads)
    begun, ended = told[:2]
    assert begun == Uploaded("begun")
    assert (ended.outcome, ended.files, ended.bytes, ended.pending) == (outcome, 1, 100, pending)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()], ids=repr)
def test_a_thread_that_cannot_start_or_fails_stops_the_uploads_no_longer_than_that(error, monkeypatch, caplog):
    archive = Failing()
    uploads = Uploads(archive, pause=no_pause)
    with monkeypatch.context() as patch:

        def refuse(_):
            raise error

        patch.setattr(threading.Thread, "start", refuse)
        uploads.wake()
    with monkeypatch.context() as patch:

        def fail(_):
            raise SystemExit

        patch.setattr(uploads, "_tell", fail)
        uploads.wake()
        settle(uploads)
    uploads.wake("s1")
    settle(uploads)
    assert archive.asked[-1] == ["s1"]
