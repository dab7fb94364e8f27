"""What of a window is usable: up to where the CLI compacts by itself, if it is told to act on that."""

from __future__ import annotations

import os

from mala_context.archive.regular import read_regular
from mala_context.auto_compact import (
    AUTO_COMPACT_WINDOW,
    auto_compact_threshold,
    read_auto_compact_window,
    switched_off,
)
from mala_context.statusline.values import rows, table, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_MOST_SETTINGS = 4 << 20


def threshold_of(window: int, given: Mapping[str, Any], env: Mapping[str, str]) -> int | None:
    """Return the size at which the CLI compacts by itself; `None` where it waits for the API's refusal.

    It acts on a threshold only where an automatic window is set: by a variable, or in a file of settings.
    """
    if switched_off(env):
        return None
    auto = read_auto_compact_window(env.get(AUTO_COMPACT_WINDOW))
    settings = _settings(given, env)
    if settings.get("autoCompactEnabled") is False:
        return None
    return auto_compact_threshold(window, auto or read_auto_compact_window(settings.get("autoCompactWindow")))


def _settings(given: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the user and the project that decide on compaction; later files win."""
    home = env.get("HOME", "")
    own = env.get("CLAUDE_CONFIG_DIR") or (os.path.join(home, ".claude") if home else "")
    project = text(table(given, "workspace"), "project_dir") or env.get("CLAUDE_PROJECT_DIR") or ""
    places = [os.path.join(home, ".claude.json")] if home else []
    places += [os.path.join(own, name) for name in (".claude.json", "settings.json") if own]
    places += [os.path.join(project, ".claude", name) for name in ("settings.json", "settings.local.json") if project]
    found: dict[str, Any] = {}
    for place in places:
        try:
            data = read_regular(place, _MOST_SETTINGS)
        except (OSError, ValueError):
            continue
        if b"autoCompact" in data:
            for row in rows(data):
                found |= {name: row[name] for name in ("autoCompactEnabled", "autoCompactWindow") if name in row}
    return found
