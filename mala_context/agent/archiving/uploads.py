"""Upload pieces to the object store in the background while the agent works; no caller waits for them.

Each archive has one worker. It never delays the end of the process: the next start, or `archives push`, finds in the
manifests what was not sent. The first round looks at every session for files that an earlier process left, later rounds
only at sessions that changed.

If another process uploads from the same archive, this one waits for its turn. While the store cannot be used, the
worker tries again after 5 seconds, then 10, up to 5 minutes. It logs one WARNING when the store begins to fail, and one
INFO when it works again. Without the library there is one WARNING, and no further try.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from mala_context._util.background import Worker, in_forks, wait_for
from mala_context._util.log import get_logger
from mala_context.agent.telemetry.records import Uploaded, UploadOutcome
from mala_context.errors import ArchiveBusyError, ArchiveError, ArchiveUnavailableError, ObjectStoreError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mala_context.archive.store import TranscriptArchive

FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
SETTLE_SECONDS: Final = 0.5
"""How long a change waits for others, so that a piece and its outcome cost one manifest."""

log = get_logger(__name__)


class Uploads:
    """Sends an archive's new pieces to its object store.

    Args:
        archive: the archive; the only observer of its changes.
        tell: is given an `Uploaded` when a round begins and when it ends.
        pause: waits the given seconds, or until the event is set; for tests.
    """

    def __init__(
        self,
        archive: TranscriptArchive,
        tell: Callable[[object], object] = lambda _: None,
        *,
        pause: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._archive = archive
        self._tell = tell
        self._pause = pause
        self._worker = Worker("mala-context uploads")
        self._everything = True
        self._after_fork()
        in_forks(self)
        self._failing = False
        self._given_up = False
        archive.on_change(self.wake)

    def _after_fork(self) -> None:
        self._hurry = threading.Event()
        self._waiting: set[str] = set()
        self._running = False
        self._job: Future[None] | None = None

    def wake(self, session_id: str | None = None) -> None:
        """Send a session's new files soon; returns at once, even while the store does not answer."""
        if self._given_up:
            return
        if session_id is not None:
            self._waiting.add(session_id)
        if self._running:
            self._worker.start()  # its thread may have failed to start before (no memory, a limit of threads)
        else:
            self._begin(SETTLE_SECONDS)

    async def finish(self, seconds: float) -> None:
        """Wait at most `seconds` for the files to be sent, and not at all while the store fails. Never raises."""
        job = self._job
        if job is None or not self._running or self._failing:
            return
        self._hurry.set()
        try:
            await wait_for(job, seconds=max(0.0, seconds))
        except TimeoutError:
            log.info("Archive: not all is uploaded; the next start or `mala-context archives push` sends the rest")

    def _begin(self, pause: float) -> None:
        self._running = True
        self._job = self._worker.submit(partial(self._send, pause))

    def _send(self, pause: float) -> None:
        """Send the waiting sessions after a pause in seconds; if the store fails, submit another job for them."""
        try:
            self._pause(self._hurry, pause)
            is_sent = self._rounds()
        except BaseException:  # the next change begins again, and no caller waits for this thread
            log.exception("Archive: uploading failed")
            self._running = False
            return
        self._hurry.clear()
        if not is_sent:
            self._begin(FIRST_PAUSE if pause < FIRST_PAUSE else min(2 * pause, LONGEST_PAUSE))
            return
        self._running = False
        # A change between the last round and this line saw `_running` and began no job of its own.
        if self._waiting:
            self.wake()

    def _rounds(self) -> bool:
        """Send until no session waits; false if it has to be tried again."""
        while not self._given_up:
            # One by one, since another thread may add to the set meanwhile: what it adds stays for the next round.
            waiting = sorted(self._waiting.pop() for _ in range(len(self._waiting)))
            sessions, self._everything = None if self._everything else waiting, False
            if sessions == []:
                break
            if not self._round(sessions):
                return False
        return True

    def _round(self, sessions: list[str] | None) -> bool:
        """Send once; false if it has to be tried again."""
        arrived: list[int] = []
        begun, pending = time.monotonic(), 0

        def ended(outcome: UploadOutcome) -> None:
            self._tell(Uploaded(outcome, len(arrived), sum(arrived), time.monotonic() - begun, pending))

        self._tell(Uploaded("begun"))
        try:
            pending = len(self._archive.push(sessions, progress=arrived.append).pending)
        except ArchiveUnavailableError as error:
            log.debug("Archive: no uploads: %s", error)  # the first piece says it, once, so that people see it
            ended("failed")
        except (ArchiveError, OSError) as error:
            ended("put_off" if isinstance(error, ArchiveBusyError) else "failed")
            self._failed(error, sessions)
            return self._given_up
        except Exception:
            log.exception("Archive: uploading failed")
            ended("failed")
        else:
            ended("done")
        if self._failing:
            self._failing = False
            log.info("Archive: uploads to %s go on", self._archive.base())
        return True

    def _failed(self, error: Exception, sessions: list[str] | None) -> None:
        self._everything = self._everything or sessions is None
        self._waiting.update(sessions or ())
        self._given_up = isinstance(error, ObjectStoreError) and not error.installed
        if isinstance(error, ArchiveBusyError):
            return  # another process of this archive uploads, or writes: nothing is wrong
        said, self._failing = self._failing, True
        if not said:
            tail = "what is archived stays here" if self._given_up else "it is tried again, what is archived stays here"
            log.warning("Archive: not uploaded: %s; %s", error, tail)
