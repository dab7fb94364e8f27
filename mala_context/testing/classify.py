"""Which of the CLI's requests is which: rules as a table, first that holds.

Seen on the real CLI: a subagent's requests carry the header `x-claude-code-agent-id`; a request for a compaction
summary ends with a user message that asks for a detailed summary of the conversation; the CLI's own small requests (a
title, a topic) offer the model no tools and ask for a few words or for JSON. An agent without tools is still `main`.
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

SMALL = 1024
"""The most `max_tokens` of a request that cannot be an agent's."""

_SUMMARY_REQUEST = re.compile(r"\bdetailed summary of (?:the|this|our)\b.{0,40}\bconversation", re.IGNORECASE)


def last_user_text(body: Body) -> str:
    """Return the text of the last message if it is the user's, tool results left out; empty otherwise.

    With Opus 4.8 and the 5 models the CLI puts its reminders after it, as messages of the role `system`.
    """
    messages = [one for one in body.get("messages") or () if one.get("role") != "system"]
    if not messages or messages[-1].get("role") != "user":
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    return "\n".join(str(one.get("text", "")) for one in content or () if one.get("type") == "text")


def wanted_schema(body: Body) -> Mapping[str, Any] | None:
    """Return the JSON schema that the answer must have, if the request names one."""
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    schema = wanted.get("schema")
    return schema if isinstance(schema, Mapping) else None


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
        if self.body.get("tools"):
            return False
        return wanted_schema(self.body) is not None or self.body.get("max_tokens", SMALL + 1) <= SMALL


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
