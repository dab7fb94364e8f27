"""The compiled reader of rows: what it says of a row is what any reader says, and what it is unsure of it leaves."""

import json
import mmap
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mala_context.analysis.replay.decoded_columns import skim as skim_slowly
from mala_context.analysis.replay.decoded_columns import stretch_of
from mala_context.analysis.replay.row_runs import ASSISTANT, FILLER, RowRun
from mala_context.analysis.replay.rows import decode
from tests.helpers.recordings import Rows, dump, generated

_skim = pytest.importorskip(
    "mala_context.analysis.replay._skim", reason="there was no compiler where this was installed"
)

CALL = {"input_tokens": 20_008, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 2}
ROW = {
    "parentUuid": "p1", "isSidechain": False, "userType": "external", "cwd": "/home/x", "sessionId": "s1",
    "version": "2.1.332", "type": "assistant", "subtype": None, "requestId": "r1", "uuid": "u1",
    "timestamp": "2026-05-01T10:00:00.000Z",
    "toolUseResult": {"stdout": 'a\n"b"\\ \u00e9 \u2028', "n": [1, -2.5e3, None, True]},
    "message": {
        "model": "claude-opus-5", "id": "m1", "role": "assistant", "content": [{"type": "text", "text": "x" * 200}],
        "usage": {
            "input_tokens": 3, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 20_000, "output_tokens": 7,
            "iterations": [{"type": "message", **CALL}],
        },
    },
}  # fmt: skip


def line_of(row, **kinds):
    return json.dumps(row, **kinds).encode()


def told(line):
    """What the compiled reader says of a line, or `None` where it is not plain to it."""
    items, ends = _skim.stretches(line)
    plain = [RowRun(*item) for item in items if len(item) != 3]
    return plain[0] if plain and ends_of(ends) == [len(line)] else None


def ends_of(ends):
    return memoryview(ends).cast("q").tolist()


def expected(line):
    """What the reader of whole rows says."""
    rows, _ = decode(bytes(line))
    return stretch_of(rows[0], 0) if len(rows) == 1 else None


def test_a_row_is_read():
    found = told(line_of(ROW))
    assert found == expected(line_of(ROW))
    assert (found.kind, found.uuids) == (ASSISTANT, ["u1"])
    assert found.answers == (["m1"], ["r1"], [(3, 5, 20_000, 7)], [20_008], [0], [0])


def side_by_side(responses=2):
    """Responses with two calls of tools each, whose results follow both."""
    rows = Rows()
    rows.prompt()
    for number in range(responses):
        calls = [rows.response(f"m{number}", 9_000)["uuid"] for _ in range(2)]
        for call in calls:
            rows.prompt([{"type": "tool_result", "tool_use_id": "t", "content": "x"}], parentUuid=call)
    return rows


def test_results_of_tools_side_by_side_go_on_from_their_response():
    rows = side_by_side().rows
    (stretch,), _ = _skim.stretches(dump(rows))
    assert RowRun(*stretch).uuids == [row["uuid"] for row in rows]
    rows[-1]["parentUuid"] = rows[1]["uuid"]  # the response before
    assert len(_skim.stretches(dump(rows))[0]) == 2


def test_more_rows_of_a_response_than_are_compared_are_several_stretches():
    rows = Rows()
    first = rows.response("m", 9_000)["uuid"]
    for _ in range(100):
        rows.prompt()
    last = rows.rows[-1]["uuid"]
    for parent in (first, last):
        rows.prompt(parentUuid=parent)
    found = [RowRun(*each) for each in _skim.stretches(dump(rows.rows))[0]]
    assert [len(each.uuids) for each in found] == [102, 1]


