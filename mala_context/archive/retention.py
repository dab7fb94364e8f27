"""Decide which sessions to remove; `TranscriptArchive.prune` then removes them.

A session is removed whole or not at all. Its age is that of its newest file. Three things keep a session:

- it is the only copy: its transcript is gone. Then only naming the session removes it;
- it is in use: another process holds its lock (found out later, when it is removed);
- the clock is in doubt. An age is the difference of two readings of a clock that may have been set in between. If no
  user looks at the list first (`apply_keep`), nothing is removed by age unless the archive itself shows that time has
  passed: some file must be from the last `days`, but older than an hour. So a clock that jumps ahead for a while
  deletes nothing. After a long holiday the old sessions are removed an hour later than possible.
"""

from __future__ import annotations

import contextlib

from mala_context._util.text import LARGEST, size_bytes, size_text
from mala_context.archive import layout, log, manifests
from mala_context.archive.layout import Frozen, SessionSummary, manifest_name, plain_name
from mala_context.errors import ArchiveBusyError, ArchiveError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any

    from mala_context.archive.interface import PieceStore

DAY = 86_400 * 1_000_000_000
WITNESS = 3_600 * 1_000_000_000


class Limits(Frozen):
    """How much may stay; `None` is no limit."""

    days: float | None = None
    """Age in days past which a session may go."""
    bytes: int | None = None
    """Bytes that all sessions may take; the oldest go first."""
    sessions: int | None = None
    """Number of sessions that may stay; the oldest go first."""


class PruneResult(Frozen):
    """What `prune` removed, or would remove."""

    removed: tuple[str, ...] = ()
    """Sessions removed; in a dry run, those that would be."""
    freed: int = 0
    """Bytes."""
    only_copies: tuple[str, ...] = ()
    """Sessions past a limit that stay because their transcript is gone; name one to remove it."""
    busy: tuple[str, ...] = ()
    """Sessions past a limit that stay because somebody writes to them."""
    failed: tuple[str, ...] = ()
    """Sessions past a limit, or named, that could not be removed; a WARNING says why."""
    not_uploaded: tuple[str, ...] = ()
    """Sessions past a limit, or named, that stay because the object store does not have all of them yet."""
    uploaded: tuple[str, ...] = ()
    """Those among `removed` of which only what is here goes; the object store keeps them."""
    clock_in_doubt: bool = False
    """Whether nothing was removed by age because the clock may have jumped."""
    dry_run: bool = True


def limits(keep: Mapping[str, Any] | None) -> Limits:
    """Return `keep` of the configuration as limits; raises `ValueError` for what is no limit."""
    values = dict(keep or {})
    unknown = values.keys() - {"days", "bytes", "sessions"}
    if unknown:
        raise ValueError(f"keep has no {', '.join(sorted(unknown))}; it has days, bytes, sessions")
    days = values.get("days")
    sessions = values.get("sessions")
    for name, value in (("days", days), ("sessions", sessions)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LARGEST
        ):
            raise ValueError(f"keep.{name} is {value!r}; it must be a number from 0")
    return Limits(days=days, bytes=_size(values.get("bytes")), sessions=None if sessions is None else int(sessions))


def _size(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST):
        return value
    if isinstance(value, str):
        return 0 if value.strip() == "0" else size_bytes(value)
    raise ValueError(f"{value!r} is no size; write a number of bytes or a text like 500MB or 2GiB")


def past_limits(sessions: Iterable[SessionSummary], limit: Limits, now_ns: int) -> list[SessionSummary]:
    """Return the sessions that a limit asks to go, the oldest first."""
    oldest_first = sorted(sessions, key=lambda each: (each.newest_ns, each.session_id))
    count = len(oldest_first)
    total = sum(each.stored for each in oldest_first)
    gone = []
    for each in oldest_first:
        too_old = limit.days is not None and now_ns - each.newest_ns > limit.days * DAY
        too_many = limit.sessions is not None and count > limit.sessions
        too_large = limit.bytes is not None and total > limit.bytes
        # Not `continue`: a younger session must never go before an older one, and counts and sizes only shrink.
        if not (too_old or too_many or too_large):
            break
        gone.append(each)
        count -= 1
        total -= each.stored
    return gone


