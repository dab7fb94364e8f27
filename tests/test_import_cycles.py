"""No module needs one that needs it, not even to name a type: each can be read, and tested, without what is above it.

`lint-imports` holds the layers between packages; here it is modules, within a package too. An import inside a function
counts, and so does one under `TYPE_CHECKING`.
"""

import ast
import graphlib
import pathlib

import pytest

import mala_context

ROOT = pathlib.Path(mala_context.__file__).parent


def modules(root):
    """The modules of a package by their names; one that is compiled, by its source or its stub, is one too."""
    found = {}
    for path in sorted(each for kind in ("py", "pyi", "c") for each in root.rglob(f"*.{kind}")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)
    return found


def statements(node):
    """All statements below a node; expressions, which are most of a tree, hold none."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from statements(each)


def imported(name, path, known):
    """The modules of the package that a module names in an import."""
    found = set()
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))) if path.suffix != ".c" else ():
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, name, path)
            found.update(inside if (inside := f"{base}.{each.name}") in known else base for each in node.names)
    return found & known.keys()


def _base(node, name, path):
    if not node.level:
        return node.module
    around = name.split(".")[: len(name.split(".")) - node.level + (path.name == "__init__.py")]
    return ".".join(filter(None, (*around, node.module)))


def cycle(root):
    """The modules of one cycle, from one to itself, each imported by the one before it; none where there is none."""
    known = modules(root)
    try:
        graphlib.TopologicalSorter({name: imported(name, path, known) for name, path in known.items()}).prepare()
    except graphlib.CycleError as error:
        return error.args[1][::-1]
    return []


def test_no_module_is_imported_by_what_it_imports():
    assert len(modules(ROOT)) > 200
    assert cycle(ROOT) == []


@pytest.mark.parametrize(
    ("upper", "lower", "found"),
    [
        ("from pack.lower import f", "", False),
        ("import pack.lower", "from pack import upper", True),
        ("from .lower import f", "from . import upper", True),
        ("from .lower import f", "def f():\n    from pack.upper import g", True),
        ("from .lower import f", "if TYPE_CHECKING:\n    from pack.upper import G", True),
        ("from pack.lower import f", "from pack.upper import lower", True),
        ("from .inner import f", "from pack import other", False),
        ("import json", "from pack.inner.deep import f", True),
        ("from .inner.deep import f", "from .upper import g", True),
    ],
)
def test_a_cycle_is_seen_however_it_is_written(tmp_path, upper, lower, found):
    for name, text in {
        "": "",
        "upper": upper,
        "lower": lower,
        "inner/": "",
        "inner/deep": "from ..lower import f",
    }.items():
        path = tmp_path / "pack" / (f"{name}__init__.py" if not name or name.endswith("/") else f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert bool(cycle(tmp_path / "pack")) is found
