"""Find which transcripts exist and which of them changed, by the status of files and directories.

There are two kinds of looks. A quick look checks the transcripts that are followed, which takes a few microseconds
each. A full look walks through all directories, to find new transcripts and old ones that are written to again. After a
look, its kind rests `PAUSE` times as long as the look took. So each kind costs at most about 2 % of a core, however
many transcripts there are. A full look is done in steps of `PATIENCE` seconds; until it is done, `looking` is true.

The CLI keeps `{project}/{session}.jsonl`, and subagents in `{project}/{session}/subagents/agent-{id}.jsonl` or deeper
(`subagents/workflows/{run}/`); old CLIs put `agent-{id}.jsonl` beside the sessions. A project's folder may be a link;
links below it are not followed, since an agent may make them.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from mala_context.transcripts.projects import entries

FULL: Final = 2.0
"""Fewest seconds between two full looks."""
PAUSE: Final = 50
"""A look is not repeated before this many times its own duration has passed."""
PATIENCE: Final = 0.1
"""Seconds after which a step of a full look ends."""
_STRIDE: Final = 256
_SUBAGENTS: Final = "subagents"


class ChangedTranscript(NamedTuple):
    """A transcript that is new or was written to."""

    path: str
    modified: float
    """When it was last written to, in seconds since 1970."""


class TranscriptFinder:
    """Looks for transcripts in projects directories, or only at those that are named.

    Args:
        projects: directories of project folders; each may still be missing.
        only: transcripts to look at instead, with their subagents.
    """

    def __init__(self, projects: Iterable[str] = (), only: Iterable[str] = ()) -> None:
        self._projects = tuple(projects)
        self._only = tuple(only)
        self._transcripts: dict[str, int] = {}
        """Path → hash of inode, size and time; 0 while it is gone."""
        self._followed: set[str] = set(self._only)
        self._walk: Iterator[str] | None = None
        self._walked: set[str] = set()
        self._walk_seconds = self._next_walk = self._next_look = 0.0

    @property
    def looking(self) -> bool:
        """Whether a full look is not done yet: look again without waiting."""
        return self._walk is not None

    @property
    def known(self) -> int:
        """How many transcripts are known so far."""
        return len(self._transcripts)

    def follow(self, path: str) -> None:
        """Check a transcript at every look."""
        self._followed.add(path)

    def leave(self, path: str) -> None:
        """Check a transcript at full looks only."""
        self._followed.discard(path)

    def look(self) -> tuple[list[ChangedTranscript], list[str]]:
        """Return the transcripts that are new or changed since the last look, and those that are gone. Never raises."""
        changed: list[ChangedTranscript] = []
        gone: list[str] = []
        begun = time.monotonic()
        if begun >= self._next_look:
            for path in tuple(self._followed):
                self._ask(path, changed, gone)
            now = time.monotonic()
            self._next_look = now + PAUSE * (now - begun)
        if self._walk is None and begun >= self._next_walk:
            self._walk, self._walked, self._walk_seconds = self._everything(), set(), 0.0
        if self._walk is not None:
            self._step(self._walk, changed, gone)
        return changed, gone

    def _step(self, walk: Iterator[str], changed: list[ChangedTranscript], gone: list[str]) -> None:
        begun = time.monotonic()
        for count, path in enumerate(walk, 1):
            self._ask(path, changed, gone)
            if count % _STRIDE == 0 and time.monotonic() > begun + PATIENCE:
                self._walk_seconds += time.monotonic() - begun
                return
        for path in self._transcripts.keys() - self._walked:
            self._ask(path, changed, gone)  # not among the names any more
        now = time.monotonic()
        self._walk = None
        self._next_walk = now + max(FULL, PAUSE * (self._walk_seconds + now - begun))

    def _ask(self, path: str, changed: list[ChangedTranscript], gone: list[str]) -> None:
        self._walked.add(path)
        try:
            status = os.stat(path, follow_symlinks=False)
        except (OSError, ValueError):
            if self._transcripts.pop(path, 0):
                gone.append(path)
            return
        stamp = hash((status.st_ino, status.st_size, status.st_mtime_ns)) or 1
        if stamp != self._transcripts.get(path) and stat.S_ISREG(status.st_mode):
            self._transcripts[path] = stamp
            changed.append(ChangedTranscript(path, status.st_mtime))

    def _everything(self) -> Iterator[str]:
        for path in self._only:
            yield path
            yield from _agents_below(os.path.join(os.path.splitext(path)[0], _SUBAGENTS))
        for projects in self._projects:
            for folder in (each.path for each in entries(projects) if each.is_dir()):
                for each in entries(folder):
                    if each.name.endswith(".jsonl") and each.is_file(follow_symlinks=False):
                        yield each.path
                    elif each.is_dir(follow_symlinks=False):
                        yield from _agents_below(os.path.join(each.path, _SUBAGENTS))


def _agents_below(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        yield from (os.path.join(folder, name) for name in names if name.startswith("agent-") and name[-6:] == ".jsonl")


def session_of(path: str) -> str | None:
    """Return the session's id that a transcript's path names; `None` for a subagent's beside the sessions."""
    *folders, name = path.split(os.sep)
    if not name.startswith("agent-"):
        return os.path.splitext(name)[0]
    if _SUBAGENTS not in folders:
        return None
    return folders[len(folders) - 2 - folders[::-1].index(_SUBAGENTS)]


def agent_of(path: str) -> str | None:
    """Return the id of the subagent whose transcript a path names; `None` for a session's own."""
    name = os.path.splitext(os.path.basename(path))[0]
    return name[len("agent-") :] if name.startswith("agent-") else None
