"""Numbers and text as people read them, and text of a recording made harmless.

A recording holds whatever an agent read: it is made `printable`, so that nothing changes how a page reads, and markup
is escaped where it is put into markup.
"""

from __future__ import annotations

import html
from typing import Final

from mala_context._util.text import percent, printable

UNKNOWN: Final = "\N{EN DASH}"
"""What stands for a number that is not known."""


def plain(value: object, most: int = 0) -> str:
    """Return text made `printable`, of which at most `most` characters were taken; 0 takes all."""
    text = str(value)
    if most and len(text) > most:
        text = text[: most - 1] + "…"
    return printable(text)


def markup(value: object, most: int = 0) -> str:
    """Return text to be put between tags or into an attribute in quotes."""
    return html.escape(plain(value, most), quote=True)


def count(value: int | None) -> str:
    """`126,812`; a dash where it is not known."""
    return UNKNOWN if value is None else f"{value:,}"


def share(value: float | None) -> str:
    """`63.4%`; a dash where it is not known."""
    return UNKNOWN if value is None else percent(value)


def short(tokens: float) -> str:
    """`150k`, `2.5k`, `1M`: for the labels of an axis."""
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if tokens >= size:
            return f"{tokens / size:g}{letter}"
    return f"{tokens:g}"


def moment(time: str | None) -> str:
    """`2026-05-01 10:02:11` (UTC); a dash where it is not known."""
    return UNKNOWN if not time else plain(time[:19].replace("T", " "))
