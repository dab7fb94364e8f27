"""Reading transcripts that grow, are rewritten, are torn, or are huge."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.analysis.watch import tail as tail_module
from mala_context.analysis.watch.tail import LiveTail


def line(number, size=0):
    return json.dumps({"n": number, "x": "x" * size}).encode() + b"\n"


def numbers(gain):
    return [row["n"] for row in gain.rows]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "t.jsonl"


@pytest.fixture
def small(monkeypatch):
    """Make files of more than 2,000 bytes huge ones."""
    monkeypatch.setattr(tail_module, "WHOLE", 2_000)
    monkeypatch.setattr(tail_module, "FIRST", 500)
    monkeypatch.setattr(tail_module, "MOST", 100_000)


def read(tail, path, enough=bool):
    return tail.gain(str(path), enough)


def test_each_row_once(path):
    tail = LiveTail()
    path.write_bytes(line(1) + line(2))
    first = read(tail, path)
    assert (numbers(first), first.restarted) == ([1, 2], True)
    assert read(tail, path) == ([], False, (), 0)
    with path.open("ab") as file:
        file.write(line(3))
    assert numbers(read(tail, path)) == [3]


def test_a_torn_row_waits_for_its_rest(path):
    tail = LiveTail()
    path.write_bytes(line(1) + line(2)[:5])
    assert numbers(read(tail, path)) == [1]
    with path.open("ab") as file:
        file.write(line(2)[5:])
    assert numbers(read(tail, path)) == [2]


def test_a_whole_row_without_a_newline_is_taken_once(path):
    tail = LiveTail()
    path.write_bytes(line(1) + line(2).rstrip())
    assert numbers(read(tail, path)) == [1, 2]
    with path.open("ab") as file:
        file.write(b"\n" + line(3))
    assert numbers(read(tail, path)) == [3]


@given(st.integers(1, 60), st.integers(1, 60))
def test_wherever_a_write_ends_no_row_is_lost_or_doubled(tmp_path_factory, one, two):
    data = b"".join(line(number) for number in range(4))
    path = tmp_path_factory.mktemp("tail") / "t.jsonl"
    tail, seen = LiveTail(), []
    path.write_bytes(b"")
    for start, end in zip((0, one, one + two), (one, one + two, len(data)), strict=True):
        with path.open("ab") as file:
            file.write(data[start:end])
        seen += numbers(read(tail, path))
    assert seen == [0, 1, 2, 3]


def test_a_file_that_shrank(path):
    tail = LiveTail()
    path.write_bytes(line(1) + line(2))
    read(tail, path)
    path.write_bytes(line(7))
    gain = read(tail, path)
    assert (numbers(gain), gain.restarted) == ([7], True)


def test_a_file_that_was_replaced(path, tmp_path):
    tail = LiveTail()
    path.write_bytes(line(1))
    read(tail, path)
    other = tmp_path / "other"
    other.write_bytes(line(1) + line(8))
    os.replace(other, path)
    gain = read(tail, path)
    assert (numbers(gain), gain.restarted) == ([1, 8], True)


def test_a_file_that_was_rewritten_in_place_and_grew(path):
    tail = LiveTail()
    path.write_bytes(line(1) + line(2))
    read(tail, path)
    path.write_bytes(line(5, 40) + line(6) + line(7))
    gain = read(tail, path)
    assert (numbers(gain), gain.restarted) == ([5, 6, 7], True)


def test_a_huge_file_is_read_at_both_ends(path, small):
    opening = json.dumps({"n": 0, "type": "assistant"}).encode() + b"\n"
    path.write_bytes(opening + b"".join(line(number, 80) for number in range(1, 100)))
    gain = read(LiveTail(), path)
    assert [row["n"] for row in gain.opening] == [0]
    assert numbers(gain) == list(range(numbers(gain)[0], 100))
    assert 90 < numbers(gain)[0] < 100
    assert path.read_bytes()[gain.start :].startswith(line(numbers(gain)[0], 80))


def test_it_is_read_further_back_until_it_says_enough(path, small):
    path.write_bytes(b"".join(line(number, 80) for number in range(100)))
    gain = read(LiveTail(), path, lambda rows: any(row["n"] == 65 for row in rows))
    assert 0 < numbers(gain)[0] <= 65
    assert gain.start


def test_a_file_that_never_says_enough_is_read_from_its_top(path, small):
    path.write_bytes(b"".join(line(number, 80) for number in range(100)))
    gain = read(LiveTail(), path, lambda rows: False)
    assert numbers(gain) == list(range(100))
    assert gain.start == 0
    assert gain.opening == ()


def test_it_is_read_no_further_than_the_most(path, small, monkeypatch):
    monkeypatch.setattr(tail_module, "MOST", 4_000)
    path.write_bytes(b"".join(line(number, 80) for number in range(100)))
    gain = read(LiveTail(), path, lambda rows: False)
    assert gain.start > 0
    assert numbers(gain)[-1] == 99


def test_one_row_that_is_longer_than_the_end_that_is_read(path, small):
    path.write_bytes(line(1) + line(2, 3_000))
    assert numbers(read(LiveTail(), path)) == [1, 2]


def test_no_file_and_no_regular_file_raise(path, tmp_path):
    with pytest.raises(FileNotFoundError):
        read(LiveTail(), path)
    with pytest.raises(OSError, match="not a regular file"):
        read(LiveTail(), tmp_path)


@pytest.mark.parametrize("torn", [b'{"n": 2, "x": "}', b"[" * 200_000 + b"}", b"}", b'["}'])
def test_what_only_ends_like_a_row_is_none_yet(path, torn):
    tail = LiveTail()
    path.write_bytes(line(1) + torn)
    assert numbers(read(tail, path)) == [1]
    with path.open("ab") as file:
        file.write(b"\n" + line(3))
    assert numbers(read(tail, path)) == [3]


def test_a_row_that_ends_like_one_and_goes_on_is_read_when_it_is_whole(path):
    tail = LiveTail()
    path.write_bytes(line(1) + b'{"n": 2, "x": "}')
    assert numbers(read(tail, path)) == [1]
    with path.open("ab") as file:
        file.write(b'"}\n')
    assert numbers(read(tail, path)) == [2]


@pytest.mark.parametrize("size", [3_000, 70_000, 300_000])
def test_at_a_huge_files_end_a_row_may_be_longer_than_what_is_looked_at(path, small, size):
    tail = LiveTail()
    path.write_bytes(b"".join(line(number, 100) for number in range(50)) + line(50, size))
    gain = read(tail, path, enough=lambda rows: any(row["n"] == 50 for row in rows) or len(rows) > 3)
    assert numbers(gain)[-1:] == ([50] if size < 100_000 else [])
    with path.open("ab") as file:
        file.write(line(51))
    assert numbers(read(tail, path)) == [51]


def test_a_huge_file_without_any_row_is_waited_for(path, small):
    tail = LiveTail()
    path.write_bytes(b"x" * 200_000)
    assert numbers(read(tail, path)) == []
    with path.open("ab") as file:
        file.write(b"\n" + line(1))
    assert numbers(read(tail, path)) == [1]
