"""The pages against the code: log lines that exist, links that lead somewhere, blocks that can be read."""

import ast
import collections
import importlib
import inspect
import pathlib
import re

import pytest

import mala_context
from mala_context import ContextTracker, testing
from mala_context.agent.log_lines import log_values
from mala_context.archive import manifests
from mala_context.archive.remote import uploaded
from mala_context.config.schema import SCHEMA, THRESHOLDS

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE = sorted((ROOT / "mala_context").rglob("*.py"))
LOG_PAGE = (ROOT / "docs/reference/log-lines.md").read_text()
LOG_ROWS = re.findall(r"^\| ([A-Z]+) \| `([^`]+)`", LOG_PAGE, re.MULTILINE)
LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}
_FORMAT = re.compile(r"%[-+.#0-9]*[sdgrxf]")


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


class TestLogLines:
    def test_there_are_many(self):
        assert len(LOG_ROWS) == LOG_PAGE.count("\n| ") - 2 * LOG_PAGE.count("| level |")
        assert len(LOG_ROWS) > 50

    def test_no_line_is_there_twice(self):
        lines = [line for _, line in LOG_ROWS]
        assert sorted(set(lines)) == sorted(lines)

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

    @pytest.mark.parametrize("texts", [texts for _, texts in CALLS])
    def test_each_line_of_the_code_is_on_the_page(self, texts):
        """By its longest words, or by two parts of them, since one may be a value of the other."""
        longest = max((text.strip(" ():,.;'") for text in texts), key=len, default="")
        words = re.sub("[{}`]", "", longest)
        page = re.sub("[{}`]", "", LOG_PAGE)
        cuts = [0, *(match.start() for match in re.finditer(" ", words))]
        assert any(words[:cut].strip() in page and words[cut:].strip() in page for cut in cuts), longest

    def test_the_key_values_are_those_of_the_code(self):
        (named,) = re.findall(r"Lines marked with \* carry (.*?)\n\(which", LOG_PAGE, re.DOTALL)
        assert re.findall(r"`([a-z]+)`", named) == list(log_values(ContextTracker().snapshot()))


def slug(heading):
    """Return the anchor that a heading has on the site and on a forge."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(path):
    text = re.sub(r"^ *```.*?^ *```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


def links(path):
    """Return the targets of a page's links, code left out."""
    text = re.sub(r"^ *```.*?^ *```|`[^`\n]+`", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\(([^)\s]+)[^)]*\)", text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    for target in links(path):
        if "://" in target:
            assert target.startswith("https://"), target
            continue
        name, _, anchor = target.partition("#")
        place = (path.parent / name).resolve() if name else path
        assert place.exists(), target
        assert not anchor or anchor in anchors(place), target


