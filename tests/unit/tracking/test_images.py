"""The size of an image out of its first bytes, and what it costs."""

from __future__ import annotations

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mala_context.tracking.images import UNKNOWN, image_tokens, size_of


def text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x06"


def jpeg(width: int, height: int, before: int = 40_000) -> bytes:
    """A JPEG whose frame comes after what a camera put there."""
    head = b"\xff\xd8\xff\xe1" + struct.pack(">H", before + 2) + b"e" * before + b"\xff\xc4\0\x04ab"
    return head + b"\xff\xc2\0\x11\x08" + struct.pack(">HH", height, width) + b"\x03"


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + body


@pytest.mark.parametrize(
    "raw",
    [
        png(800, 600),
        b"GIF89a" + struct.pack("<HH", 800, 600),
        jpeg(800, 600),
        webp(b"VP8X", b"\0\0\0\0" + (799).to_bytes(3, "little") + (599).to_bytes(3, "little")),
        webp(b"VP8L", b"\x2f" + (799 | 599 << 14).to_bytes(4, "little")),
        webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 800, 600)),
    ],
    ids=["png", "gif", "jpeg", "webp, extended", "webp, lossless", "webp, lossy"],
)
def test_the_size_stands_in_the_head(raw: bytes) -> None:
    assert size_of(text(raw + b"\0" * 200_000)) == (800, 600)


@pytest.mark.parametrize("data", [None, 7, "", "no base64 é", text(b"BM1234"), text(jpeg(800, 600, 65_000)[:60_000])])
def test_what_cannot_be_read_has_no_size(data: object) -> None:
    assert size_of(data) == UNKNOWN


@given(st.binary(max_size=100), st.sampled_from([b"\x89PNG", b"GIF8", b"\xff\xd8", b"RIFF", b"RIFF\0\0\0\0WEBPVP8X"]))
def test_no_bytes_raise(raw: bytes, begins: bytes) -> None:
    width, height = size_of(text(begins + raw))
    assert width >= 0
    assert height >= 0


@pytest.mark.parametrize(
    ("size", "classic", "dense"),
    [
        ((750, 1_000), 1_000, 1_000),
        ((1_568, 750), 1_568, 1_568),
        ((3_136, 500), 523, 1_411),
        ((2_576, 1_500), 1_568, 4_784),
        ((1_920, 1_080), 1_568, 2_765),
        (UNKNOWN, 1_500, 2_500),
    ],
)
def test_what_an_image_costs(size: tuple[int, int], classic: int, dense: int) -> None:
    """Case core-31: within 30 tokens of width x height / 750, the long edge scaled first."""
    assert image_tokens(size, "classic") == pytest.approx(classic, abs=30)
    assert image_tokens(size, "dense") == pytest.approx(dense, abs=30)
