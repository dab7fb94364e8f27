"""Rows as structs with only the fields that sizes need: a whole block of lines at a time, with `msgspec`.

Text is skipped, not built; `Raw` is a view of the block and holds only until the next one. A block with a line that
does not decode is read again line by line.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mala_context.replay.rows import decode
from mala_context.usage import MOST


class Unusual(Exception):  # noqa: N818  (not an error: the careful way reads it)
    """Something that the fast way does not follow."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=MOST)]


class Iteration(Struct, gc=False):
    """A model call behind a response."""

    type: str | None = None
    input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0
    cache_read_input_tokens: Count = 0
    output_tokens: Count = 0


class RowUsage(Struct, gc=False):
    """A response's counts."""

    input_tokens: Count = 0
    cache_creation_input_tokens: Count = 0
    cache_read_input_tokens: Count = 0
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


def decode_each(block: memoryview) -> tuple[list[Row], list[int], list[tuple[int, str]]]:
    """Read a block line by line: rows, the line that each is on (from 0), and what is wrong with which line.

    Raises `Unusual` for a row that is good JSON and yet none that the fast way knows.
    """
    rows: list[Row] = []
    numbers: list[int] = []
    problems: list[tuple[int, str]] = []
    for number, line in enumerate(bytes(block).split(b"\n")):
        if not line or line.isspace():
            continue
        try:
            rows.append(_decoder.decode(line))
            numbers.append(number)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            found, problem = decode(line)
            if problem is not None:
                problems.append((number, problem))
            for each in found:
                try:
                    rows.append(_decoder.decode(msgspec.json.encode(each)))
                except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                    raise Unusual(str(error)) from error
                numbers.append(number)
    return rows, numbers, problems
