"""The interface of a store of pieces. Local files are the first implementation (`local_store.LocalStore`).

A store keeps files by name for one repository, a handful for each session. `view` reads without a lock. `lock` gives
the same to one holder at a time, who may also write. Every store keeps these promises, and
`mala_context.testing.battery` checks them:

- after `publish` returns, the file is durable and every reader can open it under its name;
- `publish` never replaces a file: `FileExistsError`, and the old bytes stay;
- a `fill` that raises leaves nothing under the name;
- a file that a killed writer left half-written is never listed, and the next holder of the lock drops it;
- `append` adds one whole row to the manifest after whatever is there, cut or not;
- two holders of one session's lock never overlap, and waiting for it ends after the timeout (`ArchiveBusyError`).

`Archiver` is the other side: the methods of an archive that its own parts call, so that they need not import it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import closing
    from types import TracebackType
    from typing import Any, Protocol, Self

    from mala_context.archive.layout import ArchiveResult, SessionSummary, StoredFile
    from mala_context.archive.manifests import Manifest

    class Reader(Protocol):
        """An open file: `readinto` fills a buffer as far as it can and returns the bytes read, 0 at the end."""

        def readinto(self, buffer: memoryview | bytearray, /) -> int | None:
            """Fill the buffer from the current position."""

        def close(self) -> None:
            """Close the file."""

    Write = Callable[[memoryview | bytes], object]

    class Archiver(Protocol):
        """The part of `store.TranscriptArchive` that other modules call; the methods are documented there."""

        def view(self, session_id: str) -> closing[SessionView]:
            """Open a session's files for reading."""

        def manifest(self, session_id: str) -> Manifest:
            """Return a session's manifest."""

        def find_transcript(self, session_id: str, *, cwd: str | None = None) -> str | None:
            """Return where a session's transcript is, by its name."""

        def sessions(self, *, progress: Callable[[int], object] | None = None) -> list[SessionSummary]:
            """Return all sessions; `progress` is told the bytes of each."""

        @property
        def archive(self) -> Callable[..., ArchiveResult]:
            """Archive what a transcript gained: a function of its path, its session's id and keywords."""

        def archive_side_files(self, transcript_path: str, session_id: object, *, trigger: str) -> list[ArchiveResult]:
            """Archive what lies beside a transcript."""

        def record_outcome(self, session_id: object, outcome: str, *args: Any, **fields: Any) -> None:
            """Write down how a compaction ended."""

        def record_sizes(self, session_id: str, piece: str, sizes: Mapping[str, Any]) -> None:
            """Write down the sizes of a compaction whose outcome is there."""


class SessionView(ABC):
    """The files of one session, for reading. Close it, or use it as a context manager."""

    session_id: str

    @abstractmethod
    def list(self) -> Sequence[StoredFile]:
        """Return the session's published files in the order of their names; no temporary and no foreign ones."""

    @abstractmethod
    def open(self, name: str) -> Reader:
        """Open a file for reading; raises `FileNotFoundError` or another `OSError`. Close it."""

    @abstractmethod
    def manifest(self) -> bytes:
        """Return the manifest's bytes, none where there is no manifest."""

    @abstractmethod
    def path(self, name: str) -> str:
        """Return where a file is, in words for people."""

    @abstractmethod
    def close(self) -> None:
        """Close what was opened."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SessionFiles(SessionView):
    """The files of one session, for its only writer: the lock is held until `close`."""

    @abstractmethod
    def publish(self, name: str, fill: Callable[[Write], object], *, mtime_ns: int | None = None) -> None:
        """Write a new file: `fill` is called with a `write` function.

        Raises `FileExistsError` where the name is taken, and whatever `fill` raises; then nothing is published.
        """

    @abstractmethod
    def publish_named(self, fill: Callable[[Write], str]) -> tuple[str, bool]:
        """Write a new file whose name is known only once it is written: `fill` returns it.

        Returns the name, and whether it is new; a name that is taken means that this content is kept already.
        """

    @abstractmethod
    def append(self, rows: bytes) -> None:
        """Add whole rows, each ended by a newline, to the manifest."""

    @abstractmethod
    def replace_manifest(self, data: bytes) -> None:
        """Put another manifest in place of the one that is there, in one step."""

    @abstractmethod
    def touch(self, names: Sequence[str]) -> None:
        """Set the modification time of files, and of the manifest, to now."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file; if there is none, that is no error."""


class PieceStore(ABC):
    """Where the pieces of one repository are kept."""

    location: str
    """Where that is, in words for people."""

    @abstractmethod
    def view(self, session_id: str) -> SessionView:
        """Open a session's files for reading; a session without an archive has none."""

    @abstractmethod
    def lock(self, session_id: str, timeout: float) -> SessionFiles:
        """Become the session's only writer, waiting at most `timeout` seconds.

        Creates what is missing and drops what a killed writer left. Raises `ArchiveBusyError` when the wait is over and
        `ArchiveUnavailableError` where the place cannot be used.
        """

    @abstractmethod
    def list(self) -> Sequence[StoredFile]:
        """Return every published file of every session in the order of their names."""

    def listed(self, only: Collection[str] | None = None) -> PieceStore:
        """Return this store for work on many of its sessions: it may list its files once, and not for each session.

        With `only`, it may know only these sessions. A reader may miss the newest files; the holder of a session's lock
        never does.
        """
        return self

    def summaries(self, prefix: str = "", progress: Callable[[int], object] | None = None) -> Sequence[SessionSummary]:
        """Return the sessions whose ids begin with a prefix, the one that was archived last first.

        `progress` is called with the bytes of each session as it is found, in stores where that takes time.
        """
        from mala_context.archive.manifests import summaries

        return [each for each in summaries(self.list()) if each.session_id.startswith(prefix)]

    def recent(self, until: float) -> Sequence[str]:
        """Return the sessions, the last written first; an empty list if that takes longer than `until`.

        `until` is a time of the monotonic clock. A session without a manifest may be missing.
        """
        return [each.session_id for each in self.summaries()]

    def unfinished(self) -> Sequence[str]:
        """Return the sessions in which a killed writer may have left something; locking one drops it."""
        return []
