"""Claude Code's settings files, and every `mala.yaml` of a known repository."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mala_context._util.safe_open import read_regular
from mala_context.analysis.doctor.facts import ConfigFile, SettingsFile
from mala_context.config import load_config
from mala_context.config.reading import FILE_NAME
from mala_context.errors import ConfigError, ConfigProblem
from mala_context.transcripts.projects import config_dir

MANAGED: Final = "/Library/Application Support/ClaudeCode" if sys.platform == "darwin" else "/etc/claude-code"
"""Directory of the settings that the administrator of the machine makes."""
_MOST_BYTES: Final = 4 << 20


def files(repo: str, env: Mapping[str, str], managed: str = MANAGED) -> tuple[SettingsFile, ...]:
    """Return the settings files that exist, the strongest first."""
    found = [_read(source, path) for source, path in _paths(repo, env, managed) if os.path.lexists(path)]
    return tuple(found)


def _paths(repo: str, env: Mapping[str, str], managed: str) -> Iterator[tuple[str, str]]:
    parts = os.path.join(managed, "managed-settings.d")
    try:
        names = sorted(each for each in os.listdir(parts) if each.endswith(".json"))
    except OSError:
        names = []
    for name in reversed(names):  # the last of these counts
        yield "managed", os.path.join(parts, name)
    yield "managed", os.path.join(managed, "managed-settings.json")
    yield "local", os.path.join(repo, ".claude", "settings.local.json")
    yield "project", os.path.join(repo, ".claude", "settings.json")
    user = config_dir(env)
    if user is not None:
        yield "user", os.path.join(user, "settings.json")
        around = user if os.path.isabs(env.get("CLAUDE_CONFIG_DIR", "")) else os.path.dirname(user)
        yield "global", os.path.join(around, ".claude.json")


def _read(source: str, path: str) -> SettingsFile:
    try:
        if not os.path.isfile(path):
            return SettingsFile(source, path, error="it is no file")
        data = read_regular(path, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            return SettingsFile(source, path, error=f"it has more than {_MOST_BYTES:,} bytes")
        values = json.loads(data.decode("utf-8-sig")) if data.strip() else {}
    except OSError as error:
        return SettingsFile(source, path, error=error.strerror or str(error))
    except (ValueError, RecursionError) as error:
        return SettingsFile(source, path, error=f"not JSON: {error!s:.200}")
    if not isinstance(values, dict):
        return SettingsFile(source, path, error="it is no JSON object")
    return SettingsFile(source, path, values)


def configs(repositories: Iterable[str]) -> tuple[ConfigFile, ...]:
    """Return each `mala.yaml` of these repositories that exists, with its problems."""
    found = []
    for repo in dict.fromkeys(os.path.realpath(each) for each in repositories if os.path.isabs(each)):
        path = os.path.join(repo, FILE_NAME)
        if os.path.lexists(path):
            problems: tuple[ConfigProblem, ...] = ()
            try:
                load_config(repo)
            except ConfigError as error:
                problems = error.problems
            found.append(ConfigFile(path, tuple(map(_words, problems))))
    return tuple(found)


def _words(problem: ConfigProblem) -> str:
    line, key = f"line {problem.line}: " if problem.line else "", f"{problem.key}: " if problem.key else ""
    return f"{line}{key}{problem.message}"
