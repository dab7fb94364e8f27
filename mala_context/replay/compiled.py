"""The part of the replay that is in C (`_skim.c`), or `None`s where this was installed without a compiler.

Each function does what Python beside it does too, only faster; nothing else may use it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

Skim = Callable[[Any, memoryview, int, int], tuple[int, int, int]]
skim: Skim | None = None
"""See `scan.Scanner`."""
arrays: Callable[[dict[str, tuple[int, int, int, int]]], tuple[bytes, bytes]] | None = None
"""See `record.Best.arrays`."""
try:
    _compiled = import_module("mala_context.replay._skim")
except ImportError:
    pass
else:
    skim, arrays = _compiled.skim, _compiled.arrays
