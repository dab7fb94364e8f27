"""The picture in the documentation is the one that its script draws now."""

import pathlib
import runpy

from mala_context.report.picture import svg

PICTURES = pathlib.Path(__file__).parent.parent / "docs/pictures"


def test_the_documentation_shows_the_current_picture():
    script = runpy.run_path(str(PICTURES / "report.py"))
    assert svg(script["made"]().sessions) == (PICTURES / "report.svg").read_text(encoding="utf-8")


def test_light_and_dark_pages_are_pictures_of_one_size():
    heads = [(PICTURES / f"report-{scheme}.png").read_bytes()[16:24] for scheme in ("light", "dark")]
    assert heads[0] == heads[1]
    assert int.from_bytes(heads[0][:4]) == 1120
