"""Rows as structs with only the fields that sizes need: a whole block of lines at a time, with `msgspec`.

Text is skipped, not built; `Raw` is a view of the block and holds only until the next one. A block with a line that
does not decode is read again line by line.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mala_context.analysis.replay.rows import decode
from mala_context.tracking.usage import LEAST_INCLUSIVE, MOST


class NeedsFullReader(Exception):  # noqa: N818  (not an error: the careful way reads it)
    """Something that the fast way does not follow."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]
MISSING: Final = -4 * MOST
"""A prompt's count that is not there; any sum with it is negative. It may stand under another name."""


class Iteration(Struct, gc=False):
    """A model call behind a response."""

    type: str | None = None
    input_tokens: Count = MISSING
    cache_creation_input_tokens: Count = MISSING
    cache_read_input_tokens: Count = MISSING
    output_tokens: Count = 0


class RowUsage(Struct, gc=False):
    """A response's counts."""

    input_tokens: Count = MISSING
    cache_creation_input_tokens: Count = MISSING
    cache_read_input_tokens: Count = MISSING
    output_tokens: Count = 0
    iterations: list[Iteration] | None = None


class Message(Struct, gc=False):
    """The message of a user's or an assistant's row."""

    model: str | None = None
    id: str | None = None
    content: Raw = Raw()
    usage: RowUsage | None = None


class Row(Struct, gc=False):
    """A transcript's row; the fields stand as most rows have them, since a search for one begins behind the last."""

    parentUuid: str | UnsetType | None = UNSET  # noqa: N815  (the transcript's spelling)
    isSidechain: bool | None = None  # noqa: N815
    sessionId: str | None = None  # noqa: N815
    agentId: str | None = None  # noqa: N815
    type: str | None = None
    message: Message | None = None
    requestId: str | None = None  # noqa: N815
    uuid: str | None = None
    timestamp: str | None = None
    session_id: Any = UNSET
    subtype: str | None = None
    isCompactSummary: bool | None = None  # noqa: N815
    isApiErrorMessage: bool | None = None  # noqa: N815
    errorDetails: Any = None  # noqa: N815
    logicalParentUuid: str | None = None  # noqa: N815
    compactMetadata: Any = None  # noqa: N815
    forkedFrom: Any = None  # noqa: N815
    content: Any = None
    data: Raw = Raw()


_decoder = msgspec.json.Decoder(Row)
decode_lines = _decoder.decode_lines
"""A block of whole lines to rows; raises `msgspec.MsgspecError` where one of them does not decode."""


def decode_line(line: bytes | memoryview) -> tuple[list[Row], str | None]:
    """Read a line by itself: its rows, and what is wrong with it.

    Raises `Unusual` for a row that is good JSON and yet none that the fast way knows.
    """
    try:
        return [_decoder.decode(line)], None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        line = bytes(line)
    if not line or line.isspace():
        return [], None
    found, problem = decode(line)
    rows = []
    for each in found:
        try:
            rows.append(_decoder.decode(msgspec.json.encode(each)))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise NeedsFullReader(str(error)) from error
    return rows, problem


def prompt_of(counts: RowUsage | Iteration) -> int:
    """Return the tokens of a prompt; raises `Unusual` where one of its counts is not there."""
    tokens = counts.input_tokens + counts.cache_creation_input_tokens + counts.cache_read_input_tokens
    if tokens < 0:
        raise NeedsFullReader("a usage without one of its counts")
    if counts.input_tokens == tokens - counts.input_tokens and counts.input_tokens >= LEAST_INCLUSIVE:
        raise NeedsFullReader("a count that has the cache in it twice")
    return tokens


def last_call(usage: RowUsage, tokens: int) -> int:
    """Return the prompt tokens of a response's last model call that tells some, or else `tokens`.

    Raises `Unusual` where a call lacks a count, and for an entry of another type, which `Usage.of_last_call` weighs.
    """
    for each in reversed(usage.iterations or ()):
        if each.type != "message":
            raise NeedsFullReader("an iteration of another type")
        last = prompt_of(each)
        if last:
            return last
    return tokens


def value_of(raw: Any) -> Any:
    """Decode what was left as bytes; raises `Unusual` where it is no text at all, since nobody has looked."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise NeedsFullReader(str(error)) from error


def is_clear(row: Row) -> bool:
    """Tell whether a row is what a `/clear` leaves; raises `Unusual` as `value_of` does."""
    data = value_of(row.data) if row.data else None
    return isinstance(data, dict) and data.get("hookName") == "SessionStart:clear"


def is_result(content: Any) -> bool:
    """Tell whether a tool's result is in a message's undecoded content; raises `Unusual` as `value_of` does."""
    blocks_ = value_of(content)
    if not isinstance(blocks_, list):
        return False
    return any(isinstance(block, dict) and block.get("tool_use_id") is not None for block in blocks_)
