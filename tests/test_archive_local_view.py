"""Local files, for reading."""

import errno
import os

import pytest

from mala_context.archive import layout
from mala_context.archive.local_store import LocalStore
from mala_context.archive.local_view import LocalView, scan

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
