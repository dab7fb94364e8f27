"""Each promise of the security and trust pages names a command, and each command selects tests that are there."""

import ast
import pathlib
import re
import shlex
import subprocess
import sys

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


def functions(path):
    """Names of a file's tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    return {name for name in names if name.startswith("test_")}


def selected(command):
    """The tests that a command of pytest selects, as path and name."""
    words = [word for word in shlex.split(command) if "=" not in word]
    assert words[0] == "pytest"
    keys = words[words.index("-k") + 1].split(" or ") if "-k" in words else [""]
    paths = [ROOT / word for word in words[1:] if word.startswith("tests/")]
    files = [file for path in paths for file in (sorted(path.glob("test_*.py")) if path.is_dir() else [path])]
    assert files, command
    found = {(file, name) for file in files for name in functions(file) if any(key in name for key in keys)}
    for file in files:
        assert any(each == file for each, _ in found), f"nothing of {file.name} is selected by {command}"
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


@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_command_collects_tests():
    """Also with the marks that it names: a file whose tests are all `long` needs `-m long`."""
    for command in sorted({command for _, command in ALL if "pytest" in command}):
        words = [word for word in shlex.split(command) if "=" not in word]
        done = subprocess.run([sys.executable, "-m", *words, "--collect-only", "-qq"], cwd=ROOT, capture_output=True)
        assert done.returncode == 0, (command, done.stdout[-500:])
