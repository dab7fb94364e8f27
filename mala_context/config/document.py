"""Read YAML text into a tree in which every node knows its line.

PyYAML composes the tree. The depth is checked first, on the parser's events, because composing is recursive. An alias
is the node that it names and is never copied. But the values that copies would have are counted and limited: a small
file must not stand for millions of values. Merge keys (`<<`) are applied here.

Scalars are read by YAML 1.1's rules, as PyYAML does, with three differences: numbers in base 60, numbers with a
leading zero, and dates stay text, because no user means the number that they would become.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

MAX_CHARACTERS: Final = 1 << 20
"""Characters that a file may have."""
MAX_DEPTH: Final = 100
"""Levels of nesting that a file may have."""
MAX_COPIES: Final = 10_000
"""Values that the aliases of a file may stand for in all."""

_CORE = "tag:yaml.org,2002:"
_CORE_TAGS = frozenset(
    _CORE + name for name in ("str", "int", "float", "bool", "null", "seq", "map", "timestamp", "merge", "value")
)
_TRUE = frozenset({"yes", "true", "on"})
_SPECIAL_FLOATS = {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}
_TAB = re.compile(r"^[ ]*\t", re.MULTILINE)


class MalformedError(Exception):
    """Text that is no YAML, or YAML beyond the bounds; `line` counts from 1 and may be unknown."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True)
class Node:
    """A value of the document."""

    line: int
    tag: str | None = None
    """A tag that is not read here, e.g. `!secret`; `None` for YAML's own tags."""
    size: int = 1
    """Values in it, with every alias spelt out."""
    closed: bool = True
    """Whether its end was read; an alias to an open node is a loop."""


@dataclass(slots=True)
class ScalarNode(Node):
    """Text, a number, true, false or null."""

    text: str = ""
    value: bool | int | float | str | None = None
    quoted: bool = False


@dataclass(slots=True)
class ListNode(Node):
    """A list."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class MappingNode(Node):
    """A mapping: its own entries in order, duplicates too, and after them those merged in by `<<`."""

    entries: list[tuple[Node, Node]] = field(default_factory=list)
    merged: list[tuple[Node, Node]] = field(default_factory=list)


def read_document(text: str) -> Node | None:
    """Return the root of the only document in `text`, `None` for an empty one.

    Raises `MalformedError`, and nothing else.
    """
    import yaml

    if len(text) > MAX_CHARACTERS:
        raise MalformedError(f"the file has more than {MAX_CHARACTERS:,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedError("half of a surrogate pair", text.count("\n", 0, error.start) + 1) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _check_depth(yaml.parse(text, loader))
        root = yaml.compose(text, loader)
        return None if root is None else _Tree().node(root)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        said = [getattr(error, name, None) for name in ("context", "problem", "reason")]
        words = " ".join(", ".join(filter(None, said)).split()) or str(error)
        tab = _TAB.search(text)
        hint = "; a line is indented with a tab, YAML wants spaces" if tab else ""
        line = mark.line + 1 if mark else None
        raise MalformedError(f"not YAML: {words}{hint}", line) from None
    except (ValueError, OverflowError) as error:  # PyYAML's own scanner on "\UFFFFFFFF" and on absurd directives
        raise MalformedError(f"not YAML: {error}") from None


def _check_depth(events: Iterable[Any]) -> None:
    depth = 0
    for event in events:
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        if depth > MAX_DEPTH + 2:  # the stream and the document count too
            raise MalformedError(f"nested deeper than {MAX_DEPTH} levels", event.start_mark.line + 1)


class _Tree:
    """Makes a node of ours from each node of PyYAML, once."""

    def __init__(self) -> None:
        self._made: dict[int, Node] = {}
        self._copies = 0

    def node(self, given: Any) -> Node:
        """Return our node; raises `MalformedError` for one that holds itself, and for too many copies."""
        line, tag = given.start_mark.line + 1, given.tag
        node = self._made.get(id(given))
        if node is not None:
            if not node.closed:
                raise MalformedError("a value holds itself", line)
            self._copies += node.size
            if self._copies > MAX_COPIES:
                raise MalformedError(f"aliases stand for more than {MAX_COPIES:,} values", line)
            return node
        strange = None if tag in _CORE_TAGS else tag
        if given.id == "scalar":
            value, quoted = _plain_value(tag, given.value), bool(given.style)
            node = self._made[id(given)] = ScalarNode(line, strange, text=given.value, value=value, quoted=quoted)
        elif given.id == "sequence":
            node = self._made[id(given)] = items = ListNode(line, strange, closed=False)
            items.items = [self.node(each) for each in given.value]
            items.size += sum(each.size for each in items.items)
        else:
            node = self._made[id(given)] = table = MappingNode(line, strange, closed=False)
            table.entries = [(self.node(key), self.node(value)) for key, value in given.value]
            table.size += sum(key.size + value.size for key, value in table.entries)
            _apply_merges(table)
        node.closed = True
        return node


def _apply_merges(table: MappingNode) -> None:
    """Move `<<` entries that name mappings into `merged`; earlier ones win, and the table's own win over all."""
    own: list[tuple[Node, Node]] = []
    for key, value in table.entries:
        sources = value.items if isinstance(value, ListNode) else [value]
        is_merge = isinstance(key, ScalarNode) and key.text == "<<" and not key.quoted
        if is_merge and sources and all(isinstance(source, MappingNode) for source in sources):
            for source in sources:
                if isinstance(source, MappingNode):
                    table.merged += source.entries + source.merged
        else:
            own.append((key, value))
    table.entries = own


def _plain_value(tag: str, text: str) -> bool | int | float | str | None:
    """Return the value of a scalar with the resolved `tag`; a value that cannot be read stays text."""
    kind = tag.removeprefix(_CORE)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in _TRUE
    digits = text.replace("_", "")
    try:
        if kind == "int":
            return int(digits, 0)
        if kind == "float":
            return _SPECIAL_FLOATS[digits.lower()] if digits.lower() in _SPECIAL_FLOATS else float(digits)
    except ValueError:
        return text
    return text
