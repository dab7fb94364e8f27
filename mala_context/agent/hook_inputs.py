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
_BLOCK = 1 << 20


def object_from(read: Callable[[int], bytes]) -> dict[str, Any]:
    """Return the JSON object that a process is told; `read` returns at most so many bytes of it, none at its end.

    Raises `ValueError` with `no JSON` or `no JSON object` where it is something else, and what `read` raises.
    """
    data = bytearray()  # grows in place: a pipe's pieces are as small as its writer likes
    while more := read(min(_BLOCK, MOST_INPUT - len(data))):
        data += more
    import json

    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("no JSON") from None
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
