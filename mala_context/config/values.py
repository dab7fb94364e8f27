"""Kinds of values: which values are valid, in words, and how a node of the document becomes a value.

A kind's `read` returns the value or raises `InvalidValueError`; nothing else. The caller adds file, line and key to the
error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from mala_context._util.text import printable, size_bytes
from mala_context.archive.remote.address import check_address, check_prefix, is_address
from mala_context.config.document import ListNode, MalformedError, Node, ScalarNode, read_document

_TOOL = re.compile(r"[A-Za-z_][\w.-]*(\(.+\))?\*?")
_SHOWN: Final = 60


class InvalidValueError(Exception):
    """The node does not hold a value of this kind; the text, if any, is a hint on how to fix it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value."""

    words: str
    """Which values are valid; follows "wanted" in an error."""
    read: Callable[[Node], Any]
    """Node to value; raises `InvalidValueError`."""


def shown(text: str) -> str:
    """Return text from a file, made safe and short for one line of a terminal."""
    escaped = printable(text[: _SHOWN + 1])
    return escaped if len(escaped) <= _SHOWN else escaped[: _SHOWN - 1] + "…"


def found(node: Node) -> str:
    """Describe the value in the file; follows "found" in an error."""
    if node.tag is not None:
        return f"the tag {shown(node.tag)}"
    if isinstance(node, ScalarNode):
        if isinstance(node.value, str):
            return f'the text "{shown(_without_secrets(node.text))}"' if node.text else "an empty text"
        return "nothing" if node.value is None else shown(node.text)
    return "a list" if isinstance(node, ListNode) else "a mapping"


def _without_secrets(text: str) -> str:
    """Return an address without the parts that may hold a user, a password or a signature; other text as it is."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    hidden = "…@" + rest.rpartition("@")[2] if "@" in rest else rest
    place, slash, path = hidden.partition("/")
    hidden = place.partition(":")[0] + ("…" if ":" in place else "") + slash + path
    plain = re.split("[?#]", hidden, maxsplit=1)
    return f"{scheme}://{plain[0]}" + ("?…" if len(plain) > 1 else "")


def read(kind: Kind, node: Node) -> Any:
    """Read `node` as `kind`. Raises `InvalidValueError`, with a hint if the mistake is a common one."""
    if node.tag is not None:
        raise InvalidValueError("tags are not read here")
    try:
        return kind.read(node)
    except InvalidValueError as wrong:
        if str(wrong) or not isinstance(node, ScalarNode):
            raise
        raise InvalidValueError(_hint(kind, node)) from None


def _hint(kind: Kind, node: ScalarNode) -> str:
    """Return how to write the value that was probably meant, or nothing; a hint holds only what a file may hold."""
    tries: list[tuple[str, str]] = []
    text = node.text.strip()
    if node.quoted:
        tries.append((text, f"without quotes: {shown(text)}"))
    try:
        number = float(text.rstrip("%").strip().replace("_", ""))
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        plain = f"{number:.0f}" if number == int(number) else repr(number)
        share = f"{number / 100:.12g}"
        tries += [(plain, f"write {plain}"), (share, f"{number:.12g} % is written {share}")]
        if text.endswith("%"):
            tries.reverse()
    tries += [(text.lower(), f"write {shown(text.lower())}")]
    for candidate, hint in tries:
        try:
            # Read as the file is, so that a hint is right: YAML 1.1 takes `0o1` and `1e-05` for texts.
            kind.read(read_document(candidate) or node)
        except (InvalidValueError, MalformedError):
            continue
        return hint
    return ""


def _scalar(words: str, is_valid: Callable[[Any], bool], convert: Callable[[Any], Any] = lambda value: value) -> Kind:
    """Return the kind of single values that pass a test; a list or a mapping is tested as `None`."""

    def read_scalar(node: Node) -> Any:
        value = node.value if isinstance(node, ScalarNode) else None
        if not is_valid(value):
            raise InvalidValueError
        return convert(value)

    return Kind(words, read_scalar)


def flag() -> Kind:
    """Return the kind of `true` and `false`."""
    return _scalar("true or false", lambda value: isinstance(value, bool))


def whole(least: int, most: int, unit: str = "") -> Kind:
    """Return the kind of whole numbers from `least` to `most`."""
    words = f"a whole number{' of ' * bool(unit)}{unit} from {least:,} to {most:,}"
    return _scalar(words, lambda value: type(value) is int and least <= value <= most)


def ratio() -> Kind:
    """Return the kind of numbers above 0 and at most 1."""
    return _scalar(
        "a number above 0 and at most 1", lambda value: type(value) in {int, float} and 0 < value <= 1, float
    )


def choice(*options: str) -> Kind:
    """Return the kind of a few fixed words."""
    return _scalar(" or ".join(options), lambda value: isinstance(value, str) and value in options)


def text(words: str) -> Kind:
    """Return the kind of texts that are not blank and hold no NUL."""
    return _scalar(words, lambda value: isinstance(value, str) and bool(value.strip()) and "\0" not in value)


def place() -> Kind:
    """Return the kind of places for archives: paths of folders, and addresses of object stores without secrets."""
    words = text("the path of a folder, an address such as s3://bucket/prefix")

    def convert(node: Node) -> str:
        value: str = words.read(node)
        try:
            return check_address(value) if is_address(value) else value
        except ValueError as error:
            raise InvalidValueError(str(error)) from None

    return Kind(words.words, convert)


def prefix() -> Kind:
    """Return the kind of prefixes: plain names between slashes, `{host}` and `{repo}` among them."""

    def is_prefix(value: Any) -> bool:
        try:
            return isinstance(value, str) and check_prefix(value) == value
        except ValueError:
            return False

    return _scalar("names of letters, digits, . _ - between slashes, {host} and {repo} among them", is_prefix)


def size() -> Kind:
    """Return the kind of sizes in bytes: a whole number, or a number with a unit."""

    def convert(node: Node) -> int:
        if not isinstance(node, ScalarNode) or isinstance(node.value, bool | None):
            raise InvalidValueError
        try:
            return size_bytes(node.text)
        except ValueError:
            raise InvalidValueError from None

    return Kind("a size such as 500MB, 1GB or 2GiB, or a whole number of bytes", convert)


def tools() -> Kind:
    """Return the kind of lists of tools, each `Name` or `Name(pattern)`."""

    def convert(node: Node) -> tuple[str, ...]:
        if not isinstance(node, ListNode):
            raise InvalidValueError
        names = []
        for number, item in enumerate(node.items, start=1):
            name = item.value if isinstance(item, ScalarNode) and item.tag is None else None
            if not isinstance(name, str) or not _TOOL.fullmatch(name):
                raise InvalidValueError(f"item {number} is {found(item)}")
            names.append(name)
        return tuple(names)

    return Kind('a list of tools, e.g. [Write, "Bash(git *)"]', convert)


def either(word: str | None, kind: Kind) -> Kind:
    """Return `kind` with one more value: the `word`, or null (`None`)."""

    def convert(node: Node) -> Any:
        if isinstance(node, ScalarNode) and node.value == word and isinstance(node.value, str) == isinstance(word, str):
            return word
        return kind.read(node)

    return Kind(f"{kind.words}, or {word or 'null'}", convert)
