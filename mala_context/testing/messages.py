"""From a reply to what goes over the wire: the message as JSON, or the stream of events that builds it up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mala_context.testing.token_counts import Size, TokenCounter, block_text

if TYPE_CHECKING:
    from mala_context.testing.replies import Failure, Reply

CHUNK = 4096
"""Characters of text in one streamed piece."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """A reply with its id and its usage: all that a client gets to know."""

    id: str
    model: str
    content: Sequence[Mapping[str, Any]]
    stop_reason: str
    usage: Mapping[str, Any]
    """The usage as it stands at the end of the response."""
    first_usage: Mapping[str, Any]
    """The usage that a stream starts with: a placeholder output, and zeros where the sizes come at the end only."""
    tokens: int
    """What the request to the model held; with iterations, the last of them."""

    def as_json(self) -> dict[str, Any]:
        """Return the message as a response that is not streamed has it."""
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self.content),
            "stop_reason": self.stop_reason,
            "stop_sequence": None,
            "usage": self.usage,
        }


def usage_of(size: Size, output_tokens: int) -> dict[str, Any]:
    """Return a usage object as the API sends it."""
    return {
        "input_tokens": size.input_tokens,
        "cache_creation_input_tokens": size.cache_creation_input_tokens,
        "cache_read_input_tokens": size.cache_read_input_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": size.cache_creation_input_tokens - size.hour_tokens,
            "ephemeral_1h_input_tokens": size.hour_tokens,
        },
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def output_tokens_of(content: Sequence[Mapping[str, Any]], counter: TokenCounter) -> int:
    """Return the tokens of a response: its characters at the counter's rate, at least one."""
    return max(1, counter.tokens(sum(len(block_text(one)) for one in content)))


def build_message(
    reply: Reply, size: Size, counter: TokenCounter, *, number: int, tag: str, model: str, usage_in: str
) -> Message:
    """Give a reply its ids and its usage."""
    content = _with_ids(reply.content, f"{tag}{number:06d}")
    output = reply.output_tokens if reply.output_tokens is not None else output_tokens_of(content, counter)
    final, tokens = usage_of(size, output), size.tokens
    if reply.iterations:
        final, tokens = _looped_usage(reply, size, counter, output)
    first = usage_of(size, 1)
    if (reply.usage_in or usage_in) == "delta":
        first = usage_of(Size(0, 0, 0), 0)
    calls = any(one.get("type") == "tool_use" for one in content)
    return Message(
        id=f"msg_{tag}{number:06d}",
        model=model,
        content=content,
        stop_reason=reply.stop_reason or ("tool_use" if calls else "end_turn"),
        usage={**final, **reply.usage},
        first_usage={**first, **reply.usage},
        tokens=tokens,
    )


def _with_ids(content: Sequence[Mapping[str, Any]], tag: str) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": f"toolu_{tag}{place:02d}", **one} if one.get("type") == "tool_use" else dict(one)
        for place, one in enumerate(content)
    ]


def _looped_usage(reply: Reply, size: Size, counter: TokenCounter, output: int) -> tuple[dict[str, Any], int]:
    """Return the usage of a server-side loop: a row for each model call, the sums on top, and the last call's size."""
    cached = size.cache_creation_input_tokens + size.cache_read_input_tokens
    rows = [size]
    characters = 0
    outputs = []
    for step in reply.iterations:
        characters += sum(len(block_text(one)) for one in step)
        outputs.append(output_tokens_of(step, counter))
        rows.append(Size(size.input_tokens + counter.tokens(characters), 0, cached))
    outputs.append(max(1, output - sum(outputs)))
    total = Size(
        sum(row.input_tokens for row in rows),
        sum(row.cache_creation_input_tokens for row in rows),
        sum(row.cache_read_input_tokens for row in rows),
    )
    usage = usage_of(total, sum(outputs))
    usage["iterations"] = [{"type": "message", **usage_of(row, out)} for row, out in zip(rows, outputs, strict=True)]
    return usage, rows[-1].tokens


def stream_events(message: Message) -> Iterator[tuple[Event, bool]]:
    """Yield the events of a message and whether a held response waits after this one: its last block still open."""
    start = message.as_json() | {"content": [], "stop_reason": None, "usage": message.first_usage}
    yield {"type": "message_start", "message": start}, not message.content
    yield {"type": "ping"}, False
    last = len(message.content) - 1
    for index, one in enumerate(message.content):
        empty, deltas = _opened(one)
        yield {"type": "content_block_start", "index": index, "content_block": empty}, index == last and not deltas
        for place, delta in enumerate(deltas):
            held = index == last and place == len(deltas) - 1
            yield {"type": "content_block_delta", "index": index, "delta": delta}, held
        yield {"type": "content_block_stop", "index": index}, False
    ending = {"stop_reason": message.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ending, "usage": message.usage}, False
    yield {"type": "message_stop"}, False


def _opened(one: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it starts in a stream, and the pieces that fill it."""
    match one["type"]:
        case "text":
            return {**one, "text": ""}, [{"type": "text_delta", "text": piece} for piece in _chunks(one["text"])]
        case "thinking":
            pieces = [{"type": "thinking_delta", "thinking": piece} for piece in _chunks(one["thinking"])]
            signature = {"type": "signature_delta", "signature": one.get("signature", "")}
            return {**one, "thinking": "", "signature": ""}, [*pieces, signature]
        case "tool_use" | "server_tool_use":
            written = json.dumps(one["input"], ensure_ascii=False)
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in _chunks(written)]
            return {**one, "input": {}}, pieces
        case _:
            return dict(one), []


def _chunks(words: str) -> list[str]:
    return [words[place : place + CHUNK] for place in range(0, len(words), CHUNK)]


def encode_event(event: Event) -> bytes:
    """Return one server-sent event."""
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


def error_body(failure: Failure, request_id: str) -> dict[str, Any]:
    """Return the body of an HTTP error as the API sends it."""
    error = {"type": failure.type, "message": failure.message}
    return {"type": "error", "error": error, "request_id": request_id}
