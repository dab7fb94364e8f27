"""Follow each compaction through hooks and events, and write its outcome into the manifest.

A compaction begins with the PreCompact hook, which may be skipped. Another hook brings its summary. It ends in one of
these ways, and each outcome is written once:

* a boundary follows: it took place. If no hook announced it, the transcript is archived at once;
* the CLI reports that it failed, or that another program's hook blocked it;
* nothing follows before the end of the turn or the session. With a summary it took place. Without one it was automatic
  and blocked by another program's hook: the CLI sends no message for that;
* a subagent's compaction has no boundary in the stream: it ends with its summary.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio

from mala_context._util.background import Worker, wait_for
from mala_context._util.log import get_logger
from mala_context.agent.log_lines import compaction_line, log_values, size_before
from mala_context.agent.telemetry.records import Archived
from mala_context.archive.losses import history_path, read_loss, read_subagent_loss
from mala_context.errors import ArchiveError, ArchiveUnavailableError

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mala_context.archive.layout import ArchiveResult
    from mala_context.archive.store import TranscriptArchive
    from mala_context.tracking.events import Compaction, CompactionStatus
    from mala_context.tracking.tracker import ContextSnapshot
    from mala_context.transcripts.loss import Item, Loss
    from mala_context.transcripts.reference import Replacement

SETTLE_SECONDS: Final = 1.0
"""Longest that the line about a compaction waits for the row with the summary, if no hook brought it."""
_POLL_SECONDS: Final = 0.05
_MOST_SAID: Final = 1_000

Where = Callable[[str], Callable[[], str | None]]
"""Returns, for a session, a function for the archive's thread that returns its transcript's path, or `None`."""

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
        """Do `work` in the archive's thread, in order, under the caller's `contextvars`; never blocks.

        The future has the result of `work`, or `None` if it failed. A failure is logged unless it is in `quiet`.
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
            except BaseException:  # no caller may wait for it, so the failure must be logged here
                log.exception("Archive: failed")
            return None

        return self._worker.submit(partial(copy_context().run, guarded))

    async def finish(self, seconds: float) -> None:
        """Wait for all jobs that were submitted so far; raises `TimeoutError` after `seconds`."""
        with anyio.fail_after(seconds):
            # Twice: a job of archiving submits a further job, which reports its `Archived` record. Waiting once, that
            # record came after `SessionEnded` in one run of twelve.
            for _ in range(2):
                await wait_for(self._worker.submit(lambda: None), seconds=seconds)

    def archived(self, trigger: str, do: Callable[[], Results]) -> Results:
        """Archive by `do` inside a submitted job, and report what was written; returns and raises like `do`."""
        begun = time.monotonic()
        results = do()
        new = [result for result in results if result is not None and result.archived]
        if new:
            size, seconds = sum(result.bytes for result in new), time.monotonic() - begun
            record = Archived(new[0].session_id, trigger, len(new), size, seconds, new[0].path)
            self.submit(lambda: self._tell(record))  # a job of its own: a hook waits for the piece, not for observers
        return results

    def found_place(self) -> None:
        """Note that there is a place for archives, so that its loss is logged again."""
        self._said_unavailable = False

    def _warn(self, error: ArchiveError) -> None:
        if isinstance(error, ArchiveUnavailableError):
            if self._said_unavailable:
                return
            self._said_unavailable = True
        log.warning("Archive: %s", error)


@dataclass(slots=True)
class _Open:
    """A compaction whose outcome is not written yet."""

    trigger: str | None
    hook_ran: bool = True
    """Whether its hook ran, so that there is a piece."""
    summary: str | None = None
    kept: Replacement | None = None
    """The rows that replace the conversation, if we answered the CLI's mod."""

    @property
    def stays(self) -> str | None:
        """The text that remains of the dropped rows: the summary, or the kept rows."""
        texts = self.kept.texts() if self.kept is not None else []
        return "\n".join(texts) or self.summary


