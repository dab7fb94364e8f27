"""Cut tool results: how large one may be, what is left of a larger one, and where each tool's result has its text.

The CLI accepts a replacement for a tool's result only in that tool's own shape. Each shape was seen on the real CLI
(2.1.332), except those that the table marks. A shape has two functions: `read` gives the texts that the model would
see, `write` the same result with one text in their place. Everything else in a result (images, exit codes, paths) stays
as it was, and the given result is never changed.

Write, Edit and the task tools answer the model in one line whatever their results hold, so they have no row. A result
of an unknown shape stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from mala_context.tracking.text_counts import random_chars

AUTO_CAP_TOKENS: Final = 7_500
"""Cap of `auto` where there is room: the CLI itself replaces results of about 30,000 characters and more."""

_HEAD_SHARE: Final = 2 / 3
_FIRST: Final = 1_024


def estimate_tokens(text: str) -> int:
    """Return ceil(characters / 4), the count for texts that were never measured; random characters count one each.

    A quarter of a base64 text would let four times the cap through (case core-26).
    """
    random = random_chars(text)
    return random - (-(len(text) - random) // 4)


def cap_tokens(setting: int | Literal["auto"] | None, left: int | None) -> int | None:
    """Return the cap on the next tool result in tokens; `None` for no cap.

    `auto` is the smaller of 7,500 tokens and half of what is left, so that no single result takes the rest of the
    window; where the rest is unknown it is 7,500.
    """
    if setting != "auto":
        return setting
    if left is None:
        return AUTO_CAP_TOKENS
    return min(AUTO_CAP_TOKENS, left // 2) if left > 0 else 0


def cap_text(text: str, cap: int, *, where: str = "", count: Callable[[str], int] = estimate_tokens) -> str:
    """Return `text` if it is within `cap` tokens, else its head and tail around a marker; never more than `cap`.

    The marker says how many characters were left out and `where` the full text is; it is the same each time. Where
    the marker does not fit it comes without `where`, and if that is too much still the answer is empty. `count` must
    not count a part as more than the whole.
    """
    if count(text) <= cap:
        return text
    if count(_cut(text, 0, where)) > cap:
        return cap_text(text, cap, count=count) if where else ""
    low, high = 0, min(len(text), _FIRST)
    while high < len(text) and count(_cut(text, high, where)) <= cap:
        low, high = high, min(len(text), 2 * high)  # doubled from below: no cut much longer than the answer is counted
    while low < high:
        middle = (low + high + 1) // 2
        if count(_cut(text, middle, where)) <= cap:
            low = middle
        else:
            high = middle - 1
    return _cut(text, low, where)


def _cut(text: str, keep: int, where: str) -> str:
    head = int(keep * _HEAD_SHARE)
    tail = keep - head
    kept_where = f"; full text: {where}" if where else ""
    marker = f"\n[… {len(text) - keep:,} characters left out{kept_where} …]\n"
    return f"{text[:head]}{marker}{text[len(text) - tail :]}"


PERSISTED: Final = "persistedOutputPath"
"""Field with the path of a result's full text, where the CLI itself has cut it."""
_PERSISTED_FIELDS: Final = (PERSISTED, "persistedOutputSize")


class Shape(NamedTuple):
    """How one kind of result is read and written."""

    read: Callable[[Any], list[str] | None]
    """The texts that the model is shown, in order; `None` where the result is not of this shape."""
    write: Callable[[Any, str], Any]
    """The result with this text in place of those."""
    numbered: bool = False
    """Whether the model is shown a number before each line."""


class Found(NamedTuple):
    """A result whose shape is known."""

    shape: Shape
    text: str
    """All that the model would be shown of it, texts one below the other."""
    shown: int
    """Characters of that as the model is shown them, numbers of lines included."""
    persisted: str | None
    """Path of the full text where the CLI has cut it."""


def find(tool: str, response: Any) -> Found | None:
    """Return a tool's result as text; `None` where its shape is not known or it holds no text."""
    for shape in SHAPES.get(tool, _MCP if tool.startswith("mcp__") else ()):
        texts = shape.read(response)
        if texts:
            text = "\n".join(texts)
            shown = len(text) + (_numbers(response, text) if shape.numbered else 0)
            return Found(shape, text, shown, _persisted(response))
    return None


def _persisted(response: Any) -> str | None:
    path = response.get(PERSISTED) if isinstance(response, Mapping) else None
    return path if isinstance(path, str) and path else None


def _numbers(response: Any, text: str) -> int:
    """Return the characters of the line numbers that the CLI puts before a file's lines."""
    first = _at(response, ("file", "startLine"))
    lines = text.count("\n") + 1
    last = (first if isinstance(first, int) else 1) + lines
    return lines * (len(str(last)) + 1)


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _with(value: Mapping[str, Any], path: Sequence[str], new: Any) -> dict[str, Any]:
    name, *rest = path
    return {**value, name: _with(value[name], rest, new) if rest else new}


