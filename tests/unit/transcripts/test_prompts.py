"""Which rows are prompts, and what a user wrote in them."""

import pytest

from mala_context.transcripts.prompts import MOST_CHARACTERS, begins_turn, is_prompt, prompt_text


def row(content, **more):
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


RESULT = [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (row("Fix it"), True),
        (row([{"type": "text", "text": "Fix it"}]), True),
        (row(RESULT), False),
        (row("note", isMeta=True), False),
        (row("done", origin={"kind": "task-notification"}), False),
        (row("x", origin="odd"), True),
        (row('<kept-conversation part="1" calls="0" file="">\n</kept-conversation>'), False),
        (row([{"type": "text", "text": "<kept-state>\n</kept-state>"}]), False),
        ({"type": "user"}, True),
        ({"type": "user", "message": "odd"}, True),
    ],
)
def test_a_row_that_begins_a_turn(given, found):
    assert begins_turn(given) is found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (row("Fix it"), True),
        (row([{"type": "image"}]), True),
        (row("<command-name>/review</command-name>"), True),
        (row("note", isMeta=True), False),
        (row("summary", isCompactSummary=True), False),
        (row("done", origin={"kind": "task-notification"}), False),
        (row("<local-command-stdout>out</local-command-stdout>"), False),
        (row([{"type": "text", "text": "[Request interrupted by user]"}]), False),
        (row(RESULT), False),
        (row(None), False),
        ({"type": "assistant", "message": {"content": "x"}}, False),
        ({"uuid": "x"}, False),
    ],
)
def test_a_row_that_the_user_said(given, found):
    assert is_prompt(given) is found


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (row("  Fix it\n"), "Fix it"),
        (row("x" * 999), "x" * MOST_CHARACTERS),
        (row([{"type": "image"}, {"type": "text", "text": "What is this?"}]), "What is this?"),
        (row("<command-name>/clear</command-name>"), None),
        (row([{"type": "text", "text": "<local-command-stdout>"}, {"type": "text", "text": "Go on"}]), "Go on"),
        (row(RESULT), None),
        (row([{"type": "text", "text": "[Request interrupted by user]"}]), None),
        (row("Caveat: The messages below were generated"), None),
        (row("summary", isCompactSummary=True), None),
        (row(" "), None),
        (row(5), None),
        ({"type": "assistant", "message": {"content": "an answer"}}, None),
    ],
)
def test_the_text_of_a_prompt(given, found):
    assert prompt_text(given) == found
