"""Every line of the threat model names tests that are there."""

import ast
import pathlib
import re

import pytest

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parent
PAGE = TESTS.parent / "docs" / "explanation" / "security.md"
NAME = re.compile(r"`([\w/]+\.py)::(\w+)`")


def held():
    """The rows of the table of what is held, each as its cells."""
    text = PAGE.read_text(encoding="utf-8").partition("## What is held")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return rows[2:]


def functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", held(), ids=lambda row: row[0][:40])
def test_each_line_names_its_tests(row):
    assert len(row) == 3, row
    named = NAME.findall(row[2])
    assert named, row
    assert NAME.sub("", row[2]).strip(" ,") == "", "something that is no name of a test"
    for file, function in named:
        assert function in functions(TESTS / file), f"{file} has no {function}"


def test_the_table_is_read():
    assert len(held()) > 40


@pytest.mark.parametrize("file", sorted(path.name for path in HERE.glob("test_*.py") if path != pathlib.Path(__file__)))
def test_each_test_of_this_folder_is_named(file):
    text = PAGE.read_text(encoding="utf-8")
    tests = [name for name in functions(HERE / file) if name.startswith("test_")]
    assert [name for name in tests if f"security/{file}::{name}" not in text] == []
