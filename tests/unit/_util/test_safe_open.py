"""Opening what somebody else may have put at a path."""

import os
import socket

import pytest

from mala_context._util.safe_open import open_regular, read_regular


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))


ODD = {
    "folder": os.mkdir,
    "FIFO": os.mkfifo,
    "socket": make_socket,
    "link to an endless device": lambda path: os.symlink("/dev/zero", path),
    "link to the terminal": lambda path: os.symlink("/dev/tty", path),
    "link to nothing": lambda path: os.symlink("nowhere", path),
    "link to itself": lambda path: os.symlink(path, path),
    "nothing": lambda path: None,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_what_is_no_file_is_refused_at_once(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "x")
    with pytest.raises(OSError, match=r"not a regular file|No such file|Too many levels|No such device"):
        read_regular(str(tmp_path / "x"), 10)


def test_what_is_swapped_in_after_the_look_is_refused_too(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_text("text")
    look = os.stat

    def swap(given, *args, **more):
        found = look(given, *args, **more)
        path.unlink()
        os.mkfifo(path)
        return found

    monkeypatch.setattr(os, "stat", swap)
    with pytest.raises(OSError, match="not a regular file") as raised:
        open_regular(str(path))
    assert raised.value.filename == str(path)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
@pytest.mark.parametrize("most", [0, 5, 1 << 20, 2 << 20, 4 << 20])
def test_no_more_than_was_asked_for(size, most, tmp_path):
    path = tmp_path / "x"
    data = os.urandom(1024) * (size // 1024) + b"x" * (size % 1024)
    path.write_bytes(data)
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_regular(str(link), most) == data[:most]
