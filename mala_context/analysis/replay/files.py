"""Which recordings a list of paths means, and their bytes in blocks of whole lines.

A path is a file, a folder, a glob pattern, an address in an object store or `-` for standard input. With a transcript
`ID.jsonl` come those of its subagents, which the CLI keeps in `ID/subagents` beside it. In a folder, and
below an address, every transcript counts (`.jsonl`, `.jsonl.gz`, `.jsonl.zst`), and the pieces of an archive are put
together to the transcripts that they were cut from. A file that is named twice, or reached by two paths, is one.

Lines end at newline bytes and nowhere else. Blocks come in one buffer that is used again for the next, so memory does
not grow with a file; a line that is longer than the buffer makes it grow, up to `MAX_LINE`, and what is longer still is
left out and reported.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from mala_context._util.safe_open import open_regular, read_regular
from mala_context._util.tuples import NamedTuple
from mala_context.archive import manifests
from mala_context.archive.layout import Piece, StoredFile, manifest_name, parse_piece_name
from mala_context.archive.remote.address import is_address
from mala_context.errors import MalaContextError, RecordingNotFoundError

BLOCK: Final = 1 << 20
"""Bytes of a block, as long as lines are shorter."""
_AHEAD: Final = 240
_AT_ONCE: Final = 1_000
"""Files of a folder that are told of at once."""
MAX_LINE: Final = 64 << 20
"""Bytes of the longest line that is read."""
STDIN: Final = "-"
_spare: list[bytearray] = []
"""Buffers that are not lent."""
_DESCRIPTORS: Final = ("/dev/fd/", "/dev/std", "/proc/")
"""Where a shell puts a pipe that has a writer, `<(…)` say. Opening any other pipe may wait for ever."""
_SUFFIXES: Final = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_MANIFEST: Final = ".manifest.jsonl"


class Recording(NamedTuple):
    """One transcript or stream, in one file or in the pieces of an archive."""

    path: str
    """The file, or the first of the pieces; an object's address; `-` for standard input."""
    parts: tuple[str, ...]
    """The files that it is made of, in order."""
    size: int
    """Bytes on disk."""
    watch: Callable[[int], object] | None = None
    """Told how many plain bytes of it are done, after each block."""

    @property
    def stem(self) -> str:
        """The file's name without folder and extensions; the session's id for a piece."""
        name = os.path.basename(self.path)
        piece = parse_piece_name(name)
        if piece is not None:
            return piece.session_id if piece.subagent is None else f"agent-{piece.subagent}"
        return name.partition(".")[0]


def find(paths: Iterable[str], progress: object = None, *, subagents: bool = True) -> list[Recording]:
    """Return the recordings of the paths, in the order of their names, each once.

    A file brings its subagents' transcripts unless `subagents` is false.
    A `progress` that has `passed(count)` is told how many files of a folder were looked at since it was told last.
    Raises `RecordingNotFoundError` for a path that is not there and a pattern that matches nothing, and `OSError` for a
    link to nothing, a pipe or a device. A folder without transcripts gives none.
    """
    found: dict[Any, Recording] = {}
    passed = getattr(progress, "passed", None) or _told
    for path in paths:
        for identity, recording in _recordings(path, passed, subagents=subagents):
            found.setdefault(identity, recording)
    return sorted(found.values())


_Passed = Callable[[int], object]


def _told(count: int) -> None:
    """Ignore a count."""


_Known = tuple[Any, Recording]
"""What a recording is known by (an address, or a file's device and inode), and the recording."""


def _recordings(path: str, passed: _Passed, *, subagents: bool) -> Iterator[_Known]:
    if path == STDIN:
        yield STDIN, Recording(STDIN, (STDIN,), 0)
    elif is_address(path):
        for recording in _addressed(path):
            yield recording.path, recording
    elif os.path.isdir(path):
        yield from _folder(path, passed)
    elif os.path.lexists(path):
        yield from _file(path, passed, subagents=subagents)
    else:
        import glob

        matches = sorted(glob.glob(path, recursive=True))
        if not matches:
            raise RecordingNotFoundError(path)
        for match in matches:
            if os.path.exists(match):  # a link to nothing matches too
                yield from _recordings(match, passed, subagents=subagents)


def _file(path: str, passed: _Passed, *, subagents: bool) -> Iterator[_Known]:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) and not path.startswith(_DESCRIPTORS):
        raise OSError(errno.EINVAL, "it is no file; a pipe is read with - or <(…)", path)
    yield (status.st_dev, status.st_ino), Recording(path, (path,), status.st_size)
    for suffix in _SUFFIXES:
        if subagents and path.endswith(suffix):
            yield from _folder(os.path.join(path.removesuffix(suffix), "subagents"), passed)


