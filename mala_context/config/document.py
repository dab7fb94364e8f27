"""YAML text as a tree whose every node knows its line.

The tree is built from the parser's events on a stack of our own, so that deep nesting costs no recursion. An alias is
the node that it names and is never copied, but what copying would amount to is counted and bounded: a small file may
not stand for millions of values. Merge keys (`<<`) are applied when their mapping closes.

Scalars are read by YAML 1.1's rules, as PyYAML does, with three differences: numbers in base 60, numbers with a
leading zero, and dates stay text, because nobody means the number that they would become.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Final

MAX_CHARACTERS: Final = 1 << 20
"""Characters that a file may have."""
MAX_DEPTH: Final = 100
"""Levels of nesting that a file may have."""
MAX_COPIES: Final = 10_000
"""Values that the aliases of a file may stand for in all."""

_CORE = "tag:yaml.org,2002:"
_CORE_TAGS = frozenset({None, "!", *(_CORE + name for name in ("str", "int", "float", "bool", "null", "seq", "map"))})
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
    """A tag that we do not read, e.g. `!secret`; `None` for the ordinary ones."""
    size: int = 1
    """Values in it, with every alias spelt out."""
    closed: bool = True
    """Whether its end was read; an alias to an open node is a loop."""


@dataclass(slots=True)
class Scalar(Node):
    """Text, a number, true, false or null."""

    text: str = ""
    value: bool | int | float | str | None = None
    quoted: bool = False


@dataclass(slots=True)
class Items(Node):
    """A list."""

    items: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Table(Node):
    """A mapping: its own entries in order, duplicates too, and behind them those merged in by `<<`."""

    entries: list[tuple[Node, Node]] = field(default_factory=list)
    merged: list[tuple[Node, Node]] = field(default_factory=list)
    pending: Node | None = None


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
    try:
        return _Builder(getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)).build()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        words = " ".join(str(getattr(error, "problem", None) or getattr(error, "reason", None) or error).split())
        tab = _TAB.search(text)
        hint = "; a line is indented with a tab, YAML wants spaces" if tab else ""
        line = mark.line + 1 if mark else None
        raise MalformedError(f"not YAML: {words}{hint}", line) from None
    except (ValueError, OverflowError) as error:  # PyYAML's own scanner on "\UFFFFFFFF" and on absurd directives
        raise MalformedError(f"not YAML: {error}") from None


class _Builder:
    """Walks the parser's events once; `handlers` says what each kind of event does."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        self.stack: list[Items | Table] = []
        self.anchors: dict[str, Node] = {}
        self.copies = 0
        self.documents = 0
        self.root: Node | None = None
        self.handlers: dict[str, Any] = {
            "DocumentStartEvent": self._document,
            "ScalarEvent": self._scalar,
            "AliasEvent": self._alias,
            "SequenceStartEvent": self._open,
            "MappingStartEvent": self._open,
            "SequenceEndEvent": self._close,
            "MappingEndEvent": self._close,
        }

    def build(self) -> Node | None:
        while self.loader.check_event():
            event = self.loader.get_event()
            handler = self.handlers.get(type(event).__name__)
            if handler is not None:
                handler(event, event.start_mark.line + 1)
        return self.root

    def _document(self, _event: Any, line: int) -> None:
        self.documents += 1
        if self.documents > 1:
            raise MalformedError("a second document starts here; one file is one document", line)

    def _scalar(self, event: Any, line: int) -> None:
        import yaml

        tag = event.tag
        if tag in {None, "!"}:
            tag = self.loader.resolve(yaml.ScalarNode, event.value, event.implicit)
        quoted = event.style is not None and event.style != ""
        strange = None if event.tag in _CORE_TAGS else event.tag
        node = Scalar(line, strange, text=event.value, value=plain_value(tag, event.value), quoted=quoted)
        self._register(event, node)
        self._add(node)

    def _alias(self, event: Any, line: int) -> None:
        node = self.anchors.get(event.anchor)
        if node is None:
            raise MalformedError(f"no anchor &{event.anchor} before this alias", line)
        if not node.closed:
            raise MalformedError(f"the value of &{event.anchor} holds itself", line)
        self.copies += node.size
        if self.copies > MAX_COPIES:
            raise MalformedError(f"aliases stand for more than {MAX_COPIES:,} values", line)
        self._add(node)

    def _open(self, event: Any, line: int) -> None:
        if len(self.stack) >= MAX_DEPTH:
            raise MalformedError(f"nested deeper than {MAX_DEPTH} levels", line)
        strange = None if event.tag in _CORE_TAGS else event.tag
        kind = Items if type(event).__name__ == "SequenceStartEvent" else Table
        node = kind(line, strange, closed=False)
        self._register(event, node)
        self.stack.append(node)

    def _close(self, _event: Any, _line: int) -> None:
        node = self.stack.pop()
        node.closed = True
        if isinstance(node, Table):
            _apply_merges(node)
        self._add(node)

    def _register(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self.anchors[event.anchor] = node

    def _add(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        parent.size += node.size
        if isinstance(parent, Items):
            parent.items.append(node)
        elif parent.pending is None:
            parent.pending = node
        else:
            parent.entries.append((parent.pending, node))
            parent.pending = None


def _apply_merges(table: Table) -> None:
    """Move `<<` entries that name mappings into `merged`; earlier ones win, and the table's own win over all."""
    own: list[tuple[Node, Node]] = []
    for key, value in table.entries:
        sources = value.items if isinstance(value, Items) else [value]
        is_merge = isinstance(key, Scalar) and key.text == "<<" and not key.quoted
        if is_merge and sources and all(isinstance(source, Table) for source in sources):
            for source in sources:
                if isinstance(source, Table):
                    table.merged += source.entries + source.merged
        else:
            own.append((key, value))
    table.entries = own


def plain_value(tag: str, text: str) -> bool | int | float | str | None:
    """Return what a scalar with the resolved `tag` stands for; what cannot be read stays text."""
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
