"""What a hostile repository, session or user may put where a file is expected; to read any of it may never end."""

import contextlib
import os
import socket


def _socket(path):
    with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(os.path.dirname(path)):  # 107 bytes is all it takes
        made.bind(os.path.basename(path))


def _link_to_fifo(path):
    fifo = f"{path}.fifo"
    os.mkfifo(fifo)
    os.symlink(fifo, path)


def _text(data):
    def make(path):
        with open(path, "wb") as file:
            file.write(data)

    return make


NO_FILES = {
    "folder": os.mkdir,
    "FIFO": os.mkfifo,
    "link to a FIFO": _link_to_fifo,
    "link to the terminal": lambda path: os.symlink("/dev/tty", path),
    "link to standard input": lambda path: os.symlink("/dev/stdin", path),
    "link to an endless device": lambda path: os.symlink("/dev/zero", path),
    "link to itself": lambda path: os.symlink(path, path),
    "socket": _socket,
}
"""Kind → what makes it at a path."""
DATA = {
    "nothing": b"",
    "no text": b"\xff\xfe\0\x80autoCompactWindow",
    "nested": b'{"autoCompactWindow":' + b"[" * 200_000,
    "a list": b'[{"autoCompactWindow": 5}]',
    "odd values": b'{"autoCompactWindow": {"a": [1e999]}, "autoCompactEnabled": [], "hooks": "x", "model": []}',
    "huge numbers": b'{"autoCompactWindow": 1' + b"0" * 5_000 + b', "autoCompactEnabled": "no"}',
    "escapes": b'{"autoCompactWindow": "\\u001b]0;owned\\u0007\\u202e", "model": "\\u001b[2J"}',
}
ODD = NO_FILES | {name: _text(data) for name, data in DATA.items()}
"""The same, and files whose bytes are odd."""
