"""SVG as text: elements, ticks, PNG."""

import sys
import types
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mala_context.analysis.svg import apart, line, png, tag, ticks, words
from mala_context.errors import MalaContextError


def test_elements():
    assert tag("g") == "<g/>"
    assert tag("g", "x", font_size=12, class_="a", d=None) == '<g font-size="12" class="a">x</g>'
    assert line(1.0, 2.25, 3, 4, "red", stroke_dasharray=None) == '<line x1="1" y1="2.2" x2="3" y2="4" stroke="red"/>'


@given(st.text())
def test_any_text_is_well_formed(text):
    found = ET.fromstring(tag("g", words(1, 2, text, 11, "red", data_x=text)))
    assert found[0].tag == "text"


@example(0.018, 9)
@given(st.floats(0.001, 1e9), st.integers(2, 12))
def test_ticks_are_round_and_not_too_many(top, most):
    found = ticks(top, most)
    assert found[0] == 0
    assert found[-1] <= top
    assert len(found) <= most + 1


@given(st.floats(2.0, 1e6), st.integers(2, 12))
def test_ticks_of_what_is_counted_are_whole(top, most):
    assert all(each == int(each) for each in ticks(top, most, least_step=1.0))


def test_no_ticks():
    assert ticks(0) == [0.0]


@given(st.lists(st.floats(0, 1_000)), st.floats(0.1, 100))
def test_places_that_are_apart(places, gap):
    chosen = [place for place, keep in zip(sorted(places), apart(sorted(places), gap), strict=True) if keep]
    assert all(after - before >= gap for before, after in pairwise(chosen))


def test_a_png_needs_a_package_and_a_library(monkeypatch, tmp_path):
    module = types.ModuleType("cairosvg")
    module.svg2png = lambda bytestring, scale: f"{scale} {len(bytestring)}".encode()
    monkeypatch.setitem(sys.modules, "cairosvg", module)
    assert png("<svg/>", scale=2) == b"2 6"
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(MalaContextError, match=r"mala-context\[plot\]"):
        png("<svg/>")
    (tmp_path / "cairosvg.py").write_text("raise OSError('no library')")
    monkeypatch.delitem(sys.modules, "cairosvg", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MalaContextError, match="apt install libcairo2"):
        png("<svg/>")
