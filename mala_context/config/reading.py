"""Compare a tree of values with the table of keys: return a `ContextConfig`, or raise every problem at once.

The tree comes from a file, or from a `ContextConfig` that a program made: both are checked by the same rules.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from mala_context._util.safe_open import read_regular
from mala_context._util.text import printable
from mala_context.config.document import (
    MAX_CHARACTERS,
    ListNode,
    MalformedError,
    MappingNode,
    Node,
    ScalarNode,
    read_document,
)
from mala_context.config.schema import (
    ACCEPTED,
    NULLABLE_SECTIONS,
    REMOVED,
    SCHEMA,
    SECTIONS,
    THRESHOLDS,
    Key,
    encryption_problem,
    setting,
)
from mala_context.config.settings import ContextConfig
from mala_context.config.values import InvalidValueError, found, read, shown
from mala_context.errors import ConfigError, ConfigProblem

FILE_NAME: Final = "mala.yaml"
_KEYS: Final = {key.path: key for key in SCHEMA}
_NAMES: Final = frozenset({*_KEYS, *SECTIONS})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration and where it comes from."""

    config: ContextConfig
    path: str | None
    """The file; `None` if there is no file, and every key has its default."""
    lines: Mapping[str, int]
    """Dotted path of each key and mapping that the file names → its line."""


def load_config(path_or_repo: str | os.PathLike[str]) -> ContextConfig:
    """Read a repository's `mala.yaml`, or the file itself; where there is no file, return the defaults.

    Raises `ConfigError` for a file that cannot be read, is not UTF-8, or is wrong; nothing else.
    """
    return load_with_lines(path_or_repo).config


