"""The package's classes: names, `partial`s that a newer Python binds, and annotations that it keeps elsewhere."""

from __future__ import annotations

import ast
import importlib
from collections import defaultdict
from functools import partial
from pathlib import Path

import mala_context


def test_each_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for path in Path(mala_context.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path.name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_class_holds_a_bare_partial() -> None:
    """Python 3.13 warns of it on standard error, and Python 3.14 calls it with the object as its first argument."""
    root = Path(mala_context.__file__).parent
    bare, classes = [], 0
    for path in root.rglob("*.py"):
        if path.name != "__main__.py":
            module = importlib.import_module(".".join(("mala_context", *path.relative_to(root).with_suffix("").parts)))
            for cls in vars(module).values():
                if isinstance(cls, type) and cls.__module__ == module.__name__:
                    classes += 1
                    bare += [
                        f"{cls.__qualname__}.{name}" for name, value in vars(cls).items() if type(value) is partial
                    ]
    assert classes > 300
    assert bare == []


def test_annotations_are_asked_of_a_class() -> None:
    """From Python 3.14 on, objects and a class's namespace may lack them: without the `__future__` import they do."""
    elsewhere, classes = [], 0
    for path in Path(mala_context.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(ast.Name("cls") | ast.Call(ast.Name("type")), "__annotations__"):
                    classes += 1
                case ast.Attribute(attr="__annotations__") | ast.Subscript(slice=ast.Constant("__annotations__")):
                    elsewhere.append(f"{path.name}:{node.lineno}")
    assert classes >= 3
    assert elsewhere == []
