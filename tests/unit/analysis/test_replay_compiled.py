"""What is compiled does what Python beside it does."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mala_context.analysis.replay import compiled

if compiled.skim is None:
    pytest.skip("there was no compiler where this was installed", allow_module_level=True)

IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=90) | st.uuids().map(str)


@given(st.lists(st.tuples(IDS, st.integers(-1, 2**40))), st.lists(IDS | st.none()))
@example([("", 1), ("\0", 2), ("\0\0", 3), ("a" * 16, 4), ("a" * 17, 5), ("", 6), ("a" * 16, -1)], ["", "\0\0\0", None])
@example([("é" * 8, 0), ("x" * 100_000, 1), ("x" * 99_999, 2)], ["x" * 100_001])
def test_places_are_a_dict(entries, others):
    places, plain = compiled.new_places(), {}
    for key, value in entries:
        assert (key in places) == (key in plain)
        places[key] = plain[key] = value
        assert len(places) == len(plain)
    for key in [*plain, *others]:
        assert places.get(key) == plain.get(key)
        assert (key in places) == (key in plain)
    assert bool(places) == bool(plain)


def test_places_hold_many_rows():
    places = compiled.new_places()
    for number in range(60_000):
        places[f"row-{number}"] = number
    assert len(places) == 60_000
    assert all(places.get(f"row-{number}") == number for number in range(60_000))
    assert "row-60000" not in places


def test_places_refuse_what_a_scanner_never_does():
    places = compiled.new_places()
    places["a"] = 1
    with pytest.raises(TypeError):
        del places["a"]
    with pytest.raises(TypeError):
        places[3] = 1
    with pytest.raises(TypeError):
        places["b"] = "1"
    with pytest.raises(OverflowError):
        places["b"] = 2**64
    with pytest.raises(UnicodeEncodeError):
        places["\ud800"] = 1
    assert (len(places), places.get("a"), places.get(3), 3 in places) == (1, 1, None, False)


def test_only_places_are_skimmed_with(tmp_path):
    from mala_context.analysis.replay.files import Recording
    from mala_context.analysis.replay.scan import Scanner

    scanner = Scanner(Recording(str(tmp_path), (str(tmp_path),), 0))
    scanner.owner, scanner.named, scanner.places = None, "s", {}
    with pytest.raises(TypeError):
        compiled.skim(scanner, memoryview(b"{}\n"), 0, 0)


def test_one_left_from_another_version_is_not_used(monkeypatch):
    import importlib
    import sys
    from types import ModuleType

    monkeypatch.setitem(sys.modules, "mala_context.analysis.replay._skim", ModuleType("_skim"))
    try:
        assert importlib.reload(compiled).new_places() == {}
        assert compiled.skim is compiled.arrays is None
    finally:
        monkeypatch.undo()
        importlib.reload(compiled)
    assert compiled.skim is not None
