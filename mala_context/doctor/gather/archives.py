"""Whether archives are what they say, by the archive's own `verify`, the newest sessions first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mala_context.archive.records import SessionSummary
from mala_context.archive.store import TranscriptArchive
from mala_context.archive.verify import verify
from mala_context.doctor.facts import Damage, Verified
from mala_context.errors import ArchiveError

OF_PERMISSIONS = frozenset({"directory", "mode", "stray"})
"""Kinds of problems that are a matter of permissions, which have a check of their own."""


def verified(directories: Sequence[str], progress: Callable[[int], object], most_bytes: int) -> Verified:
    """Verify archives until so many bytes were read, those that were written to last first."""
    sessions = checked = left = 0
    left = most_bytes
    damaged: list[Damage] = []
    for directory in directories:
        try:
            archive = TranscriptArchive(directory).listed()
            summaries = archive.sessions()
            sessions += len(summaries)
            chosen = list(_as_many_as_fit(summaries, left))
            checked += len(chosen)
            left -= sum(each.stored for each in chosen)
            report = verify(archive, [each.session_id for each in chosen], progress=progress)
        except (ArchiveError, OSError) as error:
            damaged.append(Damage(directory, (str(error),)))
            continue
        wrong = [each for each in report.problems if each.kind not in OF_PERMISSIONS]
        if wrong:
            damaged.append(Damage(directory, tuple(f"{each.path}: {each.text}" for each in wrong)))
    return Verified(sessions, checked, tuple(damaged))


def _as_many_as_fit(summaries: Sequence[SessionSummary], size: int) -> Iterator[SessionSummary]:
    """Yield the first sessions whose files together have no more than so many bytes."""
    for each in summaries:
        size -= each.stored
        if size < 0:
            return
        yield each
