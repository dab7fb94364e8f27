"""Local files: the first store of pieces, and the same for work on all sessions of an archive.

`ListedStore` lists its directory once, and not for each session; `directory_cache` says how old a listing may be. A
command hook does not need it, so its parts are imported where they are used.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress

from mala_context.archive import layout
from mala_context.archive.atomic_write import ARCHIVE_TEMPORARY
from mala_context.archive.directory import open_archives
from mala_context.archive.interface import PieceStore
from mala_context.archive.manifests import summaries
from mala_context.archive.writer import LocalFiles, LocalView, each_name, scan, status_of
from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from mala_context.archive.layout import SessionSummary, StoredFile


_MANIFEST = layout.manifest_name("")
_BETWEEN_LOOKS = 256
"""Names between two looks at the clock."""


class LocalStore(PieceStore):
    """Archives as files of one directory.

    Args:
        directory: its absolute path; created 0700 by the first writer.
    """

    def __init__(self, directory: str) -> None:
        self.location = directory

    def _open(self) -> int | None:
        """Open the directory and return its descriptor; `None` where it is not there yet."""
        try:
            return open_archives(self.location, create=False)
        except FileNotFoundError:
            return None

    @contextmanager
    def _opened(self) -> Iterator[int | None]:
        fd = self._open()
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def view(self, session_id: str) -> LocalView:
        """Open a session's files for reading."""
        return LocalView(check_session_id(session_id), self.location, self._open())

    def lock(self, session_id: str, timeout: float) -> LocalFiles:
        """Become the session's only writer."""
        return LocalFiles(check_session_id(session_id), self.location, timeout)

    def list(self) -> Sequence[StoredFile]:
        """Return every published file of the directory."""
        with self._opened() as fd:
            found = [] if fd is None else scan(fd, ("",))
            ours = (each for each in found if layout.session_of(each.name) is not None)
            return sorted(ours, key=lambda each: each.name)

    def listed(self, only: Collection[str] | None = None) -> LocalStore:
        """Return a store of the same directory that lists it once."""
        return ListedStore(self.location, only)

    def summaries(self, prefix: str = "", progress: Callable[[int], object] | None = None) -> Sequence[SessionSummary]:
        """Return the sessions whose ids begin with a prefix, the one that was archived last first."""
        if not prefix:
            return self.listed().summaries(prefix, progress)
        with self._opened() as fd:
            files = [] if fd is None else sorted(scan(fd, (prefix,)), key=lambda each: each.name)
            return [each for each in summaries(files) if each.session_id.startswith(prefix)]

    def recent(self, until: float) -> Sequence[str]:
        """Return the sessions by their manifests, the one that was written to last first; none where time runs out."""
        times: list[tuple[int, str]] = []
        with self._opened() as fd:
            for number, name in enumerate(() if fd is None else each_name(fd), 1):
                if number % _BETWEEN_LOOKS == 0 and time.monotonic() > until:
                    return []
                if not name.endswith(_MANIFEST) or (session_id := layout.session_of(name)) is None:
                    continue
                with suppress(FileNotFoundError):
                    times.append((os.stat(name, dir_fd=fd, follow_symlinks=False).st_mtime_ns, session_id))
        return [session_id for _, session_id in sorted(times, reverse=True)]

    def unfinished(self) -> Sequence[str]:
        """Return the sessions that have temporary files, of a killed writer or one at work; lock each to drop them."""
        try:
            names = os.listdir(self.location)
        except FileNotFoundError:
            return []
        heads = {
            name[len(ARCHIVE_TEMPORARY) :].rpartition(".")[0] for name in names if name.startswith(ARCHIVE_TEMPORARY)
        }
        # A killed writer leaves its manifest too. Without any file of the session, `.tmp-…` belongs to another program:
        # catch-up once removed such files.
        known = {layout.session_of(name) for name in names}
        return sorted(each for each in heads if each in known)


class ListedStore(LocalStore):
    """Archives as files of one directory, for work on all of them, or on `only` some."""

    def __init__(self, directory: str, only: Collection[str] | None = None) -> None:
        from mala_context.archive.directory_cache import Names

        super().__init__(directory)
        self._only = only
        self._names = Names(only)

    def listed(self, only: Collection[str] | None = None) -> LocalStore:
        """Return a store with a new listing; this store itself if no name has come or gone since its listing."""
        if only is not None:
            return super().listed(only)
        with self._opened() as fd:
            return self if fd is None or self._names.is_current(fd) else super().listed(self._only)

    def view(self, session_id: str) -> LocalView:
        """Open a session's files for reading."""
        from mala_context.archive.directory_cache import ListedView

        return ListedView(self._names, check_session_id(session_id), self.location, self._open())

    def lock(self, session_id: str, timeout: float) -> LocalFiles:
        """Become the session's only writer."""
        from mala_context.archive.directory_cache import ListedFiles

        return ListedFiles(self._names, check_session_id(session_id), self.location, timeout)

    def summaries(self, prefix: str = "", progress: Callable[[int], object] | None = None) -> list[SessionSummary]:
        """Return the sessions whose ids begin with a prefix, the one that was archived last first.

        Only names are held in memory. If `progress` has `passed(count)`, it is called while the directory is listed.
        """
        found: list[SessionSummary] = []
        with self._opened() as fd:
            for session_id in () if fd is None else self._names.sessions(fd, getattr(progress, "passed", None)):
                if fd is not None and session_id.startswith(prefix):
                    here = summaries(status_of(fd, sorted(self._names.of(fd, session_id))))
                    found += here
                    if progress is not None:
                        progress(sum(each.stored for each in here))
        return sorted(found, key=lambda each: (-each.newest_ns, each.session_id))
