"""The contexts of this process, for gauges without a session label.

A gauge has one value for each set of labels, and a process may have a thousand sessions. Their sum means nothing, their
mean hides the context that is about to overflow, and the last written value is random. The fullest context is the one
that needs action. So the gauges show, for each model, the size, the window and the share of the context with the
highest share, and the number of contexts. A histogram shows how full the others are.

A context is removed when its session ends, and after `IDLE_SECONDS` without news: some programs never report the end of
a session, and a stale gauge would keep an alert on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from mala_context.tracking.windows import WindowState

IDLE_SECONDS: Final = 900.0
"""Time without news after which a context is no longer counted."""
MOST_SESSIONS: Final = 20_000
"""Most sessions that are kept; the session known longest is dropped first."""

Labels = tuple[str, str]
"""Model and kind of agent, both from bounded lists."""


class Context(NamedTuple):
    """One agent's context."""

    labels: Labels
    tokens: int
    window: int
    ratio: float
    window_state: WindowState
    seen: float
    """Time of its last news, by the clock of `LiveContexts`."""


class Level(NamedTuple):
    """What the gauges of one set of labels show."""

    contexts: int
    """How many contexts have these labels."""
    fullest: Context
    """The context with the highest ratio."""


class LiveContexts:
    """The table of this process's contexts; may be used from any thread."""

    def __init__(
        self,
        *,
        most: int = MOST_SESSIONS,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._idle = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: dict[str, dict[str | None, Context]] = {}

    def put(
        self,
        session: str,
        agent: str | None,
        labels: Labels,
        *,
        tokens: int | None,
        window: int,
        ratio: float | None,
        window_state: WindowState = "known",
    ) -> None:
        """Set a context's present size; a context of unknown size is not counted until the size is known again."""
        with self._lock:
            contexts = self._sessions.get(session)
            if tokens is None or ratio is None:
                if contexts is not None:
                    contexts.pop(agent, None)
                return
            if contexts is None:
                contexts = self._sessions[session] = {}
                if len(self._sessions) > self._most:
                    del self._sessions[next(iter(self._sessions))]
            contexts[agent] = Context(labels, tokens, window, ratio, window_state, self._clock())

    def drop(self, session: str) -> None:
        """Forget a session's contexts."""
        with self._lock:
            self._sessions.pop(session, None)

    def levels(self) -> dict[Labels, Level]:
        """Return what the gauges show for each set of labels, and forget idle contexts."""
        oldest = self._clock() - self._idle
        found: dict[Labels, Level] = {}
        with self._lock:
            for session, contexts in list(self._sessions.items()):
                for agent, context in list(contexts.items()):
                    if context.seen < oldest:
                        del contexts[agent]
                        continue
                    level = found.get(context.labels)
                    if level is None:
                        found[context.labels] = Level(1, context)
                    else:
                        fullest = context if context.ratio > level.fullest.ratio else level.fullest
                        found[context.labels] = Level(level.contexts + 1, fullest)
                if not contexts:
                    del self._sessions[session]
        return found
