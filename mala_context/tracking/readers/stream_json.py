"""Reads lines of `claude --output-format stream-json` as dicts; the SDK makes its messages from the same lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mala_context.tracking.events import Appended, Events, Refusal, Reset, Response
from mala_context.tracking.readers.parts import known, mapping, refusal, system, text, turn_end, written_for_an_hour
from mala_context.tracking.readers.sdk import STREAM_EVENTS

_TOO_LONG = "prompt is too long"


def read_stream_json(line: Any) -> Events:
    """Return the events in one decoded line; empty if it does not concern the context. Never raises."""
    if not isinstance(line, Mapping):
        return ()
    try:
        reader = _LINES.get(line.get("type"))
        return reader(line) if reader else ()
    except Exception:  # noqa: BLE001  (a line that we do not understand is data, not an error)
        return ()


def _assistant(line: Mapping[str, Any]) -> Events:
    message = mapping(line.get("message"))
    agent, session_id = text(line.get("parent_tool_use_id")), text(line.get("session_id"))
    if message.get("model") == "<synthetic>":
        return error_text(message.get("content"), agent, session_id)
    return (
        Response(
            agent,
            session_id,
            text(message.get("id")),
            text(message.get("model")),
            known(message.get("usage")),
            message.get("content") or (),
            text(message.get("stop_reason")),
            text(line.get("uuid")),
            None,
            "message",
            text(line.get("request_id")),
            hour=written_for_an_hour(message.get("usage")),
        ),
    )


def error_text(content: Any, agent: str | None, session_id: str | None) -> Events:
    """Find a refusal in the text of an API error's blocks."""
    for block in content if isinstance(content, list) else ():
        found = refusal(mapping(block).get("text"), agent, session_id)
        if found:
            return found
    return ()


def refusal_text(content: Any, agent: str | None, session_id: str | None) -> Events:
    """Find a refusal in the text of a transcript's error row, with or without the size (case people-23)."""
    found = error_text(content, agent, session_id)
    if found:
        return found
    for block in content if isinstance(content, list) else ():
        if (text(mapping(block).get("text")) or "").lower().startswith(_TOO_LONG):
            return (Refusal(agent, session_id, None, None),)
    return ()


def _user(line: Mapping[str, Any]) -> Events:
    agent, session_id = text(line.get("parent_tool_use_id")), text(line.get("session_id"))
    content = mapping(line.get("message")).get("content")
    return (Appended(agent, session_id, "user", content, text(line.get("uuid"))),)


def _system(line: Mapping[str, Any]) -> Events:
    return system(line.get("subtype"), line, text(line.get("session_id")))


def _result(line: Mapping[str, Any]) -> Events:
    return (turn_end(line.get),)


def _stream_event(line: Mapping[str, Any]) -> Events:
    event = mapping(line.get("event"))
    reader = STREAM_EVENTS.get(event.get("type"))
    return reader(event, text(line.get("parent_tool_use_id")), text(line.get("session_id"))) if reader else ()


def _reset(line: Mapping[str, Any]) -> Events:
    return (Reset(text(line.get("session_id"))),)


_LINES: dict[Any, Callable[[Mapping[str, Any]], Events]] = {
    "assistant": _assistant,
    "user": _user,
    "system": _system,
    "result": _result,
    "stream_event": _stream_event,
    "conversation_reset": _reset,
}
