"""A bar on the terminal for long work."""

import io
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.cli import progress as module
from mala_context.cli.progress import Wait, waiting
from tests.helpers.terminals import Terminal

MB = 1 << 20


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))  # pytest puts its own into the real one
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return stream


@pytest.fixture
def clock(monkeypatch):
    def set_times(*times):
        left = iter(times)
        monkeypatch.setattr(module.time, "monotonic", lambda: next(left))

    return set_times


def test_short_work_says_nothing(terminal):
    with waiting("reading") as progress:
        progress(1_000)
    assert terminal.getvalue() == ""


def test_long_work_shows_its_bytes_and_cleans_up(terminal, clock):
    clock(0.0, 3.0, 3.1, 3.3)
    with waiting("reading", counts=False) as progress:
        progress(30 * MB)
        progress(1)
        progress(3 * MB)
    assert terminal.getvalue().count("reading") == 2
    assert "\rreading: 30 MB, 10 MB/s\x1b[K" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_what_is_expected_makes_a_bar_and_an_estimate(terminal, clock):
    clock(0.0, 5.0)
    with waiting("reading") as progress:
        progress.expect(40 * MB, 3)
        progress.expect(60 * MB, 1)
        progress(25 * MB)
    assert "reading: ━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 25 of 100 MB, 1 of 4 files, 15 s left" in terminal.getvalue()


def test_what_is_found_before_the_work_begins_is_counted(terminal, clock):
    clock(0.0, 2.5, 3.0, 3.5)
    with waiting("looking") as progress:
        progress.found(2 * MB)
        progress.passed(1_200)
        assert terminal.getvalue() == "\rlooking: 1 found\x1b[K\rlooking: 1,201 found\x1b[K"
        progress(7 * MB)
    assert "\rlooking: 7 MB, 1 files, 2 MB/s\x1b[K" in terminal.getvalue()


def test_names_of_sessions_are_counted_before_the_sessions(terminal, clock):
    clock(0.0, 2.5, 3.0)
    with waiting("looking") as progress:
        found = progress.found
        found.passed(4_000)
        found(2 * MB)
    assert "looking: 4,001 found" in terminal.getvalue()


def test_what_was_found_is_no_longer_shown_once_there_is_work(terminal, clock):
    clock(0.0, 2.5, 3.0)
    with waiting("reading") as progress:
        progress.passed(3)
        progress.expect(100 * MB, 3)
        progress.within(25 * MB)
    assert "25 of 100 MB" in terminal.getvalue()


def test_bytes_inside_of_a_file_count_until_it_is_done(terminal, clock):
    clock(0.0, 3.0, 4.0, 5.0)
    with waiting("reading") as progress:
        progress.expect(100 * MB, 2)
        progress.within(15 * MB)
        progress.within(40 * MB)
        progress(60 * MB)
    assert "15 of 100 MB, 0 of 2 files, 17 s left" in terminal.getvalue()
    assert "40 of 100 MB, 0 of 2 files, 6 s left" in terminal.getvalue()
    assert "60 of 100 MB, 1 of 2 files, 3 s left" in terminal.getvalue()


def interrupted():
    with waiting("reading") as progress:
        progress(1)
        raise KeyboardInterrupt


def test_the_line_is_gone_after_an_interrupt(terminal, clock):
    clock(0.0, 3.0)
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("term", ["dumb", ""])
def test_nothing_is_shown_on_a_terminal_that_can_do_nothing(terminal, clock, monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    clock(0.0, 3.0)
    with waiting("reading") as progress:
        progress(1)
    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch, clock):
    stream = io.StringIO()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))
    clock(0.0, 3.0)
    with waiting("reading") as progress:
        progress(1)
    assert stream.getvalue() == ""


def test_a_terminal_without_these_marks(terminal, clock):
    terminal.encoding = "ascii"
    clock(0.0)
    wait = Wait("reading")
    wait.expect(10)
    assert wait.words(1.0).startswith("reading: ....................")


@given(
    st.integers(0, 10**15) | st.none(),
    st.integers(0, 10**7) | st.none(),
    st.lists(st.integers(0, 10**13), max_size=5),
    st.floats(0, 10**6),
)
def test_the_words_are_never_nonsense(total, files, sizes, seconds):
    """More than was expected is no error: packed pieces give more bytes than they take."""
    wait = Wait("reading")
    if total is not None:
        wait.expect(total, files)
    for size in sizes:
        wait(size)
    words = wait.words(seconds)
    assert words.startswith("reading: ")
    assert "-" not in words
    assert "nan" not in words
    done = sum(sizes)
    assert ("left" in words or "━" in words or "╌" in words) <= (total is not None and total >= done)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59, "59 s"), (90, "2 min"), (3600, "1 h 0 min"), (7500, "2 h 5 min")]
)
def test_clock(seconds, words):
    assert module._clock(seconds) == words
