"""The last archive of each session, from the manifests in the runs directory.

A directory of archives is listed again when its time changed, a manifest is read again when its own did. An archive
that a `mala.yaml` keeps elsewhere is not seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from mala_context._util.text import utc_seconds
from mala_context.archive import layout, manifests
from mala_context.archive.store import TranscriptArchive
from mala_context.errors import MalaContextError

PAUSE: Final = 2.0
"""Seconds between two looks."""


class LastArchive(NamedTuple):
    """The newest piece of a session's own transcript."""

    time: float
    """When it was written, in seconds since 1970."""
    trigger: str | None
    """What caused it: `auto`, `manual`, `session_end`, …; `None` where the manifest does not say."""
    outcome: str | None
    """How its compaction ended; `None` where there was none, or where the manifest does not say."""


class LatestArchives:
    """Keeps an eye on all repositories' archives below the runs directory.

    Args:
        runs: that directory; `None` for that of the environment, which may have no place for one.
    """

    def __init__(self, runs: str | None = None) -> None:
        try:
            self._runs = layout.runs_dir() if runs is None else runs
        except MalaContextError:
            self._runs = ""
        self._directories: dict[str, int] = {}
        self._where: dict[str, dict[str, None]] = {}
        self._known: dict[tuple[str, str], tuple[tuple[int, int], LastArchive | None]] = {}
        self._last: dict[str, LastArchive | None] = {}
        self._next = 0.0

    def look(self, sessions: Iterable[str | None]) -> bool:
        """Look for new archives of sessions, `PAUSE` seconds after the last look at the earliest.

        Returns whether `last` changed for one of them.
        """
        now = time.monotonic()
        if not self._runs or now < self._next:
            return False
        self._next = now + PAUSE
        try:
            with os.scandir(self._runs) as found:
                directories = [os.path.join(each.path, layout.ARCHIVES) for each in found]
        except OSError:
            return False
        for directory in directories:
            self._list(directory)
        before = self._last
        self._last = {each: self._find(each) for each in sessions if each is not None and each in self._where}
        return self._last != before

    def _list(self, directory: str) -> None:
        try:
            changed = os.stat(directory, follow_symlinks=False).st_mtime_ns
            if self._directories.get(directory) == changed:
                return
            names = os.listdir(directory)
        except OSError:
            return
        self._directories[directory] = changed
        for session_id in {layout.session_of(name) for name in names if name.endswith(".manifest.jsonl")}:
            if session_id is not None:
                self._where.setdefault(session_id, {})[directory] = None

    def last(self, session_id: str | None) -> LastArchive | None:
        """Return a session's last archive, as of the last look; `None` where none is known."""
        return self._last.get(session_id or "")

    def _find(self, session_id: str) -> LastArchive | None:
        found = [self._in(directory, session_id) for directory in self._where[session_id]]
        return max((each for each in found if each is not None), default=None, key=lambda each: each.time)

    def _in(self, directory: str, session_id: str) -> LastArchive | None:
        try:
            status = os.stat(os.path.join(directory, layout.manifest_name(session_id)), follow_symlinks=False)
            stamp = (status.st_size, status.st_mtime_ns)
            known = self._known.get((directory, session_id))
            if known is not None and known[0] == stamp:
                return known[1]
            with TranscriptArchive(directory).view(session_id) as files:
                last = last_of(manifests.parse(files.manifest()))
        except (OSError, MalaContextError):
            return None
        self._known[directory, session_id] = (stamp, last)
        return last


def last_of(manifest: manifests.Manifest) -> LastArchive | None:
    """Return the newest piece of the session's own transcript that a manifest tells of."""
    own = (row for row in manifest.of_kind("piece") if row.get("subagent") is None)
    timed = [(moment, row) for row in own if (moment := utc_seconds(row.get("time"))) is not None]
    if not timed:
        return None
    moment, row = max(timed, key=lambda each: each[0])
    outcomes = {each.get("piece"): each.get("outcome") for each in manifest.of_kind("outcome")}
    return LastArchive(moment, _text(row.get("trigger")), _text(outcomes.get(row.get("name"))))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
