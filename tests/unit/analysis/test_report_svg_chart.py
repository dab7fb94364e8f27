"""The picture in the documentation is the one that its script draws now."""

import pathlib
import runpy
import sys
import types

import pytest

from mala_context.analysis.report import ReportOptions, build_report
from mala_context.analysis.report.svg_chart import svg
from mala_context.analysis.svg import png
from mala_context.errors import MalaContextError
from tests.helpers.recordings import plain

PICTURES = pathlib.Path(__file__).parents[3] / "docs/pictures"


def test_the_documentation_shows_the_current_picture():
    script = runpy.run_path(str(PICTURES / "report.py"))
    assert svg(script["made"]().sessions) == (PICTURES / "report.svg").read_text(encoding="utf-8")


def test_light_and_dark_pages_are_pictures_of_one_size():
    heads = [(PICTURES / f"report-{scheme}.png").read_bytes()[16:24] for scheme in ("light", "dark")]
    assert heads[0] == heads[1]
    assert int.from_bytes(heads[0][:4]) == 1120


@pytest.fixture
def sessions(tmp_path):
    return build_report([plain().write(tmp_path / "a.jsonl")], ReportOptions()).sessions


def test_a_png_is_the_picture_twice_as_fine(sessions, monkeypatch):
    module = types.ModuleType("cairosvg")
    module.svg2png = lambda bytestring, scale: f"{scale} {len(bytestring)}".encode()
    monkeypatch.setitem(sys.modules, "cairosvg", module)
    assert png(svg(sessions), scale=2) == f"2 {len(svg(sessions).encode())}".encode()


def test_without_its_package_it_is_said_what_to_install(sessions, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(MalaContextError, match=r"mala-context\[plot\]"):
        png(svg(sessions), scale=2)


def test_without_the_library_of_the_system_it_is_said_what_to_install(sessions, monkeypatch, tmp_path):
    (tmp_path / "cairosvg.py").write_text("raise OSError('no library called \"cairo-2\" was found')")
    monkeypatch.delitem(sys.modules, "cairosvg", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MalaContextError, match="apt install libcairo2"):
        png(svg(sessions), scale=2)


def test_a_window_that_is_far_above_is_told_and_not_drawn(tmp_path):
    path = plain().write(tmp_path / "a.jsonl")
    assert "the window, 5,000,000, is far above" in svg(build_report([path], ReportOptions(window=5_000_000)).sessions)
    assert "is far above" not in svg(build_report([path], ReportOptions(window=25_000)).sessions)
