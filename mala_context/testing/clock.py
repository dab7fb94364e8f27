"""A clock that a test moves: for the scripted API's cache, and for a runtime that acts before the cache lapses."""

from __future__ import annotations

import time
from typing import Final

LOOK_EVERY: Final = 0.01
"""Seconds of real time after which `sleep` looks at the clock again."""


class ScriptedClock:
    """Seconds since the epoch, which stand still until `advance` is called.

    Give it to `ScriptedMessagesAPI(clock=…)`, and to the runtime by `runtime.processor.use_clock(clock)`.
    """

    def __init__(self, start: float | None = None) -> None:
        self._now = time.time() if start is None else start

    def __call__(self) -> float:
        """Return the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock."""
        import anyio

        end = self._now + seconds
        while self._now < end:  # noqa: ASYNC110 - another thread may move the clock
            await anyio.sleep(LOOK_EVERY)
