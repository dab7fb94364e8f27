"""The part of the replay that is in C (`_skim.c`), or `None`s where this was installed without a compiler.

Each function does what Python beside it does too, only faster; nothing else may use it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

Counts = tuple[int, int, int, int]
"""Tokens of a response: input, cache creation, cache read, output."""


class Places(Protocol):
    """The number of a context for each row, by the row's id."""

    def get(self, key: Any, /) -> int | None:
        """Return a row's, or `None`."""

    def __contains__(self, key: object, /) -> bool: ...
    def __setitem__(self, key: Any, value: int, /) -> None: ...
    def __len__(self) -> int: ...


Skim = Callable[[Any, memoryview, int, int], tuple[int, int, int]]
skim: Skim | None = None
"""See `scan.Scanner`."""
arrays: Callable[[dict[str, Counts]], tuple[bytes, bytes, Counts]] | None = None
"""See `record.Best.arrays`."""
new_places: Callable[[], Places] = dict[Any, int]
"""Makes what `skim` needs; `dict` does without."""
try:
    _compiled = import_module("mala_context.analysis.replay._skim")
    skim, arrays, new_places = _compiled.skim, _compiled.arrays, _compiled.Places
except (ImportError, AttributeError):  # not there, or left from another version
    pass