def load_with_lines(path_or_repo: str | os.PathLike[str]) -> Loaded:
    """Read like `load_config`, and return also the line of each value. Raises `ConfigError` and nothing else."""
    path = os.fspath(path_or_repo)
    try:
        if os.path.isdir(path):
            path = os.path.join(path, FILE_NAME)
        if _is_missing(path):
            return Loaded(ContextConfig(), None, {})
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _unreadable(path, "it is no regular file")
        data = read_regular(path, 4 * MAX_CHARACTERS + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable(path, f"byte {error.start} is not UTF-8; save the file as UTF-8", line) from None
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    return _parse(text, path)


def _is_missing(path: str) -> bool:
    """Tell whether nothing has this name. Raises `OSError` if the system does not tell, unlike `os.path.lexists`."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no file's name holds a NUL
        return True
    return False


def parse(text: str, path: str | None = None) -> ContextConfig:
    """Read the text of a `mala.yaml`; `path` only names it in errors.

    Raises `ConfigError` with every problem found, and nothing else.
    """
    return _parse(text, path).config


def _parse(text: str, path: str | None) -> Loaded:
    try:
        root = read_document(text.removeprefix("\ufeff"))
    except MalformedError as error:
        raise _error([ConfigProblem("", " ".join(map(shown, str(error).split(" "))), error.line)], path) from None
    walk = _Walk()
    config = walk.document(root)
    if walk.problems:
        raise _error(walk.problems, path)
    return Loaded(config, path, walk.lines)


def checked(config: ContextConfig) -> ContextConfig:
    """Return a configuration that a program made, as a file with the same values gives it.

    Raises `ConfigError` with every problem found. Without this check a `warn_at` of 70 would never warn.
    """
    walk = _Walk()
    made = walk.document(MappingNode(0, entries=[(_node("context"), _node(config))]))
    if walk.problems:
        raise _error([ConfigProblem(each.key, each.message) for each in walk.problems], None, where="ContextConfig")
    return made


def _mapping(record: Any) -> MappingNode:
    """Return a record as a mapping. A field with its default is left out, like a key that a file does not name."""
    default = type(record)()
    pairs = [(item.name, getattr(record, item.name), getattr(default, item.name)) for item in fields(record)]
    named = [(name, mine) for name, mine, other in pairs if type(mine) is not type(other) or mine != other]
    return MappingNode(0, entries=[(_node(name), _node(mine)) for name, mine in named])


def _node(value: Any) -> Node:
    """Return a value of a program as a node of a file's tree."""
    if isinstance(value, tuple(SECTIONS.values())):
        return _mapping(value)
    if isinstance(value, list | tuple):
        return ListNode(0, items=[_node(each) for each in value])
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    plain = next((kind(given) for kind in (bool, int, float, str) if isinstance(given, kind)), given)
    return ScalarNode(0, text=str(plain), value=plain, quoted=isinstance(plain, str))


def _unreadable(path: str, why: str, line: int | None = None) -> ConfigError:
    return _error([ConfigProblem("", f"cannot be read: {why}", line)], path)


def _error(problems: list[ConfigProblem], path: str | None, where: str = FILE_NAME) -> ConfigError:
    """Return one error for all problems: removed fields first, because their wording is fixed, then the others."""
    where = printable(path) if path else where
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    removed = [problem.message for problem in ordered if problem.key in REMOVED]
    lines = [
        ":".join([where, *([str(problem.line)] if problem.line else []), *([f" {problem.key}"] if problem.key else [])])
        + f": {problem.message}"
        for problem in ordered
        if problem.key not in REMOVED
    ]
    if len(lines) > 1:
        lines.insert(0, f"{len(lines)} problems in {where}:")
    return ConfigError("\n".join([*removed, *lines]), problems=tuple(ordered), path=path)


def _children(section: str) -> dict[str, str]:
    """Return name and path of each key and mapping directly in a section."""
    return {key.rpartition(".")[2]: key for key in sorted(_NAMES) if key.rpartition(".")[0] == section}


class _Walk:
    """Reads one document, and collects its `problems`."""

    def __init__(self) -> None:
        self.problems: list[ConfigProblem] = []
        self.lines: dict[str, int] = {}

    def document(self, root: Node | None) -> ContextConfig:
        if root is None or (isinstance(root, ScalarNode) and root.value is None and root.tag is None):
            return ContextConfig()
        if not isinstance(root, MappingNode) or root.tag is not None:
            self._problem("", root.line, f"found {found(root)} at the top level, wanted a mapping with `context:`")
            return ContextConfig()
        section: Node | None = None
        for name, key, value in self._entries(root, "", duplicates=frozenset({"context"})):
            if name == "context":
                section = value
            elif name in REMOVED:
                self._removed(name, key.line)
            elif name not in ACCEPTED:
                self._unknown(name, key.line)
        values = self._section("context", section)
        config = ContextConfig() if values is None else values
        for paths in THRESHOLDS:
            self._thresholds(config, paths)
        self._reserve(config)
        self._encryption(config)
        return config

    def _section(self, path: str, node: Node | None) -> Any:
        """Return the record of a mapping, complete with defaults; `None` if it is absent and may be."""
        absent = node is None or (isinstance(node, ScalarNode) and node.value is None and node.tag is None)
        if absent or not isinstance(node, MappingNode) or node.tag is not None:
            if not absent and node is not None:
                names = ", ".join(_children(path))
                self._problem(path, node.line, f"found {found(node)}, wanted a mapping of {names}")
            return None if path in NULLABLE_SECTIONS else SECTIONS[path]()
        values: dict[str, Any] = {}
        subsections: dict[str, Node] = {}
        for name, key, value in self._entries(node, path):
            child = f"{path}.{name}"
            self.lines[child] = key.line
            if child in SECTIONS:
                subsections[name] = value
            elif child in _KEYS:
                self._value(_KEYS[child], value, values)
            else:
                self._unknown(child, key.line)
        for name, child_node in subsections.items():
            values[name] = self._section(f"{path}.{name}", child_node)
        record = SECTIONS[path](**values)
        if path in NULLABLE_SECTIONS and record == SECTIONS[path]() and not self._has_problem(path):
            self._problem(path, node.line, "found nothing in it, wanted at least one of days and bytes, or null")
        return record

    def _value(self, key: Key, node: Node, values: dict[str, Any]) -> None:
        try:
            values[key.name] = read(key.kind, node)
        except InvalidValueError as wrong:
            hint = f" ({wrong})" if str(wrong) else ""
            self._problem(key.path, node.line, f"found {found(node)}, wanted {key.kind.words}{hint}")

    def _entries(
        self, table: MappingNode, path: str, duplicates: frozenset[str] | None = None
    ) -> list[tuple[str, Node, Node]]:
        """Return (name, key, value) of each key once, and note keys that are no text or occur twice.

        `duplicates` limits the second check to some names: other programs' fields are not checked.
        """
        seen: dict[str, tuple[Node, Node]] = {}
        merged_from = len(table.entries)
        for number, (key, value) in enumerate([*table.entries, *table.merged]):
            if not isinstance(key, ScalarNode):
                self._problem(path, key.line, f"found {found(key)} as a key, wanted a name")
            elif key.text not in seen:
                seen[key.text] = (key, value)
            # Keys that `<<` merges in come after the table's own keys and never override them, so a second one is no
            # mistake there.
            elif number < merged_from and (duplicates is None or key.text in duplicates):
                first = seen[key.text][0].line
                full = f"{path}.{shown(key.text)}" if path else shown(key.text)
                self._problem(full, key.line, f"found twice, first on line {first}; keep one")
        return [(name, key, value) for name, (key, value) in seen.items()]

    def _removed(self, name: str, line: int) -> None:
        new = REMOVED[name]
        words = f"Use `{new.rpartition('.')[2]}` under `context:` instead ({new}); the old field is on line {line}."
        self._problem(name, line, f"Unknown field '{name}' in {FILE_NAME}\n{words}")

    def _unknown(self, path: str, line: int) -> None:
        section, _, name = path.rpartition(".")
        siblings = _children(section)
        if not section:
            siblings |= {field: field for field in ACCEPTED}
        close = difflib.get_close_matches(name[:100], siblings, n=1)
        elsewhere = sorted(key for key in _NAMES if key.rpartition(".")[2] == name)
        right = siblings[close[0]] if close else elsewhere[0] if elsewhere else ""
        known = f"wanted one of {', '.join(sorted(siblings))}" if section else "wanted `context:` for our own keys"
        hint = f"did you mean {right}?" if right else known
        full = f"{section}.{shown(name)}" if section else shown(name)
        message = f"unknown key, {hint}" if section else f"Unknown field '{shown(name)}' in {FILE_NAME}, {hint}"
        self._problem(full, line, message)

    def _thresholds(self, config: ContextConfig, paths: Sequence[str]) -> None:
        """Note each threshold that is below the one before it."""
        last = ("", 0.0)
        for path in paths:
            value = setting(config, path)
            if value is None or self._has_problem(path):
                continue
            if value < last[1]:
                named = " (its default)" if last[0] not in self.lines else ""
                line = self.lines.get(path) or self.lines.get(last[0])
                words = f"found {value:g}, wanted {last[1]:g} or more, since {last[0]} is {last[1]:g}{named}"
                self._problem(path, line, words)
            last = max(last, (path, value), key=lambda pair: pair[1])

    def _reserve(self, config: ContextConfig) -> None:
        """Refuse a guard that keeps the whole window free: every request would be over its limit."""
        guard, window = config.guard, config.window
        if window == "auto" or self._has_problem("context.guard") or self._has_problem("context.window"):
            return
        left = window - guard.buffer_tokens - guard.max_output_tokens
        given = [name for name in ("max_output_tokens", "buffer_tokens") if f"context.guard.{name}" in self.lines]
        if left <= 0 and given:
            key = f"context.guard.{given[0]}"
            found = getattr(guard, given[0])
            words = f"found {found:,}, wanted less: with it {left:,} tokens of context.window {window:,} are left"
            self._problem(key, self.lines.get(key), words)

    def _encryption(self, config: ContextConfig) -> None:
        problem = encryption_problem(config.archive)
        if problem is not None and not self._has_problem("context.archive"):
            self._problem(problem[0], self.lines.get(problem[0]), problem[1])

    def _has_problem(self, path: str) -> bool:
        return any(problem.key == path or problem.key.startswith(path + ".") for problem in self.problems)

    def _problem(self, key: str, line: int | None, message: str) -> None:
        self.problems.append(ConfigProblem(key, message, line))