def test_the_index_names_every_page():
    named = {target for target in links(ROOT / "docs/index.md") if "://" not in target}
    pages = {str(path.relative_to(ROOT / "docs")) for path in PAGES if (ROOT / "docs") in path.parents}
    assert pages - {"index.md"} <= named
    assert len(links(ROOT / "docs/index.md")) == len(set(links(ROOT / "docs/index.md"))) + 1, (
        "the tutorial alone is named twice"
    )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_of_a_checkout_are_there(path):
    for name in re.findall(r"(?:~|/home/dev)/mala-context/([\w./-]+)", path.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("room", ["how-to", "tutorial"])
def test_a_page_that_starts_with_our_package_says_that_it_comes_from_a_checkout(room):
    pages = sorted((ROOT / "docs" / room).glob("*.md"))
    assert pages
    assert [page.name for page in pages if "checkout" not in page.read_text()] == []


def test_the_examples_page_names_every_example():
    named = set(links(ROOT / "examples/README.md"))
    assert {path.name for path in (ROOT / "examples").glob("*.py")} <= named


def test_the_api_page_has_every_public_name():
    """Each name of the package and of its testing room is documented from its docstring."""
    page = (ROOT / "docs/reference/api.md").read_text()
    shown = set(re.findall(r"\.\. auto\w+:: ([\w.]+)", page))
    assert set(mala_context.__all__) <= shown
    assert set(testing.__all__) - {"STORE_CHECKS", "check_store"} <= shown
    assert "mala_context.testing.battery" in shown


class TestArchiveFormat:
    page = (ROOT / "docs/reference/archive-format.md").read_text()

    def test_rows_are_those_of_the_code(self):
        kinds = set(re.findall(r"^\| `(\w+)` \| `", self.page, re.MULTILINE))
        calls = {text for path in PACKAGE for text in re.findall(r'new_row\(\s*"(\w+)"', path.read_text())}
        assert calls | {uploaded.KIND} == kinds

    def test_triggers_are_those_of_the_code(self):
        written = {
            text for path in PACKAGE for text in re.findall(r'\btrigger(?:: str)?\s*=\s*"(\w+)"', path.read_text())
        }
        (table,) = re.findall(r"\| trigger \| written \|\n(.*?)\n\n", self.page, re.DOTALL)
        named = set(re.findall(r"`(\w+)`", re.sub(r"\|[^|]*\|$", "", table, flags=re.MULTILINE)))
        assert written | {"auto", "manual"} == named

    def test_outcomes_are_those_of_the_code(self):
        (words,) = re.findall(r"\| `outcome` \| `outcome` \(([^)]*)\)", self.page)
        assert set(re.findall(r"`(\w+)`", words)) == manifests.OUTCOMES


IMPORT = re.compile(r"^ *from (mala_context[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)


def referenced():
    """Return what the reference of the API describes: single objects, and all that some modules have."""
    module, found = "mala_context", []
    for directive, name in re.findall(
        r"^\.\. (currentmodule|auto\w+):: (\S+)", (ROOT / "docs/reference/api.md").read_text(), re.MULTILINE
    ):
        if directive == "currentmodule":
            module = name
        elif directive == "automodule":
            found += vars(importlib.import_module(name)).values()
        else:
            home, _, own = (name if "." in name else f"{module}.{name}").rpartition(".")
            found.append(getattr(importlib.import_module(home), own))
    return found


PUBLIC = {"mala_context", "mala_context.testing"}
"""Modules whose names are public; all others may move."""


def test_pages_and_examples_import_from_public_modules_alone():
    for page in [*PAGES, *sorted((ROOT / "examples").glob("*.py"))]:
        assert {home for home, _ in IMPORT.findall(page.read_text())} <= PUBLIC, page.name


def test_what_pages_and_examples_import_is_in_the_reference():
    there = referenced()
    for page in [*PAGES, *sorted((ROOT / "examples").glob("*.py"))]:
        for home, names in IMPORT.findall(page.read_text()):
            for name in re.findall(r"\w+", names.partition("#")[0]):
                used = getattr(importlib.import_module(home), name)
                assert inspect.ismodule(used) or any(used is each for each in there), f"{page.name}: {home}.{name}"


def test_what_nothing_here_uses_is_written_about():
    """Else nobody but a test would call it."""
    there = referenced()
    places = [*PACKAGE, *PAGES, ROOT / "hooks/hook.py"]
    words = collections.Counter(word for path in places for word in re.findall(r"\w+", path.read_text()))
    for path in PACKAGE:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and words[node.name] == 1:
                home = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                own = getattr(importlib.import_module(home), node.name)
                assert any(own is each for each in there), f"{home}.{node.name}"


def test_the_page_says_of_each_threshold_who_can_carry_it_out():
    page = (ROOT / "docs/how-to/a-threshold-that-acts.md").read_text()
    _, _, table = page.partition("| key |")
    rows = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    named = {each.partition(":")[0] for row in rows for each in re.findall("`([^`]+)`", row)}
    keys = {each.path.removeprefix("context.") for each in SCHEMA}
    assert named <= {*keys, "archive"}
    assert {each.removeprefix("context.") for each in THRESHOLDS[0]} <= named
