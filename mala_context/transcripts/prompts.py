"""Which rows of a transcript are prompts, and what a user wrote in them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MOST_CHARACTERS = 200
"""Characters of a prompt that `prompt_text` returns at most."""


def begins_turn(row: Mapping[str, Any]) -> bool:
    """Tell whether a `user` row of a transcript begins a turn: no tool's result, no note of the CLI's own."""
    origin = row.get("origin")
    if row.get("isMeta") is True or (isinstance(origin, dict) and origin.get("kind") == "task-notification"):
        return False
    blocks = _content(row)
    return not any(
        isinstance(block, dict) and block.get("tool_use_id") is not None
        for block in (blocks if isinstance(blocks, list) else ())
    )


def prompt_text(row: Mapping[str, Any]) -> str | None:
    """Return the beginning of the prompt in a `user` row.

    `None` for a row without text, for a tool's result, for a summary of the CLI's, and for the text of a command
    (`<command-name>…`).
    """
    if row.get("type") != "user" or row.get("isCompactSummary") or not begins_turn(row):
        return None
    content = _content(row)
    for block in content if isinstance(content, list) else [content]:
        text = block.get("text") if isinstance(block, dict) else block
        if isinstance(text, str) and text.strip() and not text.lstrip().startswith("<"):
            return text.strip()[:MOST_CHARACTERS]
    return None


def _content(row: Mapping[str, Any]) -> object:
    message = row.get("message")
    return message.get("content") if isinstance(message, dict) else None
