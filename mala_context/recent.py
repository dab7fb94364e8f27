"""Tables that remember the newest entries and forget the oldest, at the cost of a plain dict.

They are dicts, so that looking up and adding cost what a dict's own operations cost: they are asked several times for
each message of a running agent. When one is full, the older half goes at once; taking the oldest entry one by one would
get slower with every entry that was taken before. So at least half of the promised number is always there, and memory
stays flat.

Their keys are hashes of ids and no ids: half the size, and all that is asked of an id is whether it is the same.
Python's hash of a text has 64 bits and differs in every process, so that no two ids meet by chance, nor by somebody's
will.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import Final, Generic, TypeVar

C = TypeVar("C")

SEEN: Final = -1
"""What stands in `Places` for a row that was seen and that no other can go on from."""


class Recent(dict[int, int]):
    """Remembers a number for each of the newest `most // 2` to `most` ids.

    Add as to any dict, under `hash(id)`, and call `trim` when there are more than `most`.
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


class Places(Recent, Generic[C]):
    """Places of the newest rows: the context that a row belongs to, and how many parts of it were there."""

    __slots__ = ("_contexts", "_parts")

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._contexts: list[C] = []
        self._parts = array("I")

    def put(self, uuid: str, context: C, parts: int) -> None:
        """Remember a row's place."""
        contexts = self._contexts
        self[hash(uuid)] = len(contexts)
        contexts.append(context)
        self._parts.append(parts)
        if len(self) > self.most:
            self.trim()

    def place(self, uuid: str) -> tuple[C, int] | None:
        """Return a row's place; `None` where it is forgotten, or no other row can go on from it."""
        slot = self.get(hash(uuid), SEEN)
        return None if slot == SEEN else (self._contexts[slot], self._parts[slot])

    def trim(self) -> None:
        """Forget the older half, and the contexts that were theirs alone."""
        super().trim()
        if not self._contexts:
            return
        contexts, parts = self._contexts, self._parts
        self._contexts, self._parts = [], array("I")
        for key, slot in self.items():
            if slot != SEEN:
                self[key] = len(self._contexts)
                self._contexts.append(contexts[slot])
                self._parts.append(parts[slot])
