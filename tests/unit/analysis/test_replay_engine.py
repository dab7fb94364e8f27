"""Many recordings on any number of processes."""

import gc
import gzip
import os
import sys
import threading
import warnings

import pytest

from mala_context.analysis.replay import engine, files, replay, scan
from mala_context.analysis.replay.files import find
from mala_context.analysis.replay.row_runs import NeedsFullReader
from mala_context.analysis.replay.scan import Scanner
from mala_context.transcripts import json_rows
from tests.benchmarks import corpus
from tests.helpers.recordings import OTHER, SID, dump, plain


def refuse(self, buffer):
    raise NeedsFullReader("never seen")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus")
    corpus.write(str(path), 3, seed=5)
    return str(path)


def records(*paths, **options):
    return [each.as_dict() for each in replay(paths, **options)]


def test_any_number_of_jobs_gives_the_same(folder):
    alone = records(folder, jobs=1)
    assert len(alone) > 1
    assert alone == records(folder, jobs=2) == records(folder, jobs=50)


def test_any_order_of_paths_gives_the_same(folder):
    paths = [each.path for each in find([folder])]
    assert records(*paths, jobs=1) == records(*reversed(paths), jobs=1)


def test_without_the_extra_the_result_is_the_same(folder, monkeypatch):
    with_extra = records(folder, jobs=1)
    monkeypatch.setattr(Scanner, "run", refuse)
    assert records(folder, jobs=1) == with_extra


def test_progress_is_told_every_byte(folder):
    told = []
    replay([folder], jobs=2, progress=told.append)
    assert sum(told) == sum(each.size for each in find([folder]))


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_each_recording_is_told_once_and_expected_before(folder, jobs):
    sizes = sorted(each.size for each in find([folder]))

    class Told(list):
        def __call__(self, size):
            self.append(size)

        def expect(self, total, files):
            self.append((total, files))

    told = Told()
    replay([folder], jobs=jobs, progress=told)
    assert told[0] == (sum(sizes), len(sizes))
    assert sorted(size for size in told[1:] if size) == sizes


class Within(list):
    """Notes what is done in all, after each call."""

    done = 0

    def __call__(self, size):
        self.done += size
        self.append(self.done)

    def within(self, size):
        self.append(self.done + size)


@pytest.mark.parametrize("way", ["fast", "careful"])
def test_bytes_inside_of_a_recording_are_told(tmp_path, monkeypatch, way):
    if way == "careful":
        monkeypatch.setattr(Scanner, "run", refuse)
    monkeypatch.setattr(files, "BLOCK", 512)
    monkeypatch.setattr(files, "_spare", [bytearray(512)])
    path = plain().write(tmp_path / "a.jsonl")
    size = os.path.getsize(path)
    told = Within()
    assert records(str(path), jobs=1, progress=told) == records(str(path), jobs=1)
    assert told == sorted(told)
    assert told[-1] == size
    assert len({each for each in told if 0 < each < size}) > 2


@pytest.mark.parametrize("way", ["fast", "careful", "totals"])
def test_threads_that_read_side_by_side_share_no_buffer(tmp_path, monkeypatch, way):
    """A library's user may call `replay` from several threads; each block of one is followed by a whole other here."""
    if way == "careful":
        monkeypatch.setattr(Scanner, "run", refuse)
    monkeypatch.setattr(files, "BLOCK", 512)
    monkeypatch.setattr(files, "_spare", [])
    paths = [str(plain(session).write(tmp_path / f"{session}.jsonl")) for session in (SID, OTHER)]
    estimates = way != "totals"

    def beside(size):
        thread = threading.Thread(target=records, args=(paths[1],), kwargs={"jobs": 1, "estimates": estimates})
        thread.start()
        thread.join()

    told = Within()
    alone = records(paths[0], jobs=1, estimates=estimates)
    told.within = beside
    assert records(paths[0], jobs=1, estimates=estimates, progress=told) == alone
    assert len(files._spare) == 2


def test_bytes_of_a_packed_recording_are_no_more_than_it_takes(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(dump(plain().rows)))
    told = Within()
    records(str(path), jobs=1, progress=told)
    assert set(told) == {path.stat().st_size}


