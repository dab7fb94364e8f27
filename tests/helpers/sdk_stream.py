"""The SDK's messages in few words, for tests of what reads them."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ResultMessage,
    SystemMessage,
    TextBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from claude_agent_sdk.types import StreamEvent, TaskStartedMessage

from mala_context.tracking.events import Event
from mala_context.tracking.readers import read_message
from mala_context.tracking.tracker import ContextSnapshot, ContextTracker
from tests.helpers import sdk_messages

MODEL = "claude-opus-4-8"
SESSION = "s1"


def usage(prompt: int, output: int = 1) -> dict[str, int]:
    """Return the counts of a request of so many tokens, most of them read from the cache."""
    fresh = min(3, prompt)
    written = min(900, prompt - fresh)
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": prompt - fresh - written,
        "output_tokens": output,
    }


def assistant(
    identity: str | None,
    prompt: int | None,
    *,
    output: int = 1,
    parent: str | None = None,
    content: list[Any] | None = None,
    model: str = MODEL,
    session: str | None = SESSION,
    uuid: str | None = None,
    stop: str | None = None,
) -> AssistantMessage:
    """Return a part of a response."""
    return AssistantMessage(
        content=[TextBlock("hello")] if content is None else content,
        model=model,
        parent_tool_use_id=parent,
        usage=None if prompt is None else usage(prompt, output),
        message_id=identity,
        session_id=session,
        uuid=uuid,
        stop_reason=stop,
    )


def tool_use(name: str = "Read", identity: str = "toolu_1", **arguments: Any) -> ToolUseBlock:
    """Return a tool call."""
    return ToolUseBlock(id=identity, name=name, input=arguments)


def tool_result(text: Any, identity: str = "toolu_1", parent: str | None = None) -> UserMessage:
    """Return a tool's result."""
    return UserMessage(content=[ToolResultBlock(identity, text)], parent_tool_use_id=parent)


def init(session: str = SESSION, model: str = MODEL) -> SystemMessage:
    """Return the message with which a turn begins."""
    return SystemMessage("init", {"type": "system", "subtype": "init", "session_id": session, "model": model})


def boundary(pre: int | None, post: int | None, trigger: str = "auto", session: str = SESSION) -> SystemMessage:
    """Return a compaction's boundary."""
    meta = {"trigger": trigger, "pre_tokens": pre, "post_tokens": post, "duration_ms": 1200}
    return SystemMessage("compact_boundary", {"session_id": session, "compact_metadata": meta, "uuid": f"b{pre}"})


def result(used: dict[str, Any] | None = None, *, session: str = SESSION, **fields: Any) -> ResultMessage:
    """Return a turn's end."""
    return sdk_messages.result(session_id=session, usage=used, **fields)


def stream(raw: dict[str, Any], parent: str | None = None, session: str = SESSION) -> StreamEvent:
    """Return a raw stream event."""
    return StreamEvent(uuid="e", session_id=session, event=raw, parent_tool_use_id=parent)


def task_started(agent_id: str, call: str, session: str = SESSION) -> TaskStartedMessage:
    """Return the message that joins a Task call to its agent."""
    return TaskStartedMessage(
        "task_started",
        {"session_id": session, "task_id": agent_id, "tool_use_id": call},
        agent_id,
        "",
        "u",
        session,
        call,
    )


def feed(tracker: ContextTracker, *messages: Any) -> list[ContextSnapshot]:
    """Feed messages (or events) and return the snapshots that they made."""
    found = []
    for message in messages:
        events: tuple[Event, ...] = (message,) if hasattr(message, "_fields") else read_message(message)
        found += [snapshot for event in events if (snapshot := tracker.apply(event)) is not None]
    return found
