"""Turn options into those of a session that continues no other one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NEW: Final[Mapping[str, Any]] = {
    "resume": None,
    "resume_session_at": None,
    "resume_drops_turn": None,
    "fork_session": False,
    "continue_conversation": False,
    "session_id": None,
}
"""Options that name another session or a place in it, and their values without one."""
_FLAGS: Final = frozenset(
    ("resume", "r", "resume-session-at", "resume-drops-turn", "fork-session", "continue", "c", "session-id")
)
"""The CLI's own names of these options, which `extra_args` may hold."""


def fresh(options: Any) -> dict[str, Any]:
    """Return the changes after which the options continue no other session.

    The CLI does not start if an option names a place in a session and no session is resumed.
    """
    changes = dict(_NEW)
    given = getattr(options, "extra_args", None)
    if given:
        changes["extra_args"] = {name: value for name, value in given.items() if name not in _FLAGS}
    return changes


def resumes_at(options: Any) -> str | None:
    """Return the uuid of the row up to which a session is resumed; `None` if it is resumed from its end."""
    at = getattr(options, "resume_session_at", None)
    if at is None:
        at = (getattr(options, "extra_args", None) or {}).get("resume-session-at")
    return at if isinstance(at, str) and at else None
