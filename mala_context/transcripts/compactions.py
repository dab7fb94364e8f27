"""Tell which rows of a transcript belong to a compaction: one rule for every reader of decoded rows.

The CLI writes a `compact_boundary` row, then a row with the summary. CLIs before 1.0.90 wrote the summary row alone.
A `microcompact_boundary` is no compaction: the CLI cleared old tool results, and the conversation goes on. A subagent's
rows inside the main agent's file are marked `isSidechain`; its compactions are not the main agent's. A `/clear` inside
a file is no compaction either: what was said before it is no part of the conversation any more.

A hook imports this module, so it imports nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

BOUNDARY = "compact_boundary"
MICRO_BOUNDARY = "microcompact_boundary"
MARKS = (BOUNDARY.encode(), b'"isCompactSummary"')
"""Each row of a compaction has at least one of these: search for them before you decode a row."""

CLEAR_COMMAND = "<command-name>/clear</command-name>"

KEPT_MARKS = ("<kept-conversation ", "<kept-state>")
"""How the rows begin that a compaction by reference writes: a part of the conversation, and the state after it."""


def may_hold(data: Iterable[bytes], marks: tuple[bytes, ...] = MARKS) -> bool:
    """Tell whether bytes of a transcript have one of the marks anywhere; faster than splitting them into rows."""
    longest = max(map(len, marks))
    rest = b""
    for chunk in data:
        here = rest + chunk
        if any(mark in here for mark in marks):
            return True
        # A mark may lie across two chunks.
        rest = here[-longest:]
    return False


def is_boundary(row: Mapping[str, Any]) -> bool:
    """Return whether a decoded row is a compaction's boundary, of whichever agent."""
    return row.get("type") == "system" and row.get("subtype") == BOUNDARY


def is_main_boundary(row: Mapping[str, Any]) -> bool:
    """Return whether a decoded row is the boundary of a compaction of the main agent."""
    return is_boundary(row) and not row.get("isSidechain")


def is_summary(row: Mapping[str, Any]) -> bool:
    """Return whether a decoded row holds a compaction's summary, of whichever agent."""
    return row.get("isCompactSummary") is True


def kept_text(row: Mapping[str, Any]) -> str:
    """Return the text of a row that a compaction by reference wrote; empty for any other row."""
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return content if row.get("type") == "user" and isinstance(content, str) and content.startswith(KEPT_MARKS) else ""


def is_microcompaction(row: Mapping[str, Any]) -> bool:
    """Return whether a decoded row says that the CLI cleared old tool results of the main agent by itself."""
    return row.get("type") == "system" and row.get("subtype") == MICRO_BOUNDARY and not row.get("isSidechain")


def is_clear(row: Mapping[str, Any]) -> bool:
    """Return whether a decoded row says that the user began a new conversation with `/clear`, in the same file."""
    kind = row.get("type")
    if kind == "progress":
        data = row.get("data")
        return isinstance(data, dict) and data.get("hookName") == "SessionStart:clear" and row.get("parentUuid") is None
    message = row.get("message") if kind == "user" and not row.get("isSidechain") else None
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, str) and CLEAR_COMMAND in content[:200]
