"""Where the CLI compacts by itself: the window that its variable or its settings name, less what it keeps free.

Without one the CLI reports a threshold and does not act on it. It takes `200000` and `200k` alike, takes less than its
least for the least, and looks at nothing else. The status line reads this too, so that this module imports nothing.
"""

from __future__ import annotations

AUTO_COMPACT_WINDOW = "CLAUDE_CODE_AUTO_COMPACT_WINDOW"
"""The variable of the environment without which the CLI does not compact proactively."""
AUTO_COMPACT_BUFFER = 33_000
"""What the CLI keeps free where it compacts proactively, in tokens."""
LEAST_AUTO_WINDOW = 100_000
"""The smallest automatic window that the CLI takes, in tokens."""
_MOST = 1e12
_SCALES = {"k": 1_000, "m": 1_000_000}


def read_auto_compact_window(value: object) -> int | None:
    """Read an automatic window as the CLI does, in tokens; `None` where it says none."""
    text = str(value).strip().lower() if isinstance(value, int | float | str) and not isinstance(value, bool) else ""
    scale = _SCALES.get(text[-1:], 1)
    try:
        tokens = float(text[:-1] if scale > 1 else text) * scale
    except ValueError:
        return None
    return max(LEAST_AUTO_WINDOW, round(tokens)) if 1 <= tokens < _MOST else None


def auto_compact_threshold(window: int, auto_compact_window: int | None) -> int | None:
    """Return where a proactive CLI compacts, in tokens; `None` where it waits for the API's refusal.

    `auto_compact_window` is what `read_auto_compact_window` says.
    """
    if auto_compact_window is None:
        return None
    threshold = min(auto_compact_window, window) - AUTO_COMPACT_BUFFER
    return threshold if threshold > 0 else None
