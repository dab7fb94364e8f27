"""The JSON objects on one row of a transcript: usually one, but two have been seen, and a row cut off.

Decoded, a row takes about its bytes, unless it is hardly more than values: an empty list takes thirty times its own.
Who keeps the objects of many rows takes `few_objects`.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_decoder = json.JSONDecoder()
_DENSE, _SPARSE = 1_000, 32
"""Values of a row from which on it is looked at, and bytes that each of them has in a row that stays as it is."""
_WIDTH, _DEPTH = 200, 2
"""Entries of an object or list that are kept of a row that is not, and the depth up to which all have so many."""


def objects(data: bytes) -> list[dict[str, Any]]:
    """Return the JSON objects on one row, usually one; empty where there is none. Never raises."""
    try:
        text = data.decode("utf-8", "replace").strip()
    except MemoryError:
        return []
    found: list[dict[str, Any]] = []
    start = 0
    while start < len(text):
        try:
            value, start = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            found.append(value)
        while start < len(text) and text[start].isspace():
            start += 1
    return found


def few_objects(data: bytes) -> list[dict[str, Any]]:
    """Return the objects on one row likewise, without most of their values where these would take far more than it."""
    found = objects(data)
    if len(data) < _DENSE:
        return found
    values = data.count(b"[") + data.count(b"{") + data.count(b'",')
    if values < _DENSE or values * _SPARSE < len(data):
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
