"""The CLI's transcripts: which compactions no archive covers, which models are in use, what fills the contexts.

A compaction counts as archived where an archive's pieces of that session reach up to it, or where the model answered
nothing between the last piece and the compaction: the newest prompt is written after PreCompact has run. A fork repeats
the rows of the session that it comes from, boundaries included; those belong to the other session.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mala_context._util.safe_open import open_regular
from mala_context.analysis.context_maps import MapReader
from mala_context.analysis.doctor.facts import ContextMaps, SettingsFile, TranscriptFacts, UnarchivedProject
from mala_context.analysis.replay.files import Recording
from mala_context.archive.compactions import compactions
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError
from mala_context.tracking.context_map import GROUPS
from mala_context.transcripts.compactions import may_hold
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.projects import config_dir, entries
from mala_context.transcripts.rows import Row, file_chunks, rows
from mala_context.transcripts.session_ids import check_session_id

MOST_FILES: Final = 2_000
"""Transcripts that are searched, the newest."""
WITH_MODELS: Final = 50
"""Transcripts that are searched for models, the newest."""
_FORKED: Final = b'"forkedFrom"'
_ANSWER: Final = b'"type":"assistant"'
_OPENING: Final = 50
"""Rows at a transcript's start among which its working directory must be named."""
WITH_MAPS: Final = 5
"""Transcripts of which it is read what fills the context, the newest."""
_LARGEST_MAPPED: Final = 20 << 20
"""Bytes of a transcript that is read for that; a larger one is left out."""
_TAIL: Final = 256 * 1024
"""Bytes at a transcript's end that are searched for models."""


@dataclass(frozen=True)
class NewestTranscripts:
    """The CLI's main transcripts."""

    sizes: Mapping[str, int]
    """Path → bytes, the one that was written to last first; at most `MOST_FILES`."""
    count: int = 0
    """All that exist."""

    @property
    def paths(self) -> Sequence[str]:
        """The paths, in that order."""
        return list(self.sizes)


def newest(env: Mapping[str, str]) -> NewestTranscripts:
    """Return the newest main transcripts in the CLI's project folders."""
    user = config_dir(env)
    found = [] if user is None else list(_transcripts(os.path.join(user, "projects")))
    latest = heapq.nlargest(MOST_FILES, found)
    return NewestTranscripts({path: size for _, path, size in latest}, len(found))


def _transcripts(projects: str) -> Iterator[tuple[int, str, int]]:
    """Yield time, path and size of each main transcript."""
    for folder in entries(projects):
        for each in entries(folder.path):
            if each.name.endswith(".jsonl") and each.is_file(follow_symlinks=False):
                try:
                    status = each.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield status.st_mtime_ns, each.path, status.st_size


# -- compactions ----------------------------------------------------------------------------------------------------


def transcripts(
    found: NewestTranscripts, directories: Sequence[str], progress: Callable[[int], object], most_bytes: int
) -> TranscriptFacts:
    """Search transcripts for compactions that are not archived, in their order until `most_bytes` were read."""
    searched, compacted = 0, {}
    for path, size in found.sizes.items():
        most_bytes -= size
        if most_bytes < 0:
            break
        searched += 1
        if places := _compactions(path):
            compacted[path] = places
        progress(size)
    ids = {session_id for path in compacted if (session_id := _session_id(path)) is not None}
    archives = [TranscriptArchive(each).listed(ids) for each in directories]
    folders: dict[str, list[tuple[str, int, bool]]] = {}
    for path, places in compacted.items():
        missing, known = _missing(path, places, archives)
        if missing:
            folders.setdefault(os.path.dirname(path), []).append((path, missing, known))
    projects = (
        UnarchivedProject(
            folder,
            _cwd(each[0][0]),
            tuple(path for path, _, _ in each),
            sum(missing for _, missing, _ in each),
            all(known for _, _, known in each),
        )
        for folder, each in folders.items()
    )
    return TranscriptFacts(found.count, searched, tuple(projects))


def _compactions(path: str) -> list[int]:
    """Return where the compactions of a transcript are; none where it cannot be read."""
    try:
        return [each.offset for each in compactions(_own_rows(path))] if may_hold(file_chunks(path)) else []
    except OSError:
        return []


