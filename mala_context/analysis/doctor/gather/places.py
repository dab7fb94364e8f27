"""Where archives lie: the runs directory, modes and owners in it, and room on its disk."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mala_context.analysis.doctor.facts import ClaudeDirectory, Entry, Readable, Runs, Space
from mala_context.analysis.doctor.gather.bounds import shares
from mala_context.analysis.doctor.gather.settings import config_dir
from mala_context.archive import layout
from mala_context.archive.all_archives import known_archives
from mala_context.config import ContextConfig, names_object_store
from mala_context.errors import ArchiveError, ArchiveUnavailableError

if TYPE_CHECKING:
    from mala_context.analysis.doctor.gather.archives import Archive
    from mala_context.archive.records import Piece
    from mala_context.archive.store import TranscriptArchive

SPAN_DAYS: Final = 30
"""Days over which the growth of archives is taken."""
MOST_DIRECTORIES: Final = 20_000
"""Directories that are listed below one place, those nearest to it first."""
MOST_FILES: Final = 20_000
"""Files whose permissions are looked at below one place."""
_BETWEEN_WORDS: Final = 1_000
MOST_SESSIONS: Final = 2_000
"""Manifests that are read for the growth, the newest first."""


def known(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return repository and directory of each archive in the runs directory; none where it cannot be read."""
    try:
        return list(known_archives(env))
    except (ArchiveUnavailableError, OSError):
        return []


