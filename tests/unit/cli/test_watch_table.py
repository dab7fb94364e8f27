"""The table of `watch`: widths, marks, and text that moves no terminal."""

from dataclasses import replace

import pytest
from rich.cells import cell_len

from mala_context.analysis.watch.archived import LastArchive
from mala_context.analysis.watch.state import TranscriptState
from mala_context.analysis.watch.view import ACTIVE, row_of
from mala_context.cli.watch_table import COLUMNS, PLAIN, Look, age, lines, sentence
from tests.helpers.recordings import SID, Rows, plain

HOSTILE = "\x1b]0;title\x07\x1b[2J <script>alert(1)</script> \u202e\n"
NOW = 1_000_000.0


def made(rows=None, number=SID, cwd="/home/dev/project", **options):
    state = TranscriptState(number, **options)
    state.take(plain().rows if rows is None else rows)
    state.cwd, state.branch = cwd, "main"
    return row_of(state, f"/p/{number}.jsonl", NOW)


def turns(*sizes, **fields):
    rows = Rows()
    for number, size in enumerate(sizes):
        rows.prompt()
        rows.response(f"r{number}", size, **fields)
    return rows.rows


def table(*rows, width=80, **look):
    return [line.plain for line in lines(rows, Look(width, NOW, **look))]


def test_a_session_in_80_columns():
    row = made(turns(100_000, 110_000, 120_000), auto_compact_window=200_000)
    heading, line, foot = table(replace(row, archived=LastArchive(NOW - 130, "auto", None)))
    assert heading == "PROJECT CONTEXT        %  TOKENS   OF  +/TURN LEFT COMP MODEL      SEEN ID      "
    assert line == "project ━━━━━━╌╌┃╌ 60.0% 120,000 200k +10,000    4  0!2 sonnet-4-5  now 0b5e0000"
    assert foot == "1 session, ┃ compacts here, !n requests not as projected"


@pytest.mark.parametrize("width", [80, 100, 120, 139, 140, 200, 300])
def test_lines_are_never_wider_than_the_terminal(width):
    rows = [made(cwd="/home/dev/" + name) for name in ("p", "a-very-long-name-" * 9, "文字" * 40)]
    found = table(*rows, width=width)
    assert {cell_len(line) for line in found[:4]} <= {width, cell_len(found[0])}
    assert max(map(cell_len, found)) <= width


def test_a_narrow_terminal_loses_whole_columns_and_no_figure_is_cut():
    row = replace(
        made(turns(100_000, 110_000, 120_000), cwd="/home/dev/a-project-with-a-long-name"),
        change=1_234_567,
        tokens=1_234_567,
        turns_left=5_000,
        window=1_000_000,
        archived=LastArchive(NOW - 130, "auto", None),
    )
    figures = {
        "TOKENS": "1,234,567",
        "+/TURN": "+1,234,567",
        "LEFT": "999+",
        "OF": "1M",
        "ARCH": "2m",
        "ID": "0b5e0000",
    }
    known = {word for column in COLUMNS for word in column.heading.split()}
    for width in range(12, 240):
        heading, line, *_ = table(row, width=width)
        assert max(cell_len(heading), cell_len(line)) <= width
        names = heading.split()
        assert names[0] == "PROJECT"
        assert set(names) <= known
        assert all(figures[name] in line for name in names if name in figures)
    assert table(made(), width=45)[0].split() == ["PROJECT", "CONTEXT", "%", "TOKENS", "LEFT", "ID"]
    assert set(table(row, width=200)[0].split()) == known


def test_a_very_narrow_terminal_still_gets_lines_of_its_width():
    assert {cell_len(line) for line in table(made(), width=5)[:2]} == {5}


def test_what_is_not_known_is_a_dash():
    heading, line, _ = table(made([]), width=200)
    cells = dict(zip(heading.replace("FIRST PROMPT", "PROMPT").split(), line.split(), strict=True))
    unknown = {name for name, cell in cells.items() if cell == "\u2013"}
    assert unknown == {"%", "TOKENS", "+/TURN", "LEFT", "ARCH", "MODEL", "PROMPT"}
    assert (cells["OF"], cells["COMP"]) == ("200k?", "0")


def test_estimates_are_marked():
    _, line, foot = table(made(plain().rows[:-1]))
    assert "≈20,9" in line or "≈" in line
    assert "≈ estimate" in foot


def test_an_encoding_without_the_marks():
    found = table(made(plain().rows[:-1]), made([]), marks=PLAIN)
    assert "".join(found).isascii()


