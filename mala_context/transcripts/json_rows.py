"""Decode the JSON objects on one row of a transcript: usually one, sometimes two, none where the row was cut off.

`msgspec` (extra `replay`) decodes rows about twice as fast as `json`, and is loaded when there are many rows. A row
that it refuses (a lone surrogate, NaN) is tried again with `json`, so both give the same objects.

A decoded row takes about as much memory as its bytes, unless it holds many small values: an empty list takes thirty
times its bytes. A caller that keeps the objects of many rows uses `few_objects`: without it 60 MB of empty lists took
1,607 MiB.
"""

from __future__ import annotations

import json
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

_decoder = json.JSONDecoder()
_DENSE, _SPARSE = 1_000, 32
"""A row with fewer values than `_DENSE`, or with more than `_SPARSE` bytes a value, stays as it is."""
_WIDTH, _DEPTH = 200, 2
"""Limits for a row with too many values: entries kept per object or list, and the depth down to which that limit alone
applies. Below this depth all containers together keep `_WIDTH` entries."""


_AT_ONCE = 1_200
"""Rows that `json` decodes in the time that `msgspec` takes to be loaded."""
_left = _AT_ONCE


def _slowly(data: bytes | memoryview) -> Any:
    return json.loads(bytes(data).decode())  # decoded first: given bytes with NULs, `json` guesses UTF-16 or UTF-32


def _first(data: bytes | memoryview) -> Any:
    """Decode one of the first rows."""
    global _left  # noqa: PLW0603  (how many rows there will be is not known before)
    _left -= 1
    if _left < 0:
        _quicken()
    return _slowly(data)


_decode: Callable[[bytes | memoryview], Any] = _first
_errors: tuple[type[Exception], ...] = (ValueError, RecursionError, MemoryError)


def _quicken() -> None:
    """Switch to `msgspec`, if it is installed."""
    global _decode, _errors  # noqa: PLW0603  (as a module's constants, had it been loaded at once)
    _decode = _slowly
    try:
        with _uninterrupted():
            import msgspec
    except ImportError:  # the extra is not installed
        return
    _errors = (*_errors, msgspec.MsgspecError)  # first: another thread may decode meanwhile
    _decode = msgspec.json.decode


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C: if `msgspec` is interrupted while it is loaded, it swallows that and ends the process later."""
    import signal

    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def one_object(data: bytes | memoryview) -> dict[str, Any] | None:
    """Return a row's JSON object, the fast way; `None` if it is not exactly one object: see `objects_and_problem`."""
    try:
        value = _decode(data)
    except _errors:
        return None
    return value if value.__class__ is dict else None


def objects(data: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects on one row, usually one; an empty list if there is none. Never raises."""
    return objects_and_problem(data)[0]


def objects_and_problem(data: bytes) -> tuple[list[dict[str, Any]], str | None]:
    """Return the JSON objects on one row, and what is wrong with the row, if anything is. Never raises."""
    whole = one_object(data)
    if whole is not None:
        return [whole], None
    found: list[dict[str, Any]] = []
    try:
        # A crash of the machine can leave NUL bytes where a row was to stand, and the next row is written after them.
        text = data.decode("utf-8", "replace").removeprefix("\ufeff").strip(" \t\r\n\0")
    except MemoryError:
        return found, "no memory for it"
    problem = None if text or b"\0" not in data else "no whole JSON object"
    start = 0
    while start < len(text):
        try:
            value, start = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return found, "no whole JSON object" if not found else "something after a JSON object"
        if isinstance(value, dict):
            found.append(value)
        else:
            problem = "no JSON object"
        while start < len(text) and (text[start].isspace() or text[start] == "\0"):
            start += 1
    return found, problem


def content_of(row: Mapping[str, Any]) -> Any:
    """Return what a row's message holds: a text, a list of blocks, or `None`."""
    message = row.get("message")
    return message.get("content") if isinstance(message, dict) else None


def content_text(content: object) -> str:
    """Return the text of what a message or a tool's result holds, that of each block on a line of its own."""
    if isinstance(content, str):
        return content
    blocks = (block for block in content if isinstance(block, dict)) if isinstance(content, list) else ()
    return "\n".join(block["text"] for block in blocks if isinstance(block.get("text"), str))


def few_objects(data: bytes, decode: Callable[[bytes], list[dict[str, Any]]] = objects) -> list[dict[str, Any]]:
    """Return the objects on one row; if they need many times its bytes, keep the first 200 entries a container."""
    found = decode(data)
    if len(data) < _DENSE:
        return found
    # There are at most as many values as these bytes, which one pass counts. Only where that may be too many, commas
    # inside of texts are left out.
    least = max(_DENSE, len(data) / _SPARSE)
    if len(data) - len(data.translate(None, b"[{,")) < least:
        return found
    if data.count(b"[") + data.count(b"{") + data.count(b'",') < least:
        return found
    left = [_WIDTH]
    return [_thinned(each, 0, left) for each in found]


def _thinned(value: Any, depth: int, left: list[int]) -> Any:
    if not isinstance(value, dict | list):
        return value
    if depth > _DEPTH:
        left[0] -= len(value)
        if left[0] < 0:
            return None
    if isinstance(value, list):
        return [_thinned(each, depth + 1, left) for each in value[:_WIDTH]]
    names = list(value)[:_WIDTH]
    return {name: _thinned(value[name], depth + 1, left) for name in names}
