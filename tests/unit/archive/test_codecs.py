"""One zstd frame for each packed piece."""

import io
import os
import sys

import pytest

from mala_context.archive.codecs import Codec
from mala_context.errors import ArchiveError


def packed(data):
    out = io.BytesIO()
    Codec().compress(io.BytesIO(data), out.write, len(data))
    return out.getvalue()


def unpacked(data):
    reader = Codec().reader(io.BytesIO(data))
    out, buffer = b"", bytearray(1000)
    while count := reader.readinto(buffer):
        out += buffer[:count]
    return out


@pytest.mark.parametrize("size", [0, 1, 255, 256, 65_791, 65_792, 1_000_003])
def test_a_frame_holds_its_bytes(size):
    data = os.urandom(size // 2) + bytes(size - size // 2)
    frame = packed(data)
    assert unpacked(frame) == data
    assert unpacked(frame + frame) == data + data


def test_a_damaged_frame_is_an_archive_error():
    frame = bytearray(packed(os.urandom(5000)))
    frame[2000] ^= 1
    with pytest.raises(ArchiveError, match="damaged"):
        unpacked(bytes(frame))


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ArchiveError, match=r"mala-context\[zstd\]"):
        Codec()