def test_a_count_that_goes_on_and_a_window_that_is_a_guess():
    row = replace(made(turns(1_000, 2_000, model="some-model")), compactions=3, compactions_at_least=True)
    _, line, *foot = table(row)
    assert " ≥3 " in line
    assert " 200k? " in line
    assert "≥ still counting, ? a guess" in " ".join(foot)


def test_a_full_window_is_in_doubt_where_the_gauge_shows_a_third():
    refused = Rows()
    message = {"model": "<synthetic>", "content": [{"type": "text", "text": "Prompt is too long"}]}
    refused.row("assistant", isApiErrorMessage=True, message=message)
    row = made([*turns(60_000, model="claude-sonnet-4-5"), *refused.rows])
    _, line, *foot = table(row)
    assert (" 200k? " in line, "? in doubt" in " ".join(foot)) == (True, True)
    assert "30.0% (60,000 of 200,000 (in doubt) tokens)" in sentence(row)
    assert row.as_dict()["window_doubtful"] is True


def test_the_bar_is_full_at_the_window_and_never_longer():
    for size in (200_000, 300_000):
        row = replace(made(), tokens=size, ratio=size / 200_000)
        assert "━┊━" in table(row)[1]
        assert "╌" not in table(row)[1]
    assert table(replace(made(), tokens=1, ratio=0.00001))[1].count("━") == 1


def test_two_sessions_of_one_project_are_told_apart():
    rows = [made(number=number + SID[8:]) for number in ("aaaa0000", "bbbb0000")]
    assert [line.split()[-1] for line in table(*rows, width=60)[1:3]] == ["aaaa0000", "bbbb0000"]
    wide = table(*rows, width=120)
    assert "aaaa0000" in wide[1]
    assert "bbbb0000" in wide[2]
    assert "main" in table(*rows, width=150)[1]


def test_subagents_are_below_while_they_are_active():
    sub = Rows(agent="a1b2")
    sub.response("s", 7_000)
    state = TranscriptState(SID, "a1b2")
    state.take(sub.rows)
    agent = row_of(state, "/p", NOW - ACTIVE)
    row = replace(made(), subagents=(agent, replace(agent, agent_id="old", last=NOW - ACTIVE - 1)))
    found = table(row)
    assert found[2].startswith("└ a1b2 ")
    assert "7,000" in found[2]
    assert len(found) == 4


def test_a_subagent_without_its_session_has_a_name():
    state = TranscriptState(SID, "a1b2")
    assert table(row_of(state, "/p", NOW))[1].startswith("agent a1b2 ")
    assert sentence(row_of(state, "/p", NOW)) == "agent a1b2 of 0b5e0000: unknown, model unknown"


@pytest.mark.parametrize("width", [80, 200])
def test_hostile_text_moves_no_terminal(width):
    rows = turns(1_000, model=HOSTILE)
    row = replace(made(rows, cwd="/home/" + HOSTILE), branch=HOSTILE, agent_id=None)
    agent = replace(row, agent_id=HOSTILE)
    everything = "".join(table(replace(row, subagents=(agent,)), agent, width=width)) + sentence(row) + sentence(agent)
    assert everything.isprintable()
    assert "\\x1b" in everything


def test_colours_by_what_is_usable():
    def colour(size, **options):
        styles = {str(span.style) for span in lines([made(turns(size), **options)], Look(80, NOW))[1].spans}
        return (styles & {"green", "yellow", "red"}).pop()

    assert [colour(size) for size in (100_000, 150_000, 190_000)] == ["green", "yellow", "red"]
    assert colour(160_000, auto_compact_window=200_000) == "red"


def test_large_figures_keep_their_columns():
    row = replace(made(), change=1_234_567, turns_left=5_000, window=1_000_000, window_doubtful=False)
    for figure in ("+1,234,567", " 999+ ", " 1M "):
        assert figure in table(row, width=120)[1]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "now"),
        (59, "now"),
        (60, "1m"),
        (3_599, "59m"),
        (3_600, "1h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (1e9, "11574d"),
    ],
)
def test_ages(seconds, words):
    assert age(seconds) == words


def test_a_sentence_for_a_log():
    row = made(turns(100_000, 110_000, 120_000))
    assert sentence(row) == (
        "project 0b5e0000: 60.0% (120,000 of 200,000 tokens), claude-sonnet-4-5, +10,000 this turn, 8 turns left"
    )
    assert "of 200,000 (a guess) tokens" in sentence(replace(row, window_source="guess"))
    row = replace(made(plain().rows[:-1]), compactions_at_least=True)
    assert "about " in sentence(row)
    assert sentence(row).endswith("at least 1 compaction")
