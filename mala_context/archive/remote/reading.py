"""A repository's place in an object store as a store of pieces, for reading only: from any machine, without a disk.

A session has the files that its manifest in the store names. If a machine died after it sent pieces and before it sent
the manifest, the session has no manifest there, and all of its pieces are read.
"""

from __future__ import annotations

import errno

from mala_context.archive import layout, manifests
from mala_context.archive.interface import PieceStore, SessionView
from mala_context.archive.remote import uploaded
from mala_context.archive.remote.bucket import bucket_at
from mala_context.errors import ArchiveUnavailableError
from mala_context.transcripts.session_ids import check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from mala_context.archive.interface import Reader
    from mala_context.archive.layout import StoredFile
    from mala_context.archive.remote.bucket import Bucket


class RemoteView(SessionView):
    """One session's files in an object store."""

    def __init__(self, bucket: Bucket, session_id: str, files: Sequence[StoredFile]) -> None:
        self.session_id = session_id
        self._bucket = bucket
        self._files = {file.name: file for file in files}
        self._manifest: bytes | None = None

    def list(self) -> Sequence[StoredFile]:
        """Return the session's files that its manifest in the store names; all of them if there is no manifest."""
        data = self.manifest()
        manifest_name = layout.manifest_name(self.session_id)
        known = uploaded.uploads(manifests.parse(data))
        return [self._files[name] for name in sorted(self._files) if not data or name in known or name == manifest_name]

    def open(self, name: str) -> Reader:
        """Open a file."""
        if layout.session_of(name) != self.session_id:
            raise FileNotFoundError(errno.ENOENT, "no such file in this archive", name)
        return self._bucket.open(name)

    def manifest(self) -> bytes:
        """Return the manifest's bytes; the store is asked once."""
        if self._manifest is None:
            name = layout.manifest_name(self.session_id)
            self._manifest = (self._bucket.read(name) or b"") if name in self._files else b""
        return self._manifest

    def path(self, name: str) -> str:
        """Return a file's address."""
        return f"{self._bucket.base}/{name}"

    def close(self) -> None:
        """Nothing is held."""


class RemoteStore(PieceStore):
    """The archives of one repository in an object store.

    Args:
        address: their place, as `archives push` prints it.

    Raises `ObjectStoreError`.
    """

    def __init__(self, address: str) -> None:
        self._bucket = bucket_at(address.rstrip("/"))
        self.location = self._bucket.base
        self._listed: Sequence[StoredFile] | None = None
        self._of: dict[str | None, list[StoredFile]] = {}

    def view(self, session_id: str) -> RemoteView:
        """Open a session's files for reading."""
        check_session_id(session_id)
        self.list()
        return RemoteView(self._bucket, session_id, self._of.get(session_id, ()))

    def lock(self, session_id: str, timeout: float) -> NoReturn:
        """Raise `ArchiveUnavailableError`: only `push` writes to the store, from the machine that archived."""
        check_session_id(session_id)
        raise ArchiveUnavailableError(
            f"{self.location} is read only: an archive is changed on the machine that it was pushed from",
            path=self.location,
        )

    def list(self) -> Sequence[StoredFile]:
        """Return every file of every session; the store is asked once."""
        if self._listed is None:
            self._listed = sorted(
                (file for file in self._bucket.list() if layout.session_of(file.name) is not None),
                key=lambda file: file.name,
            )
            for file in self._listed:
                self._of.setdefault(layout.session_of(file.name), []).append(file)
        return self._listed
