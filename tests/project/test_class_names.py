"""One word for one thing: no two classes of the package have one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import mala_context


def test_each_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in Path(mala_context.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
