"""A bar on the terminal for long work."""

import io
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.cli import progress as module
from mala_context.cli.progress import waiting
from tests.helpers.terminals import Terminal, without_codes

MB = 1_000_000
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))  # pytest puts its own into the real one
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "_PAUSE", 0.0)
    return stream


def plain(stream):
    return without_codes(stream.getvalue())


def test_short_work_says_nothing(terminal, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 60.0)
    with waiting("reading") as progress:
        progress(1_000)
    assert terminal.getvalue() == ""


def test_no_more_often_than_can_be_read(terminal, monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 60.0)
    with waiting("reading") as progress:
        progress(1_000)
    assert terminal.getvalue() == ""


def test_long_work_shows_its_bytes_and_cleans_up(terminal):
    with waiting("reading", counts=False) as progress:
        progress(30 * MB)
        progress(3 * MB)
    assert f"{module.size_text(33 * MB)} " in plain(terminal)
    assert "files" not in plain(terminal)
    assert terminal.getvalue().rindex(SHOW) > terminal.getvalue().rindex("reading")
    assert terminal.getvalue().endswith("\x1b[2K")


def test_what_is_expected_makes_a_bar(terminal):
    with waiting("reading") as progress:
        progress.expect(40 * MB, 3)
        progress.expect(60 * MB, 1)
        progress(25 * MB)
    assert "━━━━━" in plain(terminal)
    assert f"{module.size_text(25 * MB)} of {module.size_text(100 * MB)}, 1 of 4 files" in plain(terminal)


def test_what_is_found_before_the_work_begins_is_counted(terminal):
    with waiting("looking") as progress:
        progress.found(2 * MB)
        assert "looking:" in plain(terminal)
        assert "1 found" in plain(terminal)
        progress.found.passed(4_000)
        assert "4,001 found" in plain(terminal)
        progress(7 * MB)
    assert f"{module.size_text(7 * MB)}, 1 file" in plain(terminal)


def test_what_was_found_is_no_longer_shown_once_there_is_work(terminal):
    with waiting("reading") as progress:
        progress.passed(3)
        progress.expect(100 * MB, 3)
        progress.within(25 * MB)
        assert plain(terminal).rindex(" of ") > plain(terminal).rindex("found")


def test_bytes_inside_of_a_file_count_until_it_is_done(terminal):
    with waiting("reading") as progress:
        progress.expect(100 * MB, 2)
        progress.within(15 * MB)
        progress(60 * MB)
    assert f"{module.size_text(15 * MB)} of {module.size_text(100 * MB)}, 0 of 2 files" in plain(terminal)
    assert f"{module.size_text(60 * MB)} of {module.size_text(100 * MB)}, 1 of 2 files" in plain(terminal)


def interrupted():
    with waiting("reading") as progress:
        progress(1)
        raise KeyboardInterrupt


def test_the_bar_is_gone_after_an_interrupt(terminal):
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().count(HIDE) == terminal.getvalue().count(SHOW) == 1
    assert terminal.getvalue().endswith("\x1b[2K")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_nothing_is_shown_on_a_terminal_that_can_do_nothing(terminal, monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    with waiting("reading") as progress:
        progress(1)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(terminal, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))
    with waiting("reading") as progress:
        progress(1)
    assert stream.getvalue() == ""


def test_a_terminal_without_these_marks(terminal):
    terminal.encoding = "ascii"
    with waiting("reading") as progress:
        progress.expect(10)
        progress(5)
    assert plain(terminal).isascii()


@given(
    st.integers(0, 10**15) | st.none(),
    st.integers(0, 10**7) | st.none(),
    st.lists(st.integers(0, 10**13), max_size=5),
)
def test_the_words_are_never_nonsense(total, files, sizes):
    """More than was expected is no error: packed pieces give more bytes than they take."""
    stream = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "sys", SimpleNamespace(stderr=stream))
        patch.setenv("TERM", "xterm")
        patch.setattr(module, "PATIENCE", 0.0)
        patch.setattr(module, "_PAUSE", 0.0)
        with waiting("reading") as progress:
            if total is not None:
                progress.expect(total, files)
            for size in sizes:
                progress(size)
    words = plain(stream)
    assert "nan" not in words
    if sizes and total is not None and sum(sizes) > total:
        last = words[words.rindex("reading") :]
        assert f"of {module.size_text(total)}" not in last
