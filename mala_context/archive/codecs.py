"""Packed pieces: one zstd frame each, so that `zstd -dcf` of all pieces in name order is the transcript.

The package that packs (`zstandard`, extra `zstd`) is imported only where a piece is packed or unpacked, which a hook
never does: it checks packed pieces by their hash.
"""

from __future__ import annotations

from mala_context.errors import ArchiveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mala_context.archive.interface import Reader, Write

LEVEL = 3
_CHUNK = 256 * 1024


class Codec:
    """The two functions that we need of the zstd package.

    Raises `ArchiveError` where it is not installed; then go on with plain pieces.
    """

    def __init__(self) -> None:
        self._package: Any
        try:
            import zstandard

            self._package = zstandard
        except ImportError:
            raise ArchiveError("packing pieces needs a zstd package: pip install 'mala-context[zstd]'") from None

    def compress(self, reader: Reader, write: Write, size: int) -> None:
        """Write one frame with a checksum that holds the reader's `size` bytes."""
        parameters = self._package.ZstdCompressionParameters.from_level(
            LEVEL, write_checksum=True, write_content_size=True
        )
        packer = self._package.ZstdCompressor(compression_params=parameters).compressobj(size=size)
        buffer = bytearray(_CHUNK)
        while count := reader.readinto(buffer):
            write(packer.compress(memoryview(buffer)[:count]))
        write(packer.flush())

    def reader(self, packed: Reader) -> Reader:
        """Return a reader of the plain bytes; it raises `ArchiveError` where they are damaged."""
        return _Unpacking(self._package, packed)


class _Unpacking:
    def __init__(self, package: Any, packed: Reader) -> None:
        self._error = package.ZstdError
        # 128 MiB, the limit of `zstd -d` itself: a frame's header may ask for more, and an archive may be hostile.
        self._stream = package.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
            packed, read_across_frames=True, closefd=False
        )
        self._packed = packed

    def readinto(self, buffer: memoryview | bytearray, /) -> int:
        """Fill the buffer with plain bytes."""
        try:
            return int(self._stream.readinto(buffer))
        except self._error as error:
            raise ArchiveError(f"a packed piece is damaged: {error}") from error

    def close(self) -> None:
        """Close the packed file."""
        self._packed.close()
