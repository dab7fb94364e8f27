"""Test agents offline: a scripted Messages API for the real CLI, and fixtures for pytest.

The names are loaded when they are first used, so that registering the pytest plugin costs a test run nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mala_context.testing.api import ScriptedMessagesAPI, ScriptError
    from mala_context.testing.battery import STORE_CHECKS, check_store
    from mala_context.testing.clock import ScriptedClock
    from mala_context.testing.replies import (
        Failure,
        Reply,
        api_error,
        block,
        looped,
        refuse,
        summary,
        text,
        thinking,
        too_long,
        tool,
    )
    from mala_context.testing.requests import Request
    from mala_context.testing.scripts import Scenario, fill_until_compaction
    from mala_context.testing.survival import CANARIES, Canary, Survival, play_survival, survives

_HOMES = {
    name: home
    for home, names in {
        "api": "ScriptError ScriptedMessagesAPI",
        "battery": "STORE_CHECKS check_store",
        "clock": "ScriptedClock",
        "replies": "Failure Reply api_error block looped refuse summary text thinking too_long tool",
        "requests": "Request",
        "scripts": "Scenario fill_until_compaction",
        "survival": "CANARIES Canary Survival play_survival survives",
    }.items()
    for name in names.split()
}
"""Public name → the module that it is loaded from, below this package."""

__all__ = [
    "CANARIES",
    "STORE_CHECKS",
    "Canary",
    "Failure",
    "Reply",
    "Request",
    "Scenario",
    "ScriptError",
    "ScriptedClock",
    "ScriptedMessagesAPI",
    "Survival",
    "api_error",
    "block",
    "check_store",
    "fill_until_compaction",
    "looped",
    "play_survival",
    "refuse",
    "summary",
    "survives",
    "text",
    "thinking",
    "too_long",
    "tool",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
