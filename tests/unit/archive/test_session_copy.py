"""A row of one session becomes one of another, however long it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.archive.session_copy import Renaming
from mala_context.transcripts.rows import lines

NOW = "2026-11-28T12:00:00.000Z"
names = st.sampled_from(["sessionId", "uuid", "timestamp", "forkedFrom", "message", "a"]) | st.text(max_size=3)
texts = st.sampled_from(["old", "u1", 'q"\\', "é😀"]) | st.text(max_size=12)
values = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)


def renamed(data, most, newest=None, size=7):
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    renaming = Renaming("old", "new", NOW)
    return b"".join(part for line in lines(parts, most) for part in renaming.rows(line, newest))


blanks = st.sampled_from([b"", b"\0", b"\0" * 40, b" \0\t\0", b"  "])


@given(
    st.dictionaries(names, values, min_size=1, max_size=6),
    st.booleans(),
    st.booleans(),
    st.integers(1, 30),
    blanks,
    blanks,
)
def test_a_long_row_becomes_what_a_short_one_does(value, ascii_only, is_newest, size, before, after):
    row = json.dumps(value, ensure_ascii=ascii_only, indent=" " * (size % 2) or None).replace("\n", " ")
    data = before + row.encode("utf-8", "surrogatepass") + after
    newest = value.get("uuid") if is_newest and isinstance(value.get("uuid"), str) else None
    short, long = (json.loads(renamed(data, most, newest, size)) for most in (None, 0))
    assert long == short
    assert short["sessionId"] == "new"


def test_only_its_own_fields_change():
    value = {"message": {"sessionId": "old", "uuid": "u2"}, "sessionId": "old", "uuid": "u1", "timestamp": "then"}
    made = renamed(json.dumps(value).encode(), 0)
    assert json.loads(made) == {
        **value,
        "sessionId": "new",
        "forkedFrom": {"sessionId": "old", "messageUuid": "u1"},
    }
    assert made.count(b'"sessionId": "old"') == 1


@given(st.text('{}[]":\\\\,a', min_size=1, max_size=30), st.integers(1, 9))
def test_no_byte_of_a_long_row_is_lost(text, size):
    data = text.encode()
    assert renamed(data, 0, size=size) in {data + b"\n", data[:-1] + b',"sessionId":"new"}\n'}


def test_blanks_in_its_texts_stay():
    value = {"message": {"content": [" " * 40, "\t"]}, "a": " " * 40, "sessionId": "old"}
    assert json.loads(renamed(json.dumps(value).encode(), 0)) == {**value, "sessionId": "new"}


@pytest.mark.parametrize(
    "content", [["ab"] * 50_000, [[]] * 50_000, [{"a": "b\\"}] * 20_000], ids=["texts", "lists", "objects"]
)
def test_of_very_many_values_each_is_not_written_by_itself(content):
    data = json.dumps({"sessionId": "old", "message": {"content": content}}).encode()
    parts = [part for line in lines([data], 0) for part in Renaming("old", "new", NOW).rows(line)]
    assert len(parts) < 10
    assert json.loads(b"".join(parts)) == {"sessionId": "new", "message": {"content": content}}


def test_what_is_no_object_stays_as_it_is():
    assert renamed(b'{"a":"b', 0) == b'{"a":"b\n'
    assert renamed(b"[1]", 0) == b"[1]\n"
    assert renamed(b"[1]\n{", None) == b""
