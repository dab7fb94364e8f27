"""A session's only writer: what local files, and the systems below them, can get wrong."""

import errno
import fcntl
import os
import stat
import subprocess
import sys

import pytest

from mala_context.archive import atomic_write, layout, writer
from mala_context.archive.local_store import LocalStore
from mala_context.errors import ArchiveBusyError, ArchiveUnavailableError
from mala_context.testing.battery import STORE_CHECKS, check_store

NAME = layout.piece_name("s1", None, 1, layout.stamp(10**15), ".jsonl")


def modes(directory):
    return [stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode) for name in os.listdir(directory)]


@pytest.fixture
def new_store(tmp_path):
    numbers = iter(range(1000))
    return lambda: LocalStore(str(tmp_path / f"runs{next(numbers)}" / "archives"))


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_file_system_without_links_passes_too(check, new_store, monkeypatch):
    def no_links(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    check(new_store)


@pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
def test_a_file_system_that_keeps_locks_per_process_passes_too(check, new_store, monkeypatch):
    monkeypatch.setattr(writer, "try_flock", lambda _fd: True)
    check(new_store)


def test_check_store_names_the_promise_that_is_broken(new_store):
    class Forgetful(LocalStore):
        def list(self):
            return ["surprise"]

    with pytest.raises(AssertionError, match="an_unknown_session_is_empty"):
        check_store(lambda: Forgetful(new_store().location))
    check_store(new_store)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_files_are_private_from_their_first_byte_whatever_the_umask(new_store, umask):
    store = new_store()
    seen = []

    def fill(write):
        write(b"secret")
        seen.extend(modes(store.location))

    old = os.umask(umask)
    try:
        with store.lock("s1", 1) as files:
            files.publish(NAME, fill)
            files.append(b"{}\n")
    finally:
        os.umask(old)
    assert {*seen, *modes(store.location)} == {0o600}
    for directory in (store.location, os.path.dirname(store.location)):
        assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700


def test_the_next_writer_drops_what_a_killed_one_left(new_store):
    store = new_store()
    with store.lock("s1", 1) as files:
        files.publish(NAME, lambda write: write(b"kept"))
    for name in (".tmp-s1.0123456789abcdef", NAME.replace(".000000Z", ".000001Z")):
        with open(os.path.join(store.location, name), "wb"):
            pass
    with open(os.path.join(store.location, ".tmp-s2.0123456789abcdef"), "wb") as file:
        file.write(b"another session's")
    with open(os.path.join(store.location, "s2.manifest.jsonl"), "wb"):
        pass
    assert store.unfinished() == ["s1", "s2"]
    assert [each.name for each in store.list()] == [NAME]
    store.lock("s1", 1).close()
    assert sorted(os.listdir(store.location)) == [".tmp-s2.0123456789abcdef", NAME, "s2.manifest.jsonl"]


def test_an_empty_manifest_is_not_left_behind(new_store):
    store = new_store()
    store.lock("s1", 1).close()
    assert os.listdir(store.location) == []


def test_a_lock_on_a_manifest_that_was_deleted_meanwhile_is_not_the_lock(new_store):
    store = new_store()
    first = store.lock("s1", 1)
    os.unlink(os.path.join(store.location, layout.manifest_name("s1")))
    first.close()
    with store.lock("s1", 1) as files:
        files.append(b"{}\n")
        assert files.manifest() == b"{}\n"


def test_links_devices_and_foreign_files_are_no_pieces(new_store, tmp_path):
    store = new_store()
    store.lock("s1", 1).close()
    secret = tmp_path / "secret"
    secret.write_bytes(b"private")
    os.symlink(secret, os.path.join(store.location, NAME))
    os.mkfifo(os.path.join(store.location, NAME.replace(".jsonl", ".txt")))
    (tmp_path / "notes").write_text("x")
    with store.lock("s1", 1) as files:
        assert list(files.list()) == []
        with pytest.raises(OSError, match=r"symbolic links|not a regular"):
            files.open(NAME)
        with pytest.raises(FileNotFoundError):
            files.open(NAME.replace(".jsonl", ".txt"))
        with pytest.raises(FileExistsError):
            files.publish(NAME, lambda write: write(b"x"))
    assert secret.read_bytes() == b"private"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/null", path)])
def test_a_manifest_that_is_no_file_of_ours_is_refused(new_store, make):
    store = new_store()
    store.lock("s1", 1).close()
    make(os.path.join(store.location, layout.manifest_name("s1")))
    with pytest.raises(ArchiveUnavailableError, match="MALA_RUNS_DIR"):
        store.lock("s1", 1)
    store.lock("s2", 1).close()


def test_a_wide_manifest_is_tightened(new_store):
    store = new_store()
    store.lock("s1", 1).close()
    path = os.path.join(store.location, layout.manifest_name("s1"))
    with open(path, "wb") as file:
        file.write(b"{}\n")
    os.chmod(path, 0o644)
    store.lock("s1", 1).close()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_a_full_disk_leaves_nothing(new_store, monkeypatch):
    store = new_store()

    def full(_fd):
        raise OSError(errno.ENOSPC, "No space left on device")

    with store.lock("s1", 1) as files:
        monkeypatch.setattr(atomic_write, "sync", full)
        with pytest.raises(OSError, match="No space"):
            files.publish(NAME, lambda write: write(b"x"))
        monkeypatch.undo()
        assert os.listdir(store.location) == [layout.manifest_name("s1")]


def test_writes_go_on_where_the_kernel_took_only_some(tmp_path, monkeypatch):
    path = tmp_path / "f"
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:3]))
    atomic_write.write_all(fd, b"0123456789")
    os.close(fd)
    assert path.read_bytes() == b"0123456789"


