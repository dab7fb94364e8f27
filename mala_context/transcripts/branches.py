"""Which rows of a transcript the user took back by rewinding.

The CLI appends only. Who rewinds to a prompt and says something else gets a second prompt with the parent of the first
one; the first and all that came of it stay in the file, and are no part of the conversation any more.
"""

from __future__ import annotations

from mala_context.transcripts.compactions import is_summary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

INJECTED = (
    "<task-notification>",
    "<local-command-",
    "<bash-",
    "<tool_use_error>",
    "[Request interrupted",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
)
"""How texts begin that stand in a user's place but are not from the user."""


def is_prompt(row: Mapping[str, Any]) -> bool:
    """Return whether a decoded row is what the user said: no tool's result, no note of the CLI's, no summary."""
    message, origin = row.get("message"), row.get("origin")
    content = message.get("content") if isinstance(message, dict) else None
    if row.get("type") != "user" or row.get("isMeta") or is_summary(row):
        return False
    if isinstance(origin, dict) and origin.get("kind") == "task-notification":
        return False
    if isinstance(content, str):
        return not content.lstrip().startswith(INJECTED)
    return isinstance(content, list) and not any(
        isinstance(block, dict) and block.get("type") == "tool_result" for block in content
    )


class Branches:
    """Sees the rows of one agent in the order of the file, and tells which of them were taken back."""

    def __init__(self) -> None:
        self._parents: dict[str, str | None] = {}
        self._prompts: dict[str | None, str] = {}
        self._left: set[str] = set()

    def take(self, row: Mapping[str, Any]) -> None:
        """See the next row."""
        uuid, parent = row.get("uuid"), row.get("parentUuid", False)
        if not isinstance(uuid, str) or not (parent is None or isinstance(parent, str)):
            return
        self._parents[uuid] = parent
        if is_prompt(row):
            earlier = self._prompts.get(parent)
            if earlier is not None and earlier != uuid:
                self._left.add(earlier)
            self._prompts[parent] = uuid

    def is_left(self, uuid: str | None) -> bool:
        """Return whether a row stands in a branch that was taken back."""
        seen: set[str] = set()
        while uuid is not None and uuid not in seen:
            if uuid in self._left:
                return True
            seen.add(uuid)
            uuid = self._parents.get(uuid)
        return False
