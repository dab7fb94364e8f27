"""Read the input of a hook or a status line, and make a hook's answers; for SDK callbacks and command hooks.

The input is another program's JSON and may hold anything, so a field is read as a text or as nothing. An answer is a
mapping in the SDK's spelling, which is the CLI's own except for `continue_`. This module delays its imports: a command
hook lives for milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Answer = Mapping[str, Any] | None
    """An action's answer to the CLI; `None` or empty for none."""

MOST_INPUT = 64 << 20
"""Most bytes of input that are read. A longer input is cut, and is then no valid JSON."""
INPUT_SECONDS = 2.5
"""Longest wait for the rest of an input: the other program may never close its end of the pipe.

It is shorter than the shortest time limit of a hook, so that the hook's message names the input and not the disk.
"""
_BLOCK = 1 << 20
_QUIET_SECONDS = 0.1
_MOST_DIGITS = 400
"""Python refuses 4,300 digits, and with them the session's name beside the number."""


def object_from(
    read: Callable[[int], bytes], is_ready: Callable[[float], bool] = lambda _seconds: True
) -> dict[str, Any]:
    """Return the JSON object that a process gets as its input.

    `read(n)` returns at most n bytes, and none at the end. `is_ready(s)` waits s seconds for more bytes and tells
    whether there are any. The object is accepted when it is complete and nothing follows: Claude Code may leave the
    pipe open, and all hooks hung that waited for its end. Raises `ValueError` with `no JSON`, `no JSON object` or, if
    it is not complete after `INPUT_SECONDS`, `not whole`; and what `read` raises.
    """
    import time

    end = time.monotonic() + INPUT_SECONDS
    data = bytearray()  # grows in place: a pipe's pieces are as small as its writer likes
    tried = 0
    while True:
        # A slow writer's object may seem whole at each of its brackets: decode it again only after some growth.
        if data.endswith((b"}", b"\n", b"\r", b"\t", b" ", b"\0")) and not is_ready(
            _QUIET_SECONDS if len(data) < 2 * tried else 0.0
        ):
            tried = len(data)
            value = _decoded(data)
            if value is not None:
                return _as_object(value)
        # The last try: the object may have ended with a character after which it was not decoded above.
        if not is_ready(max(0.0, end - time.monotonic())):
            value = _decoded(data)
            if value is None:
                raise ValueError("not whole")
            return _as_object(value)
        more = read(min(_BLOCK, MOST_INPUT - len(data)))
        if not more:
            break
        data += more
    value = _decoded(data)
    if value is None and data.strip() != b"null":
        raise ValueError("no JSON")
    return _as_object(value)


def _decoded(data: bytearray) -> object:
    """Return the JSON value; `None` if the data is no JSON or not complete.

    An integer of more than `_MOST_DIGITS` digits becomes infinite. Python refuses 4,300 digits: the whole input then
    counted as not complete, and nothing was archived.
    """
    import json

    try:
        return json.loads(data, parse_int=lambda text: int(text) if len(text) < _MOST_DIGITS else float(text))
    except (ValueError, RecursionError):
        return None


def _as_object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("no JSON object")  # noqa: TRY004  # it is text, wrong
    return value


def text_in(hook_input: Mapping[str, Any], name: str) -> str | None:
    """Return the text under a name; `None` if it is missing, empty, or not a text.

    `agent_id` names a subagent: a hook of the main agent has none.
    """
    value = hook_input.get(name)
    return value if isinstance(value, str) and value else None


def texts_in(hook_input: Mapping[str, Any], *names: str) -> list[str | None]:
    """Return the texts under several names, in their order."""
    return [text_in(hook_input, name) for name in names]


def add_context(event: str, words: str) -> dict[str, Any]:
    """Give words to the agent with the next request. The CLI ignores them if `event` is not the hook's own event."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": words}}


def deny(reason: str) -> dict[str, Any]:
    """Deny a tool call (PreToolUse); the agent reads the reason in place of a result."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def replace_output(output: Any) -> dict[str, Any]:
    """Replace a tool's result for the agent (PostToolUse); `output` must have the shape of the result."""
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": output}}


def stop(reason: str) -> dict[str, Any]:
    """End the turn. In PreToolUse the call itself would still run, so combine it with `deny`."""
    return {"continue_": False, "stopReason": reason}