def _missing(path: str, found: Sequence[int], archives: Sequence[TranscriptArchive]) -> tuple[int, bool]:
    """Return how many compactions of a transcript no archive covers, and whether an archive knows the session."""
    end = _archived(_session_id(path), archives)
    try:
        missing = sum(offset > (end or 0) and _answers_between(path, end or 0, offset) for offset in found)
    except OSError:
        return 0, False
    return missing, end is not None


def _own_rows(path: str) -> Iterator[Row]:
    return (row for row in rows(file_chunks(path)) if _FORKED not in row.data)


def _session_id(path: str) -> str | None:
    """Return the session whose transcript a path names; `None` for a name that no session has."""
    try:
        return check_session_id(os.path.splitext(os.path.basename(path))[0])
    except ArchiveError:
        return None


def _archived(session_id: str | None, archives: Sequence[TranscriptArchive]) -> int | None:
    """Return up to which byte a session is archived anywhere; `None` where no archive has it."""
    if session_id is None:
        return None
    ends: list[int] = []
    for archive in archives:
        try:
            pieces = archive.pieces(session_id)
        except (ArchiveError, OSError):
            continue
        ends += [each.end or 0 for each in pieces if each.subagent is None]
    return max(ends) if ends else None


def _answers_between(path: str, start: int, end: int) -> bool:
    """Tell whether the model answered between two places of a transcript."""
    for row in _own_rows(path):
        if row.offset >= end:
            return False
        if row.offset >= start and _ANSWER in row.data.replace(b": ", b":"):
            return True
    return False


def _cwd(path: str) -> str | None:
    """Return the working directory that a transcript's first rows name, if it still exists."""
    for row in itertools.islice(rows(file_chunks(path)), _OPENING):
        for value in objects(row.data):
            cwd = value.get("cwd")
            if isinstance(cwd, str) and os.path.isdir(cwd):
                return cwd
    return None


# -- models ---------------------------------------------------------------------------------------------------------


def models(paths: Sequence[str], settings: Sequence[SettingsFile], env: Mapping[str, str]) -> dict[str, str]:
    """Return each model that settings, the environment or a transcript's end names, with the first place of it."""
    seen: dict[str, str] = {}
    for each in settings:
        model = each.values.get("model")
        if isinstance(model, str) and model:
            seen.setdefault(model, each.path)
    if env.get("ANTHROPIC_MODEL"):
        seen.setdefault(env["ANTHROPIC_MODEL"], "$ANTHROPIC_MODEL")
    for path in paths[:WITH_MODELS]:
        for model in _answering(path):
            seen.setdefault(model, path)
    return seen


def _answering(path: str) -> Iterator[str]:
    """Yield the models that answered at the end of a transcript; nothing where it cannot be read."""
    try:
        descriptor = open_regular(path)
    except OSError:
        return
    with os.fdopen(descriptor, "rb") as file:
        start = max(0, os.fstat(descriptor).st_size - _TAIL)
        file.seek(start)
        lines = file.read(_TAIL).split(b"\n")
    for line in lines[1:] if start else lines:
        for row in objects(line) if b"assistant" in line else ():
            message = row.get("message")
            model = message.get("model") if row.get("type") == "assistant" and isinstance(message, dict) else None
            if isinstance(model, str) and model:
                yield model


# -- what fills their contexts --------------------------------------------------------------------------------------


def maps(found: NewestTranscripts) -> ContextMaps:
    """Return the memory files of the newest transcripts, and the MCP servers that no agent calls in them.

    A transcript that cannot be read tells nothing.
    """
    read = 0
    memory, servers, called = dict[str, float](), dict[str, int](), set[str]()
    small = ((path, size) for path, size in found.sizes.items() if size <= _LARGEST_MAPPED)
    for path, size in itertools.islice(small, WITH_MAPS):
        each = MapReader(Recording(path, (path,), size)).read()
        read += each.snapshot.tokens is not None
        called |= each.servers_called
        for part in each.snapshot.parts:
            if part.group == "memory" and part.path is not None:
                memory[part.path] = max(memory.get(part.path, 0.0), part.tokens / max(1, each.snapshot.window))
            elif part.group == "mcp" and part.name != GROUPS["mcp"]:  # announcements name no server
                servers.setdefault(part.name, part.tokens)
    return ContextMaps(read, memory, {name: size for name, size in servers.items() if name not in called})
