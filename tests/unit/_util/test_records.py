"""Records that change: made like a dataclass."""

import pytest

from mala_context._util.records import Record


class Point(Record):
    x: int
    y: int = 0


class Place(Point):
    pass


class Nothing(Record):
    pass


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


def test_a_class_without_fields_of_its_own_has_those_of_its_base():
    assert Place.__annotations__ == {}
    assert repr(Place(1)) == "Place(x=1, y=0)"
    assert Place(1) == Place(1, 0) != Place(2)
    assert Place(1) != Point(1)
    assert repr(Nothing()) == "Nothing()"


@pytest.mark.parametrize("head", ["", "from __future__ import annotations"])
def test_fields_are_found_whether_annotations_are_evaluated_or_not(head):
    made = {"Record": Record, "__name__": "made"}
    exec(compile(f"{head}\nclass Made(Record):\n    x: int\n    y: int = 0", "made", "exec", dont_inherit=True), made)
    assert repr(made["Made"](1)) == "Made(x=1, y=0)"
