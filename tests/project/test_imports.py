"""No module imports another that imports it, not even for its types or inside of a function; none renames an import.

The contracts in pyproject.toml hold the layers; within a layer, this does.
"""

from __future__ import annotations

import ast
import graphlib
import pathlib

import grimp
import pytest

import mala_context

PACKAGE = pathlib.Path(mala_context.__file__).parent


def cycle(package: str) -> list[str]:
    """Return the modules of one cycle, in order; empty where there is none."""
    graph = grimp.build_graph(package, cache_dir=None)
    try:
        found = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
        graphlib.TopologicalSorter(found).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert cycle("mala_context") == []


@pytest.mark.parametrize(
    "back",
    [
        "from round.a import x",
        "import round.a",
        "def f():\n    from round import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import round.a",
    ],
)
def test_a_cycle_is_seen_however_it_is_written(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    package = tmp_path / "round"
    package.mkdir()
    for name, text in {"__init__": "", "a": "from round.b import y", "b": back, "c": "import round.a, os"}.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert set(cycle("round")) == {"round.a", "round.b"}
    (package / "b.py").write_text("import os")
    assert cycle("round") == []


def renamed(source: str) -> list[str]:
    """Return each import of a module's text that gives another name to its subject."""
    imports = (each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Import | ast.ImportFrom))
    return [f"{name.name} as {name.asname}" for each in imports for name in each.names if name.asname]


def test_an_import_that_renames_is_seen() -> None:
    assert renamed("import a as b\ndef f():\n    from c import d as e, g") == ["a as b", "d as e"]


def test_a_thing_has_one_name_wherever_it_is_imported() -> None:
    found = {path: renamed(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")}
    assert {str(path): names for path, names in found.items() if names} == {}
