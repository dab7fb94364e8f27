"""The size at which the CLI compacts by itself: an automatic window, less the tokens that the CLI keeps free.

A variable or the settings name the automatic window. Without it the CLI reports a threshold but does not act on it. The
rules for reading the value were found by watching at which size CLI 2.1.332 compacts. The status line uses this module
too, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO_COMPACT_WINDOW = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
"""The variable of the environment without which the CLI does not compact proactively."""
OFF_SWITCHES = ("DISABLE_COMPACT", "DISABLE_AUTO_COMPACT")
"""Variables that keep the CLI from compacting by itself, whatever its window; the first one disables `/compact` too."""
AUTO_COMPACT_BUFFER = 33_000
"""Tokens that the CLI keeps free when it compacts proactively."""
LARGEST_WINDOW = 100_000_000
"""Most tokens of a window that are believed: no model has as many, and a larger number is an error."""
LEAST_AUTO_WINDOW = 100_000
"""The smallest automatic window that the CLI takes, in tokens."""
_ON = frozenset({"1", "true", "yes", "on"})
_MOST = 10**12
_SCALES = {"k": 1_000, "m": 1_000_000}
_DIGITS = frozenset("0123456789")
_NUMBER = _DIGITS | frozenset("+-.e")
_LONGEST = 400
"""Characters of a number that are read; a longer number is larger than any window."""


def read_auto_compact_window(value: object) -> int | None:
    """Read an automatic window as the CLI does, in tokens; `None` if the value names none.

    The number at the beginning of a text counts, whatever text follows. A `k` or `m` at the end multiplies it by a
    thousand or a million. `200,000`, `200_000` and `200 000` are one number. A number below `LEAST_AUTO_WINDOW` is
    raised to it.
    """
    if isinstance(value, str):
        text = value.strip().lower()
        tokens = _leading_number(_joined(text)) * _SCALES.get(text[-1:], 1)
    else:
        tokens = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    return min(_MOST, max(LEAST_AUTO_WINDOW, int(tokens))) if 1 <= tokens < float("inf") else None


def switched_off(env: Mapping[str, object]) -> bool:
    """Tell whether an environment forbids the CLI to compact by itself."""
    return any(str(env.get(name, "")).strip().lower() in _ON for name in OFF_SWITCHES)


def auto_compact_window_of(env: Mapping[str, object]) -> int | None:
    """Return the automatic window of an environment, in tokens; `None` if it names none or forbids compaction."""
    return None if switched_off(env) else read_auto_compact_window(env.get(AUTO_COMPACT_WINDOW))


def _joined(text: str) -> str:
    """Return a number in groups of three digits without its separators; return any other text unchanged."""
    for separator in ",_ ":
        first, *groups = text.removeprefix("+").split(separator)
        if (
            groups
            and len(first) <= 3
            and set(first).union(*groups) <= _DIGITS
            and {len(group) for group in groups} == {3}
        ):
            return "".join((first, *groups))
    return text


def _leading_number(text: str) -> float:
    """Return the number at the beginning of a text; 0.0 if there is none."""
    text = text[:_LONGEST]
    length = next((place for place, char in enumerate(text) if char not in _NUMBER), len(text))
    for end in range(length, 0, -1):
        try:
            return float(text[:end])
        except ValueError:
            continue
    return 0.0


def auto_compact_threshold(window: int, auto_compact_window: int | None) -> int | None:
    """Return the size at which a proactive CLI compacts, in tokens; `None` if it waits for the API's refusal.

    `auto_compact_window` is an answer of `read_auto_compact_window`.
    """
    if auto_compact_window is None:
        return None
    threshold = min(auto_compact_window, window) - AUTO_COMPACT_BUFFER
    return threshold if threshold > 0 else None
