"""Archive the sessions of one runtime.

A session is registered in its manifest when it is first seen. If this process is killed before it archives anything,
the next start in this repository finds the transcript there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from mala_context._util.background import wait_for
from mala_context._util.log import get_logger
from mala_context.agent.archiving.compactions import ArchiveWork, Compactions
from mala_context.agent.archiving.maintenance import ArchiveMaintenance
from mala_context.agent.hook_io import text_in, texts_in
from mala_context.agent.reference.answer import Answer, Doubt, answer
from mala_context.archive.increment import archive_from_hook
from mala_context.config import ArchiveConfig, archive_of
from mala_context.errors import ArchiveError, TranscriptError
from mala_context.tracking.events import Compaction, CompactionStatus, SessionStart, TurnEnd

if TYPE_CHECKING:
    from concurrent.futures import Future

    from mala_context.agent.reference.answer import Settings
    from mala_context.agent.stream import MessageStreamProcessor
    from mala_context.archive.layout import ArchiveResult
    from mala_context.archive.store import TranscriptArchive
    from mala_context.tracking.events import Event
    from mala_context.tracking.tracker import ContextSnapshot
    from mala_context.transcripts.reference import Replacement

ANSWER_SECONDS: Final = 9.5
"""Longest that a hook waits for the disk, so that it answers within ten seconds."""
BESIDE_SECONDS: Final = 10.0
"""Longest time between another process's hook and ours for the same compaction."""
_CLOSE_SECONDS: Final = 30.0
_MOST_SESSIONS: Final = 256

log = get_logger(__name__)


@dataclass(slots=True)
class _Session:
    """A session that runs in this process."""

    transcript: str | None = None
    """Its path, if a hook has named it; otherwise it is looked for when it is needed."""
    cwd: str | None = None
    noted: bool = False
    """Whether the manifest says that it runs here."""
    cleared: bool = False
    """Whether a `/clear` ended it and its rest is archived; the CLI writes a few more rows after that."""


