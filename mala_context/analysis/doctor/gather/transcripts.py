"""The CLI's transcripts: which were compacted beyond what any archive holds.

A compaction counts as archived where an archive's pieces of that session reach up to it, or where what lies between
has no answer of the model in it: the newest prompt is written after PreCompact has run. A fork repeats the rows of the
session that it comes from, boundaries too; those are the other session's.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from mala_context.analysis.doctor.facts import Transcripts, Unarchived
from mala_context.analysis.doctor.gather.bounds import fitting, shares
from mala_context.analysis.doctor.gather.settings import config_dir
from mala_context.archive.compactions import compactions
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import ArchiveError
from mala_context.transcripts.compactions import MARKS
from mala_context.transcripts.json_rows import objects
from mala_context.transcripts.rows import Row, file_chunks, rows
from mala_context.transcripts.session_ids import check_session_id

"""What stands in the rows of a compaction."""
_LONGEST_MARK: Final = max(map(len, MARKS))
_FORKED: Final = b'"forkedFrom"'
_ANSWER: Final = b'"type":"assistant"'
MOST_FILES: Final = 100_000
"""Transcripts whose times are looked at, to tell which are the newest."""
MOST_SEARCHED: Final = 10_000
"""Transcripts that are searched, the newest."""
_OPENING: Final = 50
"""Rows at a transcript's start among which its working directory must be named."""


@dataclass(frozen=True)
class Candidates:
    """The CLI's main transcripts, those that were written to last first."""

    newest: Mapping[str, os.stat_result]
    """Of those that were looked at."""
    left: int = 0
    """Names in folders with very many of them that were not looked at."""


def candidates(env: Mapping[str, str], found: Callable[[int], object] = lambda _: None) -> Candidates:
    """Look for main transcripts in the CLI's project folders; `found` is told the files that were looked at."""
    user = config_dir(env)
    folders = _directories(os.path.join(user, "projects")) if user is not None else []
    names = [[name for name in _names(folder) if name.endswith(".jsonl")] for folder in folders]
    counts = [len(each) for each in names]
    given = shares(counts, MOST_FILES)
    known: list[tuple[str, os.stat_result]] = []
    for folder, each, share in zip(folders, names, given, strict=True):
        for name in each[:share]:
            path = os.path.join(folder, name)
            status = _status(path)
            if status is not None and stat.S_ISREG(status.st_mode):
                known.append((path, status))
        found(share)
    known.sort(key=lambda each: (-each[1].st_mtime_ns, each[0]))
    return Candidates(dict(known), sum(counts) - sum(given))


def _directories(path: str) -> list[str]:
    return [each for name in _names(path) if os.path.isdir(each := os.path.join(path, name))]


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


@dataclass
class _Folder:
    """What was found in one project folder."""

    cwd: str | None = None
    transcripts: list[str] = field(default_factory=list)
    compactions: int = 0
    known: bool = True


def transcripts(
    found: Candidates,
    directories: Sequence[str],
    progress: Callable[[int], object],
    most_bytes: int,
) -> Transcripts:
    """Search transcripts for compactions that are not archived, in their order until so many bytes were read."""
    chosen = list(within(found, most_bytes))
    compacted = {}
    for path in chosen:
        if places := _compactions(path):
            compacted[path] = places
        progress(found.newest[path].st_size)
    ids = {session_id for path in compacted if (session_id := _session_id(path)) is not None}
    archives = [TranscriptArchive(each).listed(ids) for each in directories]
    folders: dict[str, _Folder] = {}
    for path, places in compacted.items():
        missing, known = _missing(path, places, archives)
        if missing:
            folder = folders.setdefault(os.path.dirname(path), _Folder(cwd=_cwd(path)))
            folder.transcripts.append(path)
            folder.compactions += missing
            folder.known = folder.known and known
    listed = (
        Unarchived(path, each.cwd, tuple(each.transcripts), each.compactions, each.known)
        for path, each in folders.items()
    )
    return Transcripts(len(found.newest) + found.left, len(chosen), tuple(listed), found.left)


def within(found: Candidates, most_bytes: int) -> Iterator[str]:
    """Return the transcripts that are searched: the newest, until there are so many bytes or `MOST_SEARCHED`."""
    newest = itertools.islice(found.newest, MOST_SEARCHED)
    return fitting(newest, lambda path: found.newest[path].st_size, most_bytes)


def _compactions(path: str) -> list[int]:
    """Return where the compactions of a transcript are; none where it cannot be read."""
    try:
        return [each.offset for each in compactions(_own_rows(path))] if _has_marks(path) else []
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


def _has_marks(path: str) -> bool:
    """Tell whether a file has the words of a compaction anywhere, quicker than by its rows."""
    rest = b""
    for chunk in file_chunks(path):
        data = rest + chunk
        if any(mark in data for mark in MARKS):
            return True
        rest = chunk[-_LONGEST_MARK:]
    return False


def _own_rows(path: str) -> Iterator[Row]:
    return (row for row in rows(file_chunks(path)) if _FORKED not in row.data)


def _session_id(path: str) -> str | None:
    """Return the session whose transcript a path is by its name; `None` for a name that no session has."""
    try:
        return check_session_id(os.path.splitext(os.path.basename(path))[0])
    except ArchiveError:
        return None


def _archived(session_id: str | None, archives: Sequence[TranscriptArchive]) -> int | None:
    """Return up to which byte a session is archived anywhere; `None` where nobody knows it."""
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
    """Return the working directory that a transcript's first rows name, if it is still there."""
    for number, row in enumerate(rows(file_chunks(path))):
        if number >= _OPENING:
            break
        for value in objects(row.data):
            cwd = value.get("cwd")
            if isinstance(cwd, str) and os.path.isdir(cwd):
                return cwd
    return None