def _folder(path: str, passed: _Passed) -> Iterator[_Known]:
    for folder, names, files in os.walk(path):
        names.sort()
        stored, known = [], {}
        for number, name in enumerate(sorted(files), 1):
            if number % _AT_ONCE == 0:
                passed(_AT_ONCE)
            full = os.path.join(folder, name)
            try:
                status = os.stat(full)
            except OSError:  # a link to nothing, or gone since
                continue
            if stat.S_ISREG(status.st_mode):
                stored.append(StoredFile(name=name, size=status.st_size, mtime_ns=status.st_mtime_ns))
                known[full] = status.st_dev, status.st_ino
        passed(len(files) % _AT_ONCE)
        for recording in _listed(folder, stored, _contents):
            yield known[recording.path], recording


def _addressed(address: str) -> Iterator[Recording]:
    """Yield the recordings below an address, or the one object that it names. Raises `ObjectStoreError`."""
    from mala_context.archive.remote.bucket import bucket_at

    folders: dict[str, list[StoredFile]] = {}
    base = address.rstrip("/")
    if base.endswith(_SUFFIXES):
        base, _, name = base.rpartition("/")
        there = bucket_at(base).size(name)
        if there is not None:
            folders[base] = [StoredFile(name=name, size=there, mtime_ns=0)]
    else:
        for path, size in bucket_at(base).walk():
            folder, _, name = path.rpartition("/")
            file = StoredFile(name=name, size=size, mtime_ns=0)
            folders.setdefault(f"{base}/{folder}".rstrip("/"), []).append(file)
    if not folders:
        raise RecordingNotFoundError(address)
    for folder, files in sorted(folders.items()):
        yield from _listed(folder, sorted(files, key=lambda each: each.name), _object)


def _contents(folder: str, name: str) -> bytes | None:
    try:
        return read_regular(os.path.join(folder, name), sys.maxsize)
    except OSError:
        return None


def _object(folder: str, name: str) -> bytes | None:
    from mala_context.archive.remote.bucket import bucket_at

    return bucket_at(folder).read(name)


def _listed(
    folder: str, files: Iterable[StoredFile], contents: Callable[[str, str], bytes | None]
) -> Iterator[Recording]:
    """Yield the recordings directly in a folder: transcripts, and archived ones from their pieces."""
    pieces: dict[str, list[StoredFile]] = {}
    for file in files:
        piece = parse_piece_name(file.name)
        if piece is not None:
            pieces.setdefault(piece.session_id, []).append(file)
        elif file.name.endswith(_SUFFIXES) and not file.name.endswith(_MANIFEST):
            full = os.path.join(folder, file.name)
            yield Recording(full, (full,), file.size)
    for session_id, stored in pieces.items():
        yield from _archived(folder, stored, contents(folder, manifest_name(session_id)))


def _archived(folder: str, stored: Sequence[StoredFile], rows: bytes | None) -> Iterator[Recording]:
    """Yield each chain of a session's pieces; of pieces that are whole transcripts the newest."""
    manifest = manifests.parse(rows or b"")
    pieces = manifests.pieces_of(stored, manifest)
    for subagent in sorted({piece.subagent or "" for piece in pieces}):
        for chain in manifests.chains_of(pieces, subagent or None):
            chosen: list[Piece] = chain[-1:] if chain[-1].mode == "full" else chain
            parts = tuple(os.path.join(folder, piece.name) for piece in chosen)
            yield Recording(parts[0], parts, sum(piece.stored for piece in chosen))


# -- bytes ----------------------------------------------------------------------------------------------------


def is_plain(recording: Recording) -> bool:
    """Tell whether a recording is one file of rows that is not packed, and so can be read twice."""
    return recording.parts == (recording.path,) and recording.path.endswith(".jsonl")


def new_buffer() -> bytearray:
    """Return a buffer for `blocks`, to be used for any number of recordings.

    Large pieces of memory begin some bytes after a page's start. To copy a file's beginning just there, slightly ahead
    of its own place in a page, takes some processors four times as long, so the first bytes are let go.
    """
    buffer = bytearray(_AHEAD + BLOCK)
    del buffer[:_AHEAD]
    return buffer


@contextmanager
def lent_buffer() -> Iterator[bytearray]:
    """Lend a buffer for `blocks` to one reader: threads may read recordings side by side."""
    try:
        buffer = _spare.pop()
    except IndexError:
        buffer = new_buffer()
    try:
        yield buffer
    finally:
        _spare.append(buffer)


