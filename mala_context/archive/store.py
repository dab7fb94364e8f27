"""`TranscriptArchive`: the archive of one repository, in one place.

It knows the rules of an archive and nothing of files: those are a `PieceStore`'s. Every method that writes holds the
session's lock, so that hooks, agents and processes never write the same bytes twice.
"""

from __future__ import annotations

import os
import time

from mala_context.archive import layout, log
from mala_context.archive import manifest as manifests
from mala_context.archive.increment import PRECOMPACT_TRIGGERS, Request, add_piece
from mala_context.archive.records import ArchiveResult, SessionSummary
from mala_context.archive.source import Source, find_transcript

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from mala_context.archive.interface import PieceStore
    from mala_context.archive.manifest import Manifest
    from mala_context.archive.records import Piece

MODES = ("incremental", "full")
COMPRESSIONS = ("none", "zstd")
TIMEOUT = 10.0
"""Seconds that a writer waits for a session's lock."""


def _now() -> int:
    return time.time_ns() // 1000


class TranscriptArchive:
    """Keeps what compaction throws away.

    Args:
        directory: where to keep pieces, an absolute path; by default the archives of `repo_path` in the runs directory.
        repo_path: the repository whose sessions these are.
        store: another store of pieces than local files.
        mode: `incremental` (each piece is what the transcript gained) or `full` (each is a whole copy).
        compress: `none`, or `zstd`: `pack` packs pieces, which is never done while a hook waits.
        keep: limits that `apply_keep` holds: any of `days`, `bytes`, `sessions`.
        warn_bytes: past so many bytes in this archive there is a WARNING.
        timeout: seconds to wait for another writer of the same session.

    Nothing is created before the first piece is written. Raises `ValueError` for an unknown mode or compression.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        repo_path: str | os.PathLike[str] | None = None,
        store: PieceStore | None = None,
        mode: str = "incremental",
        compress: str = "none",
        keep: Mapping[str, Any] | None = None,
        warn_bytes: int | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}")
        if compress not in COMPRESSIONS:
            raise ValueError(f"compress is {compress!r}; it must be one of {', '.join(COMPRESSIONS)}")
        if directory is None and repo_path is None and store is None:
            raise ValueError("an archive needs a directory, a repo_path or a store")
        self.mode = mode
        self.compress = compress
        self.keep = keep
        self.warn_bytes = warn_bytes
        self.timeout = timeout
        self.repo_path = repo_path
        self._directory = None if directory is None else os.path.abspath(os.fspath(directory))
        self._store = store
        self._warned = False
        self._attempts: set[str] = set()

    @property
    def location(self) -> str:
        """Where the pieces are kept, in words for people; raises `ArchiveUnavailableError` where there is no place."""
        return self.store(create=False).location

    def store(self, *, create: bool) -> PieceStore:
        """Return the store; with `create` the repository's place is claimed first.

        Raises `ArchiveUnavailableError` where there is no place for archives.
        """
        if self._store is not None:
            return self._store
        from mala_context.archive.writer import LocalStore

        if self._directory is not None:
            self._store = LocalStore(self._directory)
            return self._store
        assert self.repo_path is not None  # noqa: S101  # the constructor saw to it
        if create:
            from mala_context.archive.directory import claim_repository

            self._store = LocalStore(claim_repository(self.repo_path))
            return self._store
        return LocalStore(os.path.join(layout.repo_runs_dir(self.repo_path), layout.ARCHIVES))

    def archive(
        self,
        transcript_path: object,
        session_id: object,
        *,
        trigger: str = "manual",
        agent: str | None = None,
        subagent: str | None = None,
        tokens: int | None = None,
        model: str | None = None,
        cwd: str | None = None,
        final: bool = False,
    ) -> ArchiveResult:
        """Archive what the transcript gained since this session's last piece; all of it in mode `full`.

        Args:
            transcript_path: the file; its last component must not be a link.
            session_id: whose it is, whatever its name or its rows say.
            trigger: why: `auto`, `manual`, `session_end`, `boundary`, `catch_up`, ….
            agent: who compacts: `main` or a subagent's id, where that is known.
            subagent: set where the transcript is that subagent's own.
            tokens: size of the context at that moment.
            model: the model's name.
            cwd: the session's working directory.
            final: take a last row that has no newline yet; for the session's end.

        Raises `TranscriptError` (nothing to read), `InvalidSessionIdError`, `ArchiveUnavailableError` (no place),
        `ArchiveBusyError`, `OSError` (writing failed). After each of them what was archived before is as it was.
        """
        sid = layout.check_session_id(session_id)
        if subagent is not None:
            layout.check_agent_id(subagent)
        with Source(transcript_path) as source, self.store(create=True).lock(sid, self.timeout) as files:
            fields = {"trigger": trigger, "agent": agent, "tokens": tokens, "model": model, "cwd": cwd}
            for attempt in (1, 2):
                source.take_size()
                request = Request(
                    session_id=sid, subagent=subagent, mode=self.mode, final=final, now=_now(), fields=fields
                )
                try:
                    result = add_piece(files, source, request)
                    break
                except _changing() as error:
                    if attempt == 2 or error.reason != "changing":
                        raise
        if trigger in PRECOMPACT_TRIGGERS and subagent is None:
            self._attempts.add(sid)
        self._check_size()
        return result

    def note_session(self, session_id: object, transcript_path: str, *, cwd: str | None = None) -> None:
        """Write down that a session runs here, so that `catch_up` archives it even if nothing else is ever called."""
        sid = layout.check_session_id(session_id)
        with self.store(create=True).lock(sid, self.timeout) as files:
            known = manifests.parse(files.manifest()).of_kind("session")
            if any(row.get("transcript") == transcript_path for row in known):
                return
            row = manifests.new_row("session", _now(), transcript=transcript_path, cwd=cwd)
            files.append(manifests.dump([row]))

    def record_outcome(
        self,
        session_id: object,
        outcome: str,
        *,
        trigger: str | None = None,
        agent: str | None = None,
        tokens_before: int | None = None,
        tokens_after: int | None = None,
        duration_ms: int | None = None,
        summary: str | None = None,
        lost: Mapping[str, Any] | None = None,
        error: str | None = None,
        piece: str | None = None,
    ) -> None:
        """Write down how a compaction ended: `compacted`, `failed`, `blocked` or `hook_skipped`.

        The row names `piece`, by default the newest piece of a compaction that has no outcome yet (of that agent, where
        `agent` is given). Raises like `archive`, and `ValueError` for another outcome.
        """
        if outcome not in manifests.OUTCOMES:
            raise ValueError(f"outcome is {outcome!r}; it must be one of {', '.join(sorted(manifests.OUTCOMES))}")
        sid = layout.check_session_id(session_id)
        self._attempts.discard(sid)
        with self.store(create=True).lock(sid, self.timeout) as files:
            if piece is None:
                row = manifests.parse(files.manifest()).open_piece(agent)
                piece = None if row is None else row.get("name")
            fields = {
                "outcome": outcome,
                "piece": piece,
                "trigger": trigger,
                "agent": agent,
                "tokens_before": tokens_before,
                "tokens_after": tokens_after,
                "duration_ms": duration_ms,
                "summary": summary,
                "lost": lost,
                "error": error,
            }
            files.append(manifests.dump([manifests.new_row("outcome", _now(), **fields)]))

    def compaction_seen(
        self, transcript_path: object, session_id: object, *, hook_ran: bool | None = None, **outcome: Any
    ) -> ArchiveResult | None:
        """Take note of a `compact_boundary` (or a `SessionStart` with source `compact`) of the main agent.

        Where PreCompact ran, that is one outcome row, `compacted`. Where it did not (`hook_ran` is false; by default:
        there is neither an attempt through this object nor a piece that waits for its outcome), what is new is
        archived at once, the outcome is `hook_skipped`, one WARNING says so, and the result of archiving is returned.
        `outcome` are the keywords of `record_outcome`. Raises like `archive`.
        """
        sid = layout.check_session_id(session_id)
        ran = hook_ran
        if ran is None:
            ran = sid in self._attempts or self.manifest(sid).open_piece() is not None
        if ran:
            self.record_outcome(sid, "compacted", **outcome)
            return None
        log.warning("Compaction without PreCompact in session %s: archiving what is there now", sid)
        result = self.archive(transcript_path, sid, trigger="boundary", agent=outcome.get("agent"))
        piece = None if result.path is None else os.path.basename(result.path)
        self.record_outcome(sid, "hook_skipped", piece=piece, **outcome)
        return result

    def find_transcript(
        self, session_id: str, *, cwd: str | None = None, projects_dirs: Sequence[str] | None = None
    ) -> str | None:
        """Return where the session's transcript is: `{session_id}.jsonl`, exactly that name, below the projects."""
        return find_transcript(session_id, cwd=cwd, projects_dirs=projects_dirs)

    def manifest(self, session_id: str) -> Manifest:
        """Return the session's manifest, empty where there is none. Raises `ArchiveUnavailableError`."""
        with self.store(create=False).view(session_id) as files:
            return manifests.parse(files.manifest())

    def pieces(self, session_id: str) -> list[Piece]:
        """Return the session's pieces, subagents' included, by transcript, chain and time; none where it is unknown."""
        with self.store(create=False).view(session_id) as files:
            return manifests.pieces_of(files.list(), manifests.parse(files.manifest()))

    def sessions(self) -> list[SessionSummary]:
        """Return all archived sessions, the one that was archived last first."""
        groups: dict[str, list[Any]] = {}
        for file in self.store(create=False).list():
            session_id = layout.session_of(file.name)
            if session_id is not None:
                groups.setdefault(session_id, []).append(file)
        found = [
            SessionSummary(
                session_id=session_id,
                pieces=sum(layout.parse_piece_name(file.name) is not None for file in files),
                stored=sum(file.size for file in files),
                newest_ns=max(file.mtime_ns for file in files),
                files=tuple(file.name for file in files),
            )
            for session_id, files in groups.items()
        ]
        return sorted(found, key=lambda each: (-each.newest_ns, each.session_id))

    def usage_bytes(self) -> int:
        """Return the bytes that this archive takes."""
        return sum(file.size for file in self.store(create=False).list())

    def _check_size(self) -> None:
        if self.warn_bytes is None or self._warned:
            return
        used = self.usage_bytes()
        if used > self.warn_bytes:
            self._warned = True
            log.warning(
                "Archive %s takes %s, more than warn_bytes (%s)",
                self.location,
                log.size_text(used),
                log.size_text(self.warn_bytes),
            )


def _changing() -> type[Any]:
    from mala_context.errors import TranscriptError

    return TranscriptError
