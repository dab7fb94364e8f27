"""Pictures that are drawn by a script are what the script draws today."""

import importlib.util
import itertools
import pathlib
import re
import xml.etree.ElementTree as ET

import pytest

PICTURES = pathlib.Path(__file__).parents[2] / "docs/pictures"
NAMESPACE = "{http://www.w3.org/2000/svg}"


def load(name):
    spec = importlib.util.spec_from_file_location(f"picture_{name}", PICTURES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(svg):
    return [text.text for text in ET.fromstring(svg).iter(f"{NAMESPACE}text")]


class TestLayers:
    layers = load("layers")

    def test_is_current(self):
        drawn = self.layers.picture(self.layers.layers(self.layers.contracts()))
        assert self.layers.PICTURE.read_text() == drawn, "run python docs/pictures/layers.py"

    def test_shows_every_module_that_there_is(self):
        package = PICTURES.parent.parent / "mala_context"
        there = {path.stem for path in package.iterdir() if path.is_dir() or path.suffix == ".py"}
        shown = {name for row in self.layers.layers(self.layers.contracts()) for name, _ in row}
        assert there - {"__init__", "__pycache__", "py"} <= shown

    def test_no_box_leaves_the_picture(self):
        names = [(f"module_number_{number}", "core") for number in range(40)]
        svg = self.layers.picture([names])
        boxes = [each.attrib for each in ET.fromstring(svg).iter(f"{NAMESPACE}rect") if "rx" in each.attrib]
        assert len(boxes) == 40 + len(self.layers.KINDS)
        assert all(float(box["x"]) + float(box["width"]) <= self.layers.WIDTH for box in boxes)


class TestFormulas:
    formulas = load("formulas")

    def test_is_current(self):
        assert self.formulas.PICTURE.read_text() == self.formulas.picture(*self.formulas.sample()), (
            "run python docs/pictures/formulas.py"
        )

    def test_the_session_was_compacted_and_one_formula_did_not_see_it(self):
        said, compactions = self.formulas.sample()
        (place,) = compactions
        assert said[place]["occupancy"] < 0.8 * said[place - 1]["occupancy"]
        assert said[place]["max_cache_read"] > said[place - 1]["max_cache_read"]

    def test_labels_are_apart(self):
        moved = self.formulas.apart({"a": 100.0, "b": 101.0, "c": 300.0}, 300.0)
        places = sorted(moved.values())
        assert all(later - earlier >= self.formulas.BETWEEN for earlier, later in itertools.pairwise(places))
        assert moved["c"] == 300.0


def test_readme_says_of_the_picture_what_the_report_says():
    first = load("report").made().sessions[0].compactions[0]
    files, instructions = first.lost["read"], first.lost["instruction"]
    readme = " ".join((PICTURES.parent.parent / "README.md").read_text().split())
    left_out = f"leaves out {len(files['missing'])} of {files['total']} files and the only instruction"
    assert f"compacts {first.before:,} tokens to {first.after:,}. The summary {left_out}." in readme
    assert (instructions["named"], instructions["total"]) == (0, 1)


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_asks_nothing_of_the_network_and_names_no_place_of_this_machine(path):
    text = path.read_text()
    assert not re.findall(r'(?:href|src)="(?!#)', text)
    assert not re.findall(r"/(?:home|work|tmp|root)/", text)
    assert words(text)
