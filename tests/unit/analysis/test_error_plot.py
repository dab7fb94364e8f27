"""The picture of an audit."""

import sys
import types
from xml.etree import ElementTree as ET

import pytest

from mala_context.analysis.audit import collect
from mala_context.analysis.error_plot import draw, svg
from mala_context.analysis.ground_truth import Findings
from mala_context.errors import MalaContextError
from tests.helpers.recordings import plain


@pytest.fixture
def findings(tmp_path):
    return collect([plain().write(tmp_path / "a.jsonl")])


def test_a_panel_for_each_truth_and_a_line_for_each_number(findings):
    root = ET.fromstring(svg(findings))
    words = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "pre_tokens (n = 1)" in words
    assert not any("context_command" in word for word in words)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}polyline"))) >= 6


def test_nothing_is_a_picture_too():
    assert svg(Findings([], [], 0)).startswith("<svg")


def test_the_name_says_which_kind(findings, monkeypatch):
    assert draw(findings, "a.svg").startswith(b"<svg")
    package = types.ModuleType("cairosvg")
    package.svg2png = lambda bytestring, scale: b"png:" + bytestring[:4]
    monkeypatch.setitem(sys.modules, "cairosvg", package)
    assert draw(findings, "a.png") == b"png:<svg"


def test_a_missing_package_is_named(findings, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(MalaContextError, match="plot"):
        draw(findings, "a.png")
