"""A table that remembers the newest entries and forgets the oldest, at the cost of a plain dict.

Entries live in two dicts. When the young one is full it becomes the old one, and what was old is gone: so at least half
of the promised number is always there, nothing is ever removed one by one (taking a dict's first entry gets slower with
every entry that was taken before), and memory stays flat.
"""

from __future__ import annotations

from typing import Generic, TypeVar

V = TypeVar("V")


class Recent(Generic[V]):
    """Remembers between `half` and twice as many entries, the newest ones."""

    __slots__ = ("_half", "_old", "_young")

    def __init__(self, half: int) -> None:
        self._half = half
        self._young: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._young or key in self._old

    def __bool__(self) -> bool:
        return bool(self._young) or bool(self._old)

    def __len__(self) -> int:
        return len(self._young.keys() | self._old.keys())

    def get(self, key: str) -> V | None:
        """Return what is remembered under the key, or `None`."""
        value = self._young.get(key)
        return self._old.get(key) if value is None else value

    def put(self, key: str, value: V) -> None:
        """Remember a value under the key."""
        young = self._young
        if len(young) >= self._half:
            self._old = young
            young = self._young = {}
        young[key] = value
