"""Where the text stands in each tool's result."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.guard.tool_output import SHAPES, find

STREAMS = {"stdout": "out", "stderr": "err", "interrupted": False, "isImage": False, "noOutputExpected": False}
CUT = {**STREAMS, "stderr": "", "persistedOutputPath": "/p/full.txt", "persistedOutputSize": 80_000}
FILE = {"type": "text", "file": {"filePath": "/f", "content": "a\nb", "numLines": 2, "startLine": 1, "totalLines": 9}}
CELL = {"cellType": "code", "source": "print(1)", "cell_id": "c", "outputs": [{"output_type": "stream", "text": "1"}]}
NOTEBOOK = {"type": "notebook", "file": {"filePath": "/n.ipynb", "cells": [CELL]}}
IMAGE = {"type": "image", "source": {"type": "base64", "data": "x", "media_type": "image/png"}}
TEXTS = [{"type": "text", "text": "one"}, IMAGE, {"type": "text", "text": "two"}]
REPORT = {"status": "completed", "agentId": "a", "content": [{"type": "text", "text": "report"}], "totalTokens": 9}
EDIT = {"new_source": "x = 1", "cell_id": "c", "error": ""}
PAGE = {"bytes": 9, "code": 200, "codeText": "OK", "result": "page", "durationMs": 8, "url": "https://a.test/"}
LINK = {"tool_use_id": "t", "content": [{"title": "A", "url": "https://a.test/"}]}
SEARCH = {"query": "q", "results": ["words", LINK, "more"], "durationSeconds": 0.1}
GREP = {"mode": "content", "numFiles": 1, "filenames": ["a"], "content": "a:1:x", "numLines": 1}
NAMES = {"mode": "files_with_matches", "filenames": ["a", "b"], "numFiles": 2}

KNOWN = [
    ("Bash", STREAMS, "out\nerr", {**STREAMS, "stdout": "new", "stderr": ""}),
    ("Bash", CUT, "out", {**STREAMS, "stdout": "new", "stderr": ""}),
    ("Read", FILE, "a\nb", {**FILE, "file": {**FILE["file"], "content": "new"}}),
    (
        "Read",
        NOTEBOOK,
        '<cell id="c">print(1)</cell>\n1',
        {
            "type": "text",
            "file": {"filePath": "/n.ipynb", "content": "new", "numLines": 1, "startLine": 1, "totalLines": 1},
        },
    ),
    ("Agent", REPORT, "report", {**REPORT, "content": [{"type": "text", "text": "new"}]}),
    ("Task", REPORT, "report", {**REPORT, "content": [{"type": "text", "text": "new"}]}),
    ("NotebookEdit", EDIT, "x = 1", {**EDIT, "new_source": "new"}),
    ("WebFetch", PAGE, "page", {**PAGE, "result": "new"}),
    ("WebSearch", SEARCH, "words\nmore", {**SEARCH, "results": ["new", LINK]}),
    ("Grep", GREP, "a:1:x", {**GREP, "content": "new"}),
    ("Grep", NAMES, "a\nb", {**NAMES, "filenames": ["new"], "numFiles": 1}),
    ("Glob", {"filenames": ["a", "b"], "numFiles": 2}, "a\nb", {"filenames": ["new"], "numFiles": 1}),
    ("mcp__m__t", TEXTS, "one\ntwo", [{"type": "text", "text": "new"}, IMAGE]),
    ("mcp__m__t", '{"a": 1}', '{"a": 1}', "new"),
]


@pytest.mark.parametrize(("tool", "response", "text", "written"), KNOWN)
def test_text_is_found_and_replaced_and_the_rest_stays(tool, response, text, written):
    before = copy.deepcopy(response)
    found = find(tool, response)
    assert found.text == text
    assert found.shape.write(response, "new") == written
    assert response == before


def test_every_tool_of_the_table_is_tried():
    assert {tool for tool, *_ in KNOWN} >= set(SHAPES)


def test_where_the_cli_has_cut_a_result():
    assert find("Bash", CUT).persisted == "/p/full.txt"
    assert find("Bash", STREAMS).persisted is None


def test_a_files_lines_are_shown_with_numbers():
    body = {**FILE["file"], "content": "x\n" * 99, "startLine": 950}
    assert find("Read", {"type": "text", "file": body}).shown == 198 + 100 * 5
    assert find("Bash", STREAMS).shown == len("out\nerr")


@pytest.mark.parametrize(
    ("tool", "response"),
    [
        ("Bash", {**STREAMS, "isImage": True}),
        ("Bash", {**STREAMS, "stdout": "", "stderr": ""}),
        ("Bash", "text"),
        ("Bash", None),
        ("Read", {"type": "image", "file": {"base64": "x"}}),
        ("Read", {"type": "text", "file": None}),
        ("Read", {"type": "notebook", "file": {"cells": None}}),
        ("Agent", {"status": "async_launched", "agentId": "a"}),
        ("Write", {"type": "create", "filePath": "/f", "content": "x" * 100_000}),
        ("Edit", {"filePath": "/f", "oldString": "a", "newString": "b"}),
        ("WebFetch", {"result": 3}),
        ("WebSearch", {"results": [LINK]}),
        ("mcp__m__t", [IMAGE]),
        ("mcp__m__t", {"odd": 1}),
        ("New", "text"),
    ],
)
def test_what_has_no_text_or_no_known_shape_is_left_alone(tool, response):
    assert find(tool, response) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "file", "content", "stdout", "cells", "outputs", "source", "results"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(tool=st.sampled_from([*SHAPES, "mcp__m__t"]), response=JSON)
def test_no_result_raises_and_what_is_written_is_found_again(tool, response):
    found = find(tool, response)
    if found is not None:
        again = find(tool, found.shape.write(response, "new"))
        assert again is not None
        assert again.text in {"new", '<cell id="None">new</cell>'}
