"""Work on one archive, in the order in which it is asked for, in a thread of its own.

Nobody has to wait for it, so that what goes wrong is a line of log: that there is no place for archives once, until
there was one again, everything else each time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from mala_context._util.background import Worker, wait_for
from mala_context._util.log import get_logger
from mala_context.agent.telemetry.archived import tell_archived
from mala_context.errors import ArchiveError, ArchiveUnavailableError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mala_context.archive.records import ArchiveResult

T = TypeVar("T")
Results = Sequence["ArchiveResult | None"]

log = get_logger(__name__)


class ArchiveWork:
    """Does what is asked of one archive.

    Args:
        tell: is given an `Archived` for what was archived.
    """

    def __init__(self, tell: Callable[[object], object]) -> None:
        self._tell = tell
        self._worker = Worker("mala-context archive")
        self._said_unavailable = False

    def submit(self, work: Callable[[], T], quiet: tuple[type[Exception], ...] = ()) -> Future[T | None]:
        """Have `work` done in its turn, under the caller's `contextvars`; never blocks.

        The future's result is that of `work`; it is `None` where an archive or a disk failed, which is logged unless
        it is one of the errors in `quiet`.
        """

        def guarded() -> T | None:
            try:
                return work()
            except quiet:
                pass
            except ArchiveError as error:
                self._warn(error)
            except OSError as error:
                log.error("Archive: could not be written: %s", error)  # noqa: TRY400 - the trace says no more
            except Exception:  # nobody may be waiting for it, and what is not said here is said nowhere
                log.exception("Archive: failed")
            return None

        return self._worker.submit(partial(copy_context().run, guarded))

    async def finish(self, seconds: float) -> None:
        """Wait until all is done that was asked for so far; raises `TimeoutError` after so many `seconds`."""
        await wait_for(self._worker.submit(lambda: None), seconds=seconds)

    def archived(self, trigger: str, do: Callable[[], Results]) -> Results:
        """Archive something, within what was submitted, and tell what was written; returns and raises as `do` does."""
        begun = time.monotonic()
        results = do()
        tell_archived(self._tell, trigger, begun, results)
        return results

    def found_place(self) -> None:
        """Take note that there is a place for archives; should there be none again, that is news."""
        self._said_unavailable = False

    def _warn(self, error: ArchiveError) -> None:
        if isinstance(error, ArchiveUnavailableError):
            if self._said_unavailable:
                return
            self._said_unavailable = True
        log.warning("Archive: %s", error)
