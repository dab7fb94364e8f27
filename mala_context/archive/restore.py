"""Undo a compaction: make a new session that holds what the old one held just before it.

The old session is not touched. The new session has an id of its own in every row. Its transcript has today's
modification time (the CLI deletes transcripts by that time alone), and lies in the project folder where
`claude --resume ID` looks for it.

While the transcript is there, the SDK's own `fork_session` makes the new session. It splits text at every kind of line
end, U+2028 and U+0085 too, and drops rows that are cut by that. So its rows are counted. If some are missing, or the
SDK cannot be used (not installed, an id that is no UUID, another projects directory), the rows are written here, as
they always are when they come from the archive. Rows written here keep their uuids; `forkedFrom` names the old row.
"""

from __future__ import annotations

import json
import os
import time
from shlex import quote
from uuid import uuid4

from mala_context._util.text import plural
from mala_context.archive import log
from mala_context.archive.atomic_write import place
from mala_context.archive.compactions import compactions, cut_before, moment_of
from mala_context.archive.directory import make_directories
from mala_context.archive.history import History
from mala_context.archive.layout import Frozen
from mala_context.archive.named_files import look_after, results_named, subagents_named
from mala_context.archive.session_copy import Renaming
from mala_context.archive.subagents import bring_subagents
from mala_context.errors import PartNotFoundError
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.projects import default_projects_dirs, folder_name, folder_of, projects_dir
from mala_context.transcripts.rows import file_chunks, rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from mala_context.archive.compactions import Cut, RecordedCompaction
    from mala_context.archive.interface import Write
    from mala_context.archive.reader import ArchiveReader
    from mala_context.transcripts.rows import Row

_CONVERSATION = ("user", "assistant", "attachment", "system")
_FORK_MOST = 16 << 20
"""Largest transcript that is given to the SDK's fork, which needs about ten times these bytes in memory."""


class RestoreResult(Frozen):
    """A session that was restored; resume it with `session_id` in `cwd`.

    For a dry run it says what would be written; `*` stands for the new session's id, and `through` is empty.
    """

    session_id: str
    """The new session's id."""
    source: str
    """The session that it was made from."""
    path: str
    """The new transcript."""
    cwd: str | None
    """The working directory to resume it in; `None` where nothing says it."""
    rows: int
    """Rows of conversation that it holds."""
    compaction: RecordedCompaction | None
    """The compaction that was undone; `None` where the whole session was restored, or as it was at a time."""
    compactions: int
    """Compactions seen up to the cut."""
    through: str
    """`fork_session` or `archive`: what wrote it."""
    read_from: str
    """`transcript` or `archive`: where its rows were read."""
    put_back: tuple[str, ...] = ()
    """Side files that rows name, that were gone and that are back in their place."""
    missing: tuple[str, ...] = ()
    """Side files and subagents' transcripts that rows name and that are neither there nor archived."""
    subagents: tuple[str, ...] = ()
    """Subagents' transcripts that now lie beside the new one, so that it can go on with those agents."""
    dry_run: bool = False
    """Whether nothing was written."""

    @property
    def command(self) -> str:
        """The shell's words that open it; empty for a dry run."""
        if self.dry_run:
            return ""
        resume = f"claude --resume {self.session_id}"
        return resume if self.cwd is None else f"cd {quote(self.cwd)} && {resume}"


_READINGS = 3
"""How often the rows are read: to find the cut, to find what they name, and to write them. Progress counts all."""


class _Scan(Frozen):
    """What the reading before the writing found in the rows up to the cut."""

    conversation: int
    last_offset: int
    last_uuid: str | None
    """The last row of the main conversation, where the SDK's fork is to end."""
    cwds: tuple[str, ...]
    results: set[str]
    agents: set[str]
    broken: set[int]
    """Offsets of long rows that are no objects. They are left out: they are written without being decoded."""


