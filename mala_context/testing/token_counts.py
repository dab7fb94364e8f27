"""How many tokens a request holds, and which of them come from the cache.

A prompt is read in the API's own order: tools, system, messages. Each content block becomes one piece of text, decoded
(what a model reads, not the JSON that carries it), and the size is the characters of all pieces divided by the
characters per token, rounded up. So the count is deterministic and never falls when something is appended.

The cache works as the real one does. A request may mark blocks with `cache_control`; the prompt up to the last mark is
written to the cache of its model. A later request reads from the cache as far as its own marked prefix runs through
the same blocks as an earlier mark's. An entry lives five minutes from its last use, or an hour where its mark says so,
by the clock that was given. The three numbers (`input`, `cache_creation`, `cache_read`) are differences of
rounded offsets into one sequence, so their sum is the size exactly.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mala_context.tracking.cache import HOUR, SHORT
from mala_context.tracking.thinking_blocks import thought_chars

IMAGE_CHARACTERS = 6400
"""Characters that an image or a document counts as: about 1,600 tokens at four characters a token."""
HIDDEN = 1.2
"""Characters of hidden thinking that a character of its signature, or of redacted data without its frame, stands for:
20,000 are about 6,000 tokens at four characters a token."""

BILLING = "x-anthropic-billing-header:"
"""Begins a block of the CLI's that varies with the first prompt. It is no part of the cache's key: after 80 of 88
recorded compactions the system prompt was read from the cache, which comes after it."""


@dataclass(frozen=True)
class Size:
    """The size of one request in tokens, split as the API reports it."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    hour_tokens: int = 0
    """Of those that are written, how many are kept for an hour."""
    again: int = 0
    """Of those that are written, how many the conversation's request before had left in the cache."""
    cause: str | None = None
    """Why these were not there any more: `lapsed`, `model` or `prefix`; `None` where there are none."""

    @property
    def tokens(self) -> int:
        """The whole request."""
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


def prompt_pieces(body: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield each piece of a request's prompt, and for how many seconds a cache mark after it keeps it; 0 for none."""
    for one in body.get("tools") or ():
        yield _dump({key: value for key, value in one.items() if key != "cache_control"}), _kept(one)
    yield from _blocks(body.get("system"))
    for message in body.get("messages") or ():
        yield from _blocks(message.get("content"))


def _kept(one: Mapping[str, Any]) -> float:
    mark = one.get("cache_control")
    return 0.0 if mark is None else HOUR if mark.get("ttl") == "1h" else SHORT


def _blocks(content: Any) -> Iterator[tuple[str, float]]:
    if isinstance(content, str):
        yield content, 0.0
        return
    for one in content or ():
        if isinstance(one, str):
            yield one, 0.0
        else:
            yield block_text(one), _kept(one)


def block_text(one: Mapping[str, Any]) -> str:
    """Return what a model reads of one content block."""
    match one.get("type"):
        case "text":
            return str(one.get("text", ""))
        case "thinking":
            return str(one.get("thinking") or " " * round(HIDDEN * len(one.get("signature") or "")))
        case "redacted_thinking":
            return " " * round(HIDDEN * thought_chars(one.get("data")))
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

    def __init__(self, chars_per_token: float = 4.0, clock: Callable[[], float] = time.time) -> None:
        if not chars_per_token > 0:
            raise ValueError(f"chars_per_token must be greater than 0, not {chars_per_token!r}")
        self.chars_per_token = chars_per_token
        self._clock = clock
        self._entries: dict[tuple[str, bytes], tuple[float, float]] = {}
        """Of each model's written prefixes: when they lapse, and how long they live after a use."""
        self._held: dict[object, tuple[str, int]] = {}
        """Model and tokens that the last request of each conversation left in the cache."""

    def tokens(self, characters: int) -> int:
        """Return the number of tokens of a number of characters."""
        return math.ceil(characters / self.chars_per_token)

    def count(self, body: Mapping[str, Any]) -> int:
        """Return the size of a request; the caches stay as they are."""
        return self.tokens(count_characters(body))

    def break_cache(self) -> None:
        """Forget every cache, as a server does that runs out of room."""
        self._entries.clear()

    def measure(self, body: Mapping[str, Any], conversation: object = None) -> Size:
        """Return the size of a request that is answered, and write its marked prefixes to the cache of its model.

        `conversation` names the requests that go on from one another, for `Size.again`.
        """
        model, now = str(body.get("model")), self._clock()
        # Step 1: note the places that this request marks, and those at which an earlier request left an entry.
        digest = hashlib.blake2b(digest_size=16)
        characters = 0
        marks: list[tuple[int, bytes, float]] = []
        places: list[tuple[int, bytes, float]] = []
        for piece, kept in prompt_pieces(body):
            characters += len(piece)
            digest.update(f"{len(piece)}:".encode())
            if not piece.startswith(BILLING):
                digest.update(piece.encode("utf-8", "surrogatepass"))
            so_far = digest.copy().digest()
            lapses, _ = self._entries.get((model, so_far), (0.0, 0.0))
            if lapses:
                places.append((characters, so_far, lapses))
            if kept:
                marks.append((characters, so_far, kept))
        # Step 2: read up to the last live entry before our last mark, and write from there to that mark.
        marked = marks[-1][0] if marks else 0
        there = [each for each in places if each[0] <= marked]
        read = max((place for place, _, lapses in there if lapses > now), default=0)
        hour = self._write(model, marks, there, read, now)
        total, cached, known = self.tokens(characters), self.tokens(marked), self.tokens(read)
        # Step 3: tokens that the conversation's request before had left in the cache, but that are written again.
        before, held = self._held.get(conversation, (model, 0))
        self._held[conversation] = (model, cached)
        again = max(0, min(held - known, cached - known))
        lapsed = any(place > read for place, _, _ in there)
        cause = None if not again else "model" if before != model else "lapsed" if lapsed else "prefix"
        return Size(total - cached, cached - known, known, hour, again, cause)

    def _write(
        self,
        model: str,
        marks: list[tuple[int, bytes, float]],
        there: list[tuple[int, bytes, float]],
        read: int,
        now: float,
    ) -> int:
        """Write marked prefixes and use those that are read; return the tokens that are kept for an hour."""
        for place, so_far, _ in there:
            if place <= read:
                kept = self._entries[model, so_far][1]
                self._entries[model, so_far] = (now + kept, kept)
        hour, before = 0, read
        for place, so_far, kept in marks:
            if place > before:
                hour += (self.tokens(place) - self.tokens(before)) if kept == HOUR else 0
                before = place
            self._entries[model, so_far] = (now + kept, kept)
        return hour
