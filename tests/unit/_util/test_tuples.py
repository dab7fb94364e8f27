"""Our named tuples are those of `typing`, but for the time that it takes to make one."""

from __future__ import annotations

import pickle
import typing
from typing import get_type_hints

import pytest

from mala_context._util.tuples import NamedTuple


class Ours(NamedTuple):
    """A place."""

    x: int
    """Across."""
    names: tuple[str, ...] = ()
    before: Ours | None = None

    @property
    def far(self):
        """Whether it is far."""
        return self.x > 9

    def moved(self, by):
        return self._replace(x=self.x + by)


class Theirs(typing.NamedTuple):
    """A place."""

    x: int
    """Across."""
    names: tuple[str, ...] = ()
    before: Ours | None = None

    @property
    def far(self):
        """Whether it is far."""
        return self.x > 9

    def moved(self, by):
        return self._replace(x=self.x + by)


@pytest.mark.parametrize("name", ["_fields", "_field_defaults", "__doc__", "__module__", "__bases__", "__slots__"])
def test_a_class_says_the_same_of_itself(name):
    assert getattr(Ours, name) == getattr(Theirs, name)


def test_the_types_of_fields_can_be_asked_for():
    assert get_type_hints(Ours) == get_type_hints(Theirs)


@pytest.mark.parametrize(
    ("values", "named"),
    [((1,), {}), ((1, ("a",)), {}), ((), {"x": 10}), ((1, ("a", "b"), None), {}), ((2,), {"names": ("c",)})],
)
def test_a_tuple_is_the_same(values, named):
    ours, theirs = Ours(*values, **named), Theirs(*values, **named)
    assert ours == theirs
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert (ours.far, ours.moved(3), ours._asdict()) == (theirs.far, theirs.moved(3), theirs._asdict())
    assert pickle.loads(pickle.dumps(ours)) == ours
    assert pickle.loads(pickle.dumps(ours)).__class__ is Ours


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, (), None, 4), {}), ((1,), {"y": 2})])
def test_what_is_no_field_is_refused(values, named):
    for each in (Ours, Theirs):
        with pytest.raises(TypeError, match="argument"):
            each(*values, **named)


@pytest.mark.parametrize("head", ["", "from __future__ import annotations"])
@pytest.mark.parametrize("body", ["x: int\n    y: int = 0", "pass"])
def test_fields_are_found_whether_annotations_are_evaluated_or_not(head, body):
    made = []
    for base in (NamedTuple, typing.NamedTuple):
        space = {"NamedTuple": base, "__name__": "made"}
        exec(compile(f"{head}\nclass Made(NamedTuple):\n    {body}", "made", "exec", dont_inherit=True), space)
        made.append(space["Made"])
    ours, theirs = made
    assert (ours._fields, ours._field_defaults) == (theirs._fields, theirs._field_defaults)
    values = range(len(ours._fields))
    assert repr(ours(*values)) == repr(theirs(*values))
    assert list(ours.__annotations__) == list(theirs.__annotations__)
