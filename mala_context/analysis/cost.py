"""What the requests of a simulated course would have cost, beside what the recorded ones did.

The recorded request says what it read from the cache and what it wrote. A simulated one of another size reads as much
more or less of its beginning as it had in the cache, loses what the recorded one lost, and writes what is left. After
something that the policy did it reads no more than the system prompt and the tools. Compactions have no rows, so theirs
is computed, by one formula for both sides. Where the two courses are equal so are their costs, to the token.

All in units of an uncached input token; what an agent says costs the same on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mala_context.tracking.cache import OUTPUT, compaction_cost, read_price, write_price
from mala_context.tracking.usage import Usage


class PricedRequest(NamedTuple):
    """One recorded request of the main agent."""

    tokens: int
    """Its size."""
    usage: Usage
    """What the API counted."""
    hour: int
    """Tokens that it wrote for an hour."""
    lost: int
    """Tokens of the request before that it did not find in the cache any more."""
    held: int
    """Tokens that the request before had left there; 0 for a first one."""
    cold: bool
    """Whether the cache had lapsed."""
    window: int
    """The model's window."""
    model: str | None = None
    """The model."""
    base: int | None = None
    """What a fresh session holds before its first prompt, where that is known."""

    @property
    def write(self) -> float:
        """What a written token costs."""
        return write_price(self.usage.cache_creation_tokens, min(self.hour, self.usage.cache_creation_tokens))

    def cost(self, uncached: int, written: int, read: int) -> float:
        """Return what a request of this model with such a prompt costs, the recorded answer included."""
        said = self.usage.output_tokens * OUTPUT
        return uncached + written * self.write + read * read_price(self.model) + said


@dataclass
class Costs:
    """The costs of one course so far, recorded and simulated."""

    recorded: float = 0.0
    simulated: float = 0.0
    _held: int = field(default=0, init=False)
    """Tokens that the simulated course has in the cache."""

    def recorded_compaction(self, size: int, model: str | None) -> None:
        """Take a compaction as it was recorded."""
        self.recorded += compaction_cost(size, model)

    def compacted(self, size: int, model: str | None, *, write: float | None = None, free: bool = False) -> None:
        """Take a compaction of the simulated course, or a checkpoint; a free one asks no model."""
        if not free:
            self.simulated += compaction_cost(size, model, write=write)

    def request(self, request: PricedRequest, size: int, *, equal: bool, broken: int | None) -> None:
        """Take a request, and the size that the simulated one has.

        `equal` says that both courses are the same up to here. `broken` is what the cache still has where the policy
        made the conversation another one since the last request; `None` where it went on.
        """
        fresh, written, read, _ = request.usage
        if request.usage.counts_cache_twice:
            fresh = 0
        recorded = request.cost(fresh, written, read)
        self.recorded += recorded
        if equal:
            self.simulated += recorded
            self._held = read + written
            return
        if broken is not None:
            kept = min(read, broken)
        elif request.lost and request.lost * 2 >= request.held:
            kept = min(read, self._held)
        else:
            kept = self._held - request.lost
        kept = max(0, min(kept, size))
        rest = size - kept
        uncached = min(fresh, rest) if written else rest
        self.simulated += request.cost(uncached, rest - uncached, kept)
        self._held = size - uncached
