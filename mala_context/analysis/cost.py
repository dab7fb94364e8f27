"""The costs of the requests of a simulated course, beside the costs of the recorded requests.

A recorded request says how many tokens it read from the cache and how many it wrote. A simulated request of another
size reads what the simulated course had in the cache, less the tokens that the recorded request lost there, and writes
the rest. After an action of the policy it reads no more than the system prompt and the tools. The rows of a compaction
have no counts, so its cost is computed, by one formula for both sides. While the two courses are equal, their costs are
equal to the token.

All costs are in units of an uncached input token. The answers of the agent cost the same on both sides.
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
    """The API's counts."""
    hour: int
    """Tokens that it wrote for an hour."""
    lost: int
    """Tokens of the request before it that were no longer in the cache."""
    held: int
    """Tokens that the request before it had left in the cache; 0 for a first request."""
    cold: bool
    """Whether the cache had lapsed."""
    window: int
    """The model's window."""
    model: str | None = None
    """The model."""
    base: int | None = None
    """Size of a fresh session before its first prompt; `None` if unknown."""

    @property
    def write(self) -> float:
        """Price of a written token."""
        return write_price(self.usage.cache_creation_tokens, min(self.hour, self.usage.cache_creation_tokens))

    def cost(self, uncached: int, written: int, read: int) -> float:
        """Return the cost of a request of this model with such a prompt, the recorded answer included."""
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
        """Take a compaction or a checkpoint of the simulated course; a `free` compaction asks no model."""
        if not free:
            self.simulated += compaction_cost(size, model, write=write)

    def request(self, request: PricedRequest, size: int, *, equal: bool, broken: int | None) -> None:
        """Take a recorded request, and the size of the simulated one.

        `equal` says that both courses have been the same until now. If the policy changed the conversation since the
        last request, `broken` is the tokens that the cache still has of it; otherwise it is `None`.
        """
        # Step 1: the recorded cost, from the API's counts.
        fresh, written, read, _ = request.usage
        if request.usage.counts_cache_twice:
            fresh = 0
        recorded = request.cost(fresh, written, read)
        self.recorded += recorded
        if equal:
            self.simulated += recorded
            self._held = read + written
            return
        # Step 2: the tokens that the simulated request finds in the cache. If the recorded request lost half or more of
        # the cache, the loss is no matter of size: both find the same beginning.
        if broken is not None:
            kept = min(read, broken)
        elif request.lost and request.lost * 2 >= request.held:
            kept = min(read, self._held)
        else:
            kept = self._held - request.lost
        # Step 3: price the request, and note what it leaves in the cache.
        kept = max(0, min(kept, size))
        rest = size - kept
        uncached = min(fresh, rest) if written else rest
        self.simulated += request.cost(uncached, rest - uncached, kept)
        self._held = size - uncached
