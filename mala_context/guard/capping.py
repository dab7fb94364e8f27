"""How large one tool result may be, and the text that is left of one that is larger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

AUTO_CAP_TOKENS: Final = 7_500
"""Cap of `auto` where there is room: the CLI itself replaces results of about 30,000 characters and more."""

_HEAD_SHARE: Final = 2 / 3
_FIRST: Final = 1_024


def estimate_tokens(text: str) -> int:
    """Return ceil(characters / 4), the count for texts that nobody has measured."""
    return -(-len(text) // 4)


def cap_tokens(setting: int | Literal["auto"] | None, left: int | None) -> int | None:
    """Return the cap on the next tool result in tokens; `None` for no cap.

    `auto` is the smaller of 7,500 tokens and half of what is left, so that no single result takes the rest of the
    window; where nobody knows what is left it is 7,500.
    """
    if setting != "auto":
        return setting
    if left is None:
        return AUTO_CAP_TOKENS
    return min(AUTO_CAP_TOKENS, left // 2) if left > 0 else 0


def cap_text(text: str, cap: int, *, where: str = "", count: Callable[[str], int] = estimate_tokens) -> str:
    """Return `text` if it is within `cap` tokens, else its head and tail around a marker; never more than `cap`.

    The marker says how many characters were left out and `where` the full text is; it is the same each time. Where
    the marker does not fit it comes without `where`, and if that is too much still the answer is empty. `count` must
    not count a part as more than the whole.
    """
    if count(text) <= cap:
        return text
    if count(_cut(text, 0, where)) > cap:
        return cap_text(text, cap, count=count) if where else ""
    low, high = 0, min(len(text), _FIRST)
    while high < len(text) and count(_cut(text, high, where)) <= cap:
        low, high = high, min(len(text), 2 * high)  # so that no part much longer than the answer is ever made
    while low < high:
        middle = (low + high + 1) // 2
        if count(_cut(text, middle, where)) <= cap:
            low = middle
        else:
            high = middle - 1
    return _cut(text, low, where)


def _cut(text: str, keep: int, where: str) -> str:
    head = int(keep * _HEAD_SHARE)
    tail = keep - head
    kept_where = f"; full text: {where}" if where else ""
    marker = f"\n[… {len(text) - keep:,} characters left out{kept_where} …]\n"
    return f"{text[:head]}{marker}{text[len(text) - tail :]}"