def test_a_large_file_is_handed_to_the_disk_while_it_is_copied(new_store, monkeypatch):
    advised = []
    monkeypatch.setattr(atomic_write, "FLUSH", 10)
    note = lambda _fd, start, length, _advice: advised.append((start, length))  # noqa: E731  # a stand-in
    monkeypatch.setattr(os, "posix_fadvise", note, raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    with new_store().lock("s1", 1) as files:
        files.publish(NAME, lambda write: [write(b"1234567") for _ in range(5)] and None)
    assert advised == [(0, 14), (14, 14)]


def test_no_lock_of_a_thread_is_kept_for_ever(new_store):
    store = new_store()
    with store.lock("s1", 1), pytest.raises(ArchiveBusyError):
        store.lock("s1", 0.01)
    assert atomic_write.thread_locks._locks == {}


def test_an_error_on_closing_keeps_no_lock(new_store, monkeypatch):
    """Else nothing of that session would be archived again in this process."""
    store = new_store()
    files = store.lock("s1", 1.0)
    real = os.fstat

    def stale(fd):
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "fstat", stale)
    files.close()
    monkeypatch.setattr(os, "fstat", real)
    store.lock("s1", 0.0).close()


def test_rows_that_a_full_disk_cut_are_taken_back(new_store, monkeypatch):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"one"}\n')
        real = os.write

        def cut(fd, data):
            monkeypatch.setattr(os, "write", full)
            return real(fd, data[:5])

        def full(fd, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "write", cut)
        with pytest.raises(OSError, match="No space left"):
            files.append(b'{"row":"two"}\n')
        monkeypatch.undo()
        files.append(b'{"row":"three"}\n')
        assert files.manifest() == b'{"row":"one"}\n{"row":"three"}\n'


def test_a_manifest_that_another_machine_replaced_is_opened_again(new_store, monkeypatch):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"one"}\n')
    real, answers = writer.try_flock, [OSError(errno.ESTALE, "Stale file handle")]

    def stale(fd):
        if answers:
            raise answers.pop()
        return real(fd)

    monkeypatch.setattr(writer, "try_flock", stale)
    with store.lock("s1", 1.0) as files:
        assert files.manifest() == b'{"row":"one"}\n'
    answers.append(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        store.lock("s1", 1.0)


def test_a_manifest_that_is_stale_when_it_is_opened_is_opened_again(new_store, monkeypatch):
    """A network file system answers ESTALE where another machine has replaced the file."""
    real, answers = os.open, [OSError(errno.ESTALE, "Stale file handle")]

    def stale(path, *args, **options):
        if answers and str(path).endswith("manifest.jsonl"):
            raise answers.pop()
        return real(path, *args, **options)

    monkeypatch.setattr(os, "open", stale)
    with new_store().lock("s1", 5.0) as files:
        files.append(b'{"row":"one"}\n')
        assert files.manifest() == b'{"row":"one"}\n'
    assert answers == []


def test_a_file_that_is_gone_was_removed_whatever_was_said(new_store, monkeypatch):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.publish(NAME, lambda write: write(b"bytes"))
        real = os.unlink

        def gone(name, **where):
            real(name, **where)
            raise OSError(errno.EIO, "Input/output error")

        def stays(name, **where):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(os, "unlink", stays)
        with pytest.raises(OSError, match="Input/output"):
            files.remove(NAME)
        monkeypatch.setattr(os, "unlink", gone)
        files.remove(NAME)
        monkeypatch.undo()
        assert files.list() == []


def test_a_manifest_that_another_name_leads_to_is_left_as_it_is(new_store, tmp_path):
    """Who can make a hard link in the directory would have us write into a file of ours elsewhere."""
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"one"}\n')
    os.link(os.path.join(store.location, layout.manifest_name("s1")), tmp_path / "elsewhere")
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"two"}\n')
        assert files.manifest() == b'{"row":"one"}\n{"row":"two"}\n'
    assert (tmp_path / "elsewhere").read_bytes() == b'{"row":"one"}\n'


