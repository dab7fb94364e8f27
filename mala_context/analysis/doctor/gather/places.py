"""Where archives and transcripts lie: the runs directory, Claude Code's own, and who may read what is in them."""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Mapping
from typing import Final

from mala_context.analysis.doctor.facts import ClaudeDirectory, PathMode, ReadableFiles, RunsDirectory
from mala_context.archive import layout
from mala_context.archive.layout import known_archives
from mala_context.errors import ArchiveUnavailableError
from mala_context.transcripts.projects import config_dir

MOST_FILES: Final = 20_000
"""Files whose permissions are looked at below one place, those nearest to it first; directories count too."""
MOST_IN_ONE: Final = 2_000
"""The same in one directory, so that a large one does not keep the others from being looked at."""


def known(env: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return repository and directory of each archive in the runs directory; none where it cannot be read."""
    try:
        return list(known_archives(env))
    except (ArchiveUnavailableError, OSError):
        return []


def runs(env: Mapping[str, str]) -> RunsDirectory:
    """Return what is known of the runs directory."""
    us = os.geteuid() if hasattr(os, "geteuid") else 0
    try:
        path = layout.runs_dir(env)
    except ArchiveUnavailableError as error:
        return RunsDirectory(None, error=str(error), us=us)
    if os.path.lexists(path) and not os.path.isdir(path):
        return RunsDirectory(path, error="it is no directory", us=us)
    archives = known(env)
    ours = [path, *(each for _, directory in archives for each in (os.path.dirname(directory), directory))]
    modes = (_mode(each) for each in ours)
    private = tuple(each for each in modes if each is not None and each.directory)
    return RunsDirectory(path, _unusable(path), us, private, len(archives))


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
    """Return why files cannot be kept in a directory, `None` where they can; it need not exist yet."""
    ground = nearest(path)
    if not os.path.isdir(ground):
        return f"{ground} is no directory"
    if not os.access(ground, os.W_OK | os.X_OK):
        return f"{ground} cannot be written to"
    return None if ground != path or os.access(path, os.R_OK) else f"{path} cannot be read"


def nearest(path: str) -> str:
    """Return the path, or the nearest place above it that exists."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _mode(path: str) -> PathMode | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    kind = stat.S_IFMT(status.st_mode)
    return PathMode(path, stat.S_IMODE(status.st_mode), status.st_uid, kind == stat.S_IFDIR, kind == stat.S_IFREG)


# -- who may read ---------------------------------------------------------------------------------------------------


def readable(env: Mapping[str, str]) -> tuple[ReadableFiles, ...]:
    """Return, by place, the files with transcripts' text that others can read.

    Each file of the runs directory must be private itself. The CLI's own files count as private where one of the
    CLI's own directories above them shuts others out. Directories above those do not count: a user may open them.
    """
    places = []
    user = config_dir(env)
    if user is not None:
        places.append(_open_to_others(os.path.join(user, "projects"), by_directories=True))
    with contextlib.suppress(ArchiveUnavailableError):
        places.append(_open_to_others(layout.runs_dir(env), by_directories=False))
    return tuple(places)


def _open_to_others(root: str, *, by_directories: bool) -> ReadableFiles:
    """Find the files below a directory that the group or others can read and reach."""
    waiting = deque([(root, 0o077)])
    left, looked, is_part = MOST_FILES, 0, False
    found: list[PathMode] = []
    while waiting and left > 0:
        directory, reachable = waiting.popleft()
        here = _mode(directory)
        if here is None or not here.directory:
            continue
        if by_directories:  # who may not enter the directory cannot reach what is in it
            reachable &= (here.mode & 0o011) * 7
        if not reachable:
            continue
        folders, files = _contents(directory)
        waiting += [(each, reachable) for each in folders]
        shown = files[: max(0, min(left - 1, MOST_IN_ONE))]
        left, looked, is_part = left - 1 - len(shown), looked + len(shown), is_part or len(shown) < len(files)
        modes = (_mode(each) for each in shown)
        found += [each for each in modes if each is not None and each.regular and each.mode & reachable & 0o044]
    return ReadableFiles(root, tuple(found), looked, complete=not is_part and not waiting)


def _contents(directory: str) -> tuple[list[str], list[str]]:
    """Return the directories in a directory, and the other files; none where we may not list it."""
    folders: list[str] = []
    files: list[str] = []
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for each in entries:
            if each.is_dir(follow_symlinks=False):
                folders.append(each.path)
            elif each.name != layout.REPO_MARKER:
                files.append(each.path)
    return sorted(folders), sorted(files)
