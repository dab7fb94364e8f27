"""The archives of a machine: their newest sessions, and whether they are what they say, by the archive's own `verify`.

To ask for all files of 100,000 sessions takes ten seconds. So of very many the newest are looked at, which their
manifests' times tell, and no more is held than their files' names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from mala_context.analysis.doctor.facts import Damage, Verified
from mala_context.analysis.doctor.gather.bounds import fitting, shares
from mala_context.archive.records import SessionSummary
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify_archive
from mala_context.errors import ArchiveError

OF_PERMISSIONS: Final = frozenset({"directory", "mode", "stray"})
"""Kinds of problems that are a matter of permissions, which have a check of their own."""
MOST_LOOKED: Final = 100_000
"""Sessions of one archive whose times are looked at, to tell which are the newest."""
MOST_SESSIONS: Final = 5_000
"""Sessions of all archives together that are looked at, the newest of each."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One archive, and those of its sessions that are looked at."""

    directory: str
    archive: TranscriptArchive
    """Knows only what is looked at."""
    sessions: int = 0
    """Sessions that there are."""
    newest: tuple[SessionSummary, ...] = ()
    error: str | None = None
    """Why it cannot be read."""

    @property
    def stored(self) -> int:
        """Bytes that it takes; of very many sessions an estimate from the newest."""
        known = sum(each.stored for each in self.newest)
        return known if not self.is_part else round(known * self.sessions / max(1, len(self.newest)))

    @property
    def is_part(self) -> bool:
        """Whether not all of its sessions are looked at."""
        return self.sessions > len(self.newest)


def look(directories: Sequence[str], found: Callable[[int], object]) -> list[Archive]:
    """Open archives and choose the sessions to look at; `found` is told the files that were passed.

    One that cannot be read is there with its error.
    """
    archives = [TranscriptArchive(each) for each in directories]
    known = [_sessions(each, found) for each in archives]
    counts = [0 if isinstance(each, str) else len(each) for each in known]
    chosen = []
    for directory, archive, ids, share in zip(directories, archives, known, shares(counts, MOST_SESSIONS), strict=True):
        if isinstance(ids, str):
            chosen.append(Archive(directory, archive, error=ids))
        else:
            chosen.append(_opened(directory, archive, ids, share))
    return chosen


def _sessions(archive: TranscriptArchive, found: Callable[[int], object]) -> Sequence[str] | str:
    """Return the sessions that have a manifest, the newest first, or why they cannot be listed."""
    try:
        return archive.store(create=False).recent(math.inf, found, MOST_LOOKED)
    except (ArchiveError, OSError) as error:
        return str(error)


def _opened(directory: str, archive: TranscriptArchive, ids: Sequence[str], share: int) -> Archive:
    """Look at an archive's newest sessions; where that is all of them, at those without a manifest too."""
    known = archive.listed(None if share == len(ids) else ids[:share])
    try:
        newest = tuple(known.sessions())
    except (ArchiveError, OSError) as error:
        return Archive(directory, known, error=str(error))
    return Archive(directory, known, max(len(ids), len(newest)), newest)


def verified(archives: Sequence[Archive], progress: Callable[[int], object], most_bytes: int) -> Verified:
    """Verify sessions until so many bytes were read, those that were written to last first."""
    checked = 0
    damaged: list[Damage] = []
    for each in archives:
        if each.error is not None:
            damaged.append(Damage(each.directory, (each.error,)))
            continue
        chosen = list(fitting(each.newest, attrgetter("stored"), most_bytes))
        checked += len(chosen)
        most_bytes -= sum(session.stored for session in chosen)
        try:
            report = verify_archive(each.archive, [session.session_id for session in chosen], progress=progress)
        except (ArchiveError, OSError) as error:
            damaged.append(Damage(each.directory, (str(error),)))
            continue
        wrong = [problem for problem in report.problems if problem.kind not in OF_PERMISSIONS]
        if wrong:
            damaged.append(Damage(each.directory, tuple(f"{problem.path}: {problem.text}" for problem in wrong)))
    return Verified(sum(each.sessions for each in archives), checked, tuple(damaged))