@pytest.fixture
def forks(monkeypatch):
    """Fork whatever threads other tests have left in this process, which the child does not use."""
    monkeypatch.setattr(engine, "_can_fork", lambda recordings: True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


def test_bytes_that_a_child_has_done_of_its_recording_are_told(tmp_path, monkeypatch, forks):
    """The child holds within its recording until the parent was told of it."""
    monkeypatch.setattr(engine, "LOOK_EVERY", 0.01)
    parent = os.getpid()
    receiving, sending = os.pipe()
    told, sizes = Within(), [os.path.getsize(plain().write(tmp_path / f"{name}.jsonl")) for name in "ab"]

    def slow(recording):
        if os.getpid() != parent:
            recording.watch(7)
            os.read(receiving, 1)
        return []

    def within(size):
        told.append(told.done + size)
        if told[-1] == sizes[0] + 7:
            os.write(sending, b"x")

    told.within = within
    engine.read_all(find([str(tmp_path)]), slow, jobs=2, progress=told)
    assert sizes[0] + 7 in told
    assert told[-1] == sum(sizes)


def test_what_a_child_has_read_is_told_while_it_reads_on(tmp_path, monkeypatch, forks):
    """The child holds its last recording until the parent was told of the one before."""
    for name in "abcd":
        plain().write(tmp_path / f"{name}.jsonl")
    monkeypatch.setattr(engine, "LOOK_EVERY", 0.01)
    parent, read = os.getpid(), scan.read
    receiving, sending = os.pipe()
    told = []

    def slow(recording):
        if os.getpid() != parent and recording.path.endswith("d.jsonl"):
            os.read(receiving, 1)
        return read(recording)

    def progress(size):
        told.append(size)
        if sum(map(bool, told)) == 3:
            os.write(sending, b"x")

    monkeypatch.setattr(scan, "read", slow)
    assert records(str(tmp_path), jobs=2, progress=progress)
    assert sum(map(bool, told)) == 4


def test_a_process_that_dies_costs_nothing_but_time(tmp_path, monkeypatch):
    plain().write(tmp_path / "a.jsonl")
    plain(OTHER).write(tmp_path / "b.jsonl")
    parent, read = os.getpid(), scan.read

    def dies(recording):
        if os.getpid() != parent:
            os._exit(9)
        return read(recording)

    monkeypatch.setattr(scan, "read", dies)
    assert len(records(str(tmp_path), jobs=2)) == 2


def test_with_other_threads_nothing_is_forked(folder, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert records(folder, jobs=2)
    finally:
        done.set()
        thread.join()


def test_the_collector_is_as_it_was(folder):
    assert gc.isenabled()
    replay([folder], jobs=1)
    assert gc.isenabled()


def test_a_large_total_uses_every_core_by_default(folder, monkeypatch):
    monkeypatch.setattr(engine, "SMALL", 1)
    monkeypatch.setattr(engine, "_cpus", lambda: 2)
    assert records(folder) == records(folder, jobs=1)


def test_a_system_that_knows_less_gives_the_same(folder, monkeypatch):
    before = records(folder, jobs=1)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr("signal.pthread_sigmask", raising=False)
    monkeypatch.setattr(engine, "SMALL", 0)
    assert records(folder) == before


def test_what_the_fast_way_does_not_follow_is_read_the_careful_way(tmp_path, monkeypatch):
    plain().write(tmp_path / "a.jsonl")
    before = records(str(tmp_path), jobs=1)

    monkeypatch.setattr(Scanner, "run", refuse)
    assert records(str(tmp_path), jobs=1) == before


def test_without_msgspec_the_same_is_read(tmp_path, monkeypatch):
    plain().write(tmp_path / "a.jsonl")
    before = records(str(tmp_path / "a.jsonl"), jobs=1)
    monkeypatch.setitem(sys.modules, "msgspec", None)
    monkeypatch.setattr(json_rows, "_decode", json_rows._first)
    monkeypatch.setattr(json_rows, "_left", 2)
    assert records(str(tmp_path / "a.jsonl"), jobs=1) == before
    assert json_rows._decode is json_rows._slowly
