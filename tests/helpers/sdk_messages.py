"""The SDK's messages as tests build them, on whichever SDK is installed.

What reads a message asks for each field by its name. So a field that the class of the installed SDK has not yet is set
on the message all the same, and a class that it has not yet is one of the same name and fields: the tests then say of
the oldest SDK what they say of the newest.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeVar

from claude_agent_sdk import ResultMessage, SystemMessage, types

Message = TypeVar("Message")


def build(kind: type[Message], **values: Any) -> Message:
    """Return a message of `kind` with these values, also with those that the installed SDK would leave out."""
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type] # each of the SDK's messages is a dataclass
    message = kind(**{name: value for name, value in values.items() if name in known})
    for name in values.keys() - known:
        setattr(message, name, values[name])
    return message


def result(**values: Any) -> ResultMessage:
    """Return a turn's end: a success of session `s1`, except for `values`."""
    usual = {"subtype": "success", "duration_ms": 1, "duration_api_ms": 1, "is_error": False, "num_turns": 1}
    return build(ResultMessage, **{**usual, "session_id": "s1", **values})


def task_updated(task_id: str, status: str | None = None, patch: dict[str, Any] | None = None) -> SystemMessage:
    """Return the message of a task's change as the installed SDK has it: an older one has no class for it."""
    data: dict[str, Any] = {"type": "system", "subtype": "task_updated", "task_id": task_id, "patch": patch or {}}
    kind = getattr(types, "TaskUpdatedMessage", None)
    if kind is not None:
        message: SystemMessage = kind("task_updated", data, task_id, patch or {}, status)
        return message
    if status is not None:
        data["patch"] = {**data["patch"], "status": status}
    return SystemMessage("task_updated", data)


@dataclass
class _Reset:
    new_conversation_id: str
    uuid: str
    session_id: str


ConversationResetMessage: Any = getattr(
    types, "ConversationResetMessage", type("ConversationResetMessage", (_Reset,), {})
)
