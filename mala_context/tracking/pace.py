"""How fast a context grows: tokens a turn, and how many turns are left at that pace.

A turn ends when the next prompt comes. Its growth is the size of its last request less the size of the last request of
the turn before. A session's first turn counts from its first request, because system prompt and tools were there before
it. Several prompts without an answer between them are one prompt. After a compaction or a `/clear` the pace is unknown
until the next turn has ended.

The status line uses this module too, so it imports little.
"""

from __future__ import annotations

from collections import deque

TURNS = 8
"""Turns over which the pace is taken."""


class Pace:
    """Takes the request sizes and the prompts of one agent, and gives the growth a turn; all values in tokens."""

    __slots__ = ("_answered", "_begin", "_changes", "_now", "_sizes")

    def __init__(self) -> None:
        self._changes: deque[int] = deque(maxlen=TURNS)
        self.forget()

    def forget(self) -> None:
        """Begin again: the context was replaced."""
        self._changes.clear()
        self._begin: int | None = None
        self._now: int | None = None
        self._sizes = 0
        self._answered = False

    def prompt(self) -> None:
        """Note that a turn begins."""
        if not self._answered or self._now is None or self._begin is None:
            return
        if self._sizes > 1 or self._changes:
            self._changes.append(self._now - self._begin)
        self._begin, self._answered = self._now, False

    def size(self, tokens: int) -> None:
        """Take the size of a request."""
        if self._begin is None:
            self._begin = tokens
        self._now, self._answered = tokens, True
        self._sizes += 1

    @property
    def change(self) -> int | None:
        """Growth of the present turn so far or, before its second request, of the last turn; `None` while unknown."""
        if self._answered and self._sizes > 1 and self._now is not None and self._begin is not None:
            return self._now - self._begin
        return self._changes[-1] if self._changes else None

    @property
    def per_turn(self) -> float | None:
        """Mean growth of the last turns that have ended; `None` before the first turn has."""
        return sum(self._changes) / len(self._changes) if self._changes else None

    def turns_left(self, tokens: int | None) -> int | None:
        """Return how many whole turns fit into this many tokens; `None` while unknown or where nothing grows."""
        pace = self.per_turn
        if tokens is None or pace is None or pace <= 0:
            return None
        return max(0, int(tokens / pace))
