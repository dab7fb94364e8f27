"""Format counts, shares and sizes for people. A hook's log lines use it, so it imports nothing."""

from __future__ import annotations

LARGEST = 2**63 - 1
"""Bytes past which a number is no size."""


def plural(count: int, what: str, more: str = "") -> str:
    """`1 session`, `2,000 sessions`; `more` is the plural of a word that does not only take an s."""
    return f"{count:,} {what if count == 1 else more or what + 's'}"


def percent(ratio: float) -> str:
    """`0.634` → `63.4%`; a value above 1.0 stays what it is."""
    return f"{ratio:.1%}"


def window_words(tokens: int, source: str) -> str:
    """`200,000`; `1,000,000 (a guess)` where `source`, one of `windows.SOURCES`, says that nothing tells the window."""
    return f"{tokens:,}{' (a guess)' if source == 'guess' else ''}"


def size_text(count: int) -> str:
    """Return a number of bytes as people read it: `12.6 KB`, with 1 KB = 1,000 bytes as `size_bytes` reads it."""
    if count < 1000:
        return f"{count} B"
    value, unit = count / 1000, "KB"
    for larger in ("MB", "GB", "TB"):
        if value < 999.95:  # one that rounds to 1000.0 is 1.0 of the next unit
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}"


def size_bytes(text: str) -> int:
    """Return the bytes that a text like `500MB`, `5 GiB` or `1_000` means: 1 KB is 1,000 bytes, 1 KiB is 1,024.

    Raises `ValueError` for a text that is no size, and for 0 and sizes past 2^63 - 1.
    """
    import re  # a hook's log lines need none of this

    match = re.fullmatch(
        r"\s*([0-9][0-9_]{0,19})(\.[0-9]{1,20})?\s*(?:([KMGT])(I?))?B?\s*", text, re.ASCII | re.IGNORECASE
    )
    if match is None:
        raise ValueError(f"{text[:40]!r} is no size; write a number of bytes or a text like 500MB or 2GiB")
    whole, part, letter, binary = match.groups()
    unit = (1024 if binary else 1000) ** (0 if letter is None else "KMGT".index(letter.upper()) + 1)
    count = int(whole) * unit if part is None else int(float(whole + part) * unit)
    if not 1 <= count <= LARGEST:
        raise ValueError(f"{text[:40]!r} is no size: it must be from 1 byte to 2^63 - 1")
    return count
