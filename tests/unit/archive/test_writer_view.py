"""Local files, for reading."""

import errno
import hashlib
import io
import os

import pytest

from mala_context.archive import layout, manifests
from mala_context.archive.local_store import LocalStore
from mala_context.archive.remote import uploaded
from mala_context.archive.remote.bucket import bucket_at
from mala_context.archive.writer import LocalView, scan, status_of
from tests.security.odd_files import NO_FILES

NAME = layout.piece_name("s1", None, 1, layout.stamp(10**15), ".jsonl")


@pytest.fixture
def view(tmp_path):
    with LocalView("s1", str(tmp_path), os.open(tmp_path, os.O_RDONLY)) as view:
        yield view


def test_a_directory_that_is_not_there_holds_nothing():
    with LocalView("s1", "/nowhere", None) as view:
        assert (view.list(), view.manifest()) == ([], b"")
        with pytest.raises(FileNotFoundError):
            view.open(NAME)
        assert view.path(NAME) == f"/nowhere/{NAME}"


@pytest.mark.parametrize("kind", ["folder", "FIFO", "socket", "link to itself"])
def test_what_is_no_file_in_the_place_of_a_manifest_is_an_empty_one(view, tmp_path, kind):
    NO_FILES[kind](str(tmp_path / layout.manifest_name("s1")))
    before = os.listdir("/dev/fd")
    assert view.manifest() == b""
    assert len(os.listdir("/dev/fd")) == len(before)


def test_only_regular_files_of_ours_with_bytes_and_a_name_of_the_session_are_listed(view, tmp_path):
    (tmp_path / NAME).write_bytes(b"x")
    (tmp_path / NAME).chmod(0o640)
    (tmp_path / layout.manifest_name("s1")).write_bytes(b"{}\n")
    (tmp_path / NAME.replace("000000Z", "000001Z")).write_bytes(b"")
    os.symlink(tmp_path / NAME, tmp_path / NAME.replace("000000Z", "000002Z"))
    (tmp_path / NAME.replace("000000Z", "000003Z")).mkdir()
    for other in ("s1_notes.txt", "s1.txt", NAME.replace("s1", "s10"), ".tmp-s1.0123456789abcdef"):
        (tmp_path / other).write_bytes(b"x")
    assert [(each.name, each.size, each.mode) for each in view.list()] == [
        ("s1.manifest.jsonl", 3, 0o644),
        (NAME, 1, 0o640),
    ]


def test_files_of_another_user_are_not_listed(tmp_path, monkeypatch):
    (tmp_path / NAME).write_bytes(b"x")
    fd = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert list(scan(fd, ("",))) == []
    os.close(fd)


def test_no_other_name_is_opened(view, tmp_path):
    (tmp_path / "secret").write_bytes(b"x")
    for name in ("secret", "../secret", str(tmp_path / "secret"), NAME.replace("s1", "s2")):
        with pytest.raises(FileNotFoundError):
            view.open(name)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/hostname", path)])
def test_a_manifest_that_is_no_file_reads_as_none(view, tmp_path, make):
    make(tmp_path / layout.manifest_name("s1"))
    assert view.manifest() == b""


def test_a_manifest_that_cannot_be_read_is_an_error(view, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        view.manifest()
    monkeypatch.undo()


@pytest.mark.parametrize(("error", "raised"), [(errno.ESTALE, False), (errno.EIO, True)])
def test_a_manifest_that_another_machine_replaced_is_read_again(tmp_path, monkeypatch, error, raised):
    store = LocalStore(str(tmp_path / "archives"))
    with store.lock("s1", 1.0) as files:
        files.append(b'{"row":"one"}\n')
    real = os.open

    def once(name, *args, **kwargs):
        if name == "s1.manifest.jsonl":
            monkeypatch.setattr(os, "open", real)
            raise OSError(error, os.strerror(error))
        return real(name, *args, **kwargs)

    with store.view("s1") as files:
        monkeypatch.setattr(os, "open", once)
        if raised:
            with pytest.raises(OSError, match="Input/output"):
                files.manifest()
        assert files.manifest() == b'{"row":"one"}\n'


def test_a_name_that_goes_while_they_are_listed_is_none(tmp_path):
    (tmp_path / NAME).write_bytes(b"x")
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        assert [each.name for each in status_of(fd, [NAME.replace("s1", "s2"), NAME])] == [NAME]
    finally:
        os.close(fd)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("/etc/hostname", path)])
def test_what_stands_under_a_pieces_name_is_opened_only_if_it_is_a_file(view, tmp_path, make):
    make(tmp_path / NAME)
    with pytest.raises(OSError, match=r"not a regular file|symbolic link"):
        view.open(NAME)


class TestUploaded:
    """A file that an object store has, and this directory no longer, is still one of the session's."""

    GONE = NAME.replace("000000Z", "000001Z")

    @pytest.fixture
    def bucket(self, tmp_path):
        bucket = bucket_at(f"memory://{tmp_path.name}")
        bucket.put(self.GONE, io.BytesIO(b"far away"), 8)
        (tmp_path / NAME).write_bytes(b"here")
        row = uploaded.new_row(self.GONE, bucket.base, 8, hashlib.sha256(b"far away").hexdigest(), 10**15, 10**18)
        here = uploaded.new_row(NAME, bucket.base, 4, hashlib.sha256(b"here").hexdigest(), 10**15)
        (tmp_path / layout.manifest_name("s1")).write_bytes(manifests.dump([row, here]))
        return bucket

    def test_it_is_listed_from_the_manifest(self, view, bucket):
        assert [(each.name, each.size, each.remote) for each in view.list()[1:]] == [
            (NAME, 4, None),
            (self.GONE, 8, bucket.base),
        ]

    def test_it_is_opened_from_there(self, view, bucket):
        for name, data in ((self.GONE, b"far away"), (NAME, b"here")):
            reader, buffer = view.open(name), bytearray(100)
            assert buffer[: reader.readinto(buffer)] == data
            reader.close()

    def test_one_that_is_nowhere_is_not_found(self, view, bucket):
        with pytest.raises(FileNotFoundError):
            view.open(NAME.replace("000000Z", "000002Z"))

    def test_of_one_that_the_store_has_lost_it_is_said_where_it_is_not(self, view, bucket):
        bucket.remove(self.GONE)
        with pytest.raises(FileNotFoundError, match=f"not in the object store.*{bucket.base}"):
            view.open(self.GONE)
