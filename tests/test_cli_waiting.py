"""A line on the terminal for long work."""

import io
import sys

from mala_context.cli import waiting as module
from mala_context.cli.waiting import waiting


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_short_work_says_nothing(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with waiting("reading") as progress:
        progress(1_000)
    assert sys.stderr.getvalue() == ""


def test_long_work_shows_its_bytes_and_cleans_up(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    times = iter((0.0, 3.0, 3.1, 3.3))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times))
    with waiting("reading") as progress:
        progress(30_000_000)
        progress(1)
        progress(3_000_000)
    text = sys.stderr.getvalue()
    assert text.count("reading") == 2
    assert "30 MB, 10 MB/s" in text
    assert text.endswith("\r\x1b[K")


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    with waiting("reading") as progress:
        progress(1)
    assert sys.stderr.getvalue() == ""
