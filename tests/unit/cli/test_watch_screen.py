"""What keys do in `watch`, and what is on the screen then."""

from dataclasses import replace

import pytest
from rich.text import Text

from mala_context.analysis.watch.view import ACTIVE
from mala_context.cli import watch_screen
from mala_context.cli.watch_screen import WatchScreen
from mala_context.cli.watch_table import Look
from tests.unit.cli.test_watch_table import HOSTILE, NOW, made, turns

LOOK = Look(80, NOW)


def sessions(count):
    """Return rows, the fullest last; the last one is idle."""
    rows = [
        replace(made(turns(10_000 + 500 * number), f"{number:08x}-0000", f"/home/dev/p{number}"), path=f"/p/{number}")
        for number in range(count)
    ]
    return [*rows[:-1], replace(rows[-1], last=NOW - ACTIVE - 1)]


@pytest.fixture
def screen():
    return WatchScreen(lambda row, look: [Text(f"about {row.session_id}")])


def drawn(screen, rows, height=24, look=LOOK):
    found = [line.plain for line in screen.frame(rows, look, height)]
    assert len(found) <= height
    return found


def press(screen, *keys):
    return [screen.press(key, LOOK) for key in keys]


def names(lines):
    return [line.split()[0] for line in lines if line.startswith("p") and line[1].isdigit()]


def test_250_sessions_in_24_lines(screen):
    rows = sessions(250)
    found = drawn(screen, rows)
    assert found[0] == "250 sessions, 249 active, fullest p249 67.2%, lines 1-20 of 250"
    assert names(found)[:2] == ["p249", "p248"]
    seen = names(found)
    for _ in range(13):
        press(screen, "page down")
        seen += names(drawn(screen, rows))
    assert set(seen) == {f"p{number}" for number in range(250)}
    assert "fullest p249 67.2%" in drawn(screen, rows)[0]  # wherever the table is scrolled to
    guessed = [*rows[:-1], replace(rows[-1], window_source="guess")]
    assert "fullest p249 67.2%?" in drawn(screen, guessed)[0]


def test_moving_goes_no_further_than_the_ends(screen):
    rows = sessions(30)
    drawn(screen, rows, 10)
    for keys, top, last in (
        (["end"], "p5", "p0"),
        (["down", "j"], "p5", "p0"),
        (["up"] * 5, "p5", "p0"),
        (["k"], "p6", "p1"),
        (["page up"], "p12", "p7"),
        (["home", "up"], "p29", "p24"),
        (["G", "g", " "], "p28", "p23"),
    ):
        press(screen, *keys)
        found = names(drawn(screen, rows, 10))
        assert len(found) == 6, keys
        assert (found[0], found[-1]) == (top, last), keys


def test_the_selection_stays_on_its_session_when_the_order_changes(screen):
    rows = sessions(40)
    drawn(screen, rows, 12)
    press(screen, "down", "down")  # p37
    for order in "1234":
        press(screen, order)
        lines = screen.frame(rows, LOOK, 12)
        (selected,) = [line.plain for line in lines if any("reverse" in str(span.style) for span in line.spans)]
        assert selected.startswith("p37 ")
    press(screen, "s")
    assert "fullest first" in drawn(screen, rows)[-1]


def test_a_filter_is_typed_kept_and_cleared(screen):
    rows = sessions(30)
    press(screen, "/", "p", "1", "1", "backspace", "up")
    assert drawn(screen, rows)[0].startswith("11 with /p1_, 30 sessions")
    press(screen, "q", "backspace", "enter")
    assert drawn(screen, rows)[0].startswith("11 with /p1, 30 sessions")
    press(screen, "escape")
    assert drawn(screen, rows)[0].startswith("30 sessions")
    press(screen, "/", "z", "z")
    assert names(drawn(screen, rows)) == []
    press(screen, "enter", "down", "enter")
    assert names(drawn(screen, rows)) == []
    press(screen, "/", "escape")
    assert len(names(drawn(screen, rows))) == 20


def test_a_session_is_opened_and_left(screen):
    rows = sessions(3)
    drawn(screen, rows)
    press(screen, "down", "enter")
    assert drawn(screen, rows)[0] == "about 00000001-0000"
    for key in ("q", "escape", "left", "enter"):
        assert press(screen, key) == [False]
        assert names(drawn(screen, rows))
        press(screen, "enter")


def test_a_long_description_scrolls():
    screen = WatchScreen(lambda row, look: [Text(f"line {number}") for number in range(30)])
    drawn(screen, sessions(2))
    press(screen, "enter")
    for keys, first, last in ((["up"], 0, 8), (["down", "down"], 2, 10), (["end"], 21, 29), (["page up"], 11, 19)):
        press(screen, *keys)
        found = drawn(screen, sessions(2), 10)
        assert (found[0], found[-2]) == (f"line {first}", f"line {last}"), keys


def test_help_and_the_end(screen):
    rows = sessions(3)
    press(screen, "?")
    assert any("show only sessions with these words" in line for line in drawn(screen, rows))
    assert max(map(len, drawn(screen, rows))) <= 80
    assert press(screen, "q", "x", "q") == [False, False, True]


@pytest.mark.parametrize("columns", [45, 80, 200])
def test_the_help_is_whole_in_24_lines(columns):
    lines = list(watch_screen._help(columns))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= columns
    text = " ".join(" ".join(lines).split())
    assert all(keys in text and words.split()[-1] in text for keys, words in watch_screen.HELP)


def test_a_subagents_line_opens_its_session(screen):
    row = sessions(2)[0]
    agent = replace(row, agent_id="a1", path="/p/a1", last=NOW)
    rows = [replace(row, subagents=(agent,))]
    drawn(screen, rows)
    press(screen, "down", "enter")
    assert drawn(screen, rows)[0] == "about 00000000-0000"


@pytest.mark.parametrize("height", [1, 2, 3, 5])
@pytest.mark.parametrize("width", [5, 20, 45])
def test_a_tiny_terminal(screen, height, width):
    look = Look(width, NOW)
    found = drawn(screen, sessions(9), height, look)
    assert len(found) == min(height, len(found))
    press(screen, "down")
    drawn(screen, sessions(9), height, look)


def test_hostile_text_moves_no_terminal(screen):
    press(screen, "/", *HOSTILE)
    rows = [made(turns(1_000, model=HOSTILE), cwd="/home/" + HOSTILE)]
    assert "".join(drawn(screen, rows)).isprintable()


def test_no_session_at_all(screen):
    press(screen, "down", "enter", "end")
    assert drawn(screen, [])[0] == "0 sessions, 0 active"
