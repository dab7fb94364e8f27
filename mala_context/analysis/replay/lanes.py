"""The memory of the fast way: each agent's rows since its last response, and lines that may be read again."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from mala_context._util.safe_open import open_regular
from mala_context.analysis.replay.recording_reader import Tally
from mala_context.tracking.agent_state import AgentState
from mala_context.tracking.context_state import ContextState


class Lane:
    """One agent's conversation, and its rows that are held back."""

    __slots__ = (
        "bare",
        "based",
        "before",
        "context",
        "current",
        "dropped",
        "fed",
        "held",
        "known",
        "limit",
        "model",
        "row",
        "state",
        "tally",
        "tokens",
    )

    def __init__(self, state: AgentState, tally: Tally) -> None:
        self.state = state
        self.tally = tally
        self.known: ContextState = state.context
        """The tracker's context of this agent, as it was when the tracker was last asked."""
        self.context = -1
        """Number of the present context."""
        self.before = -1
        """Number of the context before it."""
        self.held: list[int] = []
        """Lines held back."""
        self.bare = 0
        """Responses without counts among the lines held back."""
        self.fed = True
        """Whether the tracker knows the response that made the present context; true too if no response made it."""
        self.dropped = False
        """Whether a response was dropped since the tracker last got one."""
        self.based: object = None
        """Id of the response that made the present context."""
        self.row: str | None = None
        """Id of that response's first row."""
        self.tokens = 0
        """Size of that response's request."""
        self.current: str | None = None
        """Id of the newest response, which may have no counts yet."""
        self.model: str | None = None
        self.limit = 0
        """The model's window, in tokens."""

    @property
    def answered(self) -> bool:
        """Whether the agent got any response."""
        return not self.fed or self.state.responses > 0


class RecordingLines:
    """The lines of a plain recording that is read in blocks, by their numbers from 0."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.first = 0
        """Lines before the present block."""
        self._offset = 0
        """Bytes before the present block."""
        self.block = memoryview(b"")
        self.ends: Sequence[int] = ()
        """Where the block's lines end."""
        self._passed: list[tuple[int, int]] = []
        """First line and first byte of every block so far."""

    def begin(self, block: memoryview, ends: bytes) -> None:
        """Go on to the next block; `ends` says where its lines end (see `row_runs.Skim`)."""
        self._offset += len(self.block)
        self.first += len(self.ends)
        self.block, self.ends = block, memoryview(ends).cast("q")
        self._passed.append((self.first, self._offset))

    def get(self, numbers: Iterable[int]) -> Iterator[bytes]:
        """Yield lines by their ascending numbers; lines of earlier blocks are read again. Raises `OSError`."""
        for place, group in groupby(numbers, lambda number: bisect_right(self._passed, (number, 1 << 62)) - 1):
            first, offset = self._passed[place]
            if first == self.first:
                for number in group:
                    yield self.at(number - first)
                continue
            with os.fdopen(open_regular(self._path), "rb", buffering=0) as file:
                file.seek(offset)
                data = file.read(self._passed[place + 1][1] - offset)
            begin, end = 0, -1
            for number in group:
                while first <= number:
                    begin, first = end + 1, first + 1
                    end = data.find(b"\n", begin)
                yield data[begin:end]

    def at(self, index: int) -> bytes:
        """Return a line of the present block, counted from 0 in it, without its newline."""
        return bytes(self.block[self.ends[index - 1] + 1 if index else 0 : self.ends[index]])
