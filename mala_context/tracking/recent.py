"""Tables that remember the newest entries and forget the oldest, at the cost of a plain dict.

They are dicts, so that looking up and adding cost what a dict's own operations cost: they are asked several times for
each message of a running agent. When one is full, the older half goes at once; taking the oldest entry one by one would
get slower with every entry that was taken before. So at least half of the promised number is always there, and memory
stays flat.

Where an id is only compared, its hash is kept in its place, at a third of the size. Python's hash of a text differs in
every process and has 60 bits here, so that no two ids meet by chance, nor by somebody's will.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
C = TypeVar("C")
SHIFT: Final = 4
"""Bits of a hash that are left away: what remains takes two digits of an integer instead of three."""


class Recent(dict[K, V]):
    """Remembers a value for each of the newest `most // 2` to `most` keys.

    Add as to any dict, and call `trim` when there are more than `most`.
    """

    __slots__ = ("most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def trim(self) -> None:
        """Forget the older half."""
        kept = list(islice(self.items(), max(0, len(self) - self.most // 2), None))
        self.clear()
        self.update(kept)


class Places(Recent[int, int], Generic[C]):
    """Places of the newest rows: the context that a row belongs to, and how many parts of it were there."""

    __slots__ = ("_contexts", "_parts")

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._contexts: list[C] = []
        self._parts = array("I")

    def put(self, uuid: str, context: C, parts: int) -> None:
        """Remember a row's place."""
        contexts = self._contexts
        self[hash(uuid) >> SHIFT] = len(contexts)
        contexts.append(context)
        self._parts.append(parts)
        if len(self) > self.most:
            self.trim()

    def context(self, uuid: str) -> C | None:
        """Return the context that a row belongs to; `None` where it is forgotten."""
        slot = self.get(hash(uuid) >> SHIFT)
        return None if slot is None else self._contexts[slot]

    def place(self, uuid: str) -> tuple[C, int] | None:
        """Return a row's place; `None` where it is forgotten."""
        slot = self.get(hash(uuid) >> SHIFT)
        return None if slot is None else (self._contexts[slot], self._parts[slot])

    def trim(self) -> None:
        """Forget the older half, and the contexts that were theirs alone."""
        super().trim()
        slots = list(self.values())
        self._contexts = [self._contexts[slot] for slot in slots]
        self._parts = array("I", [self._parts[slot] for slot in slots])
        self.update(zip(self, range(len(slots)), strict=True))
