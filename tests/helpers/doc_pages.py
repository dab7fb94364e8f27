"""The pages and their code blocks, for the tests that run them.

A block may have a word to the test suite in the comment before it, which no reader sees: `<!-- not run: WHY -->`, `<!--
refused -->` (a configuration that is an error), `<!-- file: NAME -->` (see `walkthrough`).
"""

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN, REFUSED, FILE = "not run", "refused", "file"
_BLOCK = re.compile(
    r"(?:<!-- (?P<mark>not run|refused|file)(?:: (?P<words>[^>]+))? -->\n+)?"
    r"^(?P<indent> *)```(?P<kind>[\w{}-]*)\n(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
PLAYED = re.compile(r"<!-- world: \w+ -->")


class Block(NamedTuple):
    """One code block of a page."""

    path: pathlib.Path
    number: int
    """Its place among the page's blocks of this kind, from 1."""
    kind: str
    """The word behind the fence; empty for what a program printed."""
    body: str
    mark: str | None
    words: str | None
    """What the mark says."""

    @property
    def id(self) -> str:
        """Name of the block in a test's id."""
        return f"{self.path.relative_to(ROOT)}-{self.kind or 'output'}-{self.number}"


def read(path: pathlib.Path) -> list[Block]:
    """Return the blocks of a page, without their indentation."""
    found: list[Block] = []
    for match in _BLOCK.finditer(path.read_text(encoding="utf-8")):
        body = re.sub(f"^{match['indent']}", "", match["body"], flags=re.MULTILINE)
        number = 1 + sum(each.kind == match["kind"] for each in found)
        found.append(Block(path, number, match["kind"], body, match["mark"], match["words"]))
    return found


BLOCKS = [block for path in PAGES for block in read(path)]


def of_kind(*kinds: str) -> list[Block]:
    """Return all blocks of these kinds that can be run."""
    return [block for block in BLOCKS if block.kind in kinds and block.mark != NOT_RUN]
