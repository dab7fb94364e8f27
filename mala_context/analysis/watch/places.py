"""Which transcripts are there, and which of them changed: by asking for the status of files and directories.

A directory's time says that a name in it is new or gone, so directories are listed only then, and one that takes long
no more often than lets listing take a fiftieth of the time. Asking costs a few microseconds a path. What was written
to lately, what is shown and the folders are asked for at every look; of all others a share in turn, so that a hundred
thousand old transcripts cost little more than sixty, and one that is taken up again is noticed a little later. A look
ends after `PATIENCE`; what is left over waits for the next one, and `looking` says so.

The CLI keeps `{project}/{session}.jsonl`, and subagents in `{project}/{session}/subagents/agent-{id}.jsonl`; older
ones put `agent-{id}.jsonl` beside the sessions. Links are not followed.
"""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

HOT: Final = 120.0
"""Seconds after the last write during which a transcript is asked for at every look."""
FOLDER_HOT: Final = 86_400.0
"""The same for a project's folder: after a day without a new session it is asked for in turn."""
SHARE: Final = 64
"""Other paths that are asked for at one look, at least; of very many four times as many."""
PATIENCE: Final = 0.1
"""Seconds after which a look is over, whatever is left to ask for."""
LISTING: Final = 50
"""A directory is not listed again before so many times as long as it took have passed."""
QUICK: Final = 0.005
"""Seconds of a listing that is no matter."""
_ORDER: Final = 5.0
_UNSETTLED: Final = 100_000_000
_NEVER: Final = 0
_STRIDE: Final = 256


class Found(NamedTuple):
    """A transcript that is there."""

    path: str
    modified: float
    """When it was written to last, in seconds since 1970."""


class _Path:
    """A path that is asked for: a directory or a transcript."""

    __slots__ = ("again", "changed", "depth", "is_cold", "path", "stamp")

    def __init__(self, path: str, depth: int) -> None:
        self.path = path
        self.depth = depth
        """0: projects directory, 1: project's folder, 2: a session's `subagents`, 3: a transcript."""
        self.stamp = _NEVER
        """Hash of inode, size and time."""
        self.changed = 0.0
        self.again = 0.0
        """When a directory may be listed again."""
        self.is_cold = False
        """Whether it is among those that are asked for in turn."""


class Places:
    """Looks after the transcripts in projects directories, or after those that are named.

    Args:
        projects: directories of project folders; each may still be missing.
        only: transcripts to look after instead, with their subagents.
    """

    def __init__(self, projects: Iterable[str] = (), only: Iterable[str] = ()) -> None:
        self._paths: dict[str, _Path] = {}
        self._hot: dict[str, _Path] = {}
        self._cold: list[_Path] = []
        self._pending: deque[_Path] = deque()
        self._listings: deque[Iterator[_Path]] = deque()
        self._next = 0
        self._ordered = -_ORDER
        self.shown: set[str] = set()
        """Transcripts that are asked for at every look, whatever their age."""
        for path in projects:
            self._add(path, 0)
        for path in only:
            self._add(path, 3)
            self._add_subagents(path)

    @property
    def looking(self) -> bool:
        """Whether the last look did not come to its end: look again without waiting."""
        return bool(self._pending or self._listings)

    @property
    def known(self) -> int:
        """How many paths are known so far."""
        return len(self._paths)

    def look(self) -> tuple[list[Found], list[str]]:
        """Return the transcripts that are new or changed since the last look, and those that are gone. Never raises."""
        changed: list[Found] = []
        gone: list[str] = []
        now = time.monotonic()
        if not self.looking:
            if now - self._ordered >= _ORDER:
                self._order(now)
            self._pending.extend(self._hot.values())
            self._pending.extend(self._in_turn())
        for count, each in enumerate(self._to_ask(), 1):
            self._ask(each, changed, gone)
            if count % _STRIDE == 0 and time.monotonic() > now + PATIENCE:
                break
        return changed, gone

    def _to_ask(self) -> Iterator[_Path]:
        while True:
            if self._pending:
                yield self._pending.popleft()
            elif self._listings:
                new = next(self._listings[0], None)
                if new is None:
                    self._listings.popleft()
                else:
                    yield new
            else:
                return

    def _in_turn(self) -> list[_Path]:
        size = min(max(SHARE, len(self._cold) // 1000), 4 * SHARE)
        share = self._cold[self._next : self._next + size]
        self._next = self._next + size if self._next + size < len(self._cold) else 0
        return share

    def _order(self, now: float) -> None:
        """Have those that were not written to for long asked for in turn; those that are shown always."""
        clock = time.time()
        since = (0.0, clock - FOLDER_HOT, clock - HOT, clock - HOT)
        for each in list(self._hot.values()):
            if each.depth and each.changed <= since[each.depth] and each.path not in self.shown:
                del self._hot[each.path]
                if not each.is_cold:
                    each.is_cold = True
                    self._cold.append(each)
        for path in self.shown:
            if path in self._paths:
                self._hot[path] = self._paths[path]
        self._ordered = now

    def _ask(self, each: _Path, changed: list[Found], gone: list[str]) -> None:
        try:
            status = os.stat(each.path, follow_symlinks=each.depth == 0)
        except (OSError, ValueError):
            if each.stamp != _NEVER and each.depth == 3:
                gone.append(each.path)
            each.stamp = _NEVER
            return
        stamp = hash((status.st_ino, status.st_size, status.st_mtime_ns)) or 1
        if stamp == each.stamp:
            return
        if each.depth < 3 and time.monotonic() < each.again:
            return
        each.stamp, each.changed = stamp, status.st_mtime
        self._hot[each.path] = each
        if each.depth == 3:
            if stat.S_ISREG(status.st_mode):
                changed.append(Found(each.path, status.st_mtime))
        elif stat.S_ISDIR(status.st_mode):
            if time.time_ns() - status.st_mtime_ns < _UNSETTLED:
                each.stamp = _NEVER  # the clock of directories is coarse: what comes now may leave the same time
            self._listings.append(self._list(each))

    def _list(self, directory: _Path) -> Iterator[_Path]:
        """Yield what is new in a directory."""
        known, spent, began = self._paths, 0.0, time.monotonic()
        try:
            with os.scandir(directory.path) as found:
                for each in found:
                    path, depth = self._place(directory, each)
                    if depth and path not in known:
                        spent += time.monotonic() - began
                        yield self._add(path, depth)
                        began = time.monotonic()
        except OSError:
            directory.stamp = _NEVER
        spent += time.monotonic() - began
        directory.again = time.monotonic() + LISTING * spent if spent > QUICK else 0.0

    def _place(self, directory: _Path, entry: os.DirEntry[str]) -> tuple[str, int]:
        """Return the path that an entry makes known, and its depth; depth 0 for none."""
        name = entry.name
        if directory.depth == 0:
            return entry.path, int(entry.is_dir(follow_symlinks=False))
        if name.endswith(".jsonl") and not entry.is_dir(follow_symlinks=False):
            return entry.path, 3 if directory.depth == 1 or name.startswith("agent-") else 0
        if directory.depth == 1 and entry.is_dir(follow_symlinks=False):
            return os.path.join(entry.path, "subagents"), 2
        return "", 0

    def _add_subagents(self, path: str) -> None:
        self._add(os.path.join(os.path.splitext(path)[0], "subagents"), 2)

    def _add(self, path: str, depth: int) -> _Path:
        each = self._paths[path] = _Path(path, depth)
        self._hot[path] = each
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
