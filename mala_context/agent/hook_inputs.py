"""What a hook or a status line is told: JSON of another program, of which nothing is sure: a text is one or nothing.

This module imports nothing before it is needed: either process lives for milliseconds.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MOST_INPUT = 64 << 20
"""Bytes of input that are read; of a longer one the beginning, which is no JSON."""
INPUT_SECONDS = 3.0
"""Longest that is waited for the rest of an input: the other program may never close its end of the pipe."""
_BLOCK = 1 << 20
_QUIET_SECONDS = 0.1


def object_from(
    read: Callable[[int], bytes], is_ready: Callable[[float], bool] = lambda _seconds: True
) -> dict[str, Any]:
    """Return the JSON object that a process is told.

    `read` returns at most so many bytes of it, none at its end; `is_ready` waits so many seconds for more and says
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
        if data.endswith((b"}", b"\n", b" ", b"\0")) and not is_ready(_QUIET_SECONDS if len(data) < 2 * tried else 0.0):
            tried = len(data)
            value = _decoded(data)
            if value is not None:
                return _as_object(value)
        if not is_ready(max(0.0, end - time.monotonic())):
            raise ValueError("not whole")
        more = read(min(_BLOCK, MOST_INPUT - len(data)))
        if not more:
            break
        data += more
    value = _decoded(data)
    if value is None and data.strip() != b"null":
        raise ValueError("no JSON")
    return _as_object(value)


def _decoded(data: bytearray) -> object:
    """Return the JSON value; `None` where it is none or not whole."""
    import json

    try:
        return json.loads(data)
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
