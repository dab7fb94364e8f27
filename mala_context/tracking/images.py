"""The price of an image in tokens, which follows from its size in pixels (case core-31).

The size is in the first bytes of the image's file. The API scales an image down until its long edge fits, and then
counts a token for 750 pixels. It takes PNG, GIF, JPEG and WebP; the size of any other file is unknown.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

Size = tuple[int, int]
"""Width and height in pixels; zeros if unknown."""
UNKNOWN: Final[Size] = (0, 0)
_HEAD: Final = 1 << 17
"""Characters of base64 that are read: in a JPEG the size comes after the data of a camera or an editor."""
_LONG_EDGE: Final = {"classic": 1_568, "dense": 2_576}
_MOST: Final = {"classic": 1_568, "dense": 4_784}
_USUAL: Final = {"classic": 1_500, "dense": 2_500}
_PIXELS: Final = 750
"""Pixels a token."""


def image_tokens(size: Size, family: str) -> float:
    """Return the tokens of an image by its size in pixels, for models of a family of `token_costs.FAMILIES`."""
    width, height = size
    if not width or not height:
        return _USUAL[family]
    scale = min(1.0, _LONG_EDGE[family] / max(width, height))
    return min(_MOST[family], width * height * scale * scale / _PIXELS)


def size_of(data: Any) -> Size:
    """Return the size of an image that came as base64 text; (0, 0) if it cannot be read. Never raises."""
    if not isinstance(data, str):
        return UNKNOWN
    head = data[:_HEAD]
    try:
        raw = binascii.a2b_base64(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return UNKNOWN
    for begins, read in _READERS:
        if raw.startswith(begins):
            return read(raw)
    return UNKNOWN


def _png(raw: bytes) -> Size:
    return int.from_bytes(raw[16:20]), int.from_bytes(raw[20:24])


def _gif(raw: bytes) -> Size:
    return int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")


def _jpeg(raw: bytes) -> Size:
    """Go from marker to marker up to the frame's header: SOF0 to SOF15, without DHT (C4), JPG (C8) and DAC (CC)."""
    place = 2
    while place + 9 <= len(raw) and raw[place] == 0xFF:
        marker = raw[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(raw[place + 7 : place + 9]), int.from_bytes(raw[place + 5 : place + 7])
        place += 2 + int.from_bytes(raw[place + 2 : place + 4])
    return UNKNOWN


def _webp(raw: bytes) -> Size:
    kind = raw[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(raw[24:27], "little"), 1 + int.from_bytes(raw[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF
    return UNKNOWN


_READERS: Final = ((b"\x89PNG", _png), (b"GIF8", _gif), (b"\xff\xd8", _jpeg), (b"RIFF", _webp))
