"""Reads messages of `claude-agent-sdk`, which are known by the name of their class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mala_context.tracking.events import Appended, Events, Reset, Response, TurnEnd, UsageDelta
from mala_context.tracking.readers.parts import (
    known,
    lists_calls,
    new,
    refusal,
    stated_thinking,
    system,
    text,
    turn_end,
    written_for_an_hour,
)
from mala_context.tracking.usage import Usage

_SYNTHETIC = "<synthetic>"
_MOST_CLASSES = 256
_READERS: dict[type, Callable[[Any], Events]] = {}


def read_message(message: Any) -> Events:
    """Return the events in one SDK message; empty if it does not concern the context. Never raises."""
    reader = _READERS.get(message.__class__)
    try:
        return _reader_of(message.__class__)(message) if reader is None else reader(message)
    except Exception:  # noqa: BLE001  (a message that we do not understand must not end the agent's stream)
        return ()


def _reader_of(cls: type) -> Callable[[Any], Events]:
    """Find the reader of a class by the class's name, once: `__name__` costs as much as the rest of a look-up."""
    reader = _MESSAGES.get(cls.__name__, _nothing)
    if len(_READERS) < _MOST_CLASSES:  # memory stays flat even if a program makes classes without end
        _READERS[cls] = reader
    return reader


def _nothing(message: Any) -> Events:
    return ()


def _assistant(message: Any) -> Events:
    model = message.model
    agent = message.parent_tool_use_id
    if model == _SYNTHETIC:
        return _error(message, agent)
    return (
        new(
            Response,
            (
                agent,
                message.session_id,
                message.message_id,
                text(model),
                known(message.usage),
                message.content,
                message.stop_reason,
                message.uuid,
                None,
                "message",
                None,
                None,
                written_for_an_hour(message.usage),
                0,
            ),
        ),
    )


def _error(message: Any, agent: str | None) -> Events:
    for block in message.content:
        found = refusal(getattr(block, "text", None), agent, message.session_id)
        if found:
            return found
    return ()


def _user(message: Any) -> Events:
    return (new(Appended, (message.parent_tool_use_id, None, "user", message.content, message.uuid, None, None)),)


def _system(message: Any) -> Events:
    data = message.data
    return system(message.subtype, data, text(data.get("session_id")))


def read_turn_end(message: Any) -> TurnEnd:
    """Read the end of a turn from a `ResultMessage`; may raise if a field has a wrong type."""
    return turn_end(lambda name: getattr(message, name, None))


def _result(message: Any) -> Events:
    return (read_turn_end(message),)


def _stream_event(message: Any) -> Events:
    reader = STREAM_EVENTS.get(message.event.get("type"))
    return reader(message.event, message.parent_tool_use_id, message.session_id) if reader else ()


def _reset(message: Any) -> Events:
    return (Reset(text(message.session_id)),)


def message_start(event: Any, agent: str | None, session_id: str | None) -> Events:
    """Read the start of a streamed response, which has its id, model and usage."""
    message = event["message"]
    usage = known(message.get("usage"))
    identity = text(message.get("id"))
    hour = written_for_an_hour(message.get("usage"))
    return (Response(agent, session_id, identity, text(message.get("model")), usage, source="stream", hour=hour),)


def message_delta(event: Any, agent: str | None, session_id: str | None) -> Events:
    """Read the end of a streamed response, which has its real output."""
    raw = event.get("usage")
    delta = event.get("delta")
    stop = text(delta.get("stop_reason")) if isinstance(delta, dict) else None
    usage = Usage.of_last_call(raw)
    return (UsageDelta(agent, session_id, usage, stop, lists_calls(raw), stated_thinking(raw, usage)),)


STREAM_EVENTS: dict[Any, Callable[[Any, str | None, str | None], Events]] = {
    "message_start": message_start,
    "message_delta": message_delta,
}
"""Reader by type of raw stream event. The other types, which make up nearly all stream events, are not read."""

_MESSAGES: dict[str, Callable[[Any], Events]] = {
    "AssistantMessage": _assistant,
    "UserMessage": _user,
    "ResultMessage": _result,
    "StreamEvent": _stream_event,
    "SystemMessage": _system,
    "TaskStartedMessage": _system,
    "ConversationResetMessage": _reset,
}
