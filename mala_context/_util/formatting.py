"""Format counts, shares and sizes for people. A hook's log lines use it, so it imports nothing."""

from __future__ import annotations


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
    """Return a number of bytes as people read it: `12.3 KB`, with 1 KB = 1,024 bytes."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KB", "MB", "GB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TB"