def test_after_closing_nothing_is_written(new_store):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"one"}\n')
    for change in (
        lambda: files.publish(NAME, lambda write: write(b"x")),
        lambda: files.publish_named(lambda write: NAME),
        lambda: files.replace_manifest(b""),
        lambda: files.append(b'{"row":"two"}\n'),
        lambda: files.remove(NAME),
    ):
        with pytest.raises((ValueError, OSError)):
            change()
    files.close()
    assert [each.name for each in store.list()] == [layout.manifest_name("s1")]
    assert store.view("s1").manifest() == b'{"row":"one"}\n'


def test_a_manifest_that_cannot_be_replaced_is_still_the_one_that_is_locked(new_store, monkeypatch):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"one"}\n')

        def broken(*_):
            raise OSError(errno.EIO, "Input/output error")

        with monkeypatch.context() as patched:
            patched.setattr(writer, "rename_to", broken)
            with pytest.raises(OSError, match="Input/output"):
                files.replace_manifest(b"")
        files.append(b'{"row":"two"}\n')
        assert files.manifest() == b'{"row":"one"}\n{"row":"two"}\n'
    assert os.listdir(store.location) == [layout.manifest_name("s1")]


def test_a_lock_on_a_manifest_that_was_replaced_while_we_waited_is_not_the_lock(new_store, monkeypatch):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"old"}\n')
    path = os.path.join(store.location, layout.manifest_name("s1"))
    real = writer.try_flock

    def replaced(fd):
        monkeypatch.setattr(writer, "try_flock", real)
        with open(f"{path}.new", "wb") as file:
            file.write(b'{"row":"new"}\n')
        os.replace(f"{path}.new", path)
        return real(fd)

    monkeypatch.setattr(writer, "try_flock", replaced)
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"ours"}\n')
    assert store.view("s1").manifest() == b'{"row":"new"}\n{"row":"ours"}\n'


def test_waiting_for_another_process_ends(new_store):
    store = new_store()
    with store.lock("s1", 1.0) as files:
        files.append(b"{}\n")
    with open(
        os.path.join(store.location, layout.manifest_name("s1")), "rb"
    ) as other:  # whoever: the lock is the file's
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(ArchiveBusyError) as caught:
            store.lock("s1", 0.01)
        assert caught.value.waited >= 0.01
    store.lock("s1", 0.0).close()


def test_a_manifest_that_cannot_be_opened_is_an_error_and_keeps_no_lock(new_store, monkeypatch):
    store = new_store()
    store.lock("s1", 1.0).close()
    real = os.open

    def refused(name, *args, **kwargs):
        if name == layout.manifest_name("s1"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(name, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refused)
        with pytest.raises(PermissionError):
            store.lock("s1", 1.0)
    store.lock("s1", 0.0).close()


def test_a_file_that_nobody_can_look_at_was_not_removed(new_store, monkeypatch):
    def broken(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    with new_store().lock("s1", 1.0) as files:
        files.publish(NAME, lambda write: write(b"bytes"))
        with monkeypatch.context() as patched:
            patched.setattr(os, "unlink", broken)
            patched.setattr(os, "stat", broken)
            with pytest.raises(OSError, match="Input/output"):
                files.remove(NAME)
        assert [each.name for each in files.list()] == [NAME]


FORK = """
import os, sys
from mala_context.archive.local_store import LocalStore
store = LocalStore(sys.argv[1])
first = store.lock("s1", 1)
ours, theirs = os.pipe()
child = os.fork()
if child == 0:  # lives on, with a copy of all that was open
    os.close(theirs)
    os.read(ours, 1)
    store.lock("s1", 5).close()
    store.lock("s2", 5).close()
    os._exit(7)
first.append(b'{"a":1}\\n')
first.close()
store.lock("s1", 0).close()
again = store.lock("s1", 0)
os.close(theirs)
again.append(b'{"b":2}\\n')
again.close()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print(store.view("s1").manifest())
"""


def test_a_child_of_a_fork_neither_keeps_a_session_locked_nor_is_locked_out(tmp_path):
    """While it lives, and while a parent's thread held the lock as it was made."""
    command = [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "archives")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr) == ('b\'{"a":1}\\n{"b":2}\\n\'\n', "")


def test_a_parent_that_is_killed_leaves_no_lock_with_its_child(tmp_path):
    program = FORK.partition("first.append")[0] + "print(child, flush=True)\nos.kill(os.getpid(), 9)"
    command = [sys.executable, "-W", "ignore", "-c", program.replace("os.read(ours, 1)", "import time; time.sleep(60)")]
    parent = subprocess.Popen([*command, str(tmp_path / "archives")], stdout=subprocess.PIPE)
    child = int(parent.stdout.readline())
    parent.wait(30)
    try:
        LocalStore(str(tmp_path / "archives")).lock("s1", 5).close()
    finally:
        os.kill(child, 9)
        parent.stdout.close()
