"""Remove sessions past a limit: whole sessions, or only the local files that an object store has too.

A session that was ever uploaded to an object store keeps its manifest here, because that says where the pieces are.
Its other files are removed after the store has given back every byte of them and of the manifest. The local copies are
then not the only ones, even if the transcript is gone. What the store deletes is up to the store's own rules.
"""

from __future__ import annotations

import time

from mala_context._util.text import size_text
from mala_context.archive import layout, log, manifests
from mala_context.archive.catch_up import transcript_of
from mala_context.archive.full_outputs import sweep
from mala_context.archive.layout import Frozen
from mala_context.archive.remote import uploaded
from mala_context.archive.retention import PruneResult, attempt, choose, remove
from mala_context.errors import ArchiveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mala_context.archive.layout import SessionSummary
    from mala_context.archive.reader import ArchiveReader
    from mala_context.archive.retention import Limits


class _Standing(Frozen):
    """Where a session's files are."""

    remote: bool
    """Whether it is or was uploaded to an object store."""
    complete: bool
    """Whether the object store has all of it."""


def prune(
    archive: ArchiveReader,
    limit: Limits,
    named: Sequence[str],
    *,
    trust_clock: bool,
    dry_run: bool,
    progress: Callable[[int], object] | None = None,
) -> PruneResult:
    """Remove what `TranscriptArchive.prune` says, or only say what would go."""
    now = time.time_ns()
    archive = archive.listed()
    sessions = [
        each for each in archive.sessions(progress=getattr(progress, "found", None)) if not _is_empty(archive, each)
    ]
    wanted = choose(sessions, limit, now, named=named, trust_clock=trust_clock).removed
    sizes = {each.session_id: each.stored for each in sessions}
    expect = getattr(progress, "expect", None)
    if expect is not None:
        rounds = 1 if dry_run else 2  # each is looked into, and then removed
        expect(rounds * sum(sizes[each] for each in wanted), rounds * len(wanted))
    known = {each.session_id: each for each in sessions}
    standing: dict[str, _Standing] = {}
    spared, failed = [], []
    for each in wanted:
        try:
            standing[each] = where = _standing(archive, known[each])
            if not where.remote and transcript_of(archive, each, archive.manifest(each)) is None:
                spared.append(each)
        except (ArchiveError, OSError) as error:  # one bad session must not keep the others
            log.warning("Archive of session %s is not removed: %s", each, error)
            standing[each] = _Standing(remote=True, complete=False)
            failed.append(each)
        if progress is not None:
            progress(sizes[each])
    # Chosen a second time, because what waits for its upload stays. Whether a session is uploaded or the only copy is
    # looked up for the first choice alone: it takes its manifest and a search of the projects directory.
    waiting = dict.fromkeys(each for each in wanted if standing[each].remote and not standing[each].complete)
    plan = choose(
        [each for each in sessions if each.session_id not in waiting],
        limit,
        now,
        named=[each for each in named if each not in waiting],
        only_copies=spared,
        trust_clock=trust_clock,
    )
    uploaded_ones = dict.fromkeys(each for each in plan.removed if standing[each].remote)
    result = plan
    if not dry_run:
        rest = plan.but(removed=tuple(each for each in plan.removed if each not in uploaded_ones))
        result = remove(archive.store(create=False), sessions, rest, progress)
        for each in uploaded_ones:
            result = attempt(result, each, lambda session_id: _drop(archive, session_id))
    sweep(archive, dry_run=dry_run)
    there = tuple(each for each in uploaded_ones if each in result.removed)
    late = tuple(each for each in waiting if each not in failed)
    return result.but(not_uploaded=late, uploaded=there, failed=(*failed, *result.failed))


def _standing(archive: ArchiveReader, session: SessionSummary) -> _Standing:
    """Return it from the manifest and the listed names: reading the directory for each session is slow."""
    manifest = archive.manifest(session.session_id)
    bases = uploaded.places(manifest)
    current = None if archive.target is None else archive.base()
    complete = any(
        uploaded.is_complete(session.session_id, session.files, manifest, base)
        for base in (bases if current is None else {current})
    )
    return _Standing(remote=bool(bases) or current is not None, complete=complete)


def _is_empty(archive: ArchiveReader, session: SessionSummary) -> bool:
    """Tell whether only the manifest of an uploaded session is here. Other sessions' manifests are not read."""
    only_manifest = session.files == (layout.manifest_name(session.session_id),)
    return only_manifest and bool(uploaded.places(archive.manifest(session.session_id)))


def _drop(archive: ArchiveReader, session_id: str) -> int:
    """Remove the local files of a session that are uploaded; return the bytes freed."""
    freed = 0
    with archive.store(create=False).lock(session_id, 0.0) as files:
        done = {layout.plain_name(name) for name in uploaded.uploads(manifests.parse(files.manifest()))}
        for file in reversed(files.list()):
            here = file.remote is None and file.name != layout.manifest_name(session_id)
            if here and layout.plain_name(file.name) in done:
                files.remove(file.name)
                freed += file.size
    log.info("Archive of session %s: %s here removed, the object store has them", session_id, size_text(freed))
    return freed
