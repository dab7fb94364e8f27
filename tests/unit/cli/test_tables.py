"""How parts of a report look in text."""

import io
import re

import pytest

from mala_context.cli.scenarios.report import Check, Lines, Table
from mala_context.cli.tables import can_encode, console, show, show_checks
from tests.helpers.terminals import Terminal


def shown(part):
    out = io.StringIO()
    show(console(out), part)
    return out.getvalue()


def test_numbers_are_aligned_and_grouped():
    table = Table("Sizes", ("<name", "tokens"), [["a", 1234567], ["longer", 5]])
    assert shown(table) == "\nSizes\nname       tokens\na       1,234,567\nlonger          5\n"


def test_an_unknown_value_is_a_dash():
    assert shown(Table("T", ("a", "b"), [[None, 1]])).endswith("\n-  1\n")


def test_a_row_of_one_cell_stands_between():
    table = Table("T", ("a", "b"), [[1, 2], ["something happened"], [30, 4]])
    assert shown(table) == "\nT\n a  b\n 1  2\n── something happened\n30  4\n"


def test_a_table_without_rows_has_its_headings():
    assert shown(Table("T", ("turn", "size"), [])) == "\nT\nturn  size\n"


def test_a_wide_table_moves_together():
    names = ("received", "occupancy", "cumulative", "max_cache_read", "total_tokens", "characters")
    lines = shown(Table("T", ("<", *names), [["median", *[1] * 6]])).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(name in lines[2] for name in names)


def test_a_long_line_is_not_broken():
    path = "/" + "a" * 200
    assert shown(Lines("Where", [path, "  [b]more[/b]"])) == f"\nWhere\n{path}\n  [b]more[/b]\n"


@pytest.mark.parametrize(("encoding", "marks"), [("utf-8", ("✓", "✗")), ("ascii", ("ok", "FAILED"))])
def test_checks_have_a_line_each_and_a_mark_that_can_be_printed(encoding, marks):
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    words = "x" * 100
    show_checks(console(out), [Check("one", ok=True, words="well"), Check("two", ok=False, words=words)])
    out.flush()
    assert raw.getvalue().decode(encoding) == f"\n{marks[0]} well\n{marks[1]} {words}\n"


def test_a_closed_pipe_is_left_to_the_command_line():
    class Closed(io.StringIO):
        def write(self, _text):
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        show(console(Closed()), Lines("Words", ["w"]))


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("columns", ["0", "1", "10", "40", "200"])
def test_no_figure_is_cut_whatever_the_terminal(monkeypatch, columns, encoding):
    monkeypatch.setenv("COLUMNS", columns)
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=encoding)
    out.isatty = lambda: True
    show(console(out), Table("T", ("turn", "tokens"), [[1, 1234567], ["compacted"], [10, 7654321]]))
    out.flush()
    text = re.sub(r"\x1b\[[0-9;]*m", "", raw.getvalue().decode(encoding))
    assert [line for line in text.splitlines() if "," in line] == ["   1  1,234,567", "  10  7,654,321"]


def test_a_long_heading_is_broken_into_words():
    assert (
        shown(Table("T", ("turn", "tracked tokens"), [[1, 22]])) == "\nT\n      tracked\nturn   tokens\n   1       22\n"
    )


def test_on_a_terminal_the_words_of_a_check_stay_right_of_its_mark(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    show_checks(console(terminal), [Check("one", ok=True, words="word " * 20)])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    first, *rest = [line for line in lines if line.strip()]
    assert first.startswith("✓ word")
    assert rest
    assert all(line.startswith("  word") for line in rest)


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1", "no-such"])
def test_what_an_encoding_has(encoding):
    class Stream(io.StringIO):
        pass

    Stream.encoding = encoding
    out = console(Stream())
    assert can_encode(out, "━╌") is (encoding == "utf-8")
    assert can_encode(out, "#.") is (encoding != "no-such")