class Compactions:
    """Writes down how the compactions of one runtime's sessions end.

    Args:
        archive: where to.
        work: what touches the disk.
        where: where the transcripts are.
    """

    def __init__(self, archive: TranscriptArchive, work: ArchiveWork, where: Where) -> None:
        self._archive = archive
        self._work = work
        self._where = where
        self.open: dict[tuple[str, str | None], _Open] = {}
        """Compactions that began, by session and agent."""
        self._said: dict[str, list[Item]] = {}
        """Instructions of the user from before a session's last compaction, the newest first."""

    def on_started(
        self, session_id: str, agent: str | None, trigger: str | None, kept: Replacement | None = None
    ) -> None:
        """Note that a compaction begins; `agent` is `None` for the main agent.

        `kept` replaces the conversation in a compaction by reference.
        """
        self.open[session_id, agent] = _Open(trigger, kept=kept)

    def on_summary(self, session_id: str, agent: str | None, trigger: str | None, summary: str | None) -> None:
        """Keep the summary for the outcome; a subagent's outcome is written now, since no boundary follows."""
        known = self.open.setdefault((session_id, agent), _Open(trigger, hook_ran=False))
        known.summary = summary
        if agent is not None:
            del self.open[session_id, agent]
            self._subagent_compacted(session_id, agent, known)

    def on_completed(self, session_id: str, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        """Write the outcome of a compaction of the main agent, and log the line about it once its loss is known."""
        known = self.open.pop((session_id, None), None) or _Open(None, hook_ran=False)
        where, stays = self._where(session_id), known.stays
        outcome: dict[str, Any] = {
            "trigger": event.trigger or known.trigger,
            "agent": "main",
            "tokens_before": size_before(event, snapshot),
            "cli_before": event.pre_tokens,
            "tokens_after": snapshot.tokens if snapshot else None,
            "duration_ms": event.duration_ms,
            "summary": None if known.kept else known.summary,
            "kept": known.kept and known.kept.as_dict(),
        }
        lost: list[Loss] = []

        def note() -> None:
            try:
                path = where()
                if path is None:
                    return

                def measure() -> dict[str, Any] | None:
                    loss = self._settled_loss(session_id, stays, event.preserved, path)
                    lost.extend([] if loss is None else [loss])
                    return None if loss is None else loss.as_dict()

                seen = self._archive.compaction_seen
                self._work.archived(
                    "boundary", lambda: [seen(path, session_id, hook_ran=known.hook_ran, measure=measure, **outcome)]
                )
            finally:
                _announce(event, snapshot, lost[0] if lost else None, by_reference=known.kept is not None)

        self._work.submit(note)

    def on_failed(self, session_id: str, event: CompactionStatus) -> None:
        """Write that a compaction failed, or that a hook blocked it, where one had begun."""
        known = self.open.pop((session_id, None), None)
        if known is not None:
            outcome = "blocked" if "blocked" in (event.error or "") else "failed"
            self._record(session_id, outcome, known.trigger, error=event.error)

    def on_abandoned(self, session_id: str, error: str | None) -> None:
        """Write the outcome of a compaction after which no boundary came; `error` says what came instead."""
        known = self.open.pop((session_id, None), None)
        if known is None:
            return
        # Without a summary a hook blocked it. One by reference always has a boundary, so without it none took place.
        if known.summary is None or known.kept is not None:
            self._record(session_id, "blocked", known.trigger, error=error)
            return
        where, summary = self._where(session_id), known.summary

        def note() -> None:
            loss = self._loss(session_id, summary, (), where())
            lost = None if loss is None else loss.as_dict()
            self._archive.record_outcome(
                session_id, "compacted", agent="main", trigger=known.trigger, summary=summary, lost=lost
            )

        self._work.submit(note)

    def forget(self, session_id: str) -> None:
        """Forget what was said in a session that is over."""
        self._said.pop(session_id, None)

    def words_lost(self, session_id: str, summary: str) -> Future[str | None]:
        """Return a future of the note to the agent about what this summary lost; empty where that is nothing."""
        where = self._where(session_id)

        def words() -> str:
            loss = self._loss(session_id, summary, (), where())
            if loss is None:
                return ""
            # An instruction from before the last compaction is in no row of the user any more, so this summary would
            # lose it without a trace: of six planted sentences one was left after two compactions.
            loss = loss.and_earlier(self._said.get(session_id, ()), summary)
            self._said[session_id] = [item for item in loss.items if item.kind == "instruction"][:_MOST_SAID]
            return loss.pin(history_path(self._archive, session_id))

        return self._work.submit(words)

    def _subagent_compacted(self, session_id: str, agent: str, known: _Open) -> None:
        where, stays, kept = self._where(session_id), known.stays, known.kept

        def note() -> None:
            loss = None
            with suppress(ArchiveError):  # an id that is no plain name
                transcript = where()
                if stays is not None and transcript is not None:
                    loss = read_subagent_loss(transcript, agent, stays)
            self._archive.record_outcome(
                session_id,
                "compacted" if kept is None else "by_reference",
                agent=agent,
                trigger=known.trigger,
                summary=known.summary if kept is None else None,
                lost=None if loss is None else loss.as_dict(),
                kept=kept and kept.as_dict(),
            )

        self._work.submit(note)

    def _record(self, session_id: str, outcome: str, trigger: str | None, *, error: str | None) -> None:
        record = self._archive.record_outcome
        self._work.submit(lambda: record(session_id, outcome, agent="main", trigger=trigger, error=error))

    def _settled_loss(self, session_id: str, summary: str | None, preserved: Collection[str], path: str) -> Loss | None:
        """Return what was lost. If no hook brought the summary, wait a while for the CLI's row with it."""
        until = time.monotonic() + SETTLE_SECONDS
        while True:
            loss = self._loss(session_id, summary, preserved, path)
            if loss is not None or summary is not None or time.monotonic() >= until:
                return loss
            time.sleep(_POLL_SECONDS)

    def _loss(self, session_id: str, summary: str | None, preserved: Collection[str], path: str | None) -> Loss | None:
        """Return what a compaction lost; `None`, with a WARNING, where the archive cannot be read."""
        try:
            return read_loss(self._archive, session_id, summary, preserved=preserved, transcript=path)
        except ArchiveUnavailableError:  # was said when the piece could not be kept
            return None
        except (ArchiveError, OSError) as error:
            log.warning("Compaction: what it lost is not known: %s", error)
            return None


def _announce(
    event: Compaction, snapshot: ContextSnapshot | None, loss: Loss | None, *, by_reference: bool = False
) -> None:
    """Log the one line about a compaction; one by reference has no summary, and the text that it kept is named."""
    line = compaction_line(event, snapshot, by_reference=by_reference)
    values = {} if snapshot is None else log_values(snapshot)
    words = "" if loss is None else f"; {loss.words('kept text' if by_reference else 'summary')}"
    log.info("%s", f"{line}{words}", **values)
