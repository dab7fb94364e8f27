"""The JSON objects on one row of a transcript."""

import pytest

from mala_context.archive.objects import objects


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b'{"a":1}', [{"a": 1}]),
        (b'{"a":1}{"b":2} {"c":3}', [{"a": 1}, {"b": 2}, {"c": 3}]),
        (b'{"a":1}{"b":', [{"a": 1}]),
        (b"[1]", []),
        (b"\xff\x00", []),
        (b"[" * 100_000, []),
        ('{"a":"\u2028"}'.encode(), [{"a": "\u2028"}]),
    ],
)
def test_objects_on_a_line(line, found):
    assert objects(line) == found
