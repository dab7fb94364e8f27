"""Lines into rows, whatever is on them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context import replay
from mala_context.analysis.replay.files import Recording
from mala_context.analysis.replay.rows import decode, lines


@pytest.mark.parametrize(
    ("line", "found", "problem"),
    [
        (b'{"a":1}', [{"a": 1}], None),
        (b'{"a":1}{"b":2}', [{"a": 1}, {"b": 2}], None),
        (b' {"a":1} \t{"b":2}\r', [{"a": 1}, {"b": 2}], None),
        ('{"a":"\u2028"}'.encode(), [{"a": "\u2028"}], None),
        (b'\xef\xbb\xbf{"a":1}', [{"a": 1}], None),
        (b'{"a":"\\ud800"}', [{"a": "\ud800"}], None),
        (b'{"a":NaN}', None, None),
        (b'{"a":"\xff"}', [{"a": "\ufffd"}], None),
        (b'{"a":1', [], "no whole JSON object"),
        (b'{"a":1}{"b"', [{"a": 1}], "something after a JSON object"),
        (b"[1]", [], "no JSON object"),
        (b'{"a":1}[2]', [{"a": 1}], "no JSON object"),
        (b"[" * 200_000, [], "no whole JSON object"),
        (b'{"a":[' + b"[]," * 1_500_000 + b"0]}", [], "too many values to be read"),
    ],
)
def test_what_can_be_read_is_and_what_cannot_is_said(line, found, problem):
    got = decode(line)
    assert got[1] == problem
    if found is not None:
        assert got[0] == found


@given(st.binary(max_size=40))
def test_no_bytes_raise(data):
    found, problem = decode(data)
    assert found or problem or not data.decode("utf-8", "replace").strip("\ufeff \t\r\n")


def test_lines_are_counted_with_the_empty_ones(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n\n  \n{"b":2}\nbad\n{"c":3}')
    found = list(lines(Recording(str(path), (str(path),), 0), pytest.fail))
    assert [(line.number, len(line.rows), line.problem) for line in found] == [
        (1, 1, None),
        (4, 1, None),
        (5, 0, "no whole JSON object"),
        (6, 1, None),
    ]


def test_a_file_that_cannot_be_read_is_told_with_the_next_row(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a":1}\n')
    told = []
    recording = Recording(str(path), (str(path), str(tmp_path / "gone")), 0)
    assert len(list(lines(recording, lambda row, words: told.append((row, words))))) == 1
    assert told[0][0] == 2
    assert "cannot be read" in told[0][1]


@pytest.mark.parametrize("nuls", [b"\0", b"\0" * 4096, b"\0" * 5_000_000], ids=len)
def test_a_row_after_nul_bytes_is_replayed(nuls, tmp_path):
    """A crash of the machine leaves them where a row was to stand, and the next row follows on the same line."""
    usage = {"input_tokens": 9_000, "output_tokens": 1}
    made = [
        json.dumps({"type": "assistant", "message": {"id": name, "model": "m", "content": [], "usage": usage}}).encode()
        for name in "ab"
    ]
    path = tmp_path / "s.jsonl"
    path.write_bytes(made[0] + b"\n" + nuls + made[1] + b"\n" + nuls + b"\n")
    (session,) = replay([str(path)], jobs=1)
    assert session.main.responses == 2
    assert [(each.row, each.problem) for each in session.problems] == [(3, "no whole JSON object")]
