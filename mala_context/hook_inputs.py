"""What a hook is told: JSON of another program, of which nothing is sure, so that a text is one or nothing.

This module imports nothing at run time: a command hook lives for milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def text_in(hook_input: Mapping[str, Any], name: str) -> str | None:
    """Return the text under a name; `None` where there is none, where it is empty, and for anything else.

    `agent_id` is that of a subagent: a hook of the main agent has none.
    """
    value = hook_input.get(name)
    return value if isinstance(value, str) and value else None


def texts_in(hook_input: Mapping[str, Any], *names: str) -> list[str | None]:
    """Return the texts under several names, in their order."""
    return [text_in(hook_input, name) for name in names]
