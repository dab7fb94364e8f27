"""Rows of a transcript that is still being written."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.transcripts import tail as transcript_module
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.tail import TranscriptTail, read_opening

ROWS = st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=20), max_size=3), max_size=6)


def line(row):
    return json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass")


@given(ROWS, st.sampled_from([b"", b" ", b"\t", b"\r"]))
def test_every_object_on_a_line_is_read(rows, between):
    assert objects(between.join(line(row).decode("utf-8", "replace").encode() for row in rows)) == [
        json.loads(line(row).decode("utf-8", "replace")) for row in rows
    ]


@given(st.binary(max_size=60))
def test_no_bytes_raise(data):
    assert isinstance(objects(data), list)


@pytest.mark.parametrize("data", [b"", b"null", b"[1]", b'"x"', b"{", b"\xff\xfe", b"[" * 100_000])
def test_what_holds_no_object_gives_none(data):
    assert objects(data) == []


def test_a_good_object_before_garbage_is_kept():
    assert objects(b'{"a":1}{"b"') == [{"a": 1}]


@given(ROWS, st.integers(1, 50))
def test_any_way_of_growing_gives_each_row_once(tmp_path_factory, rows, step):
    path = str(tmp_path_factory.mktemp("t") / "t.jsonl")
    data = b"".join(line(row) + b"\n" for row in rows)
    tail, seen = TranscriptTail(), []
    open(path, "wb").close()
    for start in range(0, len(data) + step, step):
        with open(path, "ab") as file:
            file.write(data[start : start + step])
        seen += tail.read(path)[0]
    assert seen == [json.loads(line(row).decode("utf-8", "replace")) for row in rows]


def test_a_row_longer_than_a_block_is_one_row(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_bytes(line({"a": "x" * 3_000_000}) + b"\n")
    rows, afresh = TranscriptTail().read(str(path))
    assert afresh
    assert len(rows[0]["a"]) == 3_000_000


@pytest.mark.parametrize("change", ["shrunk", "replaced", "elsewhere"])
def test_a_changed_file_is_read_from_the_top(tmp_path, change):
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"a":1}\n{"b":2}\n')
    tail = TranscriptTail()
    assert tail.read(str(path)) == ([{"a": 1}, {"b": 2}], True)
    assert tail.read(str(path)) == ([], False)
    if change == "shrunk":
        path.write_bytes(b'{"c":3}\n')
    else:
        other = tmp_path / "other.jsonl"
        other.write_bytes(b'{"c":3}\n' + b"\n" * 100)
        path = other.rename(path) if change == "replaced" else other
    assert tail.read(str(path)) == ([{"c": 3}], True)


def test_a_row_may_hold_line_separators_of_unicode(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a":"\u2028\u0085"}\n', encoding="utf-8")
    assert TranscriptTail().read(str(path))[0] == [{"a": "\u2028\u0085"}]


def test_what_is_no_file_raises_at_once(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path, tmp_path / "fifo", tmp_path / "absent"):
        with pytest.raises(OSError, match=r"regular file|directory|No such"):
            TranscriptTail().read(str(path))


def opening(path, *rows):
    path.write_bytes(b"".join(line(row) + b"\n" for row in rows))
    return read_opening(str(path))


def test_an_opening_ends_with_the_first_answer(tmp_path):
    rows = [{"type": "user"}, {"type": "attachment"}, {"type": "assistant"}, {"type": "user"}]
    assert opening(tmp_path / "t", *rows) == rows[:3]
    assert opening(tmp_path / "t", *rows[:2]) == rows[:2]
    assert opening(tmp_path / "t") == []


def test_an_opening_leaves_a_row_that_is_still_being_written(tmp_path):
    (tmp_path / "t").write_bytes(b'{"type":"user"}\n{"type":"assistant"}')
    assert read_opening(str(tmp_path / "t")) == [{"type": "user"}]


def test_an_opening_without_an_end_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(transcript_module, "_MOST_OPENING", 100)
    assert len(opening(tmp_path / "t", *[{"type": "user"}] * 50)) < 10


def test_an_opening_of_no_regular_file_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "t")
    with pytest.raises(OSError, match="regular"):
        read_opening(str(tmp_path / "t"))
    with pytest.raises(FileNotFoundError):
        read_opening(str(tmp_path / "gone"))
