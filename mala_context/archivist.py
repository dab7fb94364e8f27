"""What happens to an archive while a session runs.

The archivist hears of a session from two sides: hooks say where its transcript is and that a compaction is about to
begin, events say how it ended. All work on the disk is done in order in a thread of its own, so that an outcome never
overtakes its piece. A hook waits for its piece, for `ANSWER_SECONDS` at most; nobody waits for the rest. What can take
long and is nobody's piece (catching up, packing, `keep`) is `upkeep`'s, in threads of its own.

A session is written down when it is first seen, so that the next start in this repository finds its transcript even
if this process is killed before anything was archived.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from mala_context.archive.hook import archive_from_hook
from mala_context.archive.store import TranscriptArchive
from mala_context.config import ArchiveConfig, target_of
from mala_context.errors import ArchiveError, ArchiveUnavailableError, TranscriptError
from mala_context.events import Compaction, CompactionStatus, SessionStart, TurnEnd
from mala_context.happenings import CompactionSeen
from mala_context.lines import compaction_line
from mala_context.log import get_logger
from mala_context.losses import history_path, read_loss, read_subagent_loss
from mala_context.offload import Worker, wait_for
from mala_context.stream import log_values
from mala_context.telemetry import Hub
from mala_context.telemetry.archived import tell_archived
from mala_context.upkeep import Upkeep

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mala_context.events import Event
    from mala_context.loss import Loss
    from mala_context.stream import MessageStreamProcessor
    from mala_context.tracker import ContextSnapshot

ANSWER_SECONDS: Final = 9.5
"""Longest that a hook waits for the disk; it has answered within ten seconds."""
SETTLE_SECONDS: Final = 1.0
"""Longest that the line about a compaction waits for the row of a summary that no hook told."""
BESIDE_SECONDS: Final = 10.0
"""Longest that a hook of another process is over before ours is called for the same compaction."""
_POLL_SECONDS: Final = 0.05
_CLOSE_SECONDS: Final = 30.0
_MOST_SESSIONS: Final = 256

log = get_logger(__name__)


class Archivist:
    """Archives the sessions of one runtime.

    Args:
        archive: where to; `None` to archive nothing.
        projects_dirs: where the CLI keeps its transcripts, for sessions whose hooks do not run; `None` for the usual
            places of this process.
        at_session_end: whether the rest of a session is archived, now or at the next start here.

    Attributes:
        tell: is given each `Archived` and `Uploaded`, and a subagent's `CompactionSeen`, which no message tells.
    """

    def __init__(
        self,
        archive: TranscriptArchive | None,
        projects_dirs: Sequence[str] | None = None,
        *,
        at_session_end: bool = True,
    ) -> None:
        self.archive = archive
        self.tell: Callable[[object], object] = Hub().tell
        tell: Callable[[object], object] = lambda record: self.tell(record)  # noqa: PLW0108, E731 - it is set later
        self._upkeep = None if archive is None else Upkeep(archive, projects_dirs, tell)
        self._at_session_end = at_session_end
        self._noted: set[str] = set()
        self._ended: list[str] = []
        self._projects_dirs = projects_dirs
        self._worker = Worker("mala-context archive")
        self._transcripts: dict[str, tuple[str | None, str | None]] = {}
        self._compacting: dict[tuple[str, str | None], dict[str, Any]] = {}
        self._cleared: set[str] = set()
        self._overdue: Future[Any] | None = None
        self._listening, self._kept_at = False, 0
        self._unavailable = False

    @classmethod
    def for_repo(
        cls,
        repo_path: str | os.PathLike[str],
        config: ArchiveConfig | None = None,
        projects_dirs: Sequence[str] | None = None,
    ) -> Archivist:
        """Return the archivist of a repository; it archives nothing where the configuration says so."""
        config = config or ArchiveConfig()
        if not config.enabled:
            return cls(None)
        keep = None if config.keep is None else {"days": config.keep.days, "bytes": config.keep.bytes}
        target = target_of(config)
        place = None if config.directory is None or target is not None else os.path.expanduser(config.directory)
        archive = TranscriptArchive(
            None if place is None else os.path.join(repo_path, place),
            target=target,
            repo_path=os.fspath(repo_path),
            mode=config.mode,
            compress=config.compress,
            keep=keep,
            warn_bytes=config.warn_bytes,
        )
        return cls(archive, projects_dirs, at_session_end=config.at_session_end)

    async def before_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Archive before a compaction, waiting at most `ANSWER_SECONDS`. Never raises."""
        archive = self.archive
        if archive is None:
            return
        self._remember(hook_input, note=False)  # the piece itself says where its transcript is
        key = _key(hook_input)
        if key is not None:
            self._compacting[key] = {"trigger": hook_input.get("trigger")}
        job = self._worker.submit(partial(copy_context().run, self._keep, archive, hook_input, time.time_ns() // 1000))
        if self._overdue is not None and not self._overdue.done():
            log.warning("PreCompact: an earlier archive is still being written; this one follows it, the agent goes on")
            return
        try:
            await wait_for(job, seconds=ANSWER_SECONDS)
        except TimeoutError:
            self._overdue = job
            log.error(  # noqa: TRY400 - the trace says no more
                "PreCompact: the archive takes longer than %g s; it goes on, and so does the agent", ANSWER_SECONDS
            )

    def _keep(self, archive: TranscriptArchive, hook_input: Mapping[str, Any], called: int) -> None:
        """Archive for a hook; that there is no place for archives is said once and not at each compaction."""
        try:
            archive.store(create=True)
        except ArchiveUnavailableError as error:
            self._warn(error)
            return
        self._unavailable = False
        begun = time.monotonic()
        # a piece since then that waits for its outcome is another hook's, for this same compaction
        since = max(self._kept_at, called - round(BESIDE_SECONDS * 1e6))
        result = archive_from_hook(archive, hook_input, projects_dirs=self._projects_dirs, since=since)
        self._kept_at = time.time_ns() // 1000
        tell_archived(self.tell, str(hook_input.get("trigger") or "auto"), begun, [result])
        if self._listening and result is not None and result.transcript is not None:
            with suppress(ArchiveError, OSError):  # then the hooks of other processes tell of this compaction too
                archive.note_session(result.session_id, result.transcript, pid=os.getpid())

    async def after_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Keep the summary for the outcome; a subagent's outcome is written now, since no boundary follows."""
        self._remember(hook_input)
        key = _key(hook_input)
        if key is None:
            return
        summary = hook_input.get("compact_summary")
        state = self._compacting.setdefault(key, {"trigger": hook_input.get("trigger"), "skipped": True})
        state["summary"] = summary if isinstance(summary, str) else None
        if key[1] is not None:
            self._compacting.pop(key)
            self.tell(CompactionSeen(key[0], key[1], state.get("trigger")))
            self._subagent_compacted(key[0], key[1], state)

    def _subagent_compacted(self, session_id: str, agent: str, state: Mapping[str, Any]) -> None:
        archive, summary = self.archive, state["summary"]
        transcript = self._transcripts.get(session_id, (None, None))[0]
        if archive is None:
            return

        def note() -> None:
            loss = None
            if summary is not None and transcript is not None:
                with suppress(ArchiveError):  # an id that is no plain name
                    loss = read_subagent_loss(transcript, agent, summary)
            lost = None if loss is None else loss.as_dict()
            trigger = state.get("trigger")
            archive.record_outcome(session_id, "compacted", agent=agent, trigger=trigger, summary=summary, lost=lost)

        self._submit(note)

    async def session_started(self, hook_input: Mapping[str, Any]) -> None:
        """Learn where a session's transcript is; what a `/clear` left behind is archived now.

        The hook for a session's end is of no use: when the CLI ends it cannot be answered any more, and older CLIs
        print an error about that.
        """
        if hook_input.get("source") == "clear":
            for session_id in self._transcripts.keys() - self._cleared - {hook_input.get("session_id")}:
                self._cleared.add(session_id)
                self._archive_rest(session_id)  # not forgotten: the CLI writes some rows more behind it
        self._remember(hook_input)

    async def saw_session(self, hook_input: Mapping[str, Any]) -> None:
        """Learn where a session's transcript is, from any hook."""
        self._remember(hook_input)

    async def subagent_stopped(self, hook_input: Mapping[str, Any]) -> None:
        """Archive a subagent's own transcript once the subagent has ended."""
        archive, path = self.archive, hook_input.get("agent_transcript_path")
        session_id, agent_id = hook_input.get("session_id"), hook_input.get("agent_id")
        if archive is None or not (isinstance(path, str) and isinstance(session_id, str) and isinstance(agent_id, str)):
            return

        def keep() -> None:
            begun, why = time.monotonic(), "subagent_end"
            result = archive.archive(path, session_id, trigger=why, agent=agent_id, subagent=agent_id, final=True)
            tell_archived(self.tell, why, begun, [result])

        self._submit(keep, quiet=(TranscriptError,))

    def words_lost(self, session_id: str, summary: str) -> Future[str]:
        """Return a future of the note to the agent about what this summary lost; empty where that is nothing."""
        archive = self.archive

        def words() -> str:
            loss = None if archive is None else self._loss(archive, session_id, summary, frozenset())
            return "" if archive is None or loss is None else loss.pin(history_path(archive, session_id))

        return self._worker.submit(words)

    def announces(self, event: Compaction, snapshot: ContextSnapshot | None) -> bool:
        """Tell whether the line about this compaction comes from here, once it is known what was lost."""
        return self.archive is not None and event.agent is None and _session_of(event, snapshot) is not None

    def listen(self, processor: MessageStreamProcessor) -> None:
        """Hear of the events of a processor that say something about archives."""
        self._listening = True
        processor.observe(self.on_event, *_EVENTS)

    def on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Write down how a compaction of the main agent ended; for `MessageStreamProcessor(on_event=…)`."""
        handler = _EVENTS.get(event.__class__)
        if handler is not None and self.archive is not None:
            handler(self, event, snapshot)

    async def close(self) -> None:
        """Archive the rest of every session seen, pack, hold `keep`, and wait for it.

        Never raises; may be called again.
        """
        if self._upkeep is None:
            return
        begun = time.monotonic()
        for session_id in list(self._transcripts):
            self._finish(session_id)
        self._tidy()
        try:
            await wait_for(self._worker.submit(lambda: None), seconds=_CLOSE_SECONDS)
        except TimeoutError:
            log.warning("Session end: the archive takes longer than %g s; the next start catches up", _CLOSE_SECONDS)
            return
        await self._upkeep.finish(_CLOSE_SECONDS - (time.monotonic() - begun))

    async def keep(self, session_id: str) -> list[str]:
        """Archive what a session that is left still holds, wait for it, and return the paths of its pieces.

        Empty where there is no archive, and where the disk takes too long. Never raises.
        """
        archive = self.archive
        if archive is None:
            return []
        if session_id in self._transcripts:
            self._finish(session_id)

        def paths() -> list[str]:
            pieces = archive.pieces(session_id)
            return [os.path.join(archive.location, piece.name) for piece in pieces if piece.subagent is None]

        try:
            found: list[str] | None = await wait_for(self._submit(paths), seconds=ANSWER_SECONDS)
        except TimeoutError:
            log.warning("Session %s: its archive takes longer than %g s", session_id, ANSWER_SECONDS)
            return []
        return found or []

    def _session(self, event: SessionStart, snapshot: ContextSnapshot | None) -> None:
        """Take note of a session of which no hook may ever tell; its transcript is looked for when it is needed."""
        del snapshot
        self._transcripts.setdefault(event.session_id, (None, event.cwd))
        self._catch_up()

    def _boundary(self, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        session_id, archive = _session_of(event, snapshot), self.archive
        if session_id is None or archive is None or event.agent is not None:
            return
        state = self._compacting.pop((session_id, None), {"skipped": True})
        transcript, summary = self._transcripts.get(session_id), state.get("summary")
        outcome = {
            "trigger": event.trigger or state.get("trigger"),
            "agent": "main",
            "tokens_before": event.pre_tokens,
            "tokens_after": snapshot.tokens if snapshot else None,
            "duration_ms": event.duration_ms,
            "summary": summary,
        }
        hook_ran = not state.get("skipped", False)
        known: list[Loss] = []

        def measure() -> dict[str, Any] | None:
            loss = self._loss(archive, session_id, summary, event.preserved)
            until = time.monotonic() + SETTLE_SECONDS
            while loss is None and summary is None and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)  # no hook told the summary; the CLI writes its row a moment later
                loss = self._loss(archive, session_id, summary, event.preserved)
            known.extend([] if loss is None else [loss])
            return None if loss is None else loss.as_dict()

        def note() -> None:
            try:
                path = (transcript and transcript[0]) or self._find(archive, session_id)
                if path is not None:
                    begun = time.monotonic()
                    late = archive.compaction_seen(path, session_id, hook_ran=hook_ran, measure=measure, **outcome)
                    tell_archived(self.tell, "boundary", begun, [late])
            finally:
                _announce(event, snapshot, known[0] if known else None)

        self._submit(note)

    def _loss(
        self, archive: TranscriptArchive, session_id: str, summary: str | None, preserved: frozenset[str]
    ) -> Loss | None:
        """Return what a compaction lost; `None`, with a WARNING, where the archive cannot be read."""
        try:
            transcript = self._transcripts.get(session_id, (None, None))[0] or self._find(archive, session_id)
            return read_loss(archive, session_id, summary, preserved=preserved, transcript=transcript)
        except ArchiveUnavailableError:  # was said when the piece could not be kept
            return None
        except (ArchiveError, OSError) as error:
            log.warning("Compaction: what it lost is not known: %s", error)
            return None

    def _status(self, event: CompactionStatus, snapshot: ContextSnapshot | None) -> None:
        session_id = _session_of(event, snapshot)
        if session_id is None or event.result != "failed":
            return
        state = self._compacting.pop((session_id, None), None)
        if state is not None:
            outcome = "blocked" if "blocked" in (event.error or "") else "failed"
            self._outcome(session_id, outcome, agent="main", trigger=state.get("trigger"), error=event.error)

    def _turn_end(self, event: TurnEnd, snapshot: ContextSnapshot | None) -> None:
        session_id = _session_of(event, snapshot)
        if session_id is not None:
            self._close_compaction(session_id, event.terminal_reason)
            if session_id in self._transcripts:
                self._note(session_id)  # one whose hooks do not run has its transcript by now

    def _close_compaction(self, session_id: str, error: str | None) -> None:
        """Write the outcome of a compaction that nothing was heard of again.

        With a summary it took place; without one it is an automatic one that somebody's hook blocked, for which the
        CLI has no message.
        """
        state = self._compacting.pop((session_id, None), None)
        if state is None:
            return
        trigger, summary, archive = state.get("trigger"), state.get("summary"), self.archive
        if summary is not None and archive is not None:

            def note() -> None:
                loss = self._loss(archive, session_id, summary, frozenset())
                lost = None if loss is None else loss.as_dict()
                archive.record_outcome(
                    session_id, "compacted", agent="main", trigger=trigger, summary=summary, lost=lost
                )

            self._submit(note)
        else:
            self._outcome(session_id, "blocked", agent="main", trigger=trigger, error=error)

    def _outcome(self, session_id: str, outcome: str, **fields: Any) -> None:
        archive = self.archive
        if archive is not None:
            self._submit(lambda: archive.record_outcome(session_id, outcome, **fields))

    def _finish(self, session_id: str) -> Future[Any] | None:
        job = self._archive_rest(session_id)
        self._transcripts.pop(session_id, None)
        self._cleared.discard(session_id)
        self._noted.discard(session_id)
        self._ended.append(session_id)
        return job

    def _archive_rest(self, session_id: str) -> Future[Any] | None:
        archive = self.archive
        if archive is None:
            return None
        self._close_compaction(session_id, "session ended")
        path, cwd = self._transcripts[session_id]

        def finish() -> None:
            found = path or self._find(archive, session_id)
            if found is not None:
                begun, why = time.monotonic(), "session_end"
                results = archive.archive_session(found, session_id, trigger=why, agent="main", cwd=cwd)
                tell_archived(self.tell, why, begun, results)

        return self._submit(finish, quiet=(TranscriptError,))

    def _find(self, archive: TranscriptArchive, session_id: str) -> str | None:
        return archive.find_transcript(session_id, projects_dirs=self._projects_dirs)

    def _submit(self, work: Callable[[], Any], quiet: tuple[type[Exception], ...] = ()) -> Future[Any]:
        """Do `work` in its turn; what goes wrong is logged, since nobody waits for it."""

        def guarded() -> Any:
            try:
                return work()
            except quiet:
                return None
            except ArchiveError as error:
                self._warn(error)
            except OSError as error:
                log.error("Archive: could not be written: %s", error)  # noqa: TRY400 - the trace says no more
            return None

        return self._worker.submit(partial(copy_context().run, guarded))

    def _warn(self, error: ArchiveError) -> None:
        """Say once that there is no place for archives, and everything else each time."""
        if isinstance(error, ArchiveUnavailableError):
            if self._unavailable:
                return
            self._unavailable = True
        log.warning("Archive: %s", error)

    def _tidy(self) -> None:
        """Pack what has ended and hold `keep`, once all that was asked of the archive before is done."""
        upkeep, ended, self._ended = self._upkeep, self._ended, []
        if upkeep is not None:
            self._submit(lambda: upkeep.ended(ended))

    def _catch_up(self) -> None:
        if self._upkeep is not None and self._at_session_end:
            self._upkeep.begin(self._transcripts.keys())

    def _note(self, session_id: str) -> None:
        """Write down that this session runs here, once; nobody waits for it."""
        archive = self.archive
        if archive is None or not self._at_session_end or session_id in self._noted:
            return
        self._noted.add(session_id)
        path, cwd = self._transcripts[session_id]

        def note() -> None:
            found = path or self._find(archive, session_id)
            if found is None:
                self._noted.discard(session_id)  # not there yet: the next turn's end looks again
            else:
                archive.note_session(session_id, found, cwd=cwd, pid=os.getpid())

        self._submit(note)

    def _remember(self, hook_input: Mapping[str, Any], *, note: bool = True) -> None:
        session_id, path, cwd = (hook_input.get(name) for name in ("session_id", "transcript_path", "cwd"))
        if isinstance(session_id, str) and isinstance(path, str) and session_id and path:
            self._transcripts.pop(session_id, None)
            self._transcripts[session_id] = (path, cwd if isinstance(cwd, str) else None)
            self._catch_up()
            if note:
                self._note(session_id)
            while len(self._transcripts) > _MOST_SESSIONS:
                self._finish(next(iter(self._transcripts)))
                self._tidy()


def _announce(event: Compaction, snapshot: ContextSnapshot | None, loss: Loss | None) -> None:
    """Log the one line about a compaction."""
    after = None if snapshot is None else snapshot.tokens
    line = compaction_line(event.pre_tokens, after, event.trigger, event.duration_ms)
    values = {} if snapshot is None else log_values(snapshot)
    log.info(line if loss is None else f"{line}; {loss.words()}", **values)


def _session_of(event: Compaction | CompactionStatus | TurnEnd, snapshot: ContextSnapshot | None) -> str | None:
    return event.session_id or (None if snapshot is None else snapshot.session_id)


def _key(hook_input: Mapping[str, Any]) -> tuple[str, str | None] | None:
    session_id, agent_id = hook_input.get("session_id"), hook_input.get("agent_id")
    if not isinstance(session_id, str):
        return None
    return session_id, agent_id if isinstance(agent_id, str) and agent_id else None


_EVENTS: dict[type, Callable[..., None]] = {
    Compaction: Archivist._boundary,
    CompactionStatus: Archivist._status,
    SessionStart: Archivist._session,
    TurnEnd: Archivist._turn_end,
}
