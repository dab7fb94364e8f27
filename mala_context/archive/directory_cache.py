"""A session's local files by names that were listed before, for work on all sessions of an archive.

What `names` says of freshness holds: a reader may miss names of the last moments, the holder of a session's lock does
not.
"""

from __future__ import annotations

import os

from mala_context.archive import layout
from mala_context.archive.local_view import LocalView, status_of
from mala_context.archive.names import Names
from mala_context.archive.writer import LocalFiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mala_context.archive.interface import Write


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
    """The same for the holder of the session's lock, who lists anew where another has written since."""

    def __init__(self, names: Names, session_id: str, directory: str, timeout: float) -> None:
        self._names = names
        super().__init__(session_id, directory, timeout)

    def _own_names(self, fd: int) -> Iterable[str]:
        return [each for each in self._names.of(fd, self.session_id) if layout.session_of(each) == self.session_id]

    def _drop_leftovers(self) -> None:
        names = self._names.of(self._dir, self.session_id)
        mtime = os.fstat(self._manifest).st_mtime_ns
        sound = sum(layout.parse_piece_name(each.name) is not None for each in status_of(self._dir, names))
        known = self._names.is_right(self.session_id, mtime) and not self._names.temporary(self.session_id)
        if known and sound == sum(layout.parse_piece_name(each) is not None for each in names):
            return
        super()._drop_leftovers()
        self._names.replace(self.session_id, super()._own_names(self._dir))
        self._note()

    def _publish(self, fill: Callable[[Write], str], mtime_ns: int | None) -> tuple[str, bool]:
        name, new = super()._publish(fill, mtime_ns)
        self._names.add(self.session_id, name)
        return name, new

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
