"""The pages against the code: log lines that exist, links that lead somewhere, blocks that can be read."""

import ast
import json
import pathlib
import re

import pytest

from mala_context import ContextTracker
from mala_context.config import parse
from mala_context.stream import log_values

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOG_PAGE = (ROOT / "docs/reference/log-lines.md").read_text()
LOG_ROWS = re.findall(r"^\| ([A-Z]+) \| `([^`]+)`", LOG_PAGE, re.MULTILINE)
LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
_FORMAT = re.compile(r"%[-+.#0-9]*[sdgrxf]")
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def constants(tree):
    """Return every text in a tree, cut at the places of values."""
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [piece for text in texts for piece in _FORMAT.split(text)]


def is_log_call(node):
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return False
    return node.func.attr in LEVELS and isinstance(node.func.value, ast.Name) and node.func.value.id in {"log", "_log"}


def code():
    """Return all texts of the package, and those that log calls hold themselves, by level."""
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "mala_context").rglob("*.py"))]
    calls = [node for tree in trees for node in ast.walk(tree) if is_log_call(node)]
    texts = [text for tree in trees for text in constants(tree)]
    return texts, [(LEVELS[node.func.attr], constants(node.args[0])) for node in calls]


TEXTS, CALLS = code()


def fragments(line):
    """Return what stands between the values of a documented line, the short and common pieces left out."""
    return [piece for piece in re.split(r"\{[^}]*\}", line) if len(piece.strip(" ():,.;")) >= 4]


def is_in_code(piece):
    """Tell whether a text of the code has these words, or two texts between them, since one is a value of the other."""
    cuts = [0, *(match.start() for match in re.finditer(" ", piece))]
    return any(all(any(part.strip() in text for text in TEXTS) for part in (piece[:cut], piece[cut:])) for cut in cuts)


def blocks(path, *kinds):
    """Return the code blocks of a page that are of these kinds, without their indentation."""
    found = [(indent, kind, body) for indent, kind, body in _BLOCK.findall(path.read_text()) if kind in kinds]
    return [re.sub(f"^{indent}", "", body, flags=re.MULTILINE) for indent, _, body in found]


def all_blocks(*kinds):
    return [
        pytest.param(body, id=f"{path.relative_to(ROOT)}-{number}")
        for path in PAGES
        for number, body in enumerate(blocks(path, *kinds), 1)
    ]


class TestLogLines:
    def test_there_are_many(self):
        assert len(LOG_ROWS) == LOG_PAGE.count("\n| ") - 2 * LOG_PAGE.count("| level |")
        assert len(LOG_ROWS) > 50

    @pytest.mark.parametrize(("level", "line"), LOG_ROWS)
    def test_each_line_is_in_the_code(self, level, line):
        pieces = fragments(line)
        assert pieces or line == "Archive: {why}"
        for piece in pieces:
            assert is_in_code(piece), piece

    @pytest.mark.parametrize(("level", "line"), LOG_ROWS)
    def test_its_level_is_the_codes(self, level, line):
        """Where the words stand in the call itself; lines that are composed elsewhere have no call to look at."""
        longest = max(fragments(line), key=len, default="Archive: ")
        levels = {at for at, texts in CALLS if any(longest in text for text in texts)}
        assert not levels or level in levels

    def test_the_key_values_are_those_of_the_code(self):
        (named,) = re.findall(r"Lines marked with \* carry (.*?)\n\(which", LOG_PAGE, re.DOTALL)
        assert re.findall(r"`([a-z]+)`", named) == list(log_values(ContextTracker().snapshot()))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_the_index_names_every_page():
    named = set(re.findall(r"\]\(([^)]+)\)", (ROOT / "docs/index.md").read_text()))
    for path in PAGES[2:]:
        if path.name != "index.md":
            assert str(path.relative_to(ROOT / "docs")) in named


@pytest.mark.parametrize("text", all_blocks("python"))
def test_python_blocks_compile(text):
    compile(text, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("text", all_blocks("python"))
def test_what_python_blocks_import_is_there(text):
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    exec("\n".join(map(ast.unparse, imports)), {})


@pytest.mark.parametrize("text", [each for each in all_blocks("yaml") if each.values[0].startswith("context:")])
def test_yaml_blocks_are_read(text):
    parse(text)


@pytest.mark.parametrize("text", all_blocks("json", "jsonl"))
def test_json_blocks_are_json(text):
    """One value, or one a line."""
    try:
        json.loads(text)
    except ValueError:
        for line in text.splitlines():
            json.loads(line)


@pytest.mark.parametrize("text", all_blocks("console", "sh", "bash"))
def test_commands_and_their_options_are_there(text):
    from importlib import import_module

    import click

    from mala_context.cli.app import COMMANDS

    for line in re.findall(r"\bmala-context ((?:[a-z][\w-]* ?)+)([^\n|]*)", text):
        names = line[0].split()
        assert names[0] in COMMANDS
        command = getattr(import_module(COMMANDS[names[0]][0]), names[0].replace("-", "_"))
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), names[1])
            assert command is not None, names
        options = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[a-z][\w-]*", line[0] + line[1])) <= options | {"--help"}


def test_the_readme_names_every_command():
    from mala_context.cli.app import COMMANDS

    assert set(re.findall(r"^\| `mala-context (\w+)", PAGES[0].read_text(), re.MULTILINE)) == set(COMMANDS)
