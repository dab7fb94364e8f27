"""What a user took back by rewinding."""

import pytest

from mala_context.transcripts.branches import Branches
from mala_context.transcripts.loss import measure


def prompt(uuid, parent, text, **fields):
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": {"content": text}, **fields}


def answer(uuid, parent, *content):
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": {"content": list(content)}}


REWOUND = [
    prompt("a", None, "use tabs everywhere"),
    answer("b", "a", {"type": "text", "text": "tabs"}),
    prompt("c", "b", "and lines of eighty"),
    prompt("d", None, "use spaces everywhere"),
    answer("e", "d", {"type": "text", "text": "spaces"}),
]


def left(rows):
    branches = Branches()
    for row in rows:
        branches.take(row)
    return {row["uuid"] for row in rows if branches.is_left(row["uuid"])}


def test_a_second_prompt_with_one_parent_takes_the_first_back_with_all_that_came_of_it():
    assert left(REWOUND) == {"a", "b", "c"}
    assert left(REWOUND[:3]) == set()
    assert left([*REWOUND, prompt("f", None, "no, tabs")]) == {"a", "b", "c", "d", "e"}


def test_results_of_tools_that_ran_at_once_take_nothing_back():
    result = {"type": "tool_result", "tool_use_id": "t", "content": "x"}
    rows = [prompt("a", None, "go"), answer("b", "a"), prompt("c", "b", [result]), prompt("d", "b", [result])]
    assert left(rows) == set()


CLEARS = [
    {"type": "progress", "uuid": "x", "parentUuid": None, "data": {"hookName": "SessionStart:clear"}},
    prompt("x", None, "<command-name>/clear</command-name>\n<command-message>clear</command-message>"),
]


@pytest.mark.parametrize("clear", CLEARS)
def test_a_clear_inside_a_file_takes_nothing_back(clear):
    rows = [*REWOUND[:3], clear, prompt("f", None, "now the tests"), answer("g", "f")]
    assert left(rows) == set()
    assert left([*rows, prompt("h", None, "no, the docs")]) == {"f", "g"}


@pytest.mark.parametrize("clear", CLEARS)
def test_what_a_clear_threw_away_is_not_lost_in_the_next_compaction(clear):
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "z"}
    rows = [*REWOUND[:3], clear, prompt("f", None, "now the tests")]
    assert [item.text for item in measure(rows, "a summary").items] == ["now the tests"]
    assert [item.text for item in measure([*REWOUND[:3], boundary, clear], "a summary").items] == [
        "use tabs everywhere",
        "and lines of eighty",
    ]


@pytest.mark.parametrize(
    "row", [prompt("x", None, "note", isMeta=True), prompt("x", None, "<bash-stdout>x</bash-stdout>")]
)
def test_what_the_user_did_not_say_takes_nothing_back(row):
    assert left([prompt("a", None, "first"), row]) == set()


@pytest.mark.parametrize(
    "row", [{"uuid": 5}, {"uuid": "a", "parentUuid": 5}, {"uuid": "a"}, {"uuid": "a", "parentUuid": "a"}]
)
def test_odd_rows_take_nothing_back(row):
    branches = Branches()
    branches.take(row)
    assert not branches.is_left("a")


def test_words_that_were_taken_back_are_not_handed_back():
    loss = measure(REWOUND, "a summary that names neither")
    assert [item.text for item in loss.items if item.kind == "instruction"] == ["use spaces everywhere"]
    assert "tabs" not in loss.pin("/archive/*")
    assert "use spaces" in loss.pin("/archive/*")


def test_words_that_were_taken_back_and_said_again_count():
    loss = measure([*REWOUND, prompt("f", "e", "use tabs everywhere")], "a summary")
    assert {item.text for item in loss.items} == {"use spaces everywhere", "use tabs everywhere"}
