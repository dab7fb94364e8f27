"""Names of files, on file systems that say less than the truth."""

import errno
import os

import pytest

from mala_context.archive import atomic_write
from mala_context.archive.atomic_write import OUTSIDE_TEMPORARY, place


@pytest.fixture
def directory(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def file(directory):
    fd, name = atomic_write.create(directory, ".tmp-")
    atomic_write.write_all(fd, b"bytes")
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
    assert atomic_write.give_name(directory, *file, "a")
    assert (tmp_path / "a").read_bytes() == b"bytes"
    other, name = atomic_write.create(directory, ".tmp-")
    assert not atomic_write.give_name(directory, other, name, "a")
    os.close(other)
    assert (tmp_path / "a").read_bytes() == b"bytes"


@pytest.mark.parametrize("error", [errno.EEXIST, errno.EIO, errno.ENOENT])
def test_a_name_that_was_given_is_ours_whatever_was_said(directory, file, monkeypatch, error):
    after(monkeypatch, "link", error)
    assert atomic_write.give_name(directory, *file, "a")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_name_that_was_not_given_is_an_error(directory, file, monkeypatch, error, tmp_path):
    never(monkeypatch, "link", error)
    with pytest.raises(OSError, match=os.strerror(error)):
        atomic_write.give_name(directory, *file, "a")
    assert not (tmp_path / "a").exists()


def test_without_links_a_name_is_given_once_too(directory, file, monkeypatch, tmp_path):
    never(monkeypatch, "link", errno.EPERM)
    after(monkeypatch, "rename", errno.ENOENT)
    assert atomic_write.give_name(directory, *file, "a")
    other, name = atomic_write.create(directory, ".tmp-")
    assert not atomic_write.give_name(directory, other, name, "a")
    os.close(other)
    assert (tmp_path / "a").read_bytes() == b"bytes"


def test_a_name_that_was_held_for_nothing_is_let_go(directory, file, monkeypatch, tmp_path):
    never(monkeypatch, "link", errno.EPERM)
    never(monkeypatch, "rename", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        atomic_write.give_name(directory, *file, "a")
    assert not (tmp_path / "a").exists()


def test_a_temporary_file_that_was_made_twice(directory, monkeypatch, tmp_path):
    after(monkeypatch, "open", errno.EEXIST)
    fd, name = atomic_write.create(directory, ".tmp-")
    os.close(fd)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("error", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_directory_that_cannot_be_synced(directory, monkeypatch, error):
    never(monkeypatch, "fsync", error)
    atomic_write.sync_directory(directory)
    with pytest.raises(OSError, match=os.strerror(error)):
        atomic_write.sync(directory)


def test_a_directory_that_was_not_synced_is_an_error(directory, monkeypatch):
    never(monkeypatch, "fsync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        atomic_write.sync_directory(directory)


def test_the_drive_is_told_where_it_can_be(directory, monkeypatch):
    import fcntl

    asked = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", lambda fd, what: asked.append((fd, what)))
    never(monkeypatch, "fsync", errno.EIO)
    atomic_write.sync(directory)
    assert asked == [(directory, 51)]
    never(monkeypatch, "fsync", errno.EINVAL)
    never_known = OSError(errno.ENOTTY, "no such request")

    def refuse(*_):
        raise never_known

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    with pytest.raises(OSError, match="Invalid"):
        atomic_write.sync(directory)


def test_a_name_that_cannot_be_seen_leads_nowhere(directory, file):
    assert not atomic_write.leads_to(directory, "none", file[0])
    atomic_write.discard(directory, "none")


def test_the_file_and_its_directories_are_private_whatever_the_umask(tmp_path):
    umask = os.umask(0)
    try:
        path = place(str(tmp_path), ["a", "b", "file"], lambda write: write(b"bytes"))
    finally:
        os.umask(umask)
    assert path == str(tmp_path / "a" / "b" / "file")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == b"bytes"
    assert (tmp_path / "a" / "b" / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_nothing_is_replaced(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        place(str(tmp_path), ["file"], lambda write: write(b"new"))
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"


def test_an_interrupt_leaves_nothing(tmp_path):
    def fill(write):
        write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place(str(tmp_path), ["file"], fill)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("part", ["", ".", "..", "a/b", "a\0b"])
def test_a_part_is_a_plain_name(part, tmp_path):
    for parts in ([part, "file"], ["a", part]):
        with pytest.raises(ValueError, match="no name"):
            place(str(tmp_path), parts, lambda write: write(b""))


def test_no_directory_on_the_way_is_a_link(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r".+"):
        place(str(tmp_path), ["link", "file"], lambda write: write(b""))
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_file_system_without_links(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    place(str(tmp_path), ["file"], lambda write: write(b"bytes"))
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(FileExistsError):
        place(str(tmp_path), ["file"], lambda write: write(b"new"))
    assert (tmp_path / "file").read_bytes() == b"bytes"


@pytest.mark.parametrize("step", ["open", "write", "fsync", "link"])
def test_an_error_names_the_file_that_was_wanted(tmp_path, monkeypatch, step):
    real = getattr(os, step)

    def fail(first, *rest, **named):
        if step == "open" and not str(first).startswith(OUTSIDE_TEMPORARY):
            return real(first, *rest, **named)
        raise OSError(errno.ENOSPC, "No space left on device", ".tmp-1")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        place(str(tmp_path), ["file"], lambda write: write(b"new"))
    assert caught.value.filename == str(tmp_path / "file")
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []


def test_what_could_not_be_read_keeps_its_name(tmp_path):
    def fill(write):
        raise FileNotFoundError(errno.ENOENT, "gone", "piece")

    with pytest.raises(FileNotFoundError) as caught:
        place(str(tmp_path), ["file"], fill)
    assert caught.value.filename == "piece"


def test_what_a_killed_writer_left_goes_and_what_a_living_one_has_stays(tmp_path):
    import fcntl

    (tmp_path / f"{OUTSIDE_TEMPORARY}0123456789abcdef").write_bytes(b"half")
    (tmp_path / ".tmp-0123456789abcdef").write_bytes(b"another program's")
    living = tmp_path / f"{OUTSIDE_TEMPORARY}fedcba9876543210"
    with open(living, "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        place(str(tmp_path), ["file"], lambda write: write(b"bytes"))
        assert sorted(os.listdir(tmp_path)) == [living.name, ".tmp-0123456789abcdef", "file"]
    place(str(tmp_path), ["other"], lambda write: write(b"bytes"))
    assert not living.exists()


def test_a_temporary_file_that_was_taken_for_a_leftover_is_made_again(tmp_path, monkeypatch):
    answers = [False, True]
    monkeypatch.setattr(atomic_write, "try_flock", lambda _fd: answers.pop(0))
    place(str(tmp_path), ["file"], lambda write: write(b"bytes"))
    assert os.listdir(tmp_path) == ["file"]
    assert answers == []


class TestTemporaryFile:
    """It is locked from its first moment on, so that nobody who clears up takes it for one that was left."""

    def test_one_that_was_cleared_away_before_its_lock_is_made_again(self, tmp_path, monkeypatch):
        real, cleared = atomic_write.try_flock, []

        def too_late(fd):
            if len(cleared) < 2:
                (name,) = os.listdir(tmp_path)
                cleared.append(name)
                os.unlink(tmp_path / name)
            return real(fd)

        monkeypatch.setattr(atomic_write, "try_flock", too_late)
        place(str(tmp_path), ["file"], lambda write: write(b"bytes"))
        assert len(set(cleared)) == 2
        assert os.listdir(tmp_path) == ["file"]
        assert (tmp_path / "file").read_bytes() == b"bytes"

    def test_on_a_file_system_without_locks_it_is_written_all_the_same(self, tmp_path, monkeypatch):
        monkeypatch.setattr(atomic_write, "try_flock", lambda _fd: False)
        place(str(tmp_path), ["file"], lambda write: write(b"bytes"))
        assert os.listdir(tmp_path) == ["file"]

    def test_an_interrupt_while_it_is_locked_leaves_nothing(self, tmp_path, monkeypatch):
        def interrupted(_fd):
            raise KeyboardInterrupt

        monkeypatch.setattr(atomic_write, "try_flock", interrupted)
        with pytest.raises(KeyboardInterrupt):
            place(str(tmp_path), ["file"], lambda write: write(b"bytes"))
        assert os.listdir(tmp_path) == []
