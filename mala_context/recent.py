"""A table that remembers the newest entries and forgets the oldest, at the cost of a plain dict.

It is a dict, so that looking up and adding cost what a dict's own operations cost: the tables are asked several times
for each message of a running agent. When it is full, the older half goes at once; taking the oldest entry one by one
would get slower with every entry that was taken before. So at least half of the promised number is always there, and
memory stays flat.
"""

from __future__ import annotations

from itertools import islice
from typing import TypeVar

V = TypeVar("V")


class Recent(dict[str, V]):
    """Remembers between `half` and twice as many entries, the newest ones.

    Add with `put`; or as to any dict, and call `trim` every few entries.
    """

    __slots__ = ("_half",)

    def __init__(self, half: int) -> None:
        super().__init__()
        self._half = half

    def put(self, key: str, value: V) -> None:
        """Remember a value under the key, which is the newest from now on."""
        self.pop(key, None)
        self[key] = value
        if len(self) > 2 * self._half:
            self.trim()

    def trim(self) -> None:
        """Forget the older ones where there are too many."""
        excess = len(self) - 2 * self._half
        if excess > 0:
            for key in list(islice(self, self._half + excess)):
                del self[key]
