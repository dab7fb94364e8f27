"""Which rows of a transcript are prompts, and what a user wrote in them."""

from __future__ import annotations

from mala_context.transcripts.compactions import is_summary, kept_text
from mala_context.transcripts.json_rows import content_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

MOST_CHARACTERS = 200
"""Characters of a prompt that `prompt_text` returns at most."""

INJECTED = (
    "<task-notification>",
    "<local-command-",
    "<bash-",
    "<tool_use_error>",
    "[Request interrupted",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)
"""Beginnings of texts that the CLI writes in the user's place."""


def begins_turn(row: Mapping[str, Any]) -> bool:
    """Tell whether a `user` row begins a turn: it is no tool's result and no note of the CLI or of this package."""
    origin = row.get("origin")
    notified = isinstance(origin, dict) and origin.get("kind") == "task-notification"
    if row.get("isMeta") is True or notified or kept_text(row):
        return False
    return not any(isinstance(block, dict) and block.get("tool_use_id") is not None for block in _blocks(row))


def is_prompt(row: Mapping[str, Any]) -> bool:
    """Tell whether a decoded row is the user's own: it begins a turn, and is no summary and no injected text."""
    if row.get("type") != "user" or is_summary(row) or not begins_turn(row):
        return False
    return any(not (text := _text(block)) or not text.lstrip().startswith(INJECTED) for block in _blocks(row))


def prompt_text(row: Mapping[str, Any]) -> str | None:
    """Return the beginning of a prompt; `None` for other rows, no text, and a command (`<command-name>…`)."""
    for block in _blocks(row) if is_prompt(row) else ():
        text = (_text(block) or "").strip()
        if text and not text.startswith(("<", *INJECTED)):
            return text[:MOST_CHARACTERS]
    return None


def _blocks(row: Mapping[str, Any]) -> Iterator[object]:
    content = content_of(row)
    yield from content if isinstance(content, list) else [content] if isinstance(content, str) else ()


def _text(block: object) -> str | None:
    text = block.get("text") if isinstance(block, dict) else block
    return text if isinstance(text, str) else None
