"""Keys on a terminal."""

import io
import os
import pty
import signal
import sys
import termios

import pytest

from mala_context.cli import keyboard
from mala_context.cli.keyboard import QUIT, SUSPEND, keys, suspend


@pytest.fixture
def terminal(monkeypatch):
    master, slave = pty.openpty()
    monkeypatch.setattr(sys, "stdin", os.fdopen(slave))
    yield master, slave
    os.close(master)
    sys.stdin.close()


def test_a_key_is_read_at_once_and_not_echoed(terminal):
    master, slave = terminal
    before = termios.tcgetattr(slave)
    with keys() as pressed:
        assert pressed(0.0) is None
        os.write(master, b"q")
        assert pressed(5.0) == "q"
        assert not termios.tcgetattr(slave)[3] & termios.ECHO
    assert termios.tcgetattr(slave) == before


def test_keys_have_names_and_each_is_given_once(terminal):
    master, _ = terminal
    with keys() as pressed:
        os.write(master, b"\x1b[A\x1bOB\x1b[5~\x1b[99;9Zjq\r\x7f\x1b")
        found = [pressed(5.0) for _ in range(9)]
        assert pressed(0.0) is None
    assert found == ["up", "down", "page up", "\x1b[99;9Z", "j", "q", "enter", "backspace", "escape"]


def test_ctrl_z_is_a_key_too(terminal):
    master, _ = terminal
    with keys() as pressed:
        os.write(master, b"\x1a")
        assert pressed(5.0) == SUSPEND


def test_suspending_stops_the_whole_job(monkeypatch):
    sent = []
    monkeypatch.setattr(keyboard.os, "kill", lambda *words: sent.append(words))
    suspend()
    assert sent == [(0, signal.SIGTSTP)]


def test_the_terminal_is_restored_after_an_error(terminal):
    before = termios.tcgetattr(terminal[1])
    with pytest.raises(KeyboardInterrupt), keys():
        raise KeyboardInterrupt
    assert termios.tcgetattr(terminal[1]) == before


@pytest.mark.parametrize("stdin", [io.StringIO("q"), open(os.devnull)], ids=["no file", "no terminal"])  # noqa: SIM115
def test_without_a_terminal_it_only_waits(monkeypatch, stdin):
    waited = []
    monkeypatch.setattr(keyboard.time, "sleep", waited.append)
    monkeypatch.setattr(sys, "stdin", stdin)
    with keys() as pressed:
        assert pressed(0.25) is None
    assert waited == [0.25]


def test_without_termios(monkeypatch):
    monkeypatch.setitem(sys.modules, "termios", None)
    with keys() as pressed:
        assert pressed(0.0) is None


def test_what_ends_a_view():
    assert {"q", ""} <= QUIT
    assert None not in QUIT
