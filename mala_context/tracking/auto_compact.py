"""Where the CLI compacts by itself: the window that its variable or its settings name, less what it keeps free.

Without one the CLI reports a threshold and does not act on it. How it reads what stands there is seen from where it
compacts: the rules here are those of 2.1.332. The status line reads this too, so that this module imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO_COMPACT_WINDOW = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
"""The variable of the environment without which the CLI does not compact proactively."""
OFF_SWITCHES = ("DISABLE_COMPACT", "DISABLE_AUTO_COMPACT")
"""Variables with which it never compacts by itself, whatever its window; with the first one `/compact` does nothing."""
AUTO_COMPACT_BUFFER = 33_000
"""What the CLI keeps free where it compacts proactively, in tokens."""
LARGEST_WINDOW = 100_000_000
"""The largest window that is believed, in tokens: no model has one, and a larger count is a broken number."""
LEAST_AUTO_WINDOW = 100_000
"""The smallest automatic window that the CLI takes, in tokens."""
_ON = frozenset({"1", "true", "yes", "on"})
_MOST = 10**12
_SCALES = {"k": 1_000, "m": 1_000_000}
_DIGITS = frozenset("0123456789")
_NUMBER = _DIGITS | frozenset("+-.e")
_LONGEST = 400
"""Characters of a number that are looked at; one that goes on is past all that there is."""


def read_auto_compact_window(value: object) -> int | None:
    """Read an automatic window as the CLI does, in tokens; `None` where it says none.

    The number that the text begins with counts, whatever follows; a `k` or `m` at the end is a thousand or a million of
    them; `200,000`, `200_000` and `200 000` are one number. Less than the least is the least.
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
    """Return the automatic window of an environment, in tokens; `None` where it names none, or forbids to compact."""
    return None if switched_off(env) else read_auto_compact_window(env.get(AUTO_COMPACT_WINDOW))


def _joined(text: str) -> str:
    """Return a number that is written in groups of three digits as one; any other text as it is."""
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
    """Return the number that a text begins with, 0.0 where it begins with none."""
    text = text[:_LONGEST]
    length = next((place for place, char in enumerate(text) if char not in _NUMBER), len(text))
    for end in range(length, 0, -1):
        try:
            return float(text[:end])
        except ValueError:
            continue
    return 0.0


def auto_compact_threshold(window: int, auto_compact_window: int | None) -> int | None:
    """Return where a proactive CLI compacts, in tokens; `None` where it waits for the API's refusal.

    `auto_compact_window` is what `read_auto_compact_window` says.
    """
    if auto_compact_window is None:
        return None
    threshold = min(auto_compact_window, window) - AUTO_COMPACT_BUFFER
    return threshold if threshold > 0 else None
