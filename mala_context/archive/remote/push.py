"""Send archived files to the object store. A file counts as sent only after it was read back.

For each file, the store is asked for an object of that name and size. If its bytes have the right hash, an earlier run
was killed after it sent the file and before it wrote the row: only the row is missing. Otherwise the file is sent, read
back whole and hashed, and only then its row is written. S3 also gets each part's SHA-256, so that a store that checks
it refuses damaged parts. Reading back works with every store.

A name is never used twice, so sending a file again replaces bytes by the same bytes. The manifest is sent last. It is
pending again as soon as a row is added to it.

Sessions are sent one after the other. A lock on the archive's directory keeps a second process from sending the same
files at the same time; the session's own lock is held only while a row is added, so a hook never waits for a network.
"""

from __future__ import annotations

import contextlib
import io
import time
from hashlib import sha256

from mala_context._util.text import size_text
from mala_context.archive import layout, log, manifests
from mala_context.archive.atomic_write import close_locked, thread_locks, try_flock
from mala_context.archive.directory import open_archives
from mala_context.archive.increment import repair_pieces
from mala_context.archive.layout import Frozen
from mala_context.archive.remote import uploaded
from mala_context.archive.source import digest_of
from mala_context.errors import ArchiveBusyError, ArchiveError, ObjectStoreError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from mala_context.archive.layout import StoredFile
    from mala_context.archive.reader import ArchiveReader
    from mala_context.archive.remote.bucket import Bucket

    Progress = Callable[[int], object]

PATIENCE = 60.0
"""Seconds to wait for another process that uploads from the same archive."""
_ROUNDS = 3
_PAUSE = 0.1


class PushResult(Frozen):
    """What `push` did."""

    address: str
    """Where the files went."""
    files: int = 0
    """Files, manifests included, that were sent, or were found in the store with the right bytes."""
    bytes: int = 0
    """Bytes of them."""
    sessions: int = 0
    """Sessions that are now completely in the store."""
    pending: tuple[str, ...] = ()
    """Sessions that are not completely in the store yet; push again."""


def push(
    archive: ArchiveReader,
    session_ids: Sequence[str] | None = None,
    *,
    pack: bool = False,
    progress: Progress | None = None,
) -> PushResult:
    """Upload the missing files of all sessions, or of those named. Call it again for sessions that are `pending`.

    With `pack`, pieces are packed first if possible, so that the smaller file is sent. `progress` is called with the
    bytes of each file that arrived. Raises `ObjectStoreError` if the store cannot be used (files that arrived before
    have their rows), `ArchiveBusyError` if another process uploads for longer than a minute, and
    `ArchiveUnavailableError` if this archive has no store. An `ArchiveError` or `OSError` of one session is raised
    after the other sessions were sent.
    """
    bucket = archive.bucket()
    archive = archive.listed()
    known: dict[str, Sequence[str] | None] = dict.fromkeys(session_ids or ())
    if session_ids is None:
        known = {each.session_id: each.files for each in archive.sessions()}
    files = size = complete = 0
    left = []
    failed: Exception | None = None
    for session_id, names in known.items():
        sender = _Sender(archive, bucket, session_id, pack=pack, progress=progress)
        try:
            if sender.has_work(names):
                with _turn(archive.location, PATIENCE):
                    sender.run()
        except (ArchiveBusyError, ObjectStoreError):
            raise
        except (ArchiveError, OSError) as error:  # of this session alone: the others are sent before it is raised
            failed = failed or error
        finally:
            files, size = files + sender.files, size + sender.bytes
        if sender.done:
            complete += 1
        else:
            left.append(session_id)
    if files:
        log.info("Archive: %d files (%s) uploaded to %s", files, size_text(size), bucket.base)
    if failed is not None:
        raise failed
    return PushResult(address=bucket.base, files=files, bytes=size, sessions=complete, pending=tuple(left))