def restore_session(
    archive: ArchiveReader,
    session_id: str,
    *,
    at: int | None = None,
    before: datetime | str | None = None,
    chain: int | None = None,
    cwd: str | os.PathLike[str] | None = None,
    projects: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] | None = None,
    dry_run: bool = False,
) -> RestoreResult:
    """Make a new session of what `session_id` held just before a compaction.

    Args:
        archive: the archive that holds it.
        session_id: the session to go back in.
        at: the compaction to undo, from 1; by default the last one, or none if there was none.
        before: instead, the session as it was at a time (ISO 8601; without a zone it is local time).
        chain: read that chain of the archive, for transcripts that were rewritten.
        cwd: where the new session is to be resumed; by default where the old one ran.
        projects: the projects directory; by default the one that the old session lay in, else the CLI's own.
        progress: called with the bytes of each row that was looked at; one that has `expect(bytes)` is told first how
            many there will be at the most.
        dry_run: write nothing, and only say what would be.

    Raises `SessionNotFoundError`, `PartNotFoundError` (no such compaction, chain, or nothing to resume),
    `CorruptArchiveError` (run `verify`), `ValueError` for arguments that exclude each other, and `OSError`. Nothing
    is written then.
    """
    moment = _check(at, before)
    looked_in = None if projects is None else [os.path.abspath(os.fspath(projects))]
    with History(archive, session_id, chain=chain, projects=looked_in, progress=progress) as history:
        history.expect(_READINGS * history.size())
        cut = cut_before(history.rows(), at, moment)
        if cut is None:
            raise _no_such(history, at)
        return _make(history, cut, cwd, projects, dry_run=dry_run)


def _make(
    history: History,
    cut: Cut,
    cwd: str | os.PathLike[str] | None,
    projects: str | os.PathLike[str] | None,
    *,
    dry_run: bool,
) -> RestoreResult:
    # The scan, the cut and the folder come before the first byte is written, so that an error leaves nothing.
    scan = _scan(history, cut)
    if scan.last_uuid is None:
        raise PartNotFoundError(
            history.session_id, "conversation to resume there", "no row before that point is a message"
        )
    root = projects_dir(history.last_path, projects)
    where, directory = _folder(history, scan, root, cwd)
    path, through = os.path.join(directory, "*.jsonl"), ""
    if not dry_run:
        path, through = _new_session(history, cut, scan, directory)
    new_id = os.path.basename(path)[: -len(".jsonl")]
    side = look_after(history, scan.results, root, dry_run=dry_run)
    whole = cut.offset is None
    agents = bring_subagents(history, scan.agents, root, directory, new_id, whole=whole, dry_run=dry_run)
    if not dry_run:
        log.info("Restored session %s as %s (%d rows) in %s", history.session_id, new_id, scan.conversation, path)
    return RestoreResult(
        session_id=new_id,
        source=history.session_id,
        path=path,
        cwd=where,
        rows=scan.conversation,
        compaction=cut.compaction,
        compactions=cut.compactions,
        through=through,
        read_from="archive" if history.transcript is None else "transcript",
        put_back=side.put_back,
        missing=(*side.missing, *agents.missing),
        subagents=agents.copied,
        dry_run=dry_run,
    )


def _new_session(history: History, cut: Cut, scan: _Scan, directory: str) -> tuple[str, str]:
    """Write the new transcript and set its modification time to now; return its path and what wrote it."""
    path, through = _fork(history, scan, directory), "fork_session"
    if path is None:
        path, through = _write(history, cut, scan, directory), "archive"
    os.utime(path)
    return path, through


def _check(at: int | None, before: datetime | str | None) -> datetime | None:
    if at is not None and before is not None:
        raise ValueError("at and before exclude each other")
    if at is not None and (type(at) is not int or at < 1):
        raise ValueError(f"at is {at!r}; compactions are counted from 1")
    moment = moment_of(before)
    if before is not None and moment is None:
        raise ValueError(f"before is {before!r}; it must be a time like 2026-11-28T09:30 or 2026-11-28T09:30:00Z")
    return moment


def _no_such(history: History, at: int | None) -> Exception:
    count = sum(1 for _ in compactions(history.rows()))
    return PartNotFoundError(history.session_id, f"compaction {at}", f"it was compacted {plural(count, 'time')}")


def _until(history: History, cut: Cut) -> Iterator[Row]:
    for row in history.rows():
        if cut.offset is not None and row.offset >= cut.offset:
            return
        yield row


