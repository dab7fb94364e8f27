"""The archive's long work, done in threads for which no hook ever waits.

A hook's piece goes through one thread, in order. The work here may take long: archiving the rest of a hundred sessions
that ended unseen, packing gigabytes, or sending them to an object store. So each kind has a thread of its own, and the
archive's locks keep it apart from the pieces. A failure is a line of log. If the process ends first, the next start in
the same repository does the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.background import Worker, wait_for
from mala_context._util.log import get_logger
from mala_context.agent.archiving.uploads import Uploads
from mala_context.errors import ArchiveError, ArchiveUnavailableError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mala_context.archive.store import TranscriptArchive

CATCH_UP_SECONDS: Final = 5.0
"""Longest that a process's end is delayed by the archives of other sessions."""
UPLOAD_SECONDS: Final = 10.0
"""Longest that a process's end is delayed by an object store that answers; a failing one does not delay it."""

log = get_logger(__name__)


class ArchiveMaintenance:
    """Catches up, packs and applies `keep` for one runtime.

    Args:
        archive: the archive.
        tell: is given each record of an upload.
    """

    def __init__(
        self,
        archive: TranscriptArchive,
        tell: Callable[[object], object] = lambda _: None,
    ) -> None:
        self._archive = archive
        self._catching_up: Future[Any] | None = None
        self._tidying = Worker("mala-context tidy")
        self._last: Future[Any] | None = None
        self._uploads = None if archive.target is None else Uploads(archive, tell)

    def begin(self, own: Collection[str]) -> None:
        """Archive the rest of all earlier sessions except our `own`; only the first call does anything."""
        if self._catching_up is not None:
            return
        if self._uploads is not None:
            self._uploads.wake()

        def catch_up() -> None:
            known = [each.session_id for each in self._archive.sessions()]
            if others := [each for each in known if each not in own]:
                self._archive.catch_up(session_ids=others)

        self._catching_up = Worker("mala-context catch-up").submit(lambda: _guarded(catch_up, "catching up"))

    def ended(self, session_ids: Sequence[str]) -> None:
        """Pack these sessions and apply `keep`, if configured. They must be completely archived."""
        archive = self._archive
        if not session_ids or (archive.compress == "none" and archive.keep is None):
            return
        self._last = self._tidying.submit(lambda: _guarded(lambda: archive.tidy(list(session_ids)), "tidying"))

    async def finish(self, seconds: float) -> None:
        """Wait at most `seconds` for the work that was begun. Never raises."""
        end = time.monotonic() + seconds
        for job, most in ((self._last, seconds), (self._catching_up, CATCH_UP_SECONDS)):
            if job is None:
                continue
            try:
                await wait_for(job, seconds=max(0.0, min(most, end - time.monotonic())))
            except TimeoutError:
                log.info("Archive: maintenance is not finished; the next start continues it")
        if self._uploads is not None:
            await self._uploads.finish(min(UPLOAD_SECONDS, end - time.monotonic()))


def _guarded(work: Any, doing: str) -> None:
    """Do `work`; no caller waits for it, so a failure becomes a line of log."""
    try:
        work()
    except ArchiveUnavailableError as error:
        log.debug("Archive: no %s: %s", doing, error)  # the first piece says it, once, so that people see it
    except ArchiveError as error:
        log.warning("Archive: %s failed: %s", doing, error)
    except OSError as error:
        log.error("Archive: %s failed: %s", doing, error)  # noqa: TRY400 - the trace says no more
    except BaseException:  # in a thread of ours no other code waits for it
        log.exception("Archive: %s failed", doing)
