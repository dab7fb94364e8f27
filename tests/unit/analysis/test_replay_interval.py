"""The second look at a transcript."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.analysis.replay.fast_rows import NeedsFullReader
from mala_context.analysis.replay.interval import SHORT, between, count_lines, estimates
from tests.helpers.recordings import dump, plain


def block(data):
    return memoryview(bytearray(data))


@given(st.lists(st.binary(max_size=30).filter(lambda data: b"\n" not in data)), st.binary(max_size=10))
def test_lines_are_counted_and_a_short_one_is_noticed(lines, rest):
    data = b"".join(line + b"\n" for line in lines)
    found = count_lines(block(data + rest.replace(b"\n", b"")), len(data))
    assert found == (len(lines), any(len(line) + 1 < SHORT for line in lines))


@given(st.lists(st.binary(max_size=8).filter(lambda data: b"\n" not in data), min_size=1), st.data())
def test_lines_between_two_positions_are_the_same_however_they_are_named(tmp_path_factory, lines, data):
    path = tmp_path_factory.getbasetemp() / "lines"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    starts = [sum(len(line) + 1 for line in lines[:place]) for place in range(len(lines) + 1)]
    first = data.draw(st.integers(0, len(lines)))
    last = data.draw(st.integers(first, len(lines)))
    begins = data.draw(st.integers(0, last), label="the block's first line")
    since = data.draw(st.integers(0, first), label="a line that the first is counted from")
    until = data.draw(st.integers(max(begins, since), last), label="a line that the last is counted from")
    rest = block(path.read_bytes()[starts[begins] :])
    found = between(str(path), (starts[since], first - since), (starts[until], last - until), starts[begins], rest)
    assert found == lines[first:last]


@pytest.fixture
def recorded(tmp_path):
    """A transcript, the place of the second response's row and that of the boundary."""
    rows = plain().rows
    path = tmp_path / "a.jsonl"
    path.write_bytes(dump(rows))
    responses = [place for place, row in enumerate(rows) if row["type"] == "assistant"]
    (boundary,) = [place for place, row in enumerate(rows) if row.get("subtype") == "compact_boundary"]
    return str(path), rows, responses[1], boundary


def test_what_stood_before_a_boundary_is_the_same_in_one_block_and_in_two(recorded):
    path, rows, since, boundary = recorded
    whole = dump(rows)
    in_one = between(path, (0, since), (0, boundary), 0, block(whole))
    assert estimates(in_one, 20_180)[0] == 21_290  # what the CLI itself recorded
    assert 20_180 < estimates(in_one, 20_180)[1] < 22_000
    cut = len(dump(rows[: since + 1]))
    assert between(path, (0, since), (cut, boundary - since - 1), cut, block(whole[cut:])) == in_one


def test_lines_that_do_not_give_the_same_tokens_are_for_the_careful_way(recorded):
    path, rows, since, boundary = recorded
    with pytest.raises(NeedsFullReader, match="other counts"):
        estimates(between(path, (0, since), (0, boundary), 0, block(dump(rows))), 1)


def test_a_file_that_is_gone_is_an_error_of_the_system(recorded, tmp_path):
    _, rows, since, boundary = recorded
    with pytest.raises(FileNotFoundError):
        between(str(tmp_path / "gone"), (0, since), (1, boundary), 1, block(json.dumps(rows[0]).encode()))