def archive_directories(repo: str, config: ContextConfig, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the directories of all archives: those of the runs directory, and the one that `mala.yaml` names."""
    found = [directory for _, directory in known(env)]
    named = config.archive.directory
    if named is not None and not names_object_store(named):
        own = os.path.abspath(os.path.join(repo, os.path.expanduser(named)))
        found += [own] if os.path.isdir(own) and own not in found else []
    return tuple(found)


def runs(env: Mapping[str, str]) -> Runs:
    """Return what there is to say of the runs directory."""
    us = os.geteuid() if hasattr(os, "geteuid") else 0
    try:
        path = layout.runs_dir(env)
    except ArchiveUnavailableError as error:
        return Runs(None, error=str(error), us=us)
    if os.path.lexists(path) and not os.path.isdir(path):
        return Runs(path, error="it is no directory", us=us)
    return Runs(path, _unusable(path), us, tuple(_private_directories(path, env)), len(known(env)))


def claude(env: Mapping[str, str]) -> ClaudeDirectory:
    """Return where Claude Code keeps its files, and why it cannot where it cannot."""
    named = env.get("CLAUDE_CONFIG_DIR", "")
    variable = "CLAUDE_CONFIG_DIR" if named else "HOME"
    if named and not os.path.isabs(named):
        return ClaudeDirectory(named, f"{named!r} is a relative path, so each directory has its own", variable)
    path = config_dir(env)
    if path is None:
        home = env.get("HOME")
        return ClaudeDirectory(home, "it is not set" if home is None else f"{home!r} is no home directory")
    projects = os.path.join(path, "projects")
    error = next((wrong for each in (path, projects) if (wrong := _unusable(each)) is not None), None)
    return ClaudeDirectory(path, error, variable, os.path.isdir(projects))


def _unusable(path: str) -> str | None:
    """Return why files cannot be kept in a directory, `None` where they can: it need not be there yet."""
    ground = _nearest(path)
    if not os.path.isdir(ground):
        return f"{ground} is no directory"
    if not os.access(ground, os.W_OK | os.X_OK):
        return f"{ground} cannot be written to"
    return None if ground != path or os.access(path, os.R_OK) else f"{path} cannot be read"


def _nearest(path: str) -> str:
    """Return the path, or the nearest place above it that is there."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _private_directories(path: str, env: Mapping[str, str]) -> Iterator[Entry]:
    each = [path]
    for _, directory in known(env):
        each += [os.path.dirname(directory), directory]
    for directory in each:
        entry = _entry(directory)
        if entry is not None and entry.directory:
            yield entry


def _entry(path: str) -> Entry | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    kind = stat.S_IFMT(status.st_mode)
    return Entry(path, stat.S_IMODE(status.st_mode), status.st_uid, kind == stat.S_IFDIR, kind == stat.S_IFREG)


def readable(env: Mapping[str, str], found: Callable[[int], object] = lambda _: None) -> tuple[Readable, ...]:
    """Return, by place, the files with transcripts' text that others can read; `found` is told how many were passed.

    Each file of the runs directory must be private itself. The CLI's own files count as private where a directory
    among those that the CLI makes keeps others out; what lies above does not count, for it is easily opened one day.
    """
    places = []
    user = config_dir(env)
    if user is not None:
        places.append(_open_to_others(os.path.join(user, "projects"), found, by_directories=True))
    with contextlib.suppress(ArchiveUnavailableError):
        places.append(_open_to_others(layout.runs_dir(env), found, by_directories=False))
    return tuple(places)


def _open_to_others(root: str, found: Callable[[int], object], *, by_directories: bool) -> Readable:
    """Find the files below a directory that the group or others can read, and come to; of very many, look at some."""
    waiting = deque([(root, 0o077)])
    found_in: list[tuple[str, int, _Files]] = []
    walked = 0
    while waiting and walked < MOST_DIRECTORIES:
        directory, coming = waiting.popleft()
        here = _entry(directory)
        if here is None or not here.directory:
            continue
        if by_directories:
            coming &= (here.mode & 0o011) * 7
        if coming:
            walked += 1
            files = _Files(directory, found)
            waiting += [(os.path.join(directory, each), coming) for each in sorted(files.directories)]
            found_in.append((directory, coming, files))
    given = shares([files.count for _, _, files in found_in], MOST_FILES)
    entries: list[Entry] = []
    for (directory, coming, files), share in zip(found_in, given, strict=True):
        looked = (_entry(os.path.join(directory, name)) for name in files.names[:share])
        entries += (each for each in looked if each is not None and each.regular and each.mode & coming & 0o044)
    left = sum(files.count for _, _, files in found_in) - sum(given) + len(waiting)
    return Readable(root, tuple(entries), sum(given), left)


class _Files:
    """What there is in a directory: all directories, and the names of other files as far as any is looked at."""

    def __init__(self, directory: str, found: Callable[[int], object]) -> None:
        self.directories: list[str] = []
        self.names: list[str] = []
        self.count = 0
        with contextlib.suppress(OSError):  # gone meanwhile, or not ours to list
            self._list(directory, found)
        self.names.sort()

    def _list(self, directory: str, found: Callable[[int], object]) -> None:
        with os.scandir(directory) as entries:
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    self.directories.append(each.name)
                elif each.name != layout.REPO_MARKER:
                    self.count += 1
                    if self.count <= MOST_FILES:
                        self.names.append(each.name)
                    if self.count % _BETWEEN_WORDS == 0:
                        found(_BETWEEN_WORDS)


def space(env: Mapping[str, str], archives: Sequence[Archive]) -> Space | None:
    """Return the room for archives; `None` where there is no place for them, or where the system does not say."""
    try:
        path = layout.runs_dir(env)
        figures = os.statvfs(_nearest(path))
    except (ArchiveUnavailableError, OSError, AttributeError):
        return None
    return Space(
        path,
        figures.f_bavail * figures.f_frsize,
        sum(each.stored for each in archives),
        _per_day(archives, time.time()),
        any(each.is_part for each in archives),
    )


def _per_day(archives: Sequence[Archive], now: float) -> float:
    """Return the bytes that pieces brought a day in the last days, by the times in the manifests of the newest."""
    sizes: list[tuple[float, int]] = []
    for each in archives:
        for summary in each.newest[:MOST_SESSIONS]:
            for piece in _pieces(each.archive, summary.session_id):
                when = _moment(piece.row.get("time") if piece.row else None)
                if when is not None and 0 <= now - when <= SPAN_DAYS * 86_400:
                    sizes.append((when, piece.stored))
    if not sizes:
        return 0.0
    days = max(1.0, (now - min(when for when, _ in sizes)) / 86_400)
    return sum(size for _, size in sizes) / days


def _pieces(archive: TranscriptArchive, session_id: str) -> Sequence[Piece]:
    """Return a session's pieces, none where it cannot be read: `verify` says so."""
    try:
        return archive.pieces(session_id)
    except (ArchiveError, OSError):
        return ()


def _moment(text: object) -> float | None:
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
