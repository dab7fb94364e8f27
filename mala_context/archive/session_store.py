"""`ArchiveSessionStore`: the archive's store as a `SessionStore` of the SDK.

A hook can be skipped, disabled or time out. The SDK hands each batch of rows to `ClaudeAgentOptions(session_store=…)`
as the CLI writes them, whatever hooks do, so that this copy depends on nothing else. A batch is one piece in the
archive's format, in a directory for each project key: what is mirrored can be listed, shown, verified, packed and
restored like what was archived. It is a copy of the rows, not of the transcript's bytes, and so never shares a
directory with an archive.

The pieces are the truth. The manifest says which subagent a piece is of and holds the SDK's own summary of a session.
Rows whose uuid is there already are dropped; which are there is remembered between calls, and read again when another
process wrote.

All disk work is done in order in one daemon thread, so that calls keep their order and a hanging disk keeps no
process from exiting; asyncio and trio alike.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from mala_context._util.background import Worker, wait_for
from mala_context.archive import layout, manifests
from mala_context.archive.increment import publish_next
from mala_context.archive.reading import chunks
from mala_context.errors import InvalidSessionIdError
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.rows import rows
from mala_context.transcripts.session_ids import check_agent_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

    from mala_context.archive.interface import PieceStore, SessionFiles, SessionView
    from mala_context.archive.layout import Piece

T = TypeVar("T")

SECONDS: Final = 60.0
"""Longest that a call waits for the disk; the work goes on then."""
_FOLDER_MOST = 200
_SUBAGENTS = "subagents/agent-"


class ArchiveSessionStore:
    """Mirrors sessions live; hand it to `ClaudeAgentOptions(session_store=…)`.

    Args:
        directory: where to, an absolute path; by default `mirror` beside the archives of `repo_path`.
        repo_path: the repository whose sessions these are.
        stores: instead, a function from the name of a project's folder to its store of pieces.
        timeout: seconds to wait for another process that writes to the same session.

    Raises `ValueError` unless there is exactly one of the first three. Methods raise `ArchiveError` and `OSError`,
    which the SDK reports and survives.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        repo_path: str | os.PathLike[str] | None = None,
        stores: Callable[[str], PieceStore] | None = None,
        timeout: float = 10.0,
    ) -> None:
        if sum(each is not None for each in (directory, repo_path, stores)) != 1:
            raise ValueError("a session store needs one of directory, repo_path and stores")
        self._directory = None if directory is None else os.path.abspath(os.fspath(directory))
        self._repo_path = repo_path
        self._make = stores
        self._timeout = timeout
        self._worker = Worker("mala-context mirror")
        self._stores: dict[str, PieceStore] = {}
        self._states: dict[tuple[str, str], _State] = {}

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep a batch of rows, the `entries`, under a `key`; a row whose uuid is there already is dropped."""
        batch = list(entries)
        if batch:
            await self._do(lambda: self._append(key, batch))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all rows of a key in order, `None` where it was never written. Raises `CorruptArchiveError`."""
        return await self._do(lambda: self._load(key))

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project with their times, in milliseconds since 1970."""
        return await self._do(
            lambda: [
                {"session_id": session_id, "mtime": mtime} for session_id, mtime in self._sessions(project_key).items()
            ]
        )

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the SDK's own summaries of a project's sessions."""
        return await self._do(lambda: self._summaries(project_key))

    async def delete(self, key: SessionKey) -> None:
        """Delete a session with its subagents, or one subagent's rows alone."""
        await self._do(lambda: self._delete(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session that have rows."""
        return await self._do(lambda: self._subkeys(key))

    async def _do(self, work: Callable[[], T]) -> T:
        return await wait_for(self._worker.submit(work), seconds=SECONDS)

    def _store(self, project_key: str, *, create: bool = False) -> PieceStore:
        folder = folder_name(project_key)
        store = self._stores.get(folder)
        if store is None:
            store = self._make(folder) if self._make is not None else self._local(folder, create=create)
            # A repository's place is known only once it is claimed: until then another repository may get it.
            if create or self._repo_path is None:
                self._stores[folder] = store
        return store

    def _local(self, folder: str, *, create: bool) -> PieceStore:
        from mala_context.archive.local_store import LocalStore

        root = self._directory
        if root is None:
            from mala_context.archive.directory import claim_repository

            repo = cast("str | os.PathLike[str]", self._repo_path)
            runs = os.path.dirname(claim_repository(repo)) if create else layout.repo_runs_dir(repo)
            root = os.path.join(runs, "mirror")
        return LocalStore(os.path.join(root, folder))

    def _append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        session_id, stream = key["session_id"], stream_of(key.get("subpath"))
        project = key["project_key"]
        with self._store(project, create=True).lock(session_id, self._timeout) as files:
            state = self._state(project, files)
            fresh = state.fresh(stream, entries)
            if not fresh:
                return
            data = b"".join(json.dumps(entry, separators=(",", ":")).encode("ascii") + b"\n" for entry in fresh)
            name, _ = publish_next(files, stream, 1, ".jsonl", state.newest, lambda write: write(data))
            row = manifests.new_row(
                "piece",
                layout.now(),
                name=name,
                chain=1,
                mode="incremental",
                offset=state.ends.get(stream, 0),
                length=len(data),
                sha256=sha256(data).hexdigest(),
                subagent=stream,
                trigger="mirror",
                subpath=key.get("subpath"),
            )
            added = [row]
            if stream is None:
                from claude_agent_sdk import fold_session_summary

                state.summary = dict(fold_session_summary(cast("Any", state.summary), key, fresh))
                added.append(manifests.new_row("summary", layout.now(), data=state.summary["data"]))
            files.append(manifests.dump(added))
            state.took(stream, name, len(data), fresh)
            state.mark = _mark(files)

    def _state(self, project_key: str, files: SessionFiles) -> _State:
        known = self._states.get((project_key, files.session_id))
        # Another process may have written since: the remembered uuids are then incomplete, and rows would be kept
        # twice.
        if known is None or known.mark != _mark(files):
            known = self._states[project_key, files.session_id] = _State(files)
        return known

    def _load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        with self._store(key["project_key"]).view(key["session_id"]) as files:
            found = _pieces(files, stream_of(key.get("subpath")))
            entries = list(_entries(files, found))
        return cast("list[SessionStoreEntry]", entries) if found else None

    def _sessions(self, project_key: str) -> dict[str, int]:
        return {
            each.session_id: each.newest_ns // 1_000_000
            for each in self._store(project_key).summaries()
            if any((name := layout.parse_piece_name(file)) and name.subagent is None for file in each.files)
        }

    def _summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        store = self._store(project_key)
        found: list[SessionSummaryEntry] = []
        for session_id, mtime in self._sessions(project_key).items():
            with store.view(session_id) as files:
                data = _summary(manifests.parse(files.manifest()).rows)
            if data is not None:
                found.append({"session_id": session_id, "mtime": mtime, "data": data})
        return found

    def _subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        with self._store(key["project_key"]).view(key["session_id"]) as files:
            pieces = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
        found: dict[str, None] = {}
        for piece in pieces:
            if piece.subagent is not None:
                stated = piece.row.get("subpath") if piece.row else None
                found[stated if isinstance(stated, str) else _SUBAGENTS + piece.subagent] = None
        return list(found)

    def _delete(self, key: SessionKey) -> None:
        session_id, store = key["session_id"], self._store(key["project_key"])
        with store.view(session_id) as seen:
            if not seen.list():
                return
        self._states.pop((key["project_key"], session_id), None)
        with store.lock(session_id, self._timeout) as files:
            if "subpath" in key:
                _delete_stream(files, stream_of(key["subpath"]))
                return
            for file in files.list():
                files.remove(file.name)


class _State:
    """What the archive holds of one session, as this process saw it last under the session's lock."""

    def __init__(self, files: SessionFiles) -> None:
        manifest = manifests.parse(files.manifest())
        pieces = manifests.pieces_of(files.list(), manifest)
        self.mark = _mark(files)
        self.newest = max((piece.stamp for piece in pieces), default=None)
        self.ends: dict[str | None, int] = {}
        self.seen: dict[str | None, set[str]] = {}
        for stream in {piece.subagent for piece in pieces}:
            found = [piece for piece in pieces if piece.subagent == stream]
            self.ends[stream] = sum(piece.length or 0 for piece in found)
            self.seen[stream] = set(_uuids(_entries(files, found)))
        data = _summary(manifest.rows)
        self.summary: dict[str, Any] | None = (
            None if data is None else {"session_id": files.session_id, "mtime": 0, "data": data}
        )

    def fresh(self, stream: str | None, entries: Iterable[SessionStoreEntry]) -> list[SessionStoreEntry]:
        """Return the rows whose uuid is new, and those without one."""
        seen = set(self.seen.get(stream, ()))
        fresh = []
        for entry in entries:
            uuid = entry.get("uuid")
            if isinstance(uuid, str):
                if uuid in seen:
                    continue
                seen.add(uuid)
            fresh.append(entry)
        return fresh

    def took(self, stream: str | None, name: str, length: int, entries: Iterable[SessionStoreEntry]) -> None:
        """Remember a piece that was written."""
        parsed = layout.parse_piece_name(name)
        self.newest = parsed.stamp if parsed else self.newest
        self.ends[stream] = self.ends.get(stream, 0) + length
        self.seen.setdefault(stream, set()).update(_uuids(entries))


def folder_name(project_key: str) -> str:
    """Return the name of a project's folder: its key where that is a plain name, else a readable part and a hash."""
    plain = "".join(c if (c.isascii() and c.isalnum()) or c in "-_" else "-" for c in project_key)
    if plain == project_key and 0 < len(plain) <= _FOLDER_MOST:
        return plain
    digest = sha256(project_key.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{plain[: _FOLDER_MOST - 13]}-{digest[:12]}"


def stream_of(subpath: str | None) -> str | None:
    """Return the name under which a subpath's rows are kept: the subagent's id, or for any other subpath a hash."""
    if subpath is None:
        return None
    agent = subpath.removeprefix(_SUBAGENTS)
    if agent != subpath:
        try:
            return check_agent_id(agent)
        except InvalidSessionIdError:
            pass
    return "sub-" + sha256(subpath.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def _pieces(files: SessionView, stream: str | None) -> list[Piece]:
    pieces = manifests.pieces_of(files.list(), manifests.parse(files.manifest()))
    return [piece for piece in pieces if piece.subagent == stream]


def _entries(files: SessionView, pieces: list[Piece]) -> Iterable[dict[str, Any]]:
    for row in rows(chunks(files, pieces), most=None):  # the session goes on with them: none may be shortened
        yield from objects(row.data)


def _uuids(entries: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    return (uuid for entry in entries if isinstance(uuid := entry.get("uuid"), str))


def _summary(found: Iterable[Mapping[str, Any]]) -> dict[str, Any] | None:
    data = [row.get("data") for row in found if row.get("row") == "summary"]
    return data[-1] if data and isinstance(data[-1], dict) else None


def _mark(files: SessionFiles) -> tuple[int, int, str]:
    """Return a value that changes with every write to the session, by any process."""
    names = [file.name for file in files.list()]
    return len(files.manifest()), len(names), names[-1] if names else ""


def _delete_stream(files: SessionFiles, stream: str | None) -> None:
    for piece in _pieces(files, stream):
        files.remove(piece.name)
    manifest = manifests.parse(files.manifest())
    files.replace_manifest(
        manifests.dump(row for row in manifest.rows if row.get("row") != "piece" or row.get("subagent") != stream)
    )