def test_stretches_are_rows_that_go_on_from_one_another():
    lines = generated(3, 60_000)
    block = "\n".join(lines).encode()
    items, ends = _skim.stretches(block)
    singly, same = skim_slowly(memoryview(block))
    assert ends == same
    place = 0
    for item in items:
        rows = [each for each in singly[place : place + (item[1] if len(item) != 3 else 1)] if len(each) != 3]
        place += item[1] if len(item) != 3 else 1
        if len(item) == 3:
            continue
        stretch = RowRun(*item)
        assert [uuid for row in rows for uuid in row.uuids] == stretch.uuids
        linked = [row for row in rows if row.uuids]
        assert all(row.parent == before.uuids[0] for before, row in pairwise(linked))
        assert (stretch.line, stretch.kind, stretch.parent) == (rows[0].line, rows[0].kind, rows[0].parent)
        assert {row.model for row in rows if row.answers} <= {stretch.model}
        for identity, request, counts, tokens, at, line in zip(*stretch.answers or (), strict=True):
            first = next(row for row in rows if row.line == stretch.line + line)
            said = [row.answers for row in rows if row.answers and row.answers.ids == [identity]]
            assert (first.uuids[0], first.answers.requests) == (stretch.uuids[at], [request])
            assert (counts[:3], [tokens]) == (said[0].counts[0][:3], said[0].tokens)
            assert counts[3] == max(each.counts[0][3] for each in said)
        assert (stretch.answers[0] if stretch.answers else []) == list(
            dict.fromkeys(row.answers.ids[0] for row in rows if row.answers)
        )
        assert stretch.started == min((row.started for row in rows if row.started), default=None)
        assert stretch.ended == max((row.ended for row in rows if row.ended), default=None)
    assert place == len(lines)
    assert len(items) < len(lines) / 3


def test_a_line_that_is_not_plain_is_given_by_its_place():
    block = b'{"type":"mode","sessionId":"s"}\n\nno JSON\n{"type":"mode"}'
    first, odd, last = _skim.stretches(block)[0]
    assert (odd, block[odd[1] : odd[2]]) == ((2, 33, 40), b"no JSON")
    assert [RowRun(*each).kind for each in (first, last)] == [FILLER, FILLER]


@pytest.mark.parametrize("skim", [_skim.stretches, skim_slowly])
@given(
    st.lists(st.sampled_from([b"", b" ", b"no JSON", b'{"type":"mode"}', b'{"a": "' + b"x" * 90 + b'"}']), max_size=99)
)
def test_ends_of_lines_are_given(skim, lines):
    block = b"\n".join(lines)
    stops = ends_of(skim(memoryview(block))[1])
    begins = (0, *(each + 1 for each in stops))
    assert [block[begin:stop] for begin, stop in zip(begins, stops, strict=False)] == block.split(b"\n")[: len(stops)]
    assert len(stops) == block.count(b"\n") + (not block.endswith(b"\n") and block != b"")


@pytest.mark.parametrize(
    "change",
    [
        {"type": "us\u00e9r"},
        {"uuid": 'a"b'},
        {"uuid": 7},
        {"uuid": ["u"]},
        {"timestamp": {}},
        {"isSidechain": "yes"},
        {"isCompactSummary": True},
        {"isApiErrorMessage": True},
        {"errorDetails": "x"},
        {"logicalParentUuid": "p"},
        {"compactMetadata": {}},
        {"message": "text"},
        {"message": {"model": 5}},
        {"message": {"usage": 5}},
        {"message": {"usage": {"input_tokens": None}}},
        {"message": {"usage": {"input_tokens": -1}}},
        {"message": {"usage": {"output_tokens": 1.5}}},
        {"message": {"usage": {"output_tokens": 10**10}}},
        {"message": {"usage": {"iterations": [5]}}},
        {"message": {"usage": {"iterations": {}}}},
        {"message": {"usage": {"input_tokens": 3, "cached_input_tokens": 90_000}}},
        {"message": {"usage": CALL | {"iterations": [{"type": "message", "input_tokens": 3}]}}},
        {"message": {"usage": CALL | {"iterations": [{"type": "message", **CALL}, {"type": "advisor"}]}}},
        {"message": {"usage": CALL | {"input_tokens": 9_000, "cache_read_input_tokens": 9_000}}},
        {"session_id": 5},
    ],
    ids=str,
)
def test_what_is_not_plain_is_left(change):
    assert told(line_of(ROW | change)) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"uuid": "u1"', '"uuid": "u1", "uuid": "u2"'),
        ('"uuid": "u1"', '"u\\u0075id": "u1"'),
        ('"type": "assistant"', '"type": "assistant", "type": null'),
        ('"input_tokens": 3', '"input_tokens": 3, "input_tokens": 4'),
        ('"input_tokens": 3', '"input_tokens": 03'),
        ('"id": "m1"', '"id": "m1", "id": "m2"'),
        ('"n": [1', '"n": [01'),
        ('"n": [1', '"n": [1.'),
        ('"n": [1', '"n": [.1'),
        ('"n": [1', '"n": [+1'),
        ('"n": [1', '"n": [1e'),
        ('"n": [1', '"n": [NaN'),
        ('"n": [1', '"n": [1 1'),
        ('"n": [1', '"n": [,1'),
        ("true]", "true,]"),
        ("true]", "truth]"),
        ("true]", "true}"),
        ('"a\\n', '"a\\x'),
        ('"a\\n', '"a\\u12g4'),
        ('"a\\n', '"a\n'),
        ('"a\\n', '"a\\'),
        ("x" * 200, "x" * 70 + "\\q" + "x" * 100),
        ("x" * 200, "x" * 63 + "\\" + "x" * 100),
        ("x" * 200, "x" * 150 + "\x1f"),
        ("x" * 200, '"'),
    ],
)
def test_what_is_no_json_or_says_two_things_is_left(old, new):
    line = json.dumps(ROW)
    assert old in line
    assert told(line.replace(old, new, 1).encode()) is None


