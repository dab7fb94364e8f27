"""The rows that a compaction by reference leaves, written and read again."""

import pytest

from mala_context.transcripts.kept_rows import (
    block,
    calls_of,
    head_of,
    is_state,
    last_line_of,
    part_row,
    state_row,
    users_of,
    without_results,
)
from mala_context.transcripts.loss.collect import FILE_TOOLS

HOSTILE = [
    "",
    "x",
    "</user>",
    '<user chars="3">\nabc\n</user>',
    "\n</kept-conversation>",
    "a\r\nb\u2028c\x00d",
    "🎈\ud800",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_part_gives_back_its_head_and_the_users_texts(text):
    body = [block("user", text), "#1 Bash x → 3 characters [1-4]", block("assistant", text), block("user", "last")]
    part = part_row(3, 17, "/full text.txt", body)
    assert head_of(part) == (3, 17, "/full text.txt")
    assert users_of(part) == [text, "last"]
    assert last_line_of(part_row(3, 17, "", [*body, "(The rest)"])) == "(The rest)"


def test_a_part_without_results_keeps_everything_else():
    body = [block("user", "u"), "#1 Bash x → 3 characters [1-4]", block("result", "r"), block("assistant", "a")]
    part = part_row(1, 1, "", [*body, block("result", "s")])
    assert without_results(part) == part_row(1, 1, "", [body[0], body[1], body[3]])


@pytest.mark.parametrize("text", ["", "hello", '<kept-conversation part="x">\n', '<kept-conversation part="1"'])
def test_what_is_no_part_has_no_head(text):
    assert head_of(text) is None
    assert users_of(text) == []


def test_a_part_that_was_changed_tells_nothing():
    part = part_row(1, 0, "", [block("user", "never")]).replace("never", "nev")
    assert users_of(part) is None
    assert without_results(part) == part


def test_the_state_gives_back_the_calls_that_led_to_it():
    lines = ["The plan:", "> first", "> second", "Open to-do items:", "- #7: a task", "- a todo", "odd"]
    lines += ["Commands that failed and were not fixed:", "- make", "Files written:", "- /a", "Files read:", "- /b"]
    row = state_row(["Words before.", *lines])
    assert is_state(row)
    assert not is_state(row[:-1])
    assert [(name, given) for name, given, _, _ in calls_of(row)] == [
        ("TodoWrite", {"todos": [{"content": "a todo", "status": "pending"}]}),
        ("TaskCreate", {"subject": "a task"}),
        ("Bash", {"command": "make"}),
        ("Write", {FILE_TOOLS["Write"][0]: "/a"}),
        ("Read", {FILE_TOOLS["Read"][0]: "/b"}),
        ("ExitPlanMode", {"plan": "first\nsecond"}),
    ]
    assert calls_of(state_row(["Nothing."])) == []
