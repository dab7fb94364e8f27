"""Blocks of lines into structs, the lines that are none, and what is told of a row that is left as bytes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.analysis.replay.fast_rows import (
    NeedsFullReader,
    decode_line,
    decode_lines,
    is_clear,
    is_result,
    last_call,
    prompt_of,
    value_of,
)
from mala_context.analysis.replay.rows import decode
from mala_context.tracking import text_counts
from mala_context.tracking.usage import MOST, Usage
from tests.helpers.recordings import plain

ROW = {"type": "user", "uuid": "u1", "parentUuid": None, "message": {"content": "hello"}}


def lines(*parts):
    return memoryview(bytearray(b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts)))


def row_of(**fields):
    ((row,), _) = decode_line(json.dumps(fields).encode())
    return row


def usage_of(raw):
    return row_of(message={"usage": raw}).message.usage


def test_a_block_gives_what_sizes_need_of_each_row():
    rows = plain().rows
    found = decode_lines(lines(*(json.dumps(row).encode() for row in rows)))
    assert [each.uuid for each in found] == [row["uuid"] for row in rows]
    sizes = [each.message.usage.cache_read_input_tokens for each in found if each.type == "assistant"]
    assert sizes == [row["message"]["usage"]["cache_read_input_tokens"] for row in rows if row["type"] == "assistant"]


def test_text_is_a_view_and_no_copy():
    (row,) = decode_lines(lines(json.dumps(ROW).encode()))
    assert bytes(row.message.content) == b'"hello"'


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"type": 1}', b'{"message": {"usage": {"input_tokens": -1}}}'])
def test_a_block_with_a_line_that_does_not_decode_is_refused_whole(line):
    with pytest.raises(msgspec.MsgspecError):
        decode_lines(lines(json.dumps(ROW).encode(), line))


def test_a_line_by_itself_gives_its_row_and_a_bad_one_what_is_wrong():
    rows, problem = decode_line(json.dumps(ROW).encode())
    assert ([row.uuid for row in rows], problem) == (["u1"], None)
    assert decode_line(b"{broken") == ([], "no whole JSON object")


@pytest.mark.parametrize("line", [b"", b"  ", b"\r", b" \t\x0b"])
def test_an_empty_line_is_neither_a_row_nor_a_problem(line):
    assert decode_line(memoryview(line)) == ([], None)


def test_two_rows_on_a_line_are_two():
    good = json.dumps(ROW).encode()
    rows, problem = decode_line(good + good)
    assert ([row.uuid for row in rows], problem) == (["u1", "u1"], None)


@pytest.mark.parametrize(
    "odd", [{"type": 1}, {"message": {"usage": {"input_tokens": -5}}}, {"message": "text"}, {"uuid": ["x"]}], ids=str
)
def test_good_json_of_another_shape_is_for_the_careful_way(odd):
    with pytest.raises(NeedsFullReader):
        decode_line(json.dumps(odd).encode())


@given(st.binary(max_size=40).filter(lambda data: b"\n" not in data))
def test_whatever_stands_on_a_line_it_is_a_row_or_a_problem_or_for_the_careful_way(line):
    try:
        found, problem = decode_line(line)
    except NeedsFullReader:
        return
    rows, careful = decode(line) if line.strip() else ([], None)
    assert (len(found), problem) == (len(rows), careful)


PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
NONE = dict.fromkeys(PROMPT, 0)
COUNTS = st.fixed_dictionaries({}, optional=dict.fromkeys((*PROMPT, "output_tokens"), st.integers(0, MOST - 1)))
WHOLE = st.fixed_dictionaries(dict.fromkeys(PROMPT, st.one_of(st.just(0), st.integers(0, MOST - 1))))
CALLS = st.builds(dict.__or__, COUNTS | WHOLE, st.sampled_from([{"type": "message"}, {"type": "advisor"}, {}]))


@given(COUNTS | WHOLE, st.lists(CALLS, max_size=3) | st.none())
def test_a_prompt_is_what_the_careful_way_makes_of_it_or_is_left_to_that(counts, calls):
    raw = counts | {"iterations": calls}
    usage = usage_of(raw)
    try:
        tokens = prompt_of(usage)
        last = last_call(usage, tokens)
    except NeedsFullReader:
        every = (raw, *(calls or ()))
        missing = any(name not in each for each in every for name in PROMPT)
        twice = any(Usage.parse(each).counts_cache_twice for each in every)
        assert missing or twice or any(each.get("type") != "message" for each in calls or ())
        return
    assert tokens == Usage.parse(raw).context_tokens
    assert not tokens or last == Usage.of_last_call(raw).context_tokens


@pytest.mark.parametrize("missing", PROMPT)
def test_a_count_that_is_not_there_is_none_of_zero_however_large_the_others_are(missing):
    """It may stand under a name that is not known yet."""
    counts = {name: MOST - 1 for name in PROMPT if name != missing}
    with pytest.raises(NeedsFullReader, match="without one of its counts"):
        prompt_of(usage_of(counts))
    usage = usage_of(NONE | {"iterations": [{"type": "message"} | counts]})
    with pytest.raises(NeedsFullReader, match="without one of its counts"):
        last_call(usage, 5)


def test_the_last_call_is_the_last_that_tells_something():
    calls = [{"type": "message"} | NONE | {"input_tokens": tokens} for tokens in (70, 90, 0)]
    usage = usage_of(NONE | {"input_tokens": 160, "iterations": calls})
    assert (prompt_of(usage), last_call(usage, 160)) == (160, 90)
    other = usage_of(NONE | {"input_tokens": 160, "iterations": [*calls, {"type": "advisor"} | NONE]})
    with pytest.raises(NeedsFullReader, match="another type"):
        last_call(other, 160)
    assert last_call(usage_of(NONE | {"iterations": calls[2:]}), 160) == 160
    assert last_call(usage_of(NONE), 160) == 160


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=8,
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.just("tool_result")}, optional={"tool_use_id": st.sampled_from([None, "", "t"])}
)


@given(VALUES | st.lists(BLOCKS | VALUES, max_size=4))
def test_what_was_left_as_bytes_is_what_stands_there(value):
    row = row_of(message={"content": value}, data=value)
    assert value_of(row.message.content) == value == value_of(row.data)
    assert is_result(row.message.content) is text_counts.is_result(value)
    assert is_clear(row) is False


@pytest.mark.parametrize("data", [b'"\xff"', b'"\xed\xa0\x80"', b"[1e999]"], ids=repr)
def test_what_nobody_has_looked_at_may_be_no_text_and_is_for_the_careful_way(data):
    ((row,), problem) = decode_line(b'{"message": {"content": %s}, "data": %s}' % (data, data))
    assert problem is None
    for look in (lambda: value_of(row.message.content), lambda: is_result(row.message.content), lambda: is_clear(row)):
        with pytest.raises(NeedsFullReader):
            look()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"data": {"hookName": "SessionStart:clear"}}, True),
        ({"data": {"hookName": "SessionStart:clear", "type": "hook_progress"}}, True),
        ({"data": {"hookName": "SessionStart:resume"}}, False),
        ({"data": {}}, False),
        ({"data": "SessionStart:clear"}, False),
        ({"data": None}, False),
        ({"hookName": "SessionStart:clear"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_a_clear_is_told_by_the_hook_that_it_ran(fields, expected):
    assert is_clear(row_of(type="progress", **fields)) is expected