class _Sender:
    """Sends what is new of one session."""

    def __init__(
        self, archive: ArchiveReader, bucket: Bucket, session_id: str, *, pack: bool, progress: Progress | None
    ) -> None:
        self._archive = archive
        self._bucket = bucket
        self._session_id = session_id
        self._wants_packed = pack
        self._progress = progress
        self.files = self.bytes = 0
        self.done = False
        self._damaged: set[str] = set()

    def has_work(self, names: Sequence[str] | None = None) -> bool:
        """Tell from the local files whether something is pending. A session without a piece has nothing to send.

        `names` are the session's local files, if they were listed already.
        """
        with self._archive.view(self._session_id) as files:
            here = [file.name for file in files.list() if file.remote is None] if names is None else names
            manifest = manifests.parse(files.manifest())
        any_piece = any(not name.endswith(".manifest.jsonl") for name in here) or uploaded.uploads(manifest)
        self.done = not any_piece or uploaded.is_complete(self._session_id, here, manifest, self._bucket.base)
        return not self.done

    def run(self) -> None:
        self._bucket.drop_unfinished((f"{self._session_id}_", f"{self._session_id}."))
        self._pack()
        # A reader of the store sees only the pieces that the manifest there names. So a piece whose writer was killed
        # before its row must get a row first.
        if manifests.without_row(self._archive.pieces(self._session_id)):
            with self._archive.lock(self._session_id) as locked:
                repair_pieces(
                    locked, manifests.pieces_of(locked.list(), manifests.parse(locked.manifest())), layout.now()
                )
        for _ in range(_ROUNDS):
            with self._archive.view(self._session_id) as files:
                manifest = manifests.parse(files.manifest())
                listed = {file.name: file for file in files.list() if file.remote is None}
                for name in uploaded.pending(listed, manifest, self._bucket.base):
                    self._send(files, manifest, listed[name])
            if self._send_manifest() and not self.has_work():
                return

    def _pack(self) -> None:
        """Pack the session's pieces if `pack` was asked for; a piece that cannot be packed is sent plain."""
        from mala_context.archive.packing import pack_sessions

        if self._wants_packed:
            with contextlib.suppress(ArchiveError, OSError):  # `tidy` says why it cannot be packed
                pack_sessions(self._archive, [self._session_id])

    def _send(self, files: Any, manifest: Any, file: StoredFile) -> None:
        try:
            digest, size = digest_of(files.open(file.name))
            if not self._is_right(manifest, file.name, digest):
                return
            if not self._is_there(file.name, size, digest):
                with contextlib.closing(files.open(file.name)) as reader:
                    self._bucket.put(file.name, reader, size)
                self._check(file.name, size, digest)
        except FileNotFoundError:
            return  # another process packed the piece just now; the next round sends the packed file
        self._note(file.name, size, digest, file.mtime_ns)

    def _is_right(self, manifest: Any, name: str, digest: str) -> bool:
        row = manifest.pieces().get(name)  # rows are named by plain pieces and hash plain bytes: none for a packed file
        if row is None or row.get("sha256") in {None, digest}:
            return True
        if name not in self._damaged:
            self._damaged.add(name)
            log.warning("Piece %s is not what its manifest says: it is not uploaded", name)
        return False

    def _is_there(self, name: str, size: int, digest: str) -> bool:
        there = self._bucket.size(name)
        return there == size and self._bucket.digest(name, size) == digest

    def _check(self, name: str, size: int, digest: str) -> None:
        if not self._is_there(name, size, digest):
            raise ObjectStoreError(self._bucket.base, f"what came back of {name} is not what was sent")

    def _note(self, name: str, size: int, digest: str, mtime_ns: int | None = None) -> None:
        row = uploaded.new_row(name, self._bucket.base, size, digest, layout.now(), mtime_ns)
        with self._archive.lock(self._session_id) as locked:
            locked.append(manifests.dump([row]))
        self._count(size)

    def _count(self, size: int) -> None:
        self.files += 1
        self.bytes += size
        if self._progress is not None:
            self._progress(size)

    def _send_manifest(self) -> bool:
        """Send the manifest; false if rows were added while it was sent, so that the caller sends it again."""
        name = layout.manifest_name(self._session_id)
        with self._archive.view(self._session_id) as files:
            data = files.manifest()
        # While another program moves the archive's directory the manifest reads as empty. Sent like that, it would
        # replace the store's manifest by nothing if this process ended before the next round.
        if not data:
            return False
        manifest = manifests.parse(data)
        if uploaded.manifest_is_uploaded(self._session_id, manifest, self._bucket.base):
            return True
        if name not in uploaded.uploads(manifest, self._bucket.base):
            data = self._take_over(name, data)
        digest = sha256(data).hexdigest()
        self._bucket.put(name, io.BytesIO(data), len(data))
        self._check(name, len(data), digest)
        row = uploaded.new_row(name, self._bucket.base, len(data), digest, layout.now())
        with self._archive.lock(self._session_id) as locked:
            # A row that was added since is not in the store: then this one must not say that everything is.
            same: bool = locked.manifest() == data
            if same:
                locked.append(manifests.dump([row]))
        if same:
            self._count(len(data))
        return same

    def _take_over(self, name: str, data: bytes) -> bytes:
        """Save the rows of a manifest that is in the store already, before the first one from here replaces it."""
        there = self._bucket.read(name)
        if there is None or there == data:
            return data
        local, remote = manifests.parse(data), manifests.parse(there)
        if not uploaded.continues(local, remote):
            aside = f"{self._session_id}.manifest.{sha256(there).hexdigest()[:12]}.jsonl"
            self._bucket.put(aside, io.BytesIO(there), len(there))
            self._check(aside, len(there), sha256(there).hexdigest())
            log.warning(
                "Session %s was uploaded before by a machine of this name: that manifest is kept as %s",
                self._session_id,
                aside,
            )
            return data
        rows = uploaded.missing_rows(local, remote)
        if rows:
            with self._archive.lock(self._session_id) as locked:
                locked.append(manifests.dump(rows))
                return bytes(locked.manifest())
        return data


@contextlib.contextmanager
def _turn(directory: str, patience: float) -> Iterator[None]:
    """Let only one process upload from an archive at a time; raises `ArchiveBusyError` when the wait is over."""
    key = (directory, ".uploads")  # no session has such an id
    until = time.monotonic() + patience
    if not thread_locks.acquire(key, patience):
        raise ArchiveBusyError("uploads", patience)
    try:
        fd = open_archives(directory, create=False)
        try:
            while not try_flock(fd):
                if time.monotonic() > until:
                    raise ArchiveBusyError("uploads", patience)
                time.sleep(_PAUSE)
            yield
        finally:
            close_locked(fd)
    finally:
        thread_locks.release(key)
