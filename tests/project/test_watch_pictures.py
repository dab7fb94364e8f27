"""The pictures of `watch` are what the script draws today."""

import importlib.util
import pathlib
import xml.etree.ElementTree as ET

import pytest

PICTURES = pathlib.Path(__file__).parents[2] / "docs/pictures"


WIDTHS = (45, 80, 120, 200)


@pytest.mark.parametrize("name", ["watch.svg", "watch-wide.svg", *(f"watch-250-{width}.svg" for width in WIDTHS)])
def test_a_picture_is_current_and_needs_no_network(name, tmp_path):
    spec = importlib.util.spec_from_file_location("picture_watch", PICTURES / "watch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(tmp_path)
    drawn = (tmp_path / name).read_text()
    assert (PICTURES / name).read_text() == drawn, "run python docs/pictures/watch.py"
    assert "url(http" not in drawn.replace('"', "")
    assert "web-shop" in "".join(ET.fromstring(drawn).itertext())
