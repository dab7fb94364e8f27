"""A text's bytes by kind: how many there are, in how many runs, and where the long runs of base64's bytes lie.

`tally` and `runs` are written in C (`_byte_kinds.c`). If the package was installed without a compiler, `tally_slowly`
and `runs_slowly` give the same.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Final

UPPER: Final = bytes(range(65, 91))
LOWER: Final = UPPER.lower()
DIGITS: Final = b"0123456789"
_KINDS: Final = (
    UPPER + LOWER,
    UPPER,
    DIGITS,
    bytes(code for code in range(33, 127) if not chr(code).isalnum()),
    b" \t",
    b"\n",
    bytes((*range(0xE3, 0xEE), 0xEF)),
    bytes((*range(0xC2, 0xE3), 0xEE, *range(0xF0, 0xF5))),
)
"""Bytes of UTF-8 by kind: letters, upper case, digits, signs, blanks, line ends, the first bytes of characters that are
(nearly all) Chinese, Japanese or Korean, and the first bytes of all others. `_byte_kinds.c` relies on this order."""
BITS: Final = bytes(sum(1 << bit for bit, kind in enumerate(_KINDS) if code in kind) for code in range(256))
"""The kinds of each byte, a bit each."""
BASE64: Final = bytes((chr(code).isalnum() and code < 128) or code in b"+/=_-" for code in range(256))
"""1 for each byte of base64, in either alphabet; 0 for all others."""


_BLOCK: Final = 24_576
"""Bytes of the longest text that the estimates count at once."""


@lru_cache(maxsize=1)
def _masks(blocks: int) -> tuple[int, ...]:
    """Return for each kind a number with that kind's bit in each byte; made when asked for, since C needs none."""
    return tuple(int.from_bytes(bytes((1 << kind,)) * (blocks * _BLOCK), "little") for kind in range(len(_KINDS)))


def tally_slowly(text: str, kinds: bytes) -> tuple[int, ...]:
    """Return twelve counts of a text, in the order of `text_counts.Counts` from `words` to `other`.

    The text becomes one large number with a byte for each byte of its UTF-8: a bit for each kind. Then each count is an
    operation or two on that number. That is five times as fast as to search the text, where the processor guesses wrong
    at every other byte.
    """
    marks = text.encode("utf-8", "ignore").translate(kinds)
    letter, upper, digit, sign, blank, line, wide, other = _masks(len(marks) // _BLOCK + 1)
    here = int.from_bytes(marks, "little")
    before, after = here << 8, here >> 8  # of the byte before each, and after each
    starts = (here ^ before) & here  # where a run of a kind begins
    lower_before = ((before & letter) << 1) ^ (before & upper)
    found = (
        starts & letter,
        here & letter,
        lower_before & here & upper,
        starts & after & upper,
        starts & digit,
        here & digit,
        starts & sign,
        here & sign,
        starts & after & blank,
        here & line,
        here & wide,
        here & other,
    )
    return tuple([each.bit_count() for each in found])


def runs_slowly(text: str, table: bytes, least: int) -> list[tuple[int, int]]:
    """Return where each run of at least `least` characters begins and ends; the table has 1 for a run's characters."""
    marks = text.encode("ascii", "replace").translate(table)  # one byte a character, so that places are the text's
    found, whole = [], b"\1" * least
    start = marks.find(whole)
    while start >= 0:
        stop = marks.find(b"\0", start)
        stop = len(text) if stop < 0 else stop
        found.append((start, stop))
        start = marks.find(whole, stop)
    return found


tally, runs = tally_slowly, runs_slowly
try:
    _compiled = import_module("mala_context.tracking._byte_kinds")
    tally, runs = _compiled.tally, _compiled.runs
except (ImportError, AttributeError):  # not compiled, or a file of another version of this package
    pass