def _scan(history: History, cut: Cut) -> _Scan:
    conversation, last_offset = 0, -1
    last_uuid: str | None = None
    cwds: dict[str, None] = {}
    results: set[str] = set()
    agents: set[str] = set()
    broken: set[int] = set()
    for row in _until(history, cut):
        results.update(results_named(row.data))
        if row.left_out and row.data and not _is_object(row.data):
            broken.add(row.offset)
            continue
        for value in objects(row.data):
            agents.update(subagents_named(value))
            uuid, where = value.get("uuid"), value.get("cwd")
            if isinstance(where, str) and os.path.isabs(where):
                # Taken out and put in again, so that the directories are in the order of their last use.
                cwds.pop(where, None)
                cwds[where] = None
            if value.get("type") in _CONVERSATION and isinstance(uuid, str) and not value.get("isSidechain"):
                conversation, last_offset, last_uuid = conversation + 1, row.offset, uuid
    return _Scan(
        conversation=conversation,
        last_offset=last_offset,
        last_uuid=last_uuid,
        cwds=tuple(reversed(cwds)),
        results=results,
        agents=agents,
        broken=broken,
    )


def _is_object(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False


def _folder(history: History, scan: _Scan, root: str, cwd: str | os.PathLike[str] | None) -> tuple[str | None, str]:
    """Return a working directory and its project folder.

    A folder's name is made from the directory's path, and several paths give the same name. `claude --resume` looks in
    the folder of the directory in which it is started, so the two must belong together.
    """
    if cwd is not None:
        path = os.path.realpath(os.fspath(cwd))
        return path, folder_of(root, path)
    candidates = [*scan.cwds, *history.cwds]
    transcript = history.last_path
    if transcript is not None and os.path.dirname(os.path.dirname(transcript)) == root:
        folder = os.path.dirname(transcript)
        name = os.path.basename(folder)
        # The session's directory is the newest of its `cwd`s that gives the name of the folder in which the transcript
        # lay. The agent may have changed the directory since.
        own = next((each for each in candidates if folder_name(each) == name), None)
        if own is not None or history.beside is not None or not candidates:
            return own if own is not None or not candidates else candidates[0], folder
    if not candidates:
        return None, os.path.join(root, folder_name(os.path.realpath(os.getcwd())))
    return candidates[0], folder_of(root, candidates[0])


def _fork(history: History, scan: _Scan, directory: str) -> str | None:
    """Let the SDK make the new session beside the transcript; `None` if it cannot, or if it dropped rows."""
    transcript = history.transcript
    if transcript is None or os.path.dirname(transcript) != directory or os.path.getsize(transcript) > _FORK_MOST:
        return None
    if not _sdk_finds(transcript, history.session_id):
        return None
    try:
        from claude_agent_sdk import fork_session
    except ImportError:
        return None
    try:
        made = fork_session(history.session_id, up_to_message_id=scan.last_uuid)
    except Exception as error:  # noqa: BLE001  (for example a TypeError if a row's type is a list)
        log.info("The SDK cannot fork session %s (%s): its rows are copied here", history.session_id, error)
        return None
    path = os.path.join(directory, f"{made.session_id}.jsonl")
    kept = _forked_rows(path)
    if kept == scan.conversation:
        return path
    log.info("The SDK's fork kept %d of %d rows: its rows are copied here", kept, scan.conversation)
    os.unlink(path)
    return None


def _sdk_finds(transcript: str, session_id: str) -> bool:
    """Tell whether the SDK finds this very file: it looks for the name in all folders of the CLI's projects directory.

    With a second file of that name in another folder it might fork that one.
    """
    folder, name = os.path.split(transcript)
    root = os.path.dirname(folder)
    if name != f"{session_id}.jsonl" or [root] != default_projects_dirs():
        return False
    return sum(os.path.exists(os.path.join(root, each, name)) for each in os.listdir(root)) == 1


def _forked_rows(path: str) -> int:
    return sum(b'"uuid"' in row.data for row in rows(file_chunks(path), mark=b'"forkedFrom"'))


def _write(history: History, cut: Cut, scan: _Scan, directory: str) -> str:
    new_id = str(uuid4())
    now = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
    make_directories(directory)

    renaming = Renaming(history.session_id, new_id, now)

    def fill(write: Write) -> None:
        for line in history.lines():
            if cut.offset is not None and line.offset >= cut.offset:
                break
            # The CLI resumes at the newest message by its timestamp, not at the last row of the file.
            newest = scan.last_uuid if line.offset == scan.last_offset else None
            if line.offset not in scan.broken:
                for part in renaming.rows(line, newest):
                    write(part)

    return place(directory, [f"{new_id}.jsonl"], fill)
