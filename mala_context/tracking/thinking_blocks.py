"""Blocks of thinking: which are signed or redacted, and how much of a redacted one is the thought.

The API encrypts some thinking and gives it as `redacted_thinking`, a block with `data` alone. That is base64 of the
thought, as a signature is, in an envelope of 170 to 260 bytes: a message of Protocol Buffers whose field 5 is the
encrypted text and 16 bytes more. An answer that is streamed may have dozens of such blocks, each with a word or two, so
that the envelopes would count twenty times what the thinking does.

Nothing documents this. It is what six answers of Claude Sonnet 3.7 and 4.5 look like, which the public tests of
pydantic-ai recorded, and the signatures there are built alike.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

REDACTED: Final = "redacted_thinking"
_HEAD: Final = 1_024
"""Characters of base64 that are looked at."""
_OUTER, _TEXT = 0x12, 0x2A
"""Tags of the field that all else is in, and of the encrypted text."""
_TAG: Final = 16
"""Bytes of the encrypted text that are not the thought's."""
_USUAL: Final = 256
"""Characters of an envelope that is not understood."""


def signed_blocks(content: Any) -> list[Any]:
    """Return the blocks of thinking in a response that have a signature, or are redacted."""
    return [block for block in content if is_signed(block)] if content.__class__ is list else []


def is_signed(block: Any) -> bool:
    """Tell whether a block is thinking that has a signature, or is redacted."""
    signature = block.get("signature") if block.__class__ is dict else getattr(block, "signature", None)
    return isinstance(signature, str) if signature else bool(redacted_data(block))


def redacted_data(block: Any) -> str:
    """Return the data of a block of redacted thinking; nothing for any other block."""
    if block.__class__ is dict:
        data = block.get("data") if block.get("type") == REDACTED else None
    else:  # no SDK has such a class yet: it drops these blocks
        data = getattr(block, "data", None) if block.__class__.__name__ == "RedactedThinkingBlock" else None
    return data if isinstance(data, str) else ""


def thought_chars(data: Any) -> int:
    """Return how many characters of a redacted block's data are its thought. Never raises."""
    if not isinstance(data, str):
        return 0
    try:
        size = _text_size(binascii.a2b_base64(data[:_HEAD]))
    except (binascii.Error, ValueError, IndexError):
        size = len(data)
    chars = round((size - _TAG) * 4 / 3)
    return max(0, chars if chars <= len(data) else len(data) - _USUAL)


def _text_size(raw: bytes) -> int:
    """Go from field to field up to the encrypted text; raises IndexError where there is none."""
    place = 0
    while True:
        tag, size, shift, more = raw[place], 0, 0, True
        first, place = not place, place + 1
        while more:
            size, more = size | (raw[place] & 127) << shift, raw[place] > 127
            shift, place = shift + 7, place + 1
        if tag == _TEXT:
            return size
        if not (first and tag == _OUTER) and tag & 7 == 2:
            place += size
