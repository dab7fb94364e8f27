"""A session's local files by names that were listed before, for work on all sessions of an archive.

Listing the directory for each session takes time that grows with the square of the sessions. So all sessions share one
listing. It may be old: a reader may miss the newest names. The holder of a session's lock misses none, since it lists
again if another process has written.
"""

from __future__ import annotations

import os
import time

from mala_context.archive import layout
from mala_context.archive.atomic_write import ARCHIVE_TEMPORARY
from mala_context.archive.writer import LocalFiles, LocalView, each_name, status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from mala_context.archive.interface import Write

SHARE = 20
"""While the directory changes, a listing is kept for this many times as long as it took: listing stays below 5 %."""
SETTLED = 2_000_000_000
"""Nanoseconds after which a later change surely has another time stamp; FAT counts in steps of two seconds."""
_TOLD = 1 << 12
_MANIFEST = ".manifest.jsonl"


class Names:
    """What a directory held of each session when it was listed last.

    Args:
        only: the sessions to hold, if not all: a directory may hold many more, and their names take memory.
    """

    def __init__(self, only: Collection[str] | None = None) -> None:
        self._only = None if only is None else frozenset(only)
        self._ends: dict[str, list[str]] = {}
        self._temporary: dict[str, list[str]] = {}
        self._written: dict[str, int] = {}
        self._stamp: tuple[int, int] | None = None
        self._listed_ns = 0
        self._listed_at = 0.0
        self._again = 0.0

    def of(self, fd: int, session_id: str) -> Sequence[str]:
        """Return a session's names in the directory that is open as `fd`; some of the files may be gone by now."""
        self._look(fd)
        return [session_id + end for end in self._ends.get(session_id, ())]

    def temporary(self, session_id: str) -> Sequence[str]:
        """Return the names of the temporary files that the last listing found."""
        return list(self._temporary.get(session_id, ()))

    def sessions(self, fd: int, passed: Callable[[int], object] | None = None) -> Sequence[str]:
        """Return all sessions that names in the directory begin with; some of these names may be no files of ours.

        If the directory is listed now, `passed` is called with the count of names since its last call.
        """
        self._look(fd, passed)
        return list(self._ends)

    def is_current(self, fd: int) -> bool:
        """Tell whether no name has come or gone since the listing."""
        return self._stamp is not None and self._stamp == _stamp(fd)

    def is_right(self, session_id: str, manifest_mtime_ns: int) -> bool:
        """Tell whether no other process wrote to the session since the listing; ask it under the session's lock."""
        if self._written.get(session_id) == manifest_mtime_ns:
            return True
        # A time stamp older than the listing proves nothing if the wall clock was set since. So the two clocks must
        # have moved alike; the listing's age alone, on either, does not show that.
        passed = time.time_ns() - self._listed_ns - int((time.monotonic() - self._listed_at) * 1e9)
        return manifest_mtime_ns < self._listed_ns - SETTLED and abs(passed) < SETTLED

    def wrote(self, session_id: str, manifest_mtime_ns: int) -> None:
        """Remember that this process set the manifest's time."""
        self._written[session_id] = manifest_mtime_ns

    def add(self, session_id: str, name: str) -> None:
        """Add a name that this process gave to a file."""
        ends = self._ends.setdefault(session_id, [])
        if name[len(session_id) :] not in ends:
            ends.append(name[len(session_id) :])

    def discard(self, session_id: str, name: str) -> None:
        """Forget a name that this process removed."""
        ends = self._ends.get(session_id, [])
        if name[len(session_id) :] in ends:
            ends.remove(name[len(session_id) :])

    def replace(self, session_id: str, names: Iterable[str]) -> None:
        """Replace a session's names by those of a listing under its lock."""
        self._ends[session_id] = [name[len(session_id) :] for name in names]
        self._temporary.pop(session_id, None)

    def _look(self, fd: int, passed: Callable[[int], object] | None = None) -> None:
        stamp = _stamp(fd)
        if stamp == self._stamp or time.monotonic() < self._again:
            return
        began, now = time.monotonic(), time.time_ns()
        self._ends, self._temporary = {}, {}
        for number, name in enumerate(each_name(fd), 1):
            if passed is not None and number % _TOLD == 0:
                passed(_TOLD)
            session_id = _session_of(name)
            if self._only is not None and session_id not in self._only:
                continue
            if name.startswith(ARCHIVE_TEMPORARY):
                self._temporary.setdefault(session_id, []).append(name)
            else:
                end = name[len(session_id) :]
                self._ends.setdefault(session_id, []).append(_MANIFEST if end == _MANIFEST else end)
        ended = time.monotonic()
        self._listed_ns, self._listed_at = now, began
        self._again = ended + SHARE * (ended - began)
        # A further change in the same tick of the clock leaves the same time: such a stamp proves nothing.
        self._stamp = stamp if now - stamp[1] > SETTLED else None


