"""Find how much of a window is usable: up to the threshold at which the CLI compacts by itself, if it has one.

The CLI acts on a threshold only if an automatic window is set, by a variable or in a settings file, and nothing
switches compaction off. This was observed on 2.1.332, for each kind of file.
"""

from __future__ import annotations

import os

from mala_context._util.safe_open import read_regular
from mala_context.agent.claude_code.statusline.input_values import rows, table
from mala_context.agent.hook_io import text_in
from mala_context.tracking.auto_compact import (
    AUTO_COMPACT_WINDOW,
    auto_compact_threshold,
    read_auto_compact_window,
    switched_off,
)
from mala_context.transcripts.projects import config_dir

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

SOURCES = ("user", "project", "local")
"""Names of the files of settings that the CLI reads unless it is told otherwise."""
_OF_PROJECT = {"project": "settings.json", "local": "settings.local.json"}
_MOST_SETTINGS = 4 << 20


def threshold_of(window: int, given: Mapping[str, Any], env: Mapping[str, str]) -> int | None:
    """Return the size at which the CLI compacts by itself; `None` where it waits for the API's refusal."""
    project = text_in(table(given, "workspace"), "project_dir") or env.get("CLAUDE_PROJECT_DIR") or ""
    return auto_compact_threshold(window, automatic_window(env, project))


def automatic_window(
    env: Mapping[str, str], project: str, sources: Collection[str] = SOURCES, more: Mapping[str, Any] | None = None
) -> int | None:
    """Return the window on whose threshold the CLI acts, in tokens; `None` where it waits for the API's refusal.

    Args:
        env: the CLI's environment.
        project: where its project settings are.
        sources: the files of settings that it reads, by the SDK's names; what `/config` keeps it always reads.
        more: settings that it was given beside those.

    Settings that whoever manages the machine makes are not looked at.
    """
    settings = _settings(env, project, sources) | dict(more or {})
    variables = settings.get("env")
    if isinstance(variables, dict):
        env = {**env, **variables}
    if switched_off(env) or settings.get("autoCompactEnabled") is False:
        return None
    return read_auto_compact_window(env.get(AUTO_COMPACT_WINDOW)) or read_auto_compact_window(
        settings.get("autoCompactWindow")
    )


def _settings(env: Mapping[str, str], project: str, sources: Collection[str]) -> dict[str, Any]:
    """Return the settings that decide on compaction; later files win."""
    home = env.get("HOME", "")
    own = config_dir(env) or ""
    places = [("", home, ".claude.json"), ("", own, ".claude.json"), ("user", own, "settings.json")]
    places += [(source, project, f".claude/{name}") for source, name in _OF_PROJECT.items()]
    found: dict[str, Any] = {}
    variables: dict[str, Any] = {}
    for source, directory, name in places:
        if not directory or (source and source not in sources):
            continue
        try:
            data = read_regular(os.path.join(directory, name), _MOST_SETTINGS)
        except (OSError, ValueError):
            continue
        if b"autoCompact" in data or (source and b"_COMPACT" in data):
            for row in rows(data):
                found |= {name: row[name] for name in ("autoCompactEnabled", "autoCompactWindow") if name in row}
                variables |= table(row, "env") if source else {}
    return {**found, "env": variables}
