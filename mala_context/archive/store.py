"""`TranscriptArchive`: the archive of one repository. It adds everything that writes to `reader.ArchiveReader`.

It knows the rules of an archive and leaves files to a `PieceStore`. Every method that writes holds the session's lock,
so that hooks, agents and processes never write the same bytes twice.
"""

from __future__ import annotations

import os
import time

from mala_context._util.text import size_text
from mala_context.archive import layout, log, manifests
from mala_context.archive.increment import ArchiveRequest, add_piece
from mala_context.archive.layout import ArchiveResult
from mala_context.archive.reader import TIMEOUT, ArchiveReader
from mala_context.archive.source import Source, own_directory
from mala_context.transcripts.session_ids import check_agent_id, check_session_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from mala_context.archive.interface import PieceStore
    from mala_context.archive.remote.address import Target
    from mala_context.archive.remote.push import PushResult
    from mala_context.archive.restore import RestoreResult
    from mala_context.archive.retention import PruneResult

MODES = ("incremental", "full")
COMPRESSIONS = ("none", "zstd")


class TranscriptArchive(ArchiveReader):
    """Keeps what compaction throws away.

    Args:
        directory: where to keep pieces; a relative path is one below `repo_path`, else below the working directory. By
            default it is the archives of `repo_path` in the runs directory. With a `repo_path`, an address such as
            `s3://bucket/prefix` is the `target`; without one it is a repository's place in the store, for reading.
        repo_path: the repository whose sessions these are.
        store: another store of pieces than local files.
        mode: `incremental` (each piece is what the transcript gained) or `full` (each is a whole copy).
        compress: `none`, or `zstd`: `pack` packs pieces, which is never done while a hook waits.
        keep: limits that `apply_keep` holds: any of `days`, `bytes`, `sessions`.
        warn_bytes: a larger archive is a WARNING.
        timeout: seconds to wait for another writer of the same session.
        target: the object store to which `push` sends the pieces.
        projects_dirs: where CLIs keep their transcripts, to find one by its session; `None` for the usual places of
            this process at that time.

    What many methods take: `session_id`, the session, and `session_ids`, those meant, by default all;
    `transcript_path`, where the CLI writes it; `trigger`, why (`auto`, `manual`, `boundary`, `session_end`,
    `subagent_end`); `cwd`, the directory that the session was started in.

    Nothing is created before the first piece is written. Raises `ValueError` for an unknown mode or compression, and
    for an address that is none or that holds a secret.
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
        target: Target | None = None,
        projects_dirs: Sequence[str] | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode is {mode!r}; it must be one of {', '.join(MODES)}")
        if compress not in COMPRESSIONS:
            raise ValueError(f"compress is {compress!r}; it must be one of {', '.join(COMPRESSIONS)}")
        super().__init__(
            directory,
            repo_path=repo_path,
            store=store,
            timeout=timeout,
            target=target,
            projects_dirs=projects_dirs,
        )
        self.mode = mode
        self.compress = compress
        self.keep = keep
        self.warn_bytes = warn_bytes
        self._on_change: Callable[[str], object] | None = None
        self._warned = False

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
        since: int | None = None,
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
            since: for a hook that runs beside others. If a piece of this agent waits for its outcome and was written
                since then (microseconds since 1970), it belongs to this compaction, and no further piece is added.

        Raises `TranscriptError` (nothing to read), `InvalidSessionIdError`, `ArchiveUnavailableError` (no place),
        `ArchiveBusyError`, `OSError` (writing failed). None of them changes what was archived before.
        """
        sid = check_session_id(session_id)
        if subagent is not None:
            check_agent_id(subagent)
        own = None if subagent is None else own_directory(transcript_path)
        with Source(transcript_path, own) as source, self.lock(sid) as files:
            fields = {"trigger": trigger, "agent": agent, "tokens": tokens, "model": model, "cwd": cwd}
            asked: dict[str, Any] = {"session_id": sid, "subagent": subagent, "mode": self.mode, "final": final}
            # A transcript that was replaced or cut while it was read is opened once more by its path. A second time is
            # no accident, and a hook must not wait for a program that rewrites it all the time.
            for attempt in (1, 2):
                if attempt == 2:
                    source.open_again()
                # Under the lock: another hook may have archived more bytes, while we waited, than the file had when we
                # opened it.
                source.take_size()
                request = ArchiveRequest(**asked, now=layout.now(), fields=fields, since=since)
                try:
                    result = add_piece(files, source, request)
                    break
                except _changing() as error:
                    if attempt == 2 or error.reason != "changing":
                        raise
        if result.archived:
            self._say_changed(sid)
            self._check_size()
        return result

    def archive_side_files(
        self, transcript_path: str, session_id: object, *, trigger: str = "session_end", final: bool = False
    ) -> list[ArchiveResult]:
        """Archive what lies beside a transcript: subagents' transcripts and the files that rows name.

        `final` says that the writer has ended, so a line without an end counts. Returns a result for each subagent's
        transcript that was looked at. One that cannot be read is a WARNING.
        Raises like `archive` where writing is impossible.
        """
        from mala_context.archive import side_files
        from mala_context.archive.catch_up import is_current
        from mala_context.errors import InvalidSessionIdError, TranscriptError

        sid = check_session_id(session_id)
        found = list(side_files.walk(transcript_path))
        results = []
        for name, path in found:
            subagent = side_files.subagent_of(name)
            if subagent is None or is_current(path, self.pieces(sid), subagent):
                continue
            try:
                results.append(self.archive(path, sid, trigger=trigger, subagent=subagent, final=final))
            except (TranscriptError, InvalidSessionIdError) as error:
                log.warning("Subagent's transcript of session %s not archived: %s", sid, error)
        others = [each for each in found if side_files.subagent_of(each[0]) is None]
        if others:
            with self.lock(sid) as files:
                kept = side_files.keep_side_files(files, others, layout.now())
            if kept:
                self._say_changed(sid)
        return results

    def archive_session(
        self, transcript_path: object, session_id: object, *, trigger: str = "session_end", **fields: Any
    ) -> list[ArchiveResult]:
        """Archive the rest of a session that has ended: its transcript to the last byte, and what lies beside it.

        `fields` are further keywords of `archive`. Raises like `archive`.
        """
        main = self.archive(transcript_path, session_id, trigger=trigger, final=True, **fields)
        beside = self.archive_side_files(str(main.transcript), session_id, trigger=trigger, final=True)
        return [main, *beside]

    def catch_up(
        self,
        *,
        session_ids: Sequence[str] | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> list[ArchiveResult]:
        """Archive the rest of every session that this archive knows, or of those named; then `tidy`.

        Drops what killed writers left. A session that cannot be archived is a WARNING. `progress` is told what
        `catch_up.catch_up` says. Raises `ArchiveUnavailableError` where there is no place for archives.
        """
        from mala_context.archive.catch_up import catch_up

        self.drop_leftovers()
        found = getattr(progress, "found", None)
        archive = self.listed()
        known = [each.session_id for each in archive.sessions(progress=found)] if session_ids is None else session_ids
        results = list(catch_up(archive, known, time.time(), progress))
        self.tidy(known)
        return results

    def tidy(self, session_ids: Sequence[str] | None = None) -> None:
        """Do the work that no hook may wait for: pack the pieces (`compress: zstd`) and apply the limits of `keep`.

        Call it when a session has ended. A piece that cannot be packed stays plain, with a WARNING. Raises `OSError` if
        a file cannot be removed.
        """
        from mala_context.errors import ArchiveError

        if self.compress == "zstd":
            try:
                self.pack(session_ids)
            except (ArchiveError, OSError) as error:
                log.warning("Archive %s is not packed: %s", self.location, error)
        if self.keep is not None:
            self.apply_keep()

    def drop_leftovers(self) -> None:
        """Drop what killed writers left, in sessions that have no writer now."""
        from mala_context.errors import ArchiveBusyError

        if self.repo_path is not None and self._directory is None:
            from mala_context.archive.directory import drop_markers

            drop_markers(layout.repo_runs_dir(self.repo_path))
        store = self.store(create=False)
        for session_id in store.unfinished():
            try:
                # Taking the lock drops the leftovers. No wait: a session that is locked has a living writer, and its
                # files are in use.
                store.lock(session_id, 0.0).close()
            except ArchiveBusyError:
                continue

    def pack(self, session_ids: Sequence[str] | None = None) -> int:
        """Pack the plain pieces of all sessions, or of those named, with zstd; returns the bytes saved.

        Each piece takes the lock for itself, so that a hook waits for one piece at most. Never call it from a hook.
        Raises `ArchiveError` where no zstd package is installed, and `OSError` where writing failed.
        """
        from mala_context.archive.packing import pack_sessions

        known = [each.session_id for each in self.sessions()] if session_ids is None else session_ids
        return pack_sessions(self.listed(), known)

    def prune(
        self,
        *,
        days: float | None = None,
        bytes: int | str | None = None,  # noqa: A002  # the name that `keep` has in mala.yaml
        sessions: int | None = None,
        session_ids: Sequence[str] = (),
        dry_run: bool = True,
        progress: Callable[[int], object] | None = None,
    ) -> PruneResult:
        """Remove the sessions past a limit, and those named; in a dry run only say which.

        The limits: an age in `days`, the `bytes` of all together (a number, or a text like `5GB`), how many `sessions`.
        `dry_run`, the default, removes nothing. `progress` is told as `catch_up` tells it.

        A session whose transcript is gone stays unless it is named. Of a session that is uploaded to an object store,
        only the files that have arrived there are removed, and the manifest stays. Full texts and indexes are removed
        if neither transcript nor archive of their session is left. Raises `ValueError` for an invalid limit.
        """
        from mala_context.archive.pruning import prune
        from mala_context.archive.retention import limits

        limit = limits({"days": days, "bytes": bytes, "sessions": sessions})
        return prune(self, limit, session_ids, trust_clock=True, dry_run=dry_run, progress=progress)

    def apply_keep(self) -> PruneResult:
        """Apply the limits of `keep` without a user who confirms: `retention` says what is never removed then."""
        from mala_context.archive.pruning import prune
        from mala_context.archive.retention import limits

        return prune(self, limits(self.keep), (), trust_clock=False, dry_run=False)

    def push(self, session_ids: Sequence[str] | None = None, **how: Any) -> PushResult:
        """Send the files that the object store does not have yet; arguments and errors are those of `remote.push.push`.

        Never call it from a hook.
        """
        from mala_context.archive.remote.push import push

        return push(self, session_ids, pack=self.compress == "zstd", **how)

    def register_session(
        self, session_id: object, transcript_path: str, *, cwd: str | None = None, pid: int | None = None
    ) -> None:
        """Write down that a session runs here, so that `catch_up` archives it even if nothing else is ever called.

        With `pid`, the process on this host that archives the session itself: while it lives, no other one catches up.
        """
        from mala_context.archive.atomic_write import process_start

        sid = check_session_id(session_id)
        with self.lock(sid) as files:
            known = manifests.parse(files.manifest()).of_kind("session")
            fields = {"transcript": transcript_path, "pid": pid, "host": None if pid is None else os.uname().nodename}
            fields["started"] = None if pid is None else process_start(pid)
            if any(all(row.get(name) == value for name, value in fields.items()) for row in known):
                return
            row = manifests.new_row("session", layout.now(), cwd=cwd, **fields)
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
        cli_before: int | None = None,
        duration_ms: int | None = None,
        summary: str | None = None,
        lost: Mapping[str, Any] | None = None,
        error: str | None = None,
        piece: str | None = None,
        kept: Mapping[str, Any] | None = None,
        once: bool = False,
    ) -> None:
        """Write down how a compaction ended: `compacted`, `by_reference`, `failed`, `blocked` or `hook_skipped`.

        Pass what is known: sizes in tokens (`tokens_before`, `tokens_after`, the CLI's own `cli_before`),
        `duration_ms`, the `summary`, what it does not mention (`lost`), an `error`, and for a compaction by reference
        what was `kept`.

        The row names `piece`, by default the newest piece of a compaction that has no outcome yet (of that agent, if
        `agent` is given). With `once`, nothing is written if no piece waits and the newest outcome has this summary:
        hooks that are installed twice report each compaction twice. Raises like `archive`, and `ValueError` for
        another outcome.
        """
        from mala_context.archive.catch_up import note

        sid = check_session_id(session_id)
        fields = {
            "trigger": trigger,
            "agent": agent,
            "tokens_before": tokens_before,
            "tokens_after": tokens_after,
            "duration_ms": duration_ms,
            "summary": summary,
            "lost": lost,
            "error": error,
            **({} if cli_before is None else {"cli_before": cli_before}),
            **({} if kept is None else {"kept": kept}),
        }
        note(self, sid, outcome, piece, fields, layout.now(), once=once)
        self._say_changed(sid)

    def record_sizes(self, session_id: str, piece: str, sizes: Mapping[str, Any]) -> None:
        """Write down the `sizes` (`tokens_before`, `tokens_after`) of a compaction whose outcome has none.

        `piece` is the name of the piece that was archived before that compaction.
        """
        with self.lock(session_id) as files:
            outcomes = manifests.parse(files.manifest()).of_kind("outcome")
            known = next((row for row in reversed(outcomes) if row.get("piece") == piece), {})
            if any(known.get(name) is None and sizes.get(name) is not None for name in manifests.SIZES):
                files.append(manifests.dump([manifests.late_row(layout.now(), piece, sizes)]))

    def note_kept(
        self, session_id: object, kept: Mapping[str, Any], *, agent: str, lost: Mapping[str, Any] | None = None
    ) -> None:
        """Write down what a compaction by reference is about to keep. Another process will record its outcome.

        `kept` has its figures and the place of its full text; `agent` is `main` or a subagent's id; `lost` is what the
        kept text does not mention. Raises like `archive`.
        """
        sid = check_session_id(session_id)
        with self.lock(sid) as files:
            files.append(manifests.dump([manifests.new_row("kept", layout.now(), agent=agent, kept=kept, lost=lost)]))

    def compaction_seen(
        self,
        transcript_path: object,
        session_id: object,
        *,
        hook_ran: bool | None = None,
        measure: Callable[[], Mapping[str, Any] | None] | None = None,
        **outcome: Any,
    ) -> ArchiveResult | None:
        """Take note of a `compact_boundary` (or a `SessionStart` with source `compact`) of the main agent.

        If PreCompact ran, this writes one outcome row: `compacted`, or `by_reference` if `outcome` has `kept`. If it
        did not run, this archives at once, logs a WARNING, records the outcome `hook_skipped`, and returns the result
        of archiving. `hook_ran` says whether it ran; by default it did if the manifest has a compaction that waits for
        its outcome. `outcome` are keywords of `record_outcome`. `measure` is called after archiving and returns `lost`.
        Raises like `archive`.
        """
        from mala_context.archive.catch_up import seen

        sid = check_session_id(session_id)
        ran = self.manifest(sid).open_piece("main") is not None if hook_ran is None else hook_ran
        return seen(self, transcript_path, sid, {"agent": "main", **outcome}, measure, hook_ran=ran)

    def restore(self, session_id: str, **where: Any) -> RestoreResult:
        """Undo a compaction: make a new session of what this one held before it; takes what `restore_session` takes.

        The result has the new id, the working directory, the shell's `command` and which side files are missing.
        """
        from mala_context.archive.restore import restore_session

        return restore_session(self, session_id, **where)

    def restore_options(self, session_id: str, **where: Any) -> dict[str, Any]:
        """Undo a compaction; return the fields of `ClaudeAgentOptions` that open the new session: `resume`, `cwd`."""
        result = self.restore(session_id, **where)
        return {"resume": result.session_id, **({} if result.cwd is None else {"cwd": result.cwd})}

    def on_change(self, observer: Callable[[str], object] | None) -> None:
        """Have `observer` called with a session's id whenever something of it was archived; `None` for none."""
        self._on_change = observer

    def _say_changed(self, session_id: str) -> None:
        if self._on_change is not None:
            self._on_change(session_id)

    def _check_size(self) -> None:
        if self.warn_bytes is None or self._warned:
            return
        used = self.usage_bytes()
        if used > self.warn_bytes:
            self._warned = True
            log.warning(
                "Archive %s takes %s, more than warn_bytes (%s)",
                self.location,
                size_text(used),
                size_text(self.warn_bytes),
            )


def _changing() -> type[Any]:
    from mala_context.errors import TranscriptError

    return TranscriptError
