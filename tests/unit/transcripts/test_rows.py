"""Rows out of bytes: whole, cut short, and too long to be held."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.transcripts.rows import Row, file_chunks, lines, rows


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 7))
def test_rows_are_the_lines_of_the_bytes(parts, size):
    data = b"".join(parts)
    found = list(rows(data[start : start + size] for start in range(0, len(data), size)))
    assert [row.data for row in found] == [line for line in data.split(b"\n") if line]
    for row in found:
        assert data[row.offset : row.offset + len(row.data)] == row.data
        assert row.ended == (data[row.offset + len(row.data) :][:1] == b"\n")


@given(
    st.lists(st.sampled_from([b"x", b"mark", b"ma", b"rk", b"\n", b"\n\n", b"y\nmark\n"]), max_size=40).map(b"".join),
    st.integers(1, 9),
    st.none() | st.integers(5, 20),
)
def test_rows_with_a_mark_are_those_that_hold_it(data, size, most):
    """Wherever the mark lies: across two chunks, in a first or last row, in a row too long to be held."""
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    found = [(row.offset, row.data, row.ended, row.size) for row in rows(chunks, most, mark=b"mark")]
    every = rows(chunks, most)
    assert found == [(row.offset, row.data, row.ended, row.size) for row in every if b"mark" in row.data]


def test_a_row_says_whether_it_ended():
    assert [(row.offset, row.data, row.ended) for row in rows([b"a\n\nb"])] == [(0, b"a", True), (3, b"b", False)]


def test_a_file_is_read_up_to_a_size_and_never_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 600_000)
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert sum(len(data) for data in file_chunks(str(tmp_path / "file"))) == 600_000
    assert b"".join(file_chunks(str(tmp_path / "file"), 3)) == b"xxx"
    for name in ("link", "", "none"):
        with pytest.raises(OSError, match=r".+"):
            list(file_chunks(str(tmp_path / name)))


@given(st.lists(st.binary(max_size=60) | st.just(b"\n") | st.just(b'"\n"'), max_size=30), st.integers(1, 40))
def test_long_rows_pass_by_in_parts(parts, most):
    """Every row is there with its bytes and its place, also after a long row that the caller did not read."""
    found = []
    for line in lines(parts, most):
        short = isinstance(line, Row)
        told = line.data if short else b"".join(line.parts())
        found.append((line.offset, told, line.ended, line.size))
    assert found == [(row.offset, row.data, row.ended, row.size) for row in rows(parts, None)]
    assert [line.offset for line in lines(parts, most)] == [each[0] for each in found]


def test_a_long_row_is_shortened_and_keeps_its_place():
    long = b'{"type":"user","text":"' + b"x " * 100_000 + b'","uuid":"u"}'
    data = b'{"n":1}\n' + long + b'\n{"n":2}\n'
    first, second, third = rows([data[start : start + 4_096] for start in range(0, len(data), 4_096)], 100_000)
    assert (first.data, third.data) == (b'{"n":1}', b'{"n":2}')
    assert (second.offset, second.size, third.offset) == (8, len(long), 9 + len(long))
    assert second.ended
    assert 0 < len(second.data) < 70_000
    assert second.left_out == len(long) - len(second.data)
