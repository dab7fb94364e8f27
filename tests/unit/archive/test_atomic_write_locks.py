"""The locks of a session."""

import errno
import fcntl
import os
import threading

import pytest

from mala_context.archive import atomic_write
from mala_context.archive.atomic_write import ThreadLocks, try_flock

KEY = ("/archives", "s1")


def test_one_thread_at_a_time_and_waiting_ends():
    table = ThreadLocks()
    assert table.acquire(KEY, 0)
    assert not table.acquire(KEY, 0.01)
    assert table.acquire(("/archives", "s2"), 0)
    table.release(KEY)
    assert table.acquire(KEY, 0)


def test_every_waiting_thread_gets_its_turn_and_nothing_is_kept():
    table = ThreadLocks()
    inside, most = [], []

    def work():
        assert table.acquire(KEY, 10)
        inside.append(1)
        most.append(len(inside))
        inside.pop()
        table.release(KEY)

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most), table._locks) == (16, 1, {})


def test_two_descriptors_exclude_each_other(tmp_path):
    one, other = (os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR) for _ in range(2))
    assert try_flock(one)
    assert not try_flock(other)
    os.close(one)
    assert try_flock(other)
    os.close(other)


@pytest.mark.parametrize(("number", "granted"), [(errno.ENOLCK, True), (errno.EACCES, False)])
def test_a_file_system_without_locks_is_written_all_the_same(monkeypatch, number, granted):
    def refuse(_fd, _operation):
        raise OSError(number, "refused")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert try_flock(0) is granted


def test_other_errors_come_through():
    with pytest.raises(OSError, match="Bad file descriptor"):
        try_flock(99_999)
    assert atomic_write.thread_locks._locks == {}
