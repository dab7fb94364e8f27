"""How much is looked at where there is very much: the doctor answers in seconds, and says what it left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def shares(wanted: Sequence[int], most: int) -> list[int]:
    """Share out `most` among places that want so many each: small ones get all, large ones the same.

    What a place does not want goes to the others, so that a large one does not keep others from being looked at.
    """
    given = [0] * len(wanted)
    for place, index in enumerate(sorted(range(len(wanted)), key=wanted.__getitem__)):
        given[index] = min(wanted[index], -(-most // (len(wanted) - place)))
        most -= given[index]
    return given


def fitting(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[T]:
    """Yield the first items that together have no more than so many bytes."""
    for each in items:
        most -= size(each)
        if most < 0:
            return
        yield each
