"""Rows of the transcripts that the CLI writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mala_context.tracking.events import (
    SIDECHAIN,
    Appended,
    ContextEdited,
    Events,
    Link,
    Reset,
    Response,
    SubagentStart,
    Summary,
    WindowReport,
)
from mala_context.tracking.readers.parts import (
    boundary,
    edited,
    known,
    mapping,
    new,
    parse_context_text,
    refusal,
    stated_thinking,
    text,
    written_for_an_hour,
)
from mala_context.tracking.readers.stream_json import read_stream_json, refusal_text
from mala_context.transcripts.compactions import BOUNDARY, MICRO_BOUNDARY, is_clear, is_summary


def read_row(row: Any) -> Events:
    """Return the events in one decoded row; empty if it does not concern the context. Never raises.

    A row with the field names of stream-json (`session_id` and no `sessionId`) is read as stream-json, because files
    with the same name hold either.
    """
    if row.__class__ is not dict and not isinstance(row, Mapping):
        return ()
    try:
        if "session_id" in row and "sessionId" not in row:
            return read_stream_json(row)
        reader = _ROWS.get(row.get("type"))
        if reader is not None:
            return reader(row)
        return _link(row) if "parentUuid" in row else ()
    except Exception:  # noqa: BLE001  (a row that we do not understand is data, not an error)
        return ()


class RowReader:
    """Reads a transcript's rows in order, and reports that another process goes on when the CLI's version changes."""

    def __init__(self) -> None:
        self._version: object = None

    def read(self, row: Mapping[str, Any]) -> Events:
        """Return the events in the next row."""
        version = row.get("version", self._version)
        if version == self._version:
            return read_row(row)
        before, self._version = self._version, version
        began = () if before is None else (ContextEdited(_agent(row), text(row.get("sessionId")), "resume"),)
        return (*began, *read_row(row))


def _agent(row: Mapping[str, Any]) -> str | None:
    agent = text(row.get("agentId"))
    if agent is not None:
        return agent
    return SIDECHAIN if row.get("isSidechain") is True else None


def _parent(row: Mapping[str, Any]) -> str | None:
    """Return the id of the row before; empty for a root, `None` if the row has no such field."""
    parent = row.get("parentUuid", False)
    return "" if parent is None else text(parent)


def _assistant(row: Mapping[str, Any]) -> Events:
    get = row.get
    message = mapping(get("message"))
    raw = message.get("usage")
    agent, session_id = _agent(row), text(get("sessionId"))
    if message.get("model") == "<synthetic>" or get("isApiErrorMessage") is True:
        found = refusal(get("errorDetails"), agent, session_id)
        found = found or refusal_text(message.get("content"), agent, session_id)
        # A process that resumes a session writes a synthetic row too, which says that it is no error.
        if not found and get("isApiErrorMessage") is False:
            return (ContextEdited(agent, session_id, "resume"), *_link(row))
        return found or _link(row)
    return (
        *edited(message, agent, session_id),
        new(
            Response,
            (
                agent,
                session_id,
                text(message.get("id")),
                text(message.get("model")),
                usage := known(raw),
                message.get("content") or (),
                text(message.get("stop_reason")),
                text(get("uuid")),
                _parent(row),
                "row",
                text(get("requestId")),
                text(get("timestamp")),
                written_for_an_hour(raw),
                stated_thinking(raw, usage) if raw.__class__ is dict and "output_tokens_details" in raw else 0,
            ),
        ),
    )


def _user(row: Mapping[str, Any]) -> Events:
    get = row.get
    agent, session_id = _agent(row), text(get("sessionId"))
    content = mapping(get("message")).get("content")
    uuid, parent = text(get("uuid")), _parent(row)
    if is_summary(row):
        return (Summary(agent, session_id, content, uuid, parent),)
    appended = Appended(agent, session_id, "user", content, uuid, parent, text(get("timestamp")))
    started = text(mapping(get("toolUseResult")).get("agentId"))
    if started and isinstance(content, list):
        for block in content:
            call = text(mapping(block).get("tool_use_id"))
            if call:
                return (SubagentStart(session_id, started, call), appended)
    return (appended,)


def _system(row: Mapping[str, Any]) -> Events:
    get = row.get
    session_id = text(get("sessionId"))
    subtype = get("subtype")
    if subtype == BOUNDARY:
        parent = text(get("logicalParentUuid"))
        meta = mapping(get("compactMetadata"))
        event = boundary(meta, _agent(row), session_id, uuid=text(get("uuid")), parent=parent)
        return (event._replace(version=text(get("version"))),)
    if subtype == MICRO_BOUNDARY:
        return (ContextEdited(_agent(row), session_id, "microcompaction"), *_link(row))
    if subtype == "local_command":
        return (*_report(get("content"), session_id), *_local_command(row))
    return _link(row)


def _local_command(row: Mapping[str, Any]) -> Events:
    """Read a command of the CLI's own, or its output, which the model gets as a user's message."""
    get = row.get
    uuid, parent = text(get("uuid")), _parent(row)
    content = text(get("content"))
    if content is None or uuid is None or not parent:
        return _link(row)
    return (Appended(_agent(row), text(get("sessionId")), "user", content, uuid, parent, text(get("timestamp"))),)


def _report(content: Any, session_id: str | None) -> Events:
    """Read the sizes that `/context` printed."""
    found = parse_context_text(content) if isinstance(content, str) and "Context Usage" in content else None
    return (WindowReport(session_id, found[1], found[0]),) if found else ()


def _progress(row: Mapping[str, Any]) -> Events:
    data = mapping(row.get("data"))
    session_id = text(row.get("sessionId"))
    if is_clear(row):
        return (Reset(session_id, "clear", text(row.get("uuid"))),)
    agent, call = text(data.get("agentId")), text(row.get("parentToolUseID"))
    if agent and call:
        return (SubagentStart(session_id, agent, call), *_link(row))
    return (*_started(row, data), *_link(row))


def _started(row: Mapping[str, Any], hook: Mapping[str, Any]) -> Events:
    """Read that another process goes on, from a row that a SessionStart hook left."""
    began = hook.get("hookEvent") == "SessionStart"
    return (ContextEdited(_agent(row), text(row.get("sessionId")), "resume"),) if began else ()


def _link(row: Mapping[str, Any]) -> Events:
    get = row.get
    uuid = text(get("uuid"))
    if not uuid:
        return ()
    return (Link(_agent(row), text(get("sessionId")), uuid, _parent(row), text(get("timestamp"))),)


def _attachment(row: Mapping[str, Any]) -> Events:
    get = row.get
    uuid, parent = text(get("uuid")), _parent(row)
    attachment = get("attachment")
    rendered = get("rendered")
    # Newer CLIs write the text that the model gets beside the attachment's own fields.
    if isinstance(rendered, list) and isinstance(attachment, Mapping):
        said = [mapping(part).get("content") for part in rendered]
        attachment = {**attachment, "rendered": "\n".join(part for part in said if isinstance(part, str))}
    return (
        *_started(row, mapping(attachment)),
        Appended(_agent(row), text(get("sessionId")), "attachment", attachment, uuid, parent, text(get("timestamp"))),
    )


_ROWS: dict[Any, Callable[[Mapping[str, Any]], Events]] = {
    "assistant": _assistant,
    "user": _user,
    "system": _system,
    "progress": _progress,
    "attachment": _attachment,
}
