r"""Text for people: make others' text safe to show, and format counts, shares and sizes.

One rule makes text that others wrote safe for a terminal, a page and a log line. It spells out control characters (C0
with ESC, DEL, C1), marks that turn the direction of text, line and paragraph separators, invisible characters that can
hide text, and lone surrogates (`\x1b`, `\u202e`). Every other character stays as it is; so do the two joiners that
emoji and some scripts need. Apply this rule first: escape for HTML and cut to a length afterwards.

The status line and hooks live for milliseconds. So this module imports nothing, and it makes its tables when a text
first needs them.
"""

from __future__ import annotations

ODD = (
    (0x00, 0x1F),  # C0
    (0x7F, 0x9F),  # DEL and C1
    (0xAD, 0xAD),  # soft hyphen
    (0x61C, 0x61C),  # Arabic letter mark
    (0x180E, 0x180E),  # vowel separator, invisible
    (0x200B, 0x200B),  # zero width space
    (0x200E, 0x200F),  # marks of direction
    (0x2028, 0x202E),  # separators of lines and paragraphs, embeddings and overrides of direction
    (0x2060, 0x206F),  # invisible operators, isolates of direction
    (0xD800, 0xDFFF),  # surrogates
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFF9, 0xFFFB),  # annotations
    (0xE0000, 0xE007F),  # tags
)
"""First and last code point of each range that is spelt out."""
_tables: dict[str, dict[int, str]] = {}


def printable(text: object, *, lines: bool = False) -> str:
    """Return text with each harmful character spelt out. With `lines`, newlines and tabs stay as they are."""
    value = str(text)
    return value if value.isprintable() else value.translate(_table("\n\t" if lines else ""))


def blanked(text: str) -> str:
    """Return text with a space in place of each character that `printable` spells out."""
    return text if text.isprintable() else text.translate(dict.fromkeys(_table(""), " "))


def _table(kept: str) -> dict[int, str]:
    if kept not in _tables:
        codes = (code for first, last in ODD for code in range(first, last + 1))
        _tables[kept] = {code: _spelt(code) for code in codes if chr(code) not in kept}
    return _tables[kept]


def _spelt(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


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


def utc_text(seconds: float) -> str:
    """Return a time in seconds since 1970 as UTC, ISO 8601, to the second."""
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def utc_seconds(text: object) -> float | None:
    """Return an ISO 8601 text in seconds since 1970, UTC where it names no zone; `None` for anything else."""
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if moment is None else (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def version_numbers(version: str) -> tuple[int, ...]:
    """Return `1.2.3` as numbers that compare: of `3rc1` the 3; what begins with no number counts as 0."""
    heads = (part[: len(part) - len(part.lstrip("0123456789"))][:9] for part in version.split(".")[:3])
    return tuple(int(digits or 0) for digits in heads)
