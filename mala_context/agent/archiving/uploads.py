"""Uploading in the background: pieces go to the object store while the agent works, and no caller waits for them.

One daemon thread for each archive, alive while there is something to send. It never holds the process at its exit:
what was not sent is found in the manifests by the next start, or by `archives push`. The first round looks at every
session for what an earlier process left, later ones at those that changed.

Where another process uploads from the same archive its turn is waited for. While the store cannot be used the thread
tries again after 5 seconds, then 10, up to 5 minutes: one WARNING when it begins to fail, one INFO when it works
again. Without the library there is one WARNING, and no further try.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Final

from mala_context._util.background import in_forks, wait_for
from mala_context._util.log import get_logger
from mala_context.agent.telemetry.records import Uploaded, UploadOutcome
from mala_context.errors import ArchiveBusyError, ArchiveError, ArchiveUnavailableError, ObjectStoreError

if TYPE_CHECKING:
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
        self._everything = True
        self._after_fork()
        in_forks(self)
        self._failing = False
        self._given_up = False
        archive.on_change(self.wake)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._hurry = threading.Event()
        self._waiting: set[str] = set()
        self._running = False
        self._idle: list[Future[None]] = []

    def wake(self, session_id: str | None = None) -> None:
        """Send what is new of a session soon; returns at once, also while the store does not answer."""
        with self._lock:
            if self._given_up:
                return
            if session_id is not None:
                self._waiting.add(session_id)
            start, self._running = not self._running, True
        if start:
            try:
                threading.Thread(target=self._run, name="mala-context uploads", daemon=True).start()
            except BaseException as error:  # no more threads or memory just now; the next change tries again
                self._running = False
                if not isinstance(error, Exception):
                    raise

    async def finish(self, seconds: float) -> None:
        """Wait for what is to be sent, at most `seconds`, and not at all while the store fails. Never raises."""
        future: Future[None] = Future()
        with self._lock:
            if self._running and not self._failing:
                self._idle.append(future)
                self._hurry.set()
            else:
                future.set_result(None)
        try:
            await wait_for(future, seconds=max(0.0, seconds))
        except TimeoutError:
            log.info("Archive: not all is uploaded; the next start goes on, or `mala-context archives push` does")

    def _run(self) -> None:
        try:
            self._rounds()
        except BaseException:  # the next change begins again, and no caller waits for this thread
            log.exception("Archive: uploading failed")
            with self._lock:
                self._running = False
                self._release()

    def _rounds(self) -> None:
        pause = FIRST_PAUSE
        self._pause(self._hurry, SETTLE_SECONDS)
        while True:
            with self._lock:
                sessions = None if self._everything else sorted(self._waiting)
                self._everything, self._waiting = False, set()
                if sessions == [] or self._given_up:
                    self._running = False  # here, under the lock: a change that comes now starts another thread
                    self._release()
                    return
            if self._round(sessions):
                pause = FIRST_PAUSE
                continue
            with self._lock:
                self._release()
            self._pause(self._hurry, pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _release(self) -> None:
        """Let go those who wait; the lock is held."""
        self._hurry.clear()
        for future in self._idle:
            future.set_result(None)
        self._idle.clear()

    def _round(self, sessions: list[str] | None) -> bool:
        """Send once; false where it has to be tried again."""
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
        with self._lock:
            self._everything = self._everything or sessions is None
            self._waiting.update(sessions or ())
            self._given_up = isinstance(error, ObjectStoreError) and not error.installed
            if isinstance(error, ArchiveBusyError):
                return  # another process of this archive uploads, or writes: nothing is wrong
            said, self._failing = self._failing, True
        if not said:
            tail = "what is archived stays here" if self._given_up else "it is tried again, what is archived stays here"
            log.warning("Archive: not uploaded: %s; %s", error, tail)


def uploads_of(archive: TranscriptArchive, tell: Callable[[object], object] = lambda _: None) -> Uploads | None:
    """Return what uploads an archive, `None` where it has no object store; `tell` is given each `Uploaded`."""
    return None if archive.target is None else Uploads(archive, tell)