def _field(*path: str, like: Mapping[str, Any] | None = None) -> Shape:
    """Return the shape of a text in one field; `like` are fields that the result must have, by name and value."""

    def read(response: Any) -> list[str] | None:
        text = _at(response, path)
        if not isinstance(text, str) or any(response.get(name) != value for name, value in (like or {}).items()):
            return None
        return [text]

    return Shape(read, lambda response, text: _with(response, path, text), numbered=path == ("file", "content"))


def _read_streams(response: Any) -> list[str] | None:
    if not isinstance(response, Mapping) or response.get("isImage") or not isinstance(response.get("stdout"), str):
        return None
    return [text for text in (response["stdout"], response.get("stderr")) if isinstance(text, str) and text]


def _write_streams(response: Any, text: str) -> Any:
    kept = {name: value for name, value in response.items() if name not in _PERSISTED_FIELDS}
    return {**kept, "stdout": text, "stderr": ""}


def _read_blocks(blocks: Any) -> list[str] | None:
    if not isinstance(blocks, list):
        return None
    return [block["text"] for block in blocks if _is_text(block)]


def _write_blocks(blocks: Any, text: str) -> list[Any]:
    """Put the text in the place of the first text; remove the other texts; images stay in their places."""
    result: list[Any] = []
    written = False
    for block in blocks:
        if not _is_text(block):
            result.append(block)
        elif not written:
            result.append({**block, "text": text})
            written = True
    return result


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _read_searches(response: Any) -> list[str] | None:
    results = _at(response, ("results",))
    return [each for each in results if isinstance(each, str)] if isinstance(results, list) else None


def _write_searches(response: Any, text: str) -> Any:
    """Put the text in the place of the first text; the links that were found stay."""
    results = response["results"]
    first = next(place for place, each in enumerate(results) if isinstance(each, str))
    links = [(place, each) for place, each in enumerate(results) if not isinstance(each, str)]
    return {**response, "results": [each for _, each in sorted([*links, (first, text)], key=lambda each: each[0])]}


def _blocks_in(name: str) -> Shape:
    def write(response: Any, text: str) -> Any:
        return {**response, name: _write_blocks(response[name], text)}

    return Shape(lambda response: _read_blocks(_at(response, (name,))), write)


def _read_notebook(response: Any) -> list[str] | None:
    cells = _at(response, ("file", "cells"))
    if not isinstance(cells, list):
        return None
    texts: list[str] = []
    for cell in cells:
        if isinstance(cell, Mapping):
            texts.append(f'<cell id="{cell.get("cell_id")}">{cell.get("source")}</cell>')
            found = cell.get("outputs")
            outputs = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
            texts += [each["text"] for each in outputs if isinstance(each.get("text"), str)]
    return texts


def _write_notebook(response: Any, text: str) -> Any:
    """Return the result of a text file instead of a notebook: a cell cannot be cut in the middle."""
    lines = text.count("\n") + 1
    path = _at(response, ("file", "filePath"))
    return {
        "type": "text",
        "file": {"filePath": path, "content": text, "numLines": lines, "startLine": 1, "totalLines": lines},
    }


def _read_names(response: Any) -> list[str] | None:
    names = _at(response, ("filenames",))
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else None


def _write_names(response: Any, text: str) -> Any:
    names = text.split("\n")
    return {**response, "filenames": names, "numFiles": len(names)}


_STREAMS: Final = Shape(_read_streams, _write_streams)
_BLOCKS: Final = Shape(_read_blocks, _write_blocks)
_TEXT: Final = Shape(lambda response: [response] if isinstance(response, str) else None, lambda _, text: text)
_NOTEBOOK: Final = Shape(_read_notebook, _write_notebook, numbered=True)
_NAMES: Final = Shape(_read_names, _write_names)
_MCP: Final = (_BLOCKS, _TEXT)
"""Shapes for a tool of an MCP server: content blocks, or the text of its structured content."""

SHAPES: Final[Mapping[str, Sequence[Shape]]] = {
    "Bash": (_STREAMS,),
    "Read": (_field("file", "content", like={"type": "text"}), _NOTEBOOK),
    "Agent": (_blocks_in("content"),),
    "Task": (_blocks_in("content"),),
    "NotebookEdit": (_field("new_source"),),
    "WebFetch": (_field("result"),),
    "WebSearch": (Shape(_read_searches, _write_searches),),
    "Grep": (_field("content", like={"mode": "content"}), _NAMES),  # from older CLIs; this one offers no Grep
    "Glob": (_NAMES,),  # so has Glob
}
"""Tool → the shapes that its results may have, tried in this order."""
