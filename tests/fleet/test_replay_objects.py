"""Recordings in an object store, read as those in a folder are."""

import os
import shutil

import pytest

from mala_context.analysis.cluster import DaskEngine
from mala_context.analysis.replay import replay
from mala_context.analysis.replay.engine import LocalEngine
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.scan import read
from mala_context.archive.remote.address import Target
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ObjectStoreError, RecordingNotFoundError
from tests.benchmarks import corpus

pytestmark = pytest.mark.xdist_group("dask")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "corpus"
    corpus.write(str(path), 1, seed=12)
    return path


@pytest.fixture
def address(folder, bucket, proxy):
    """The same files in a bucket."""
    from mala_context.archive.remote.bucket import Bucket

    base = f"s3://{bucket}/deep/er"
    place = Bucket(base)
    for path in folder.rglob("*.jsonl"):
        with open(path, "rb") as file:
            place.put(str(path.relative_to(folder)), file, path.stat().st_size)
    return base


def moved(sessions, old, new):
    """The sessions as JSON, as if their files lay elsewhere."""
    found = [each.as_dict() for each in sessions]
    for each in found:
        each["path"] = each["path"].replace(str(old), new)
        for problem in each["problems"]:
            problem["file"] = problem["file"].replace(str(old), new)
    return found


def test_an_address_is_read_as_a_folder_is(folder, address):
    local = moved(replay([str(folder)], jobs=1), folder, address)
    assert len(local) > 1
    assert [each.as_dict() for each in replay([address])] == local
    assert [each.as_dict() for each in replay([address + "/projects/", address])] == local, "each object is one"


def test_workers_read_it_themselves(folder, address):
    with DaskEngine(workers=1) as engine:
        found = replay([address], engine=engine)
    assert [each.as_dict() for each in found] == moved(replay([str(folder)], jobs=1), folder, address)


def test_an_archive_in_a_bucket_is_put_together(folder, bucket, proxy, tmp_path):
    transcript = max(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_size)
    archive = TranscriptArchive(tmp_path / "archives", target=Target(address=f"s3://{bucket}", prefix="one"))
    data = transcript.read_bytes()
    for part in (data[: len(data) // 2], data):
        (tmp_path / "growing.jsonl").write_bytes(part)
        archive.archive(tmp_path / "growing.jsonl", transcript.stem)
    archive.push()
    (recording,) = find([f"s3://{bucket}/one"])
    assert len(recording.parts) == 2
    (stored,), (local,) = replay([f"s3://{bucket}"]), replay([str(alone(transcript, tmp_path))])
    assert stored.as_dict() == {**local.as_dict(), "path": recording.path}


def alone(path, folder):
    """Copy a transcript to where no subagents lie beside it."""
    return shutil.copy(path, folder / path.name)


def test_one_object(folder, address, tmp_path):
    """Without its subagents: a named file brings them, a named object does not."""
    path = max(folder.rglob("*.jsonl"), key=lambda path: path.stat().st_size)
    (session,) = replay([f"{address}/{path.relative_to(folder)}"])
    copy = alone(path, tmp_path)
    assert session.as_dict() == moved(replay([str(copy)]), tmp_path, f"{address}/{path.parent.relative_to(folder)}")[0]


@pytest.mark.parametrize("missing", ["nothing", "nothing/here.jsonl"])
def test_what_is_not_there_is_named(address, missing):
    with pytest.raises(RecordingNotFoundError, match=f"{address}/{missing}"):
        find([f"{address}/{missing}"])


def test_a_store_that_does_not_answer(address, s3_server):
    with pytest.raises(ObjectStoreError, match="no such bucket"):
        find(["s3://b-that-is-not-there"])


def test_an_object_that_goes_away_is_a_problem(address, folder):
    from mala_context.archive.remote.bucket import bucket_at

    recording = max(find([address]), key=lambda each: each.size)
    place, _, name = recording.path.rpartition("/")
    bucket_at(place).remove(name)
    (stretch,) = read(recording)
    assert "not in the object store" in stretch.problems[0].problem


def test_nothing_is_forked_behind_a_librarys_threads(address, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert LocalEngine(2).read(find([address]), read, None)
