"""Blocks of lines into structs, and the lines that are none."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings import plain

from mala_context.replay.fast_rows import Unusual, decode_line, decode_lines
from mala_context.replay.rows import decode

ROW = {"type": "user", "uuid": "u1", "parentUuid": None, "message": {"content": "hello"}}


def lines(*parts):
    return memoryview(bytearray(b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts)))


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
    with pytest.raises(Unusual):
        decode_line(json.dumps(odd).encode())


@given(st.binary(max_size=40).filter(lambda data: b"\n" not in data))
def test_whatever_stands_on_a_line_it_is_a_row_or_a_problem_or_for_the_careful_way(line):
    try:
        found, problem = decode_line(line)
    except Unusual:
        return
    rows, careful = decode(line) if line.strip() else ([], None)
    assert (len(found), problem) == (len(rows), careful)