def blocks(
    recording: Recording, problem: Callable[[str], object], buffer: bytearray | None = None
) -> Iterator[memoryview]:
    """Yield the bytes in blocks of whole lines; only the last may lack its newline.

    A block is a view of the buffer: use it before you ask for the next, and keep nothing of it. `problem` is told what
    could not be read, between two blocks; nothing is raised. A line that is too long is replaced by an empty one, so
    that lines can be counted.
    """
    reader = _Parts(recording.parts, problem)
    try:
        done = 0
        for block in _blocks(reader, problem, new_buffer() if buffer is None else buffer):
            done += len(block)
            yield block
            if recording.watch is not None:
                recording.watch(done)
    finally:
        reader.close()


def _blocks(reader: _Parts, problem: Callable[[str], object], buffer: bytearray) -> Iterator[memoryview]:
    held = searched = 0
    while True:
        if held == len(buffer):
            if held < MAX_LINE:
                buffer = buffer + bytes(held)
            else:
                problem(f"a line of more than {MAX_LINE >> 20} MiB was left out")
                rest = b"\n" + reader.rest_after_line()
                held, searched = len(rest), 0
                buffer = bytearray(rest) + bytes(BLOCK)
        with memoryview(buffer) as view:
            count = reader.readinto(view[held:])
        held += count
        end = buffer.rfind(b"\n", searched, held) + 1
        if end or (held and not count):
            yield memoryview(buffer)[: end if count else held]
        if not count:
            return
        if end:
            tail = bytes(memoryview(buffer)[end:held])
            if len(buffer) > BLOCK and len(tail) < BLOCK:
                buffer = new_buffer()
            buffer[: len(tail)] = tail
            held = len(tail)
        searched = held


class _Parts:
    """The plain bytes of a recording's files, one after the other."""

    def __init__(self, parts: tuple[str, ...], problem: Callable[[str], object]) -> None:
        self._left = list(reversed(parts))
        self._problem = problem
        self._open: Any = None

    def readinto(self, view: memoryview) -> int:
        while True:
            if self._open is None:
                if not self._left:
                    return 0
                path = self._left.pop()
                try:
                    self._open = _reader(path)
                except (OSError, MalaContextError) as error:
                    self._problem(_words(path, error))
                    continue
            try:
                count = self._open.readinto(view)
            except (OSError, EOFError, MalaContextError, _gzip()[1]) as error:
                self._problem(_words("", error))
                count = 0
            if count:
                return int(count)
            self.close()

    def close(self) -> None:
        """Close the file that is open, but never standard input."""
        if self._open is not None and self._open is not getattr(sys.stdin, "buffer", None):
            self._open.close()
        self._open = None

    def rest_after_line(self) -> bytes:
        """Read up to the end of a line and return what was read after it."""
        buffer = bytearray(BLOCK)
        with memoryview(buffer) as view:
            while count := self.readinto(view):
                end = buffer.find(b"\n", 0, count) + 1
                if end:
                    return bytes(view[end:count])
        return b""


def _words(path: str, error: Exception) -> str:
    words = getattr(error, "strerror", None) or str(error) or error.__class__.__name__
    return f"cannot be read: {words}" + (f" ({path})" if path else "")


def _gzip() -> tuple[Any, Any]:
    """Return the class of a gzip file, and what it raises on bytes that are none of gzip's.

    `isal` (extra `replay`) unpacks in a third of the time.
    """
    try:
        from isal.igzip import IGzipFile
        from isal.igzip_lib import IsalError
    except ImportError:
        import gzip
        import zlib

        return gzip.GzipFile, zlib.error
    return IGzipFile, IsalError


def _plain(path: str) -> Any:
    if not is_address(path):
        # A shell's `<(…)` is a pipe with a writer; any other pipe might be waited for for ever.
        return open(path, "rb", buffering=0) if path.startswith(_DESCRIPTORS) else io.FileIO(open_regular(path), "rb")
    from mala_context.archive.remote.bucket import bucket_at

    folder, _, name = path.rpartition("/")
    return bucket_at(folder).open(name)


def _reader(path: str) -> Any:
    """Open a file's plain bytes, whatever it is packed with."""
    if path == STDIN:
        return sys.stdin.buffer
    if path.endswith(".gz"):
        gzip_file, _ = _gzip()
        if is_address(path):
            return gzip_file(fileobj=_plain(path))
        _plain(path).close()  # refuses a FIFO, which would hold us up
        return gzip_file(path, "rb")
    file = _plain(path)
    if path.endswith(".zst"):
        from mala_context.archive.codecs import Codec

        try:
            codec: Any = Codec()
            return codec.reader(file)
        except MalaContextError:
            file.close()
            raise
    return file