@pytest.mark.parametrize(
    "inside", ['\\"', "\\\\", "\\\\\\\\", '\\\\\\"', "\\n", "\\u00e9", "\\ud83d\\ude00", "\\/", "\u00e9"]
)
@pytest.mark.parametrize("before", range(56, 72))
def test_an_escape_may_stand_anywhere_in_a_text(inside, before):
    line = json.dumps(ROW).replace("x" * 200, "x" * before + inside + "y" * 80, 1).encode()
    assert told(line) == expected(line) != None  # noqa: E711


@pytest.mark.parametrize("size", [*range(120), 1_000])
def test_a_kept_text_may_be_long(size):
    found = told(line_of(ROW | {"requestId": "u" * size}))
    assert (found.answers[1][0] or "") == "u" * size


@pytest.mark.parametrize(
    "deep", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000]
)
def test_deep_nesting_is_left(deep):
    for row in (
        {"data": 0},
        {"message": {"usage": {"iterations": 0}}},
        {"message": {"usage": {"iterations": [{"iterations": 0}]}}},
    ):
        line = json.dumps({"uuid": "u", **row}).replace("0", deep)
        assert told(line.encode()) is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(max_size=90),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=20), inner, max_size=3),
    max_leaves=8,
)
KEYS = (*ROW, "agentId", "isCompactSummary", "isApiErrorMessage", "session_id", "forkedFrom", "content", "data", "x")
USAGE = st.fixed_dictionaries({}, optional=dict.fromkeys(ROW["message"]["usage"], st.integers(0, 10**9) | VALUES))
MESSAGE = st.fixed_dictionaries(
    {}, optional={"model": VALUES, "id": VALUES, "content": VALUES, "usage": USAGE | VALUES}
)


@example(changes={}, message={"usage": None}, escaped=False)
@given(st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6), MESSAGE, st.booleans())
def test_of_any_row_it_says_what_others_say_or_nothing(changes, message, escaped):
    line = line_of(ROW | {"message": ROW["message"] | message} | changes, ensure_ascii=escaped)
    found = told(line)
    if found is not None:
        assert found == expected(line)


@given(st.lists(st.tuples(st.integers(0, 2_000), st.binary(max_size=3), st.integers(0, 3)), max_size=4))
@example([(0, b"", 1)])
def test_of_any_bytes_it_says_what_others_say_or_nothing(edits):
    line = line_of(ROW, ensure_ascii=False)
    for at, new, removed in edits:
        line = line[: at % len(line)] + new + line[at % len(line) + removed :]
    line = line.replace(b"\n", b" ")
    found = told(line)
    if found is not None:
        assert found == expected(line)


@given(st.integers(0, 1_200), st.integers(0, 80))
def test_nothing_behind_a_line_is_read(cut, left):
    """The line ends at the last byte that may be read: one more would end the process."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        line = line_of(ROW)[left : left + cut]
        page[-len(line) or mmap.PAGESIZE :] = line
        with memoryview(page) as view:
            assert told(view[mmap.PAGESIZE - len(line) :]) in (None, told(line_of(ROW)))


def test_what_is_no_block_is_an_error():
    with pytest.raises(TypeError):
        _skim.stretches("text")


def test_memory_does_not_grow_with_what_was_read(tmp_path):
    """Every object that is taken in C is let go."""
    rows = Rows()
    for number in range(300):
        rows.prompt()
        rows.response(f"m{number}", 20_000 + number)
    (tmp_path / "a.jsonl").write_bytes(dump(rows.rows))
    code = """
import gc, sys
from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.scan import Scanner
def blocks():
    for _ in range(20):
        Scanner(Recording(sys.argv[1], (sys.argv[1],), 0)).run()
    gc.collect()
    return sys.getallocatedblocks()
blocks()
first = blocks()
print(blocks() - first)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "a.jsonl"], capture_output=True, text=True, check=True
    )
    assert abs(int(done.stdout)) < 300
