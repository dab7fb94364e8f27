"""How many tokens a request holds, and which of them come from the cache.

A prompt is read in the API's own order: tools, system, messages. Each content block becomes one piece of text, decoded
(what a model reads, not the JSON that carries it), and the size is the characters of all pieces divided by the
characters per token, rounded up. So the count is deterministic and never falls when something is appended.

The cache works as the real one does. A request may mark blocks with `cache_control`; the prompt up to the last mark is
written to the cache of its model. A later request reads from the cache as far as its own marked prefix runs through
the same blocks as an earlier mark's. The three numbers (`input`, `cache_creation`, `cache_read`) are differences of
rounded offsets into one sequence, so their sum is the size exactly.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

IMAGE_CHARACTERS = 6400
"""Characters that an image or a document counts as: about 1,600 tokens at four characters a token."""
HIDDEN = 1.2
"""Characters of hidden thinking for a character of its signature: 20,000 are about 6,000 tokens at four characters."""


@dataclass(frozen=True)
class Size:
    """The size of one request in tokens, split as the API reports it."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int

    @property
    def tokens(self) -> int:
        """The whole request."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


def prompt_pieces(body: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield each piece of a request's prompt and whether a cache mark follows it."""
    for one in body.get("tools") or ():
        yield _dump({key: value for key, value in one.items() if key != "cache_control"}), "cache_control" in one
    yield from _blocks(body.get("system"))
    for message in body.get("messages") or ():
        yield from _blocks(message.get("content"))


def _blocks(content: Any) -> Iterator[tuple[str, bool]]:
    if isinstance(content, str):
        yield content, False
        return
    for one in content or ():
        if isinstance(one, str):
            yield one, False
        else:
            yield block_text(one), "cache_control" in one


def block_text(one: Mapping[str, Any]) -> str:
    """Return what a model reads of one content block."""
    match one.get("type"):
        case "text":
            return str(one.get("text", ""))
        case "thinking":
            return str(one.get("thinking") or " " * round(HIDDEN * len(one.get("signature") or "")))
        case "tool_use" | "server_tool_use":
            return f"{one.get('name', '')}{_dump(one.get('input'))}"
        case "tool_result":
            return "".join(piece for piece, _ in _blocks(one.get("content")))
        case "image" | "document":
            return " " * IMAGE_CHARACTERS
        case _:
            return _dump({key: value for key, value in one.items() if key != "cache_control"})


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def request_text(body: Mapping[str, Any]) -> str:
    """Return all that the model is shown by a request."""
    return "\n".join(piece for piece, _ in prompt_pieces(body))


def count_characters(body: Mapping[str, Any]) -> int:
    """Return the characters of a request's prompt."""
    return sum(len(piece) for piece, _ in prompt_pieces(body))


class TokenCounter:
    """Counts requests and keeps the caches that they leave; not safe for several threads at once."""

    def __init__(self, chars_per_token: float = 4.0) -> None:
        if not chars_per_token > 0:
            raise ValueError(f"chars_per_token must be greater than 0, not {chars_per_token!r}")
        self.chars_per_token = chars_per_token
        self._written: dict[str, set[bytes]] = {}

    def tokens(self, characters: int) -> int:
        """Return the number of tokens of a number of characters."""
        return math.ceil(characters / self.chars_per_token)

    def count(self, body: Mapping[str, Any]) -> int:
        """Return the size of a request; the caches stay as they are."""
        return self.tokens(count_characters(body))

    def measure(self, body: Mapping[str, Any]) -> Size:
        """Return the size of a request that is answered, and write its marked prefixes to the cache of its model."""
        written = self._written.setdefault(str(body.get("model")), set())
        digest = hashlib.blake2b(digest_size=16)
        characters = marked = read = 0
        marks: list[bytes] = []
        hits: list[int] = []
        for piece, mark in prompt_pieces(body):
            characters += len(piece)
            digest.update(f"{len(piece)}:".encode())
            digest.update(piece.encode("utf-8", "surrogatepass"))
            so_far = digest.copy().digest()
            if so_far in written:
                hits.append(characters)
            if mark:
                marked = characters
                marks.append(so_far)
        read = max((hit for hit in hits if hit <= marked), default=0)
        written.update(marks)
        total, cached, known = self.tokens(characters), self.tokens(marked), self.tokens(read)
        return Size(total - cached, cached - known, known)
