"""Format numbers for people, and make a recording's text harmless.

A recording may hold any text that an agent read. `printable` spells out characters that would change how a page reads,
and text that goes into HTML or SVG is escaped.
"""

from __future__ import annotations

import html
from typing import Final

from mala_context._util.text import percent, printable

UNKNOWN: Final = "\N{EN DASH}"
"""Shown in place of an unknown number."""


def plain(value: object, most: int = 0) -> str:
    """Return text made `printable`. It is cut to `most` characters before that; 0 takes all of it."""
    text = str(value)
    if most and len(text) > most:
        text = text[: most - 1] + "…"
    return printable(text)


def markup(value: object, most: int = 0) -> str:
    """Return text that can stand between tags or in a quoted attribute."""
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
