"""The JSON objects on one row of a transcript: usually one, but two have been seen, and a row cut off."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_decoder = json.JSONDecoder()


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
