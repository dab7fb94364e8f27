"""Read values from JSON of another program: a missing value, or one of a wrong type, counts as none."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_LONG = 4 << 20
"""Bytes of a line from which on it is shortened before it is decoded, as `transcripts.long_rows` does."""


def table(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object under a name, an empty one where there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def count(value: object) -> int:
    """Return a number of tokens; 0 for what is none."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12 else 0


_PROMPT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def tokens_of(usage: Mapping[str, Any]) -> int | None:
    """Return the size of a request from its counts (input, cache creation, cache read); `None` if it has none.

    If a count may be under a name that this version does not know, the size is unknown too.
    """
    if _renamed(usage):
        return None
    total = _total(usage)
    # A response with a loop of calls on the server has an entry for each call: the size is that of the last one (case
    # core-29).
    iterations = usage.get("iterations")
    if total and isinstance(iterations, list):
        for each in reversed(iterations):
            if not isinstance(each, dict) or each.get("type") != "message":
                return _weighed(usage)
            if _renamed(each):
                return None
            if last := _total(each):
                return last
    return total or None


def _total(usage: Mapping[str, Any]) -> int:
    counts = [count(usage.get(name)) for name in _PROMPT]
    if counts[0] >= 1_000 and counts[0] == counts[1] + counts[2]:
        return counts[0]  # as `Usage.counts_cache_twice` has it
    return sum(counts)


def _weighed(usage: Mapping[str, Any]) -> int | None:
    """Return what the core says of a response with calls of several kinds."""
    from mala_context.tracking.usage import Usage  # seldom needed, and dear beside a line

    call = Usage.of_last_call(usage)
    return call.context_tokens if call is not None and call.context_tokens else None


def _renamed(usage: Mapping[str, Any]) -> bool:
    if all(name in usage for name in _PROMPT) or not usage.keys() - {*_PROMPT, "output_tokens", "iterations"}:
        return False
    from mala_context.tracking.usage import strangers  # seldom needed, and dear beside a line

    return bool(strangers(usage))


def rows(data: bytes) -> list[dict[str, Any]]:
    """Return the objects on a line: one, or what can be read of a line that holds two or is being written."""
    import json

    if len(data) > _LONG:
        from mala_context.transcripts.long_rows import shortened

        data = shortened([data])
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        from mala_context.transcripts.json_rows import objects

        return objects(data)  # two objects on one line, or a row that is being written
    return [value] if isinstance(value, dict) else []
