r"""Make text that others wrote safe to show on a terminal, in a page and in a log line.

One rule serves all three. It spells out control characters (C0 with ESC, DEL, C1), marks that turn the direction of
text, line and paragraph separators, invisible characters that can hide text, and lone surrogates (`\x1b`, `\u202e`).
Every other character stays as it is; so do the two joiners that emoji and some scripts need. Apply this rule first:
escape for HTML and cut to a length afterwards.

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
