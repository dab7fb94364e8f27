"""Blocks of thinking: which of them are signed or redacted, and how much of a redacted block is the thought.

The API encrypts some thinking and gives it as `redacted_thinking`, a block that has only `data`. Like a signature, the
data are base64 of the encrypted thought in an envelope of 170 to 260 bytes: a message of Protocol Buffers, whose field
5 holds the encrypted text and 16 bytes more. A streamed answer may have dozens of such blocks, each of a word or two.
The envelopes alone would then count twenty times as much as the thinking.

No documentation says this. It was read from six answers of Claude Sonnet 3.7 and 4.5 that the public tests of
pydantic-ai recorded; the signatures there have the same form.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

REDACTED: Final = "redacted_thinking"
_HEAD: Final = 1_024
"""Characters of base64 that are read."""
_OUTER, _TEXT = 0x12, 0x2A
"""Tags of the outer field, which holds all others, and of the encrypted text."""
_TAG: Final = 16
"""Bytes of the encrypted text that do not belong to the thought."""
_USUAL: Final = 256
"""Characters that are taken for the envelope if it cannot be read."""


def signed_blocks(content: Any) -> list[Any]:
    """Return the blocks of thinking in a response that have a signature or are redacted."""
    return [block for block in content if is_signed(block)] if content.__class__ is list else []


def is_signed(block: Any) -> bool:
    """Tell whether a block is thinking that has a signature, or is redacted."""
    if block.__class__ is dict:  # first, and without a call: so are the blocks of all recorded messages
        signature = block.get("signature")
        return isinstance(signature, str) if signature else block.get("type") == REDACTED and bool(redacted_data(block))
    signature = getattr(block, "signature", None)
    return isinstance(signature, str) if signature else bool(redacted_data(block))


def redacted_data(block: Any) -> str:
    """Return the data of a block of redacted thinking; an empty text for any other block."""
    if block.__class__ is dict:
        data = block.get("data") if block.get("type") == REDACTED else None
    else:  # no SDK has such a class yet: it drops these blocks
        data = getattr(block, "data", None) if block.__class__.__name__ == "RedactedThinkingBlock" else None
    return data if isinstance(data, str) else ""


def thought_chars(data: Any) -> int:
    """Return how many characters of a redacted block's data hold its thought. Never raises."""
    if not isinstance(data, str):
        return 0
    try:
        size = _text_size(binascii.a2b_base64(data[:_HEAD]))
    except (binascii.Error, ValueError, IndexError):
        size = len(data)
    chars = round((size - _TAG) * 4 / 3)
    return max(0, chars if chars <= len(data) else len(data) - _USUAL)


def _text_size(raw: bytes) -> int:
    """Return the length of the encrypted text, in bytes; raises `IndexError` if there is none.

    It goes from field to field, and enters the outer field instead of skipping it.
    """
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
