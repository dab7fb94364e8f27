"""Each promise of the security and trust pages names a command, and each command selects tests that are there."""

import ast
import pathlib
import re
import shlex

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
PAGES = {name: ROOT / "docs" / "explanation" / f"{name}.md" for name in ("security", "trust")}


def promises(page):
    """The rows of a page's tables whose last column is a command: each as its promise and its commands."""
    found, takes = [], False
    for line in PAGES[page].read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        takes = cells[-1] in {"command", "repeat it with"} or (takes and line.startswith("|"))
        if takes and cells[-1] not in {"command", "repeat it with", "--"}:
            found.append((cells[0], re.findall(r"`([^`]+)`", cells[-1])))
    return found


ALL = [
    (f"{page}: {promise[:60]}", command)
    for page in PAGES
    for promise, commands in promises(page)
    for command in commands
]


def marks(nodes):
    """Which of the marks that the default run leaves out stand in some nodes."""
    text = " ".join(ast.unparse(node) for node in nodes)
    return {mark for mark in ("long", "system") if f"pytest.mark.{mark}" in text}


def functions(path):
    """Names of a file's tests, each with its marks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    found = {}
    for node in tree.body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                found[each.name] = marks([*own, *getattr(node, "decorator_list", ()), *each.decorator_list])
    return found


def selected(command):
    """The tests that a command of pytest selects, as path and name."""
    words = [word for word in shlex.split(command) if "=" not in word]
    assert words[0] == "pytest"
    keys = words[words.index("-k") + 1].split(" or ") if "-k" in words else [""]
    mark = words[words.index("-m") + 1] if "-m" in words else None
    paths = [ROOT / word for word in words[1:] if word.startswith("tests/")]
    files = [file for path in paths for file in (sorted(path.glob("test_*.py")) if path.is_dir() else [path])]
    found = set()
    for file in files:
        named = {name: has for name, has in functions(file).items() if any(key in name for key in keys)}
        found |= {(file, name) for name in named}
        assert any(mark in has if mark else not has for has in named.values()), (
            f"nothing of {file.name} runs: {command}"
        )
    assert found, command
    return found


@pytest.mark.parametrize("page", PAGES)
def test_each_promise_has_a_command(page):
    found = promises(page)
    assert len(found) > 12
    assert [promise for promise, commands in found if not commands] == []


@pytest.mark.parametrize(("promise", "command"), ALL, ids=[promise for promise, _ in ALL])
def test_each_command_is_there(promise, command):
    words = [word for word in shlex.split(command) if "=" not in word]
    if words[0] == "pytest":
        assert selected(command)
    elif words[:2] == ["python", "-m"]:
        place = ROOT / words[2].replace(".", "/")
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file()
    else:
        assert words[0] == "python"
        assert (ROOT / words[1]).is_file()


def test_each_security_test_belongs_to_a_promise():
    known = set()
    for _, command in ALL:
        if command.startswith(("pytest", "MALA_LONG_LINE")):
            known |= selected(command)
    own = {
        (file, name) for file in HERE.glob("test_*.py") if file != pathlib.Path(__file__) for name in functions(file)
    }
    assert sorted(f"{file.name}::{name}" for file, name in own - known) == []
