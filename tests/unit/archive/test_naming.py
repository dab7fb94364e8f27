"""Names of files, on file systems that say less than the truth."""

import errno
import os

import pytest

from mala_context.archive import naming


@pytest.fixture
def directory(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def file(directory):
    fd, name = naming.create(directory, ".tmp-")
    naming.write_all(fd, b"bytes")
    yield fd, name
    os.close(fd)


def after(monkeypatch, name, error):
    """Let a call take effect once and say that it failed."""
    real = getattr(os, name)

    def call(*args, **kwargs):
        monkeypatch.setattr(os, name, real)
        real(*args, **kwargs)
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, name, call)


def never(monkeypatch, name, error):
    def call(*_, **__):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, name, call)


def test_a_name_is_given_once(directory, file, tmp_path):
    assert naming.give_name(directory, *file, "a")
    assert (tmp_path / "a").read_bytes() == b"bytes"
    other, name = naming.create(directory, ".tmp-")
    assert not naming.give_name(directory, other, name, "a")
    os.close(other)
    assert (tmp_path / "a").read_bytes() == b"bytes"


@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO, errno.ENOENT])
def test_a_name_that_was_given_is_ours_whatever_was_said(directory, file, monkeypatch, error):
    after(monkeypatch, "link", error)
    assert naming.give_name(directory, *file, "a")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_name_that_was_not_given_is_an_error(directory, file, monkeypatch, error, tmp_path):
    never(monkeypatch, "link", error)
    with pytest.raises(OSError, match=os.strerror(error)):
        naming.give_name(directory, *file, "a")
    assert not (tmp_path / "a").exists()


def test_without_links_a_name_is_given_once_too(directory, file, monkeypatch, tmp_path):
    never(monkeypatch, "link", errno.EPERM)
    after(monkeypatch, "rename", errno.ENOENT)
    assert naming.give_name(directory, *file, "a")
    other, name = naming.create(directory, ".tmp-")
    assert not naming.give_name(directory, other, name, "a")
    os.close(other)
    assert (tmp_path / "a").read_bytes() == b"bytes"


def test_a_name_that_was_held_for_nothing_is_let_go(directory, file, monkeypatch, tmp_path):
    never(monkeypatch, "link", errno.EPERM)
    never(monkeypatch, "rename", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        naming.give_name(directory, *file, "a")
    assert not (tmp_path / "a").exists()


def test_a_temporary_file_that_was_made_twice(directory, monkeypatch, tmp_path):
    after(monkeypatch, "open", errno.EEXIST)
    fd, name = naming.create(directory, ".tmp-")
    os.close(fd)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_directory_that_cannot_be_synced(directory, monkeypatch, error):
    never(monkeypatch, "fsync", error)
    naming.sync_directory(directory)
    with pytest.raises(OSError, match=os.strerror(error)):
        naming.sync(directory)


def test_a_directory_that_was_not_synced_is_an_error(directory, monkeypatch):
    never(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        naming.sync_directory(directory)


def test_the_drive_is_told_where_it_can_be(directory, monkeypatch):
    import fcntl

    asked = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, what: asked.append((fd, what)))
    never(monkeypatch, "fsync", errno.EIO)
    naming.sync(directory)
    assert asked == [(directory, 51)]
    never(monkeypatch, "fsync", errno.EINVAL)
    never_known = OSError(errno.ENOTTY, "no such request")

    def refuse(*_):
        raise never_known

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(OSError, match="Invalid"):
        naming.sync(directory)


def test_a_name_that_cannot_be_seen_leads_nowhere(directory, file):
    assert not naming.leads_to(directory, "none", file[0])
    naming.discard(directory, "none")