def _stamp(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_mtime_ns


def _session_of(name: str) -> str:
    """Return the session that a name belongs to, if it is a name of an archive: the part before the first dot.

    The stamp of a main transcript's first chain holds the first dot of its names: `SESSION_20261128T093000.123456Z_…`.
    """
    if name.startswith(ARCHIVE_TEMPORARY):
        return name[len(ARCHIVE_TEMPORARY) :].partition(".")[0]
    head, _, rest = name.partition(".")
    return head[:-16] if rest[6:8] == "Z_" and rest[:6].isdigit() else head


class ListedView(LocalView):
    """A session's files, for reading, by names that were listed before."""

    def __init__(self, names: Names, session_id: str, directory: str, fd: int | None) -> None:
        self._names = names
        self._read: bytes | None = None
        super().__init__(session_id, directory, fd)

    def manifest(self) -> bytes:
        """Return the manifest's bytes, read once."""
        if self._read is None:
            self._read = super().manifest()
        return self._read

    def _own_names(self, fd: int) -> Iterable[str]:
        return [each for each in self._names.of(fd, self.session_id) if layout.session_of(each) == self.session_id]


class ListedFiles(LocalFiles):
    """The same for the holder of the session's lock, who lists again if another process has written since."""

    def __init__(self, names: Names, session_id: str, directory: str, timeout: float) -> None:
        self._names = names
        super().__init__(session_id, directory, timeout)

    def _own_names(self, fd: int) -> Iterable[str]:
        return [each for each in self._names.of(fd, self.session_id) if layout.session_of(each) == self.session_id]

    def _drop_leftovers(self) -> None:
        names = self._names.of(self._dir, self.session_id)
        mtime = os.fstat(self._manifest).st_mtime_ns
        # Each piece of the listing must still be a file with bytes. A missing or empty one was pruned, or left by a
        # kill.
        sound = sum(layout.parse_piece_name(each.name) is not None for each in status_of(self._dir, names))
        known = self._names.is_right(self.session_id, mtime) and not self._names.temporary(self.session_id)
        if known and sound == sum(layout.parse_piece_name(each) is not None for each in names):
            return
        super()._drop_leftovers()
        self._names.replace(self.session_id, super()._own_names(self._dir))
        self._note()

    def _publish(self, fill: Callable[[Write], object], name: str | None, mtime_ns: int | None) -> tuple[str, bool]:
        made, new = super()._publish(fill, name, mtime_ns)
        self._names.add(self.session_id, made)
        return made, new

    def remove(self, name: str) -> None:
        """Remove a file of this session."""
        super().remove(name)
        self._names.discard(self.session_id, name)

    def append(self, rows: bytes) -> None:
        """Add rows to the manifest."""
        super().append(rows)
        self._note()

    def replace_manifest(self, data: bytes) -> None:
        """Replace the manifest."""
        super().replace_manifest(data)
        self._note()

    def touch(self, names: Sequence[str]) -> None:
        """Set modification times to now."""
        super().touch(names)
        self._note()

    def _note(self) -> None:
        self._names.add(self.session_id, layout.manifest_name(self.session_id))
        self._names.wrote(self.session_id, os.fstat(self._manifest).st_mtime_ns)
