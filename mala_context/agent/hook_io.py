"""The input of a hook or a status line, and what a hook answers the CLI; for SDK callbacks and command hooks alike.

An input is JSON of another program, of which nothing is sure: a field is read as a text or as nothing. An answer is a
mapping in the SDK's spelling, which is the CLI's own but for `continue_`. This module imports nothing before it is
needed: a command hook lives for milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    Answer = Mapping[str, Any] | None
    """What an action has to say to the CLI; `None` or empty for nothing."""

MOST_INPUT = 64 << 20
"""Bytes of input that are read; of a longer one the beginning, which is no JSON."""
INPUT_SECONDS = 2.5
"""Longest that is waited for the rest of an input: the other program may never close its end of the pipe. Less than the
shortest time of a hook, so that this is what it says."""
_BLOCK = 1 << 20
_QUIET_SECONDS = 0.1
_MOST_DIGITS = 400
"""Python refuses 4,300 digits, and with them the session's name beside the number."""


def object_from(
    read: Callable[[int], bytes], is_ready: Callable[[float], bool] = lambda _seconds: True
) -> dict[str, Any]:
    """Return the JSON object that a process is told.

    `read(n)` returns at most n bytes of it, none at its end; `is_ready(s)` waits s seconds for more and says
    whether there is any. The object counts once it is whole, at its end or where nothing follows it: Claude Code may
    leave the pipe open, so whoever waits for its end waits for ever. Raises `ValueError` with `no JSON`, `no JSON
    object` or, where it is not whole after `INPUT_SECONDS`, `not whole`, and what `read` raises.
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
    """Return the JSON value; `None` where it is none or not whole. A whole number that Python refuses is infinite."""
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
    """Return the text under a name; `None` where there is none, where it is empty, and for anything else.

    `agent_id` is that of a subagent: a hook of the main agent has none.
    """
    value = hook_input.get(name)
    return value if isinstance(value, str) and value else None


def texts_in(hook_input: Mapping[str, Any], *names: str) -> list[str | None]:
    """Return the texts under several names, in their order."""
    return [text_in(hook_input, name) for name in names]


def add_context(event: str, words: str) -> dict[str, Any]:
    """Hand words to the agent with the next request; `event` is the hook's own name, or the CLI ignores the answer."""
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": words}}


def deny(reason: str) -> dict[str, Any]:
    """Deny a tool call (PreToolUse); the agent reads the reason in place of a result."""
    decision = {"permissionDecision": "deny", "permissionDecisionReason": reason}
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}


def replace_output(output: Any) -> dict[str, Any]:
    """Show the agent this in place of a tool's result (PostToolUse); it has to have the result's own shape."""
    return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "updatedToolOutput": output}}


def stop(reason: str) -> dict[str, Any]:
    """End the turn. In PreToolUse the call itself would still run: join it with `denied`."""
    return {"continue_": False, "stopReason": reason}
