"""The gauge on standard error, on a terminal and elsewhere."""

import io
import logging
import re
from types import SimpleNamespace

import pytest

from mala_context.cli import live_gauge as module
from mala_context.cli.live_gauge import LOGGER, gauge_lines, logging_to, progress
from tests.helpers.terminals import Terminal, without_codes

log = logging.getLogger("mala_context.agent.stream")


def snapshot(tokens, *, exact=True, auto_compact_threshold=None):
    """Stand for a ContextSnapshot: what the gauge looks at."""
    return SimpleNamespace(
        tokens=tokens,
        window=200_000,
        window_source="table",
        exact=exact,
        auto_compact_threshold=auto_compact_threshold,
    )


@pytest.fixture
def terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=stream))  # pytest puts its own into the real one
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return stream


def plain(stream):
    return without_codes(stream.getvalue())


class TestElsewhere:
    def test_progress_is_the_librarys_own_lines(self, capsys):
        with progress(3) as watcher:
            watcher.turn(1)
            watcher.snapshot(snapshot(50_000))
            log.info("Context: 25.0%% of %s", "it")
            log.warning("Watch out")
            log.debug("Nobody asked")
        captured = capsys.readouterr()
        assert captured.err == "INFO Context: 25.0% of it\nWARNING Watch out\n"
        assert captured.out == ""

    def test_so_are_gauge_lines(self, capsys):
        with gauge_lines() as draw:
            draw(snapshot(50_000))
            log.info("Context: here")
        assert capsys.readouterr().err == "INFO Context: here\n"

    @pytest.mark.parametrize("term", ["dumb", ""])
    def test_a_terminal_that_can_do_nothing(self, terminal, monkeypatch, term):
        monkeypatch.setenv("TERM", term)
        with progress(3) as watcher:
            watcher.snapshot(snapshot(50_000))
            log.info("Context: here")
        assert terminal.getvalue() == "INFO Context: here\n"


class TestOnATerminal:
    def test_the_bar_moves(self, terminal):
        with progress(3) as watcher:
            watcher.turn(2)
            watcher.snapshot(snapshot(50_000))
            watcher.snapshot(snapshot(None))
            watcher.snapshot(snapshot(190_000))
            log.info("Context: not twice")
            log.info("Compaction: shown")
            log.warning("Context: overflow")
        words = plain(terminal)
        assert "starting the CLI" in words
        assert "turn 2 of 3" in words
        assert "25.0% (50,000 of 200,000)" in words
        assert "95.0% (190,000 of 200,000)" in words
        assert "INFO Compaction: shown" in words
        assert "WARNING Context: overflow" in words
        assert "not twice" not in words

    def test_a_full_window_does_not_overrun(self, terminal):
        with progress(1) as watcher:
            watcher.snapshot(snapshot(250_000))
        assert max(len(line) for line in re.split(r"[\r\n]+", plain(terminal))) <= 80

    def test_lines_are_drawn_when_the_gauge_has_moved(self, terminal):
        with gauge_lines() as draw:
            for tokens in (None, 20_000, 20_000, 300_000):
                draw(snapshot(tokens))
            log.info("Context: not twice")
        lines = plain(terminal).splitlines()
        assert lines == [
            "━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌ 10.0% (20,000 of 200,000)",
            "━" * 30 + " 150.0% (300,000 of 200,000)",
        ]

    def test_a_terminal_that_has_no_bars(self, monkeypatch, terminal):
        raw = io.BytesIO()
        plain_terminal = io.TextIOWrapper(raw, encoding="ascii")
        plain_terminal.isatty = lambda: True
        monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=plain_terminal))
        with gauge_lines() as draw:
            draw(snapshot(20_000))
        plain_terminal.flush()
        assert b"###" + b"." * 27 + b" 10.0%" in raw.getvalue()

    @pytest.mark.parametrize(("tokens", "colour"), [(139_000, "32"), (140_000, "33"), (180_000, "31")])
    def test_colours(self, terminal, tokens, colour):
        with gauge_lines() as draw:
            draw(snapshot(tokens))
        assert f"\x1b[{colour}m" in terminal.getvalue()

    def test_no_color(self, terminal, monkeypatch):
        monkeypatch.setenv("NO_COLOR", "1")
        with gauge_lines() as draw:
            draw(snapshot(190_000))
        assert not re.search(r"\x1b\[3", terminal.getvalue())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (snapshot(None), "unknown"),
        (snapshot(50_000, exact=False), "about 25.0% (50,000 of 200,000)"),
        (snapshot(50_000, auto_compact_threshold=167_000), "25.0% (50,000 of 200,000, compacts at 167,000)"),
    ],
)
def test_words(found, words):
    assert module._words(found) == words


def test_logging_is_left_as_it_was():
    logger = logging.getLogger(LOGGER)
    before = (logger.level, list(logger.handlers), logger.propagate)
    stream = io.StringIO()
    with logging_to(logging.StreamHandler(stream)):
        log.info("seen")
    log.info("not seen")
    assert stream.getvalue() == "INFO seen\n"
    assert (logger.level, list(logger.handlers), logger.propagate) == before
