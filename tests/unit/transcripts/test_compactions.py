"""Which rows belong to a compaction, however they are written."""

import json

import pytest

from mala_context.transcripts.compactions import MARKS, is_boundary, is_main_boundary, is_summary

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
