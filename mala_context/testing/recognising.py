"""Which of the CLI's requests is which: rules as a table, first that holds.

Seen on the real CLI: a subagent's requests carry the header `x-claude-code-agent-id`; a request for a compaction
summary ends with a user message that asks for a summary of the conversation; the CLI's own small requests (a title, a
topic) offer the model no tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["main", "subagent", "compaction", "side", "count_tokens"]
"""`main` and `subagent` take replies from scripts, the others are answered by themselves."""

Body: TypeAlias = Mapping[str, Any]
Headers: TypeAlias = Mapping[str, str]

AGENT_HEADER = "x-claude-code-agent-id"

_SUMMARY_REQUEST = re.compile(r"\bdetailed summary of (?:the|this|our)\b.{0,40}\bconversation", re.IGNORECASE)


def last_user_text(body: Body) -> str:
    """Return the text of the last message if it is the user's, tool results left out; empty otherwise."""
    messages: Sequence[Any] = body.get("messages") or ()
    if not messages or messages[-1].get("role") != "user":
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(one.get("text", "")) for one in content or () if one.get("type") == "text")


def agent_id(headers: Headers) -> str | None:
    """Return the id of the subagent that sent a request, None for the main thread."""
    return headers.get(AGENT_HEADER) or None


class _Seen(NamedTuple):
    path: str
    body: Body
    headers: Headers

    @property
    def asks_for_summary(self) -> bool:
        return bool(_SUMMARY_REQUEST.search(last_user_text(self.body)))

    @property
    def is_small(self) -> bool:
        return not self.body.get("tools") and "claude-cli" in self.headers.get("user-agent", "")


KINDS: Sequence[tuple[Kind, Callable[[_Seen], bool]]] = (
    ("count_tokens", lambda seen: seen.path.endswith("/count_tokens")),
    ("compaction", lambda seen: seen.asks_for_summary),
    ("subagent", lambda seen: agent_id(seen.headers) is not None),
    ("side", lambda seen: seen.is_small),
)


def recognise(path: str, body: Body, headers: Headers) -> Kind:
    """Return the kind of a request, `main` if no rule holds; header names must be lower case."""
    seen = _Seen(path, body, headers)
    return next((kind for kind, holds in KINDS if holds(seen)), "main")
