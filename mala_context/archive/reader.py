"""`ArchiveReader`: the part of an archive that only reads. It knows what is kept of a repository's sessions, and where.

`store.TranscriptArchive` adds the methods that write. Parts of the archive that need no more than this (a session's
rows, packing, pruning, uploading) take an `ArchiveReader` and import nothing of the modules above them.
"""

from __future__ import annotations

import os
from contextlib import closing

from mala_context.archive import layout, manifests
from mala_context.transcripts.projects import find_transcript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Self

    from mala_context.archive.interface import PieceStore, SessionFiles, SessionView
    from mala_context.archive.layout import Piece, SessionSummary
    from mala_context.archive.manifests import Manifest
    from mala_context.archive.remote.address import Target
    from mala_context.archive.remote.bucket import Bucket

TIMEOUT = 10.0
"""Seconds that a writer waits for a session's lock."""


class ArchiveReader:
    """What is archived of one repository, to look at; the arguments are those of `TranscriptArchive`.

    Raises `ValueError` where there is neither a directory, a repository nor a store, and for an address that is none
    or that holds a secret.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        repo_path: str | os.PathLike[str] | None = None,
        store: PieceStore | None = None,
        timeout: float = TIMEOUT,
        target: Target | None = None,
        projects_dirs: Sequence[str] | None = None,
    ) -> None:
        if directory is None and repo_path is None and store is None:
            raise ValueError("an archive needs a directory, a repo_path or a store")
        self.timeout = timeout
        self.repo_path = repo_path
        self.target = target
        """The object store that pieces are sent to."""
        self.projects_dirs = projects_dirs
        """Where transcripts are looked for by name; `None` for the usual places of this process, as they are then."""
        self._directory = None if directory is None else absolute(os.fspath(directory), repo_path)
        if self._directory is not None and "://" in self._directory and repo_path is not None:
            from mala_context.archive.remote import address

            self.target, self._directory = target or address.Target(address=self._directory), None
        if self.target is not None:
            self.target.check()
        self._bucket: Bucket | None = None
        self._store = store

    @property
    def location(self) -> str:
        """Where the pieces are kept, in words for people; raises `ArchiveUnavailableError` where there is no place."""
        return self.store(create=False).location

    def store(self, *, create: bool) -> PieceStore:
        """Return the store; with `create` the repository's place is claimed first.

        Raises `ArchiveUnavailableError` where there is no place for archives.
        """
        if self._store is not None:
            return self._store
        found = open_store(self._directory, self.repo_path, create=create)
        # Before a repository has claimed its directory, another repository with the same key may get that name. So the
        # store of an unclaimed place is not kept.
        if create or self._directory is not None:
            self._store = found
        return found

    def base(self) -> str:
        """Return the address of its place in the object store; `ArchiveUnavailableError` where it has none."""
        if self.target is None:
            from mala_context.errors import ArchiveUnavailableError

            raise ArchiveUnavailableError(f"{self.location} goes to no object store: archive.directory names one")
        return self.target.base(self._directory or layout.repo_runs_dir(self.repo_path or os.curdir))

    def bucket(self) -> Bucket:
        """Return the place in the object store; sends no request yet. Raises `ObjectStoreError`, and like `base`."""
        from mala_context.archive.remote import bucket

        if self._bucket is None:
            base = self.base()
            self._bucket = bucket.Bucket(
                base, getattr(self.target, "encryption", None), getattr(self.target, "kms_key", None)
            )
        return self._bucket

    def find_transcript(self, session_id: str, *, cwd: str | None = None) -> str | None:
        """Return where the session's transcript is: `{session_id}.jsonl`, exactly that name, below `projects_dirs`.

        The folder of `cwd` is looked into first. Raises `InvalidSessionIdError`.
        """
        return find_transcript(session_id, cwd=cwd, projects_dirs=self.projects_dirs)

    def view(self, session_id: str) -> closing[SessionView]:
        """Open a session's files for reading, for a `with` block. Raises `ArchiveUnavailableError`."""
        return closing(self.store(create=False).view(session_id))

    def lock(self, session_id: str) -> closing[SessionFiles]:
        """Become the session's only writer for a `with` block; raises like `PieceStore.lock` after `timeout`."""
        return closing(self.store(create=True).lock(session_id, self.timeout))

    def manifest(self, session_id: str) -> Manifest:
        """Return the session's manifest, empty where there is none. Raises `ArchiveUnavailableError`."""
        with self.view(session_id) as files:
            return manifests.parse(files.manifest())

    def pieces(self, session_id: str) -> list[Piece]:
        """Return the session's pieces, subagents' included, by transcript, chain and time; none where it is unknown."""
        with self.view(session_id) as files:
            return manifests.pieces_of(files.list(), manifests.parse(files.manifest()))

    def sessions(self, prefix: str = "", *, progress: Callable[[int], object] | None = None) -> list[SessionSummary]:
        """Return the sessions whose ids begin with `prefix`, the newest first; `progress` is told the bytes of each."""
        return list(self.store(create=False).summaries(prefix, progress))

    def listed(self, only: Collection[str] | None = None) -> Self:
        """Return this archive for work on many of its sessions: its directory is then not listed for each of them.

        With `only`, it knows no other sessions than these, and holds nothing of the others.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._store = self.store(create=False).listed(only)
        return other

    def usage_bytes(self) -> int:
        """Return the bytes that this archive takes."""
        return sum(file.size for file in self.store(create=False).list())


def absolute(directory: str, repo_path: str | os.PathLike[str] | None) -> str:
    """Return a configured directory as an absolute path; an address like `s3://…` stays as it is."""
    if "://" in directory:
        return directory
    expanded = os.path.expanduser(directory)
    if directory.startswith("~") and not os.path.isabs(expanded):  # with a relative HOME it would be in the repository
        from mala_context.errors import ArchiveUnavailableError

        raise ArchiveUnavailableError(f"no home directory for {directory}: set HOME to an absolute path")
    return os.path.abspath(expanded if repo_path is None else os.path.join(os.fspath(repo_path), expanded))


def open_store(directory: str | None, repo_path: str | os.PathLike[str] | None, *, create: bool) -> PieceStore:
    """Return the store at an absolute directory or an address, else the repository's, which `create` claims first.

    Raises `ArchiveUnavailableError` where there is no place for archives.
    """
    from mala_context.archive.local_store import LocalStore

    if directory is not None:
        if "://" in directory:
            from mala_context.archive.remote.reading import RemoteStore

            return RemoteStore(directory)
        return LocalStore(directory)
    repo = os.curdir if repo_path is None else repo_path
    if create:
        from mala_context.archive.directory import claim_repository

        return LocalStore(claim_repository(repo))
    return LocalStore(os.path.join(layout.repo_runs_dir(repo), layout.ARCHIVES))
