"""What a user took back by rewinding."""

import pytest

from mala_context.transcripts.branches import Branches, is_prompt
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


NO_PROMPTS = (
    prompt("x", None, "note", isMeta=True),
    prompt("x", None, "summary", isCompactSummary=True),
    prompt("x", None, "done", origin={"kind": "task-notification"}),
    prompt("x", None, "<local-command-stdout>out</local-command-stdout>"),
    prompt("x", None, None),
    answer("x", None),
    {"uuid": "x"},
)


@pytest.mark.parametrize("row", NO_PROMPTS)
def test_what_the_user_did_not_say_is_no_prompt(row):
    assert not is_prompt(row)
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