class SessionArchiver:
    """Archives the sessions of one runtime.

    Args:
        archive: where to; it finds the transcripts of sessions whose hooks do not run.
        at_session_end: whether the rest of a session is archived, now or at the next start here.
        tell: is given each `Archived` and `Uploaded`.
    """

    def __init__(
        self,
        archive: TranscriptArchive,
        *,
        at_session_end: bool = True,
        tell: Callable[[object], object] = lambda _: None,
    ) -> None:
        self.archive = archive
        self._at_session_end = self._to_catch_up = at_session_end
        self._work = ArchiveWork(tell)
        self._upkeep = ArchiveMaintenance(archive, tell)
        self._compactions = Compactions(archive, self._work, self._where)
        self._sessions: dict[str, _Session] = {}
        self._ended: list[str] = []
        self._overdue: Future[Any] | None = None
        self._process = 0
        """The process that submitted the overdue job. In a child of a fork that job never ends."""
        self._listening, self._kept_at = False, 0

    @classmethod
    def for_repo(
        cls,
        repo_path: str | os.PathLike[str],
        config: ArchiveConfig | None = None,
        projects_dirs: Sequence[str] | None = None,
        *,
        tell: Callable[[object], object] = lambda _: None,
    ) -> SessionArchiver:
        """Return the archivist of a repository. The caller has to check `config.enabled`.

        `projects_dirs` are the directories in which the CLI keeps its transcripts.
        """
        config = config or ArchiveConfig()
        archive = archive_of(repo_path, config, projects_dirs=projects_dirs)
        return cls(archive, at_session_end=config.at_session_end, tell=tell)

    # -- hooks -------------------------------------------------------------------------------------------------------

    async def before_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Archive before a compaction, waiting at most `ANSWER_SECONDS`. Never raises."""
        self._remember(hook_input, note=False)  # the row of the piece will name the transcript
        self._compactions.on_started(*_key(hook_input), hook_input.get("trigger"))
        called = time.time_ns() // 1000
        job = self._work.submit(lambda: self._keep(hook_input, called))
        # The disk hangs: this hook would wait its whole time in the queue too, and every compaction would take ten
        # seconds more.
        if self._overdue is not None and not self._overdue.done() and self._process == os.getpid():
            log.warning("PreCompact: an earlier archive is still being written; this one follows it, the agent goes on")
            return
        try:
            await wait_for(job, seconds=ANSWER_SECONDS)
        except TimeoutError:
            self._overdue, self._process = job, os.getpid()
            log.error(  # noqa: TRY400 - the trace says no more
                "PreCompact: the archive takes longer than %g s; it goes on, and so does the agent", ANSWER_SECONDS
            )

    async def by_reference(self, request: Mapping[str, Any], settings: Settings, seconds: float) -> Replacement:
        """Archive a conversation and return its replacement; `request` is that of `reference.answer`.

        Raises `Doubt` if the CLI shall compact itself, and `TimeoutError` after `seconds`.
        """
        hook_input = {"transcript_path": request.get("transcript"), "session_id": request.get("session")}
        hook_input |= {name: request.get(name) for name in ("cwd", "trigger")}
        self._remember(hook_input, note=False)
        made: list[Answer] = []
        doubts: list[Doubt] = []

        def keep() -> list[ArchiveResult]:
            made.append(answer(request, self.archive, settings))
            return [made[0].archived]

        def work() -> None:
            try:
                self._work.archived(str(request.get("trigger")), keep)
            except Doubt as doubt:
                doubts.append(doubt)
            self._kept_at = time.time_ns() // 1000

        await wait_for(self._work.submit(work), seconds=seconds)
        if not made:
            raise doubts[0] if doubts else Doubt("the archive could not be written")
        session_id, agent = texts_in(request, "session", "agent")
        self._compactions.on_started(str(session_id), agent, text_in(request, "trigger"), made[0].kept)
        return made[0].kept

    async def after_compaction(self, hook_input: Mapping[str, Any]) -> None:
        """Keep the summary for the outcome, which for a subagent is written now."""
        self._remember(hook_input)
        summary = hook_input.get("compact_summary")
        words = summary if isinstance(summary, str) else None
        self._compactions.on_summary(*_key(hook_input), hook_input.get("trigger"), words)

    async def session_started(self, hook_input: Mapping[str, Any]) -> None:
        """Note where a session's transcript is; after a `/clear`, archive the session that it ended.

        The SessionEnd hook cannot be used for that: when the CLI ends, the hook cannot be answered any more, and older
        CLIs print an error.
        """
        if hook_input.get("source") == "clear":
            for session_id, session in list(self._sessions.items()):
                if not session.cleared and session_id != hook_input.get("session_id"):
                    session.cleared = True
                    self._archive_rest(session_id)
        self._remember(hook_input)

    async def saw_session(self, hook_input: Mapping[str, Any]) -> None:
        """Note where a session's transcript is, from any hook."""
        self._remember(hook_input)

    async def subagent_stopped(self, hook_input: Mapping[str, Any]) -> None:
        """Archive a subagent's own transcript once the subagent has ended."""
        path, (session_id, agent_id) = hook_input.get("agent_transcript_path"), _key(hook_input)
        if path is None or agent_id is None:
            return
        archive, why = self.archive.archive, "subagent_end"

        def keep() -> None:
            self._work.archived(
                why, lambda: [archive(path, session_id, trigger=why, agent=agent_id, subagent=agent_id, final=True)]
            )

        self._work.submit(keep, quiet=(TranscriptError,))

    def words_lost(self, session_id: str, summary: str) -> Future[str | None]:
        """Return a future of the note to the agent about what this summary lost; empty where that is nothing."""
        return self._compactions.words_lost(session_id, summary)

    # -- events ------------------------------------------------------------------------------------------------------

    def listen(self, processor: MessageStreamProcessor) -> None:
        """Observe the events of a processor that concern the archive."""
        self._listening = True
        processor.observe(self.on_event, *_EVENTS)
        processor.in_order = self._work.submit

    def announces(self, event: Compaction, snapshot: ContextSnapshot | None) -> bool:
        """Tell whether the archivist logs the line about this compaction, after it has measured the loss."""
        return event.agent is None and _session_of(event, snapshot) is not None

    def on_event(self, event: Event, snapshot: ContextSnapshot | None) -> None:
        """Write down how a compaction of the main agent ended; for `MessageStreamProcessor(on_event=…)`."""
        handler = _EVENTS.get(event.__class__)
        session_id = None if handler is None else _session_of(event, snapshot)
        if handler is not None and session_id is not None:
            handler(self, session_id, event, snapshot)

    def _started(self, session_id: str, event: SessionStart, snapshot: ContextSnapshot | None) -> None:
        """Note a session: its hooks may be disabled, so that no hook ever names it."""
        self._sessions.setdefault(session_id, _Session(cwd=event.cwd))
        self._catch_up()

    def _compacted(self, session_id: str, event: Compaction, snapshot: ContextSnapshot | None) -> None:
        if event.agent is None:
            self._compactions.on_completed(session_id, event, snapshot)

    def _compacting(self, session_id: str, event: CompactionStatus, snapshot: ContextSnapshot | None) -> None:
        if event.result == "failed":
            self._compactions.on_failed(session_id, event)

    def _turn_ended(self, session_id: str, event: TurnEnd, snapshot: ContextSnapshot | None) -> None:
        if self._compactions.open:
            self._compactions.on_abandoned(session_id, event.terminal_reason)
        if session_id in self._sessions:
            self._note(session_id)  # if no hook runs, the transcript can be found by its name from now on

    # -- the end of a session ----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Archive the rest of every session, pack, apply `keep`, and wait for that.

        Never raises; may be called again.
        """
        begun = time.monotonic()
        for session_id in list(self._sessions):
            self._finish(session_id)
        self._tidy()
        try:
            await self._work.finish(_CLOSE_SECONDS)
        except TimeoutError:
            log.warning("Session end: the archive takes longer than %g s; the next start catches up", _CLOSE_SECONDS)
            return
        await self._upkeep.finish(_CLOSE_SECONDS - (time.monotonic() - begun))

    async def keep(self, session_id: str) -> list[str]:
        """Archive the rest of a session that is left, wait for that, and return the paths of its pieces.

        Returns no paths if the disk takes too long. Never raises.
        """
        archive = self.archive
        if session_id in self._sessions:
            self._finish(session_id)

        def paths() -> list[str]:
            pieces = archive.pieces(session_id)
            return [os.path.join(archive.location, piece.name) for piece in pieces if piece.subagent is None]

        try:
            return await wait_for(self._work.submit(paths), seconds=ANSWER_SECONDS) or []
        except TimeoutError:
            log.warning("Session %s: its archive takes longer than %g s", session_id, ANSWER_SECONDS)
            return []

    def _finish(self, session_id: str) -> None:
        self._archive_rest(session_id)
        del self._sessions[session_id]
        self._ended.append(session_id)

    def _archive_rest(self, session_id: str) -> None:
        self._compactions.on_abandoned(session_id, "session ended")
        self._compactions.forget(session_id)
        where, cwd = self._where(session_id), self._sessions[session_id].cwd
        archive, why = self.archive.archive_session, "session_end"

        def finish() -> None:
            path = where()
            if path is not None:
                self._work.archived(why, lambda: archive(path, session_id, trigger=why, agent="main", cwd=cwd))

        self._work.submit(finish, quiet=(TranscriptError,))

    def _tidy(self) -> None:
        """Pack the ended sessions and apply `keep`, after all jobs that were submitted before."""
        ended, self._ended = self._ended, []
        self._work.submit(lambda: self._upkeep.ended(ended))

    # -- the sessions ------------------------------------------------------------------------------------------------

    def _keep(self, hook_input: Mapping[str, Any], called: int) -> None:
        """Archive for a hook that was called at this time, in microseconds since 1970."""
        self.archive.store(create=True)
        self._work.found_place()
        # A piece since then without an outcome was written by another program's hook for this same compaction. Not
        # before our own last piece: that one belongs to an earlier compaction of this process.
        since = max(self._kept_at, called - round(BESIDE_SECONDS * 1e6))
        (result,) = self._work.archived(
            str(hook_input.get("trigger") or "unknown"),
            lambda: [archive_from_hook(self.archive, hook_input, since=since)],
        )
        self._kept_at = time.time_ns() // 1000
        if self._listening and result is not None and result.transcript is not None:
            with suppress(ArchiveError, OSError):  # then the hooks of other processes tell of this compaction too
                self.archive.register_session(result.session_id, result.transcript, pid=os.getpid())

    def _where(self, session_id: str) -> Callable[[], str | None]:
        """Return a function for the archive's thread that returns the transcript's path, from a hook or by its name.

        It looks for the name on the disk, so it must not run in the event loop. It may raise `InvalidSessionIdError`.
        """
        known = self._sessions.get(session_id)
        path = None if known is None else known.transcript
        return lambda: path or self.archive.find_transcript(session_id)

    def _remember(self, hook_input: Mapping[str, Any], *, note: bool = True) -> None:
        (session_id, _), path = _key(hook_input), hook_input.get("transcript_path")
        if path is None:
            return
        session = self._sessions.pop(session_id, None) or _Session()
        session.transcript, session.cwd = path, hook_input.get("cwd")
        self._sessions[session_id] = session
        self._catch_up()
        if note:
            self._note(session_id)
        while len(self._sessions) > _MOST_SESSIONS:
            self._finish(next(iter(self._sessions)))
            self._tidy()

    def _catch_up(self) -> None:
        if self._to_catch_up:
            self._to_catch_up = False
            self._upkeep.begin(self._sessions.keys())

    def _note(self, session_id: str) -> None:
        """Register this session in its manifest, once; no caller waits for that."""
        session = self._sessions[session_id]
        if not self._at_session_end or session.noted:
            return
        session.noted = True
        where, cwd = self._where(session_id), session.cwd

        def note() -> None:
            path = where()
            if path is None:
                session.noted = False  # no transcript yet: look again at the end of the next turn
            else:
                self.archive.register_session(session_id, path, cwd=cwd, pid=os.getpid())

        self._work.submit(note)


def _session_of(event: Any, snapshot: ContextSnapshot | None) -> str | None:
    session_id: str | None = event.session_id
    return session_id or (None if snapshot is None else snapshot.session_id)


def _key(hook_input: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the session and the agent of a hook's input, whose texts `hooks.as_mapping` has looked at."""
    return hook_input["session_id"], hook_input.get("agent_id")


_EVENTS: Final[dict[type, Callable[..., None]]] = {
    Compaction: SessionArchiver._compacted,
    CompactionStatus: SessionArchiver._compacting,
    SessionStart: SessionArchiver._started,
    TurnEnd: SessionArchiver._turn_ended,
}
