"""The archives of a machine: their newest sessions, whether they verify, room for more, and the object store."""

from __future__ import annotations

import contextlib
import io
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mala_context.analysis.doctor.facts import DamagedArchive, DiskSpace, StoreProbe, VerifiedArchives
from mala_context.analysis.doctor.gather.places import known, nearest
from mala_context.archive import layout
from mala_context.archive.layout import Piece, SessionSummary
from mala_context.archive.remote.address import Target, is_address
from mala_context.archive.remote.bucket import Bucket
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.config import ContextConfig, target_of
from mala_context.errors import ArchiveError, ArchiveUnavailableError, ObjectStoreError

OF_PERMISSIONS: Final = frozenset({"directory", "mode", "stray"})
"""Kinds of problems that are a matter of permissions, which have a check of their own."""
MOST_SESSIONS: Final = 2_000
"""Sessions of one archive that are looked at, the newest."""
SPAN_DAYS: Final = 30
"""Days over which the growth of archives is taken."""
STORE_SECONDS: Final = 20.0
"""How long an object store may take to answer; the library's own retries take less where nothing answers at all."""
_PROBE: Final = ".mala-context-doctor"
_PROBE_BYTES: Final = b"mala-context doctor\n"


def directories(repo: str, config: ContextConfig, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of all archives: those of the runs directory, and the one that `mala.yaml` names."""
    found = [directory for _, directory in known(env)]
    named = config.archive.directory
    if named is not None and not is_address(named):
        own = os.path.abspath(os.path.join(repo, os.path.expanduser(named)))
        found += [own] if os.path.isdir(own) and own not in found else []
    return tuple(found)


@dataclass(frozen=True, slots=True)
class OpenedArchive:
    """One archive, and those of its sessions that are looked at."""

    directory: str
    archive: TranscriptArchive
    """Knows only what is looked at."""
    sessions: int = 0
    """Sessions that exist."""
    newest: tuple[SessionSummary, ...] = ()
    error: str | None = None
    """Why it cannot be read."""

    @property
    def is_part(self) -> bool:
        """Whether some of its sessions are not looked at."""
        return self.sessions > len(self.newest)

    @property
    def stored(self) -> int:
        """Bytes that it takes; of very many sessions an estimate from the newest."""
        looked_at = sum(each.stored for each in self.newest)
        return round(looked_at * self.sessions / max(1, len(self.newest))) if self.is_part else looked_at


def look(directory: str) -> OpenedArchive:
    """Open an archive and list its newest sessions; one that cannot be read is returned with its error."""
    archive = TranscriptArchive(directory)
    try:
        ids = archive.store(create=False).recent(math.inf)
        # A session without a manifest is listed only where all sessions are.
        archive = archive.listed(ids[:MOST_SESSIONS] if len(ids) > MOST_SESSIONS else None)
        newest = tuple(archive.sessions())
    except (ArchiveError, OSError) as error:
        return OpenedArchive(directory, archive, error=str(error))
    return OpenedArchive(directory, archive, max(len(ids), len(newest)), newest)


def verified(archives: Sequence[OpenedArchive], progress: Callable[[int], object], most_bytes: int) -> VerifiedArchives:
    """Verify the newest sessions of each archive until `most_bytes` were read."""
    checked = 0
    damaged: list[DamagedArchive] = []
    for each in archives:
        chosen = []
        for session in each.newest:
            most_bytes -= session.stored
            if most_bytes < 0:
                break
            chosen.append(session.session_id)
        checked += len(chosen)
        problems = _problems(each, chosen, progress)
        if problems:
            damaged.append(DamagedArchive(each.directory, problems))
    return VerifiedArchives(sum(each.sessions for each in archives), checked, tuple(damaged))


def _problems(opened: OpenedArchive, ids: Sequence[str], progress: Callable[[int], object]) -> tuple[str, ...]:
    if opened.error is not None:
        return (opened.error,)
    try:
        report = verify_archive(opened.archive, ids, progress=progress)
    except (ArchiveError, OSError) as error:
        return (str(error),)
    return tuple(f"{each.path}: {each.text}" for each in report.problems if each.kind not in OF_PERMISSIONS)


# -- room -----------------------------------------------------------------------------------------------------------


def space(env: Mapping[str, str], archives: Sequence[OpenedArchive]) -> DiskSpace | None:
    """Return the room for archives; `None` where they have no place, or where the system does not report it."""
    try:
        path = layout.runs_dir(env)
        figures = os.statvfs(nearest(path))
    except (ArchiveUnavailableError, OSError, AttributeError):
        return None
    stored = sum(each.stored for each in archives)
    is_part = any(each.is_part for each in archives)
    return DiskSpace(path, figures.f_bavail * figures.f_frsize, stored, _per_day(archives, time.time()), is_part)


def _per_day(archives: Sequence[OpenedArchive], now: float) -> float:
    """Return the bytes a day that the newest sessions' pieces of the last days take, by the times in their names."""
    sizes: list[tuple[float, int]] = []
    for each in archives:
        for summary in each.newest:
            for piece in _pieces(each.archive, summary.session_id):
                age = now - layout.stamp_microseconds(piece.stamp) / 1e6
                if age <= SPAN_DAYS * 86_400:
                    sizes.append((age, piece.stored))
    days = max([1.0, *(age / 86_400 for age, _ in sizes)])
    return sum(size for _, size in sizes) / days


def _pieces(archive: TranscriptArchive, session_id: str) -> Sequence[Piece]:
    """Return a session's pieces, none where it cannot be read: the check `verify` reports that."""
    try:
        return archive.pieces(session_id)
    except (ArchiveError, OSError):
        return ()


# -- the object store -----------------------------------------------------------------------------------------------


def stores(
    repo: str, config: ContextConfig, env: Mapping[str, str], seconds: float = STORE_SECONDS
) -> tuple[StoreProbe, ...]:
    """Write a few bytes to the repository's object store, read and remove them; empty where no store is named.

    Their name is the doctor's own, beside the archives. `Bucket` puts each error in words without repeating what the
    store answered, so no credential gets here.
    """
    target = target_of(config.archive)
    if target is None:
        return ()
    found: list[StoreProbe] = []
    # The library retries by itself and cannot be cancelled. A daemon thread may run on; a pool's worker would
    # hold the process at its exit.
    thread = threading.Thread(
        target=lambda: found.append(_probe(repo, target, env)), name="mala-context doctor", daemon=True
    )
    thread.start()
    thread.join(seconds)
    late = StoreProbe(target.address, error=f"it does not answer within {seconds:g} s")
    return (found[0] if found else late,)


def _probe(repo: str, target: Target, env: Mapping[str, str]) -> StoreProbe:
    begun = time.monotonic()
    try:
        base = target.base(layout.repo_runs_dir(repo, env))
        bucket = Bucket(base, target.encryption, target.kms_key)
        bucket.put(_PROBE, io.BytesIO(_PROBE_BYTES), len(_PROBE_BYTES))
        came_back = bucket.read(_PROBE) == _PROBE_BYTES
        with contextlib.suppress(ObjectStoreError):  # credentials that may not delete are enough to archive
            bucket.remove(_PROBE)
    except ObjectStoreError as error:
        return StoreProbe(target.address, error=error.reason, installed=error.installed)
    except (ArchiveError, OSError, ValueError) as error:
        return StoreProbe(target.address, error=str(error))
    wrong = None if came_back else "what was written to it cannot be read back"
    return StoreProbe(base, time.monotonic() - begun, wrong)
