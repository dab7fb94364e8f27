"""The sessions of a machine, kept up to date: call `tick` again and again, and ask for `rows`.

A tick takes about `PATIENCE` where much is new: transcripts are read newest first, and the others wait for the next
tick, so that a view begins at once. Only the newest sessions are read, `MOST` by default; in the first seconds none is
read before the times of all are known. Compactions in the part of a huge transcript that is not read for its rows are
counted when nothing else is to be read.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from mala_context.analysis.watch.archived import LatestArchives
from mala_context.analysis.watch.places import ChangedTranscript, TranscriptFinder, agent_of, session_of
from mala_context.analysis.watch.state import TranscriptState, tells_size
from mala_context.analysis.watch.tail import LiveTail
from mala_context.analysis.watch.view import WatchRow, joined, ordered, row_of
from mala_context.archive.compactions import Counter
from mala_context.errors import TranscriptError
from mala_context.transcripts.compactions import is_boundary, is_summary
from mala_context.transcripts.rows import Row, file_chunks

PATIENCE: Final = 0.1
"""Seconds of a tick after which what is left waits for the next one."""
MOST: Final = 500
"""Sessions that are followed by default: those that were written to last."""
BEFORE: Final = 2.0
"""Seconds for which reading waits until all transcripts are known, so that the newest ones are read."""
SUBAGENTS: Final = 3_600.0
"""Seconds since its last row for which a subagent is followed."""


class _FollowedTranscript:
    """One transcript that is followed."""

    def __init__(self, path: str, auto_compact_window: int | None) -> None:
        self.path = path
        self.modified = 0.0
        self.problem: OSError | None = None
        self.before: int | None = 0
        """Compactions in the part that was not read for its rows; `None` while they are not counted."""
        self.uncounted = 0
        """Bytes of that part, if it is still to be counted."""
        self._next: Mapping[str, Any] = {}
        """The first row after that part which may belong to its last compaction, or tells that none does."""
        self._row: WatchRow | None = None
        self._tail = LiveTail()
        self._window = auto_compact_window
        self.state = self._new_state()

    def _new_state(self) -> TranscriptState:
        return TranscriptState(session_of(self.path), agent_of(self.path), self._window)

    def read(self) -> None:
        """Take what is new; a file that cannot be read keeps what is known of it."""
        self._row = None
        enough = partial(tells_size, subagent=agent_of(self.path) is not None)
        try:
            gain = self._tail.gain(self.path, enough)
        except OSError as error:
            self.problem = error
            return
        self.problem = None
        if gain.restarted:
            self.state, self.before, self.uncounted = self._new_state(), 0, gain.start
            if gain.start:
                self.before = None
                self._next = next((row for row in gain.rows if row.get("type") == "assistant" or _compacts(row)), {})
                self.state.opening(gain.opening)
        self.state.take(gain.rows)

    def count(self) -> None:
        """Count the compactions of the part that was not read; they stay unknown where it cannot be read."""
        end, self.uncounted, self._row = self.uncounted, 0, None
        with suppress(OSError):
            self.before = _compactions_up_to(self.path, end, self._next)

    def row(self) -> WatchRow:
        if self._row is None:
            self._row = row_of(self.state, self.path, self.modified, before=self.before)
        return self._row


_LONGEST_ROW = 1 << 20
"""Bytes that are held of a row while compactions are counted; no boundary and no summary is longer."""


def _compacts(row: Mapping[str, Any]) -> bool:
    return is_boundary(row) or is_summary(row)


def _compactions_up_to(path: str, end: int, following: Mapping[str, Any]) -> int:
    """Count the compactions in a file's first bytes; only blocks with a mark are cut into rows, for speed.

    One whose summary is the row that follows them is counted there.
    """
    counter, count, rest = Counter(), 0, b""
    for chunk in file_chunks(path, end):
        lines, _, after = (rest + chunk).rpartition(b"\n")
        rest = after[:_LONGEST_ROW]
        if b"ompact" in lines:  # of compact_boundary and of isCompactSummary
            count += sum(counter.see(Row(0, line)) is not None for line in lines.split(b"\n"))
        elif b'"assistant"' in lines:
            counter.see(Row(0, b'"assistant"'))
    return count - counter.goes_on(following)


class Watcher:
    """Follows the sessions in projects directories, or those that are named. Not for several threads.

    Args:
        projects: directories of project folders; each may still be missing.
        only: transcripts to follow instead, whatever their age.
        since: seconds since a session's last row for which it is shown.
        most: how many sessions, and how many subagents, are followed: those that were written to last. The others are
            never opened.
        auto_compact_window: `CLAUDE_CODE_AUTO_COMPACT_WINDOW` of the sessions, in tokens, where it is known.
        archives: where archives are looked for; by default the runs directory of the environment.
    """

    def __init__(
        self,
        projects: Iterable[str] = (),
        only: Iterable[str] = (),
        *,
        since: float = 86_400.0,
        most: int = MOST,
        auto_compact_window: int | None = None,
        archives: LatestArchives | None = None,
    ) -> None:
        named = tuple(only)
        self._only = frozenset(named)
        self._finder = TranscriptFinder(() if named else projects, named)
        self._archives = LatestArchives() if archives is None else archives
        self._since = since
        self._window = auto_compact_window
        self._watched: dict[str, _FollowedTranscript] = {}
        self._pending: dict[str, float] = {}
        self._most = most
        self._older: set[str] = set()
        self._begun = time.monotonic()

    @property
    def busy(self) -> bool:
        """Whether more is to be read already: tick again without waiting."""
        looking = self._finder.looking or bool(self._pending)
        return looking or any(each.uncounted for each in self._watched.values())

    @property
    def known(self) -> int:
        """How many transcripts were found so far."""
        return self._finder.known

    @property
    def waiting(self) -> int:
        """How many transcripts are still to be read."""
        return len(self._pending)

    @property
    def older(self) -> int:
        """How many sessions were active lately and are not followed, because others were active later."""
        return sum(agent_of(path) is None for path in self._older)

    def tick(self) -> bool:
        """Notice what is new, read it, and return whether `rows` may say something new. Raises nothing."""
        changed, gone = self._finder.look()
        archived = self._archives.look({each.state.session_id for each in self._watched.values()})
        for path in gone:
            self._leave_out([path])
            self._older.discard(path)
        now = time.time()
        for found in changed:
            if self._is_followed(found, now):
                self._pending[found.path] = found.modified
        self._keep_the_newest()
        if self._finder.looking and time.monotonic() < self._begun + BEFORE:
            return False
        end = time.monotonic() + PATIENCE
        read = bool(self._pending)
        for path in sorted(self._pending, key=self._pending.__getitem__, reverse=True):
            self._read(path, self._pending.pop(path))
            if time.monotonic() > end:
                break
        return read or archived or bool(gone) or self._count()

    def _is_followed(self, found: ChangedTranscript, now: float) -> bool:
        if found.path in self._only or found.path in self._watched:
            return True
        return found.modified >= now - (self._since if agent_of(found.path) is None else min(self._since, SUBAGENTS))

    def _keep_the_newest(self) -> None:
        """Leave out what is older than the `most` newest, sessions and subagents each for themselves."""
        self._older.difference_update(self._pending)
        if len(self._pending) + len(self._watched) <= self._most:
            return
        times = {path: each.modified for path, each in self._watched.items()} | self._pending
        for of_agents in (False, True):
            mine = [path for path in times if path not in self._only and (agent_of(path) is not None) == of_agents]
            if len(mine) > self._most:
                newest = set(heapq.nlargest(self._most, mine, key=times.__getitem__))
                self._leave_out(path for path in mine if path not in newest)

    def _leave_out(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._pending.pop(path, None)
            self._watched.pop(path, None)
            self._finder.leave(path)
            self._older.add(path)

    def _read(self, path: str, modified: float) -> None:
        watched = self._watched.get(path)
        if watched is None:
            watched = self._watched[path] = _FollowedTranscript(path, self._window)
            self._finder.follow(path)
        watched.modified = modified
        watched.read()

    def _count(self) -> bool:
        """Count the compactions of one transcript that was read in part; return whether there was any."""
        for each in self._watched.values():
            if each.uncounted:
                each.count()
                return True
        return False

    def rows(self) -> list[WatchRow]:
        """Return a row for each session that was active lately, with its subagents; the fullest first."""
        now = time.time()
        followed = [each for each in self._watched.values() if self._is_shown(each, now)]
        mains = [each.row() for each in followed if each.state.agent_id is None]
        mains = [replace(each, archived=self._archives.last(each.session_id)) for each in mains]
        agents = [each.row() for each in followed if each.state.agent_id is not None]
        return ordered(joined(mains, agents))

    def _is_shown(self, each: _FollowedTranscript, now: float) -> bool:
        if each.problem is not None and each.state.last is None:
            return False
        return each.path in self._only or each.modified >= now - self._since

    def problems(self) -> list[OSError]:
        """Return what kept transcripts from being read at the last try."""
        return [each.problem for each in self._watched.values() if each.problem is not None]


def check_readable(path: str) -> str:
    """Return the absolute path of a transcript; raises `TranscriptError` where there is none or it cannot be read."""
    if not os.path.exists(path):
        raise TranscriptError(path, "missing")
    if not os.path.isfile(path):
        raise TranscriptError(path, "not a regular file", "a transcript ends in .jsonl")
    if not os.access(path, os.R_OK):
        raise TranscriptError(path, "unreadable", "permission denied")
    return os.path.abspath(path)
