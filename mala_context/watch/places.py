"""Which transcripts are there, and which of them changed: by asking for the status of files and directories.

A directory's time says that a name in it is new or gone, so directories are listed only then. Asking costs about two
microseconds a path. What was written to lately, what is shown and the folders are asked for at every look; of all
others a share in turn, so that thousands of old transcripts cost no more than sixty, and one that is taken up
again is noticed a little later.

The CLI keeps `{project}/{session}.jsonl`, and subagents in `{project}/{session}/subagents/agent-{id}.jsonl`; older
ones put `agent-{id}.jsonl` beside the sessions. Links are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

HOT: Final = 120.0
"""Seconds after the last write during which a transcript is asked for at every look."""
FOLDER_HOT: Final = 86_400.0
"""The same for a project's folder: after a day without a new session it is asked for in turn."""
SHARE: Final = 64
"""Other paths that are asked for at one look."""
_ORDER: Final = 5.0
_UNSETTLED: Final = 100_000_000
_NEVER: Final = (0, 0, 0)


class Found(NamedTuple):
    """A transcript that is there."""

    path: str
    modified: float
    """When it was written to last, in seconds since 1970."""


class _Path:
    """A path that is asked for: a directory or a transcript."""

    __slots__ = ("changed", "depth", "path", "stamp")

    def __init__(self, path: str, depth: int) -> None:
        self.path = path
        self.depth = depth
        """0: projects directory, 1: project's folder, 2: a session's `subagents`, 3: a transcript."""
        self.stamp = _NEVER
        self.changed = 0.0


class Places:
    """Looks after the transcripts in projects directories, or after those that are named.

    Args:
        projects: directories of project folders; each may still be missing.
        only: transcripts to look after instead, with their subagents.
    """

    def __init__(self, projects: Iterable[str] = (), only: Iterable[str] = ()) -> None:
        self._paths: dict[str, _Path] = {}
        self._hot: list[_Path] = []
        self._cold: list[_Path] = []
        self._next = 0
        self._ordered = -_ORDER
        self.shown: set[str] = set()
        """Transcripts that are asked for at every look, whatever their age."""
        for path in projects:
            self._add(path, 0)
        for path in only:
            self._add(path, 3)
            self._add_subagents(path)

    def look(self) -> tuple[list[Found], list[str]]:
        """Return the transcripts that are new or changed since the last look, and those that are gone. Never raises."""
        changed: list[Found] = []
        gone: list[str] = []
        now = time.monotonic()
        if now - self._ordered >= _ORDER:
            self._order(now)
        share = self._cold[self._next : self._next + SHARE]
        self._next = self._next + SHARE if self._next + SHARE < len(self._cold) else 0
        pending = self._hot + share
        while pending:
            new: list[_Path] = []
            for each in pending:
                self._ask(each, changed, gone, new)
            pending = new
        return changed, gone

    def _order(self, now: float) -> None:
        """Part the paths into those that are asked for always and those in turn."""
        clock = time.time()
        since = (0.0, clock - FOLDER_HOT, clock - HOT, clock - HOT)
        self._hot, self._cold = [], []
        for each in self._paths.values():
            hot = each.depth == 0 or each.changed > since[each.depth] or each.path in self.shown
            (self._hot if hot else self._cold).append(each)
        self._ordered = now

    def _ask(self, each: _Path, changed: list[Found], gone: list[str], new: list[_Path]) -> None:
        try:
            status = os.stat(each.path, follow_symlinks=each.depth == 0)
        except (OSError, ValueError):
            if each.stamp != _NEVER and each.depth == 3:
                gone.append(each.path)
            each.stamp = _NEVER
            return
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp == each.stamp:
            return
        each.stamp, each.changed = stamp, status.st_mtime
        if each.depth == 3:
            if stat.S_ISREG(status.st_mode):
                changed.append(Found(each.path, status.st_mtime))
        elif stat.S_ISDIR(status.st_mode):
            if time.time_ns() - status.st_mtime_ns < _UNSETTLED:
                each.stamp = _NEVER  # the clock of directories is coarse: what comes now may leave the same time
            self._list(each, new)

    def _list(self, directory: _Path, new: list[_Path]) -> None:
        try:
            with os.scandir(directory.path) as found:
                entries = [(each.path, each.name, each.is_dir(follow_symlinks=False)) for each in found]
        except OSError:
            directory.stamp = _NEVER
            return
        known = self._paths
        for path, name, is_directory in entries:
            if path not in known and directory.depth == 0 and is_directory:
                new.append(self._add(path, 1))
            elif path not in known and directory.depth > 0 and not is_directory and name.endswith(".jsonl"):
                if directory.depth == 1 or name.startswith("agent-"):
                    new.append(self._add(path, 3))
            elif directory.depth == 1 and is_directory:
                subagents = os.path.join(path, "subagents")
                if subagents not in known:
                    new.append(self._add(subagents, 2))

    def _add_subagents(self, path: str) -> None:
        self._add(os.path.join(os.path.splitext(path)[0], "subagents"), 2)

    def _add(self, path: str, depth: int) -> _Path:
        each = self._paths[path] = _Path(path, depth)
        self._hot.append(each)
        each.changed = time.time()
        return each


def session_of(path: str) -> str | None:
    """Return the session's id that a transcript's path says; `None` for a subagent's beside the sessions."""
    folder, name = os.path.split(path)
    if not name.startswith("agent-"):
        return os.path.splitext(name)[0]
    if os.path.basename(folder) == "subagents":
        return os.path.basename(os.path.dirname(folder))
    return None


def agent_of(path: str) -> str | None:
    """Return the id of the subagent whose transcript a path names; `None` for a session's own."""
    name = os.path.splitext(os.path.basename(path))[0]
    return name[len("agent-") :] if name.startswith("agent-") else None