def _less(limit: Limits, spared: Sequence[SessionSummary]) -> Limits:
    """Return the limit that is left for the other sessions after some (`spared`) stay in any case."""
    stored = sum(each.stored for each in spared)
    return Limits(
        days=limit.days,
        bytes=None if limit.bytes is None else max(0, limit.bytes - stored),
        sessions=None if limit.sessions is None else max(0, limit.sessions - len(spared)),
    )


def clock_is_trusted(sessions: Sequence[SessionSummary], limit: Limits, now_ns: int) -> bool:
    """Tell whether the archive shows that time has passed as the clock says; see the text of this module."""
    if limit.days is None:
        return True
    return any(WITNESS < now_ns - each.newest_ns <= limit.days * DAY for each in sessions)


def choose(
    sessions: Sequence[SessionSummary],
    limit: Limits,
    now_ns: int,
    *,
    named: Collection[str] = (),
    only_copies: Collection[str] = (),
    trust_clock: bool = True,
) -> PruneResult:
    """Decide which sessions go: those named, and those past a limit that are not the only copy."""
    named, only_copies = set(named), set(only_copies)
    doubt = not trust_clock and not clock_is_trusted(sessions, limit, now_ns)
    if doubt:
        limit = Limits(bytes=limit.bytes, sessions=limit.sessions)
    # Without a user who confirms, a session of the last hour counts as running and stays, however large it is.
    settled: list[SessionSummary] = []
    spared: list[SessionSummary] = []
    for each in sessions:
        (settled if trust_clock or now_ns - each.newest_ns > WITNESS else spared).append(each)
    past = past_limits(settled, _less(limit, spared), now_ns)
    past_ids = {each.session_id for each in past}
    chosen = [each for each in sessions if each.session_id in named and each.session_id not in past_ids] + past
    going = [each for each in chosen if each.session_id in named or each.session_id not in only_copies]
    going_ids = {each.session_id for each in going}
    return PruneResult(
        removed=tuple(each.session_id for each in going),
        freed=sum(each.stored for each in going),
        only_copies=tuple(each.session_id for each in past if each.session_id not in going_ids),
        clock_in_doubt=doubt,
    )


def remove(
    store: PieceStore,
    sessions: Sequence[SessionSummary],
    plan: PruneResult,
    progress: Callable[[int], object] | None = None,
) -> PruneResult:
    """Remove the sessions of a plan and return what was removed; `progress` is called with the bytes of each.

    The newest pieces go first and the manifest last, so that a kill leaves the beginning of a transcript. Before that,
    a row of the manifest names what is about to go: without it, `verify` called those pieces lost for ever.
    """
    stored = {each.session_id: each.stored for each in sessions}
    done = plan.but(removed=(), freed=0, dry_run=False)
    for session_id in plan.removed:
        done = attempt(done, session_id, lambda each: _remove(store, each, stored[each]))
        if progress is not None:
            progress(stored[session_id])
    return done


def attempt(done: PruneResult, session_id: str, work: Callable[[str], int]) -> PruneResult:
    """Remove a session by `work`, which returns the bytes freed, and add how that ended to a result."""
    try:
        freed = work(session_id)
    except ArchiveBusyError:
        return done.but(busy=(*done.busy, session_id))
    except (ArchiveError, OSError) as error:  # one bad session must not keep the others
        log.warning("Archive of session %s is not removed: %s", session_id, error)
        return done.but(failed=(*done.failed, session_id))
    return done.but(removed=(*done.removed, session_id), freed=done.freed + freed)


def _remove(store: PieceStore, session_id: str, stored: int) -> int:
    with store.lock(session_id, 0.0) as files:
        names = [each.name for each in files.list() if each.name != manifest_name(session_id)]
        row = manifests.new_row("removing", layout.now(), names=[plain_name(name) for name in names])
        with contextlib.suppress(OSError):  # on a full disk the row cannot be written, and removing is the cure
            files.append(manifests.dump([row]))
        for name in [*reversed(names), manifest_name(session_id)]:
            files.remove(name)
    log.info("Archive of session %s removed (%s)", session_id, size_text(stored))
    return stored
