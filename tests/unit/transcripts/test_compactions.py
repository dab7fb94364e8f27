"""Which rows belong to a compaction, however they are written."""

import json

import pytest

from mala_context.transcripts.compactions import (
    CLEAR_COMMAND,
    MARKS,
    is_boundary,
    is_clear,
    is_main_boundary,
    is_microcompaction,
    is_summary,
    kept_text,
    may_hold,
)

BOUNDARY = {"type": "system", "subtype": "compact_boundary", "uuid": "b"}
SUMMARY = {"type": "user", "isCompactSummary": True, "uuid": "s"}


@pytest.mark.parametrize(
    ("row", "boundary", "main", "summary"),
    [
        (BOUNDARY, True, True, False),
        ({**BOUNDARY, "isSidechain": False}, True, True, False),
        ({**BOUNDARY, "isSidechain": True}, True, False, False),
        (SUMMARY, False, False, True),
        ({**SUMMARY, "isCompactSummary": "yes"}, False, False, False),
        ({"type": "system", "subtype": "microcompact_boundary"}, False, False, False),
        ({"type": "user", "subtype": "compact_boundary"}, False, False, False),
        ({}, False, False, False),
    ],
)
def test_a_row_is_what_its_fields_say(row, boundary, main, summary):
    assert (is_boundary(row), is_main_boundary(row), is_summary(row)) == (boundary, main, summary)


@pytest.mark.parametrize("row", [BOUNDARY, SUMMARY])
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_each_such_row_holds_one_of_the_marks(row, separators):
    data = json.dumps(row, separators=separators).encode()
    assert any(mark in data for mark in MARKS)


def user(content, **fields):
    return {"type": "user", "message": {"content": content}, **fields}


KEPT = '<kept-conversation part="1" calls="0" file="">\n</kept-conversation>'


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (user(KEPT), KEPT),
        (user([{"type": "text", "text": KEPT}]), KEPT),
        (user("<kept-state>\nAll."), "<kept-state>\nAll."),
        (user(KEPT) | {"type": "assistant"}, ""),
        (user("Look: " + KEPT), ""),
        (user([]), ""),
        (user(["x"]), ""),
        (user([{"type": "image"}]), ""),
        ({"type": "user", "message": 7}, ""),
    ],
)
def test_what_a_compaction_by_reference_wrote(row, text):
    assert kept_text(row) == text


@pytest.mark.parametrize(("fields", "found"), [({}, True), ({"isSidechain": True}, False), ({"type": "user"}, False)])
def test_old_results_that_the_cli_cleared(fields, found):
    assert is_microcompaction({"type": "system", "subtype": "microcompact_boundary", **fields}) is found


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"type": "progress", "parentUuid": None, "data": {"hookName": "SessionStart:clear"}}, True),
        ({"type": "progress", "parentUuid": "x", "data": {"hookName": "SessionStart:clear"}}, False),
        ({"type": "progress", "data": 7}, False),
        (user(CLEAR_COMMAND), True),
        (user(CLEAR_COMMAND, isSidechain=True), False),
        (user("x" * 300 + CLEAR_COMMAND), False),
        (user([CLEAR_COMMAND]), False),
    ],
)
def test_a_new_conversation_in_the_same_file(row, found):
    assert is_clear(row) is found


@pytest.mark.parametrize("cut", range(1, 17))
def test_words_of_a_compaction_are_found_across_chunks_of_any_size(cut):
    data = b'{"type":"system"}\n{"subtype":"compact_boundary"}\n'
    chunks = [data[at : at + cut] for at in range(0, len(data), cut)]
    assert may_hold(chunks)
    assert not may_hold(chunks, (b'"isCompactSummary"',))
