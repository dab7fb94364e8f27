"""Records that change: made like a dataclass."""

import pytest

from mala_context._util.records import Record


class Point(Record):
    x: int
    y: int = 0


def test_values_come_by_place_or_by_name():
    point = Point(1, y=2)
    assert (point.x, point.y, Point(1).y) == (1, 2, 0)
    assert point == Point(1, 2) != Point(1)
    assert point != (1, 2)
    assert repr(point) == "Point(x=1, y=2)"


@pytest.mark.parametrize(("values", "named"), [((1, 2, 3), {}), ((1,), {"z": 1})])
def test_other_fields_are_refused(values, named):
    with pytest.raises(TypeError, match="Point has these fields: x, y"):
        Point(*values, **named)
