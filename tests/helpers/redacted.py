"""Blocks of redacted thinking, built as the API's are."""

from __future__ import annotations

import base64

HEADERS = (70, 155)
"""Bytes of the envelope's first field, in recordings of 2025 and of 2026."""


def _field(number: int, value: bytes) -> bytes:
    size, written = len(value), b""
    while size > 127:
        size, written = size >> 7, written + bytes((size & 127 | 128,))
    return bytes((number << 3 | 2,)) + written + bytes((size,)) + value


def data_of(thought: int, header: int = HEADERS[0]) -> str:
    """Return the data of a thought of so many bytes."""
    sizes = (header, 12, 12, 48, thought + 16)
    inner = b"".join(_field(number, b"\x07" * size) for number, size in enumerate(sizes, 1))
    return base64.b64encode(_field(2, inner) + b"\x18\x01").decode()


def redacted(thought: int, header: int = HEADERS[0]) -> dict[str, str]:
    """Return a block with such data."""
    return {"type": "redacted_thinking", "data": data_of(thought, header)}
