"""What the tracker costs: µs a message of reading and applying, and whether memory stays flat.

Run `python tests/benchmarks/tracker.py [responses]`. The mix is that of an agent: a response of a text block and
a tool call, the tool's result, and, with partial messages, its stream events. Doubles of the SDK's classes are used, so
that the SDK's own cost is not in the figures; both are known by their names.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import tracemalloc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from claims import Figure

from mala_context.tracking.readers import read_message
from mala_context.tracking.tracker import ContextTracker

ROUNDS = 7
SESSION = "00000000-0000-4000-8000-000000000001"
RESULT = "def handler(request, limit=100):\n    return request.items[:limit]  # newest first\n" * 12


def _kind(name: str) -> type:
    return type(name, (SimpleNamespace,), {})


AssistantMessage, UserMessage, StreamEvent = map(_kind, ("AssistantMessage", "UserMessage", "StreamEvent"))
TextBlock, ToolUseBlock, ToolResultBlock = map(_kind, ("TextBlock", "ToolUseBlock", "ToolResultBlock"))


def event(raw: dict[str, Any]) -> Any:
    """Make a stream event of the main agent."""
    return StreamEvent(event=raw, uuid="u", session_id=SESSION, parent_tool_use_id=None)


def response(number: int, *, partial: bool) -> Iterator[Any]:
    """Yield the messages of one response and of the tool that it calls."""
    usage = {
        "input_tokens": 3,
        "cache_creation_input_tokens": 700,
        "cache_read_input_tokens": 20_000 + 900 * (number % 150),
        "output_tokens": 1,
    }
    identity = f"msg_{number}"
    if partial:
        yield event({"type": "message_start", "message": {"id": identity, "model": "claude-opus-4-8", "usage": usage}})
    blocks = (
        TextBlock(text="Let me look at the handler first. " * 3),
        ToolUseBlock(id=f"toolu_{number}", name="Read", input={"file_path": "/srv/app/handlers.py"}),
    )
    for index, block in enumerate(blocks):
        if partial:
            yield event({"type": "content_block_start", "index": index})
            for _ in range(8):
                yield event({"type": "content_block_delta", "index": index, "delta": {"text": "Let me"}})
        yield AssistantMessage(
            content=[block],
            model="claude-opus-4-8",
            parent_tool_use_id=None,
            error=None,
            usage=usage,
            message_id=identity,
            stop_reason=None,
            session_id=SESSION,
            uuid=f"a{number}-{index}",
        )
        if partial:
            yield event({"type": "content_block_stop", "index": index})
    if partial:
        yield event({"type": "message_delta", "usage": {"output_tokens": 120}, "delta": {"stop_reason": "tool_use"}})
        yield event({"type": "message_stop"})
    yield UserMessage(
        content=[ToolResultBlock(tool_use_id=f"toolu_{number}", content=RESULT, is_error=None)],
        uuid=f"u{number}",
        parent_tool_use_id=None,
        tool_use_result=None,
    )


def run(tracker: ContextTracker, messages: list[Any]) -> None:
    """Do what the processor does with each message."""
    apply = tracker.apply
    for message in messages:
        for found in read_message(message):
            apply(found)


def cost(responses: int, *, partial: bool) -> tuple[float, float, float]:
    """Return the least, median and greatest cost of a message over the rounds, in µs."""
    costs = []
    for _ in range(ROUNDS):
        messages = [message for number in range(responses) for message in response(number, partial=partial)]
        gc.collect()
        start = time.process_time()
        run(ContextTracker(), messages)
        costs.append((time.process_time() - start) / len(messages) * 1e6)
    return min(costs), statistics.median(costs), max(costs)


def yardstick() -> float:
    """Return what the SDK's own parsing of an assistant message costs here, in µs: 1.1 on the machine of the budget."""
    from claude_agent_sdk._internal.message_parser import parse_message

    message = {"id": "m", "model": "claude-opus-4-8", "content": [{"type": "text", "text": "hello"}], "usage": {}}
    line = {"type": "assistant", "message": message, "session_id": SESSION, "uuid": "u"}
    costs = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(5_000):
            parse_message(line)
        costs.append((time.process_time() - start) / 5_000 * 1e6)
    return statistics.median(costs)


def memory(responses: int) -> list[tuple[int, int]]:
    """Return the memory held after growing numbers of responses, in bytes."""
    tracker = ContextTracker()
    marks = [max(1, responses * tenth // 10) for tenth in (2, 4, 6, 8, 10)]
    held = []
    tracemalloc.start()
    for number in range(responses):
        run(tracker, list(response(number, partial=False)))
        if number + 1 in marks:
            gc.collect()
            held.append((number + 1, tracemalloc.get_traced_memory()[0]))
    tracemalloc.stop()
    return held


def figures(quick: bool) -> Iterator[Figure]:
    """Yield what `main` prints, for `all.py`."""
    beside = f"the SDK's parse_message: {yardstick():.2f} µs"
    for partial in (False, True):
        least, median, most = cost(500 if quick else 3_000, partial=partial)
        yield Figure("tracker.partial" if partial else "tracker.whole", median, "µs a message", least, most, beside)
    held = memory(2_000 if quick else 10_000)
    yield Figure("tracker.memory", held[-1][1] / 1024, "KiB", beside=f"after {held[-1][0]:,} responses")


def main() -> None:
    """Print the figures."""
    responses = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    for partial in (False, True):
        least, median, most = cost(min(responses, 3_000), partial=partial)
        name = "with partial messages" if partial else "whole messages"
        print(f"{name}: {median:.2f} µs a message (median of {ROUNDS}; {least:.2f} to {most:.2f})")
    print(f"the SDK's parse_message: {yardstick():.2f} µs a message")
    for number, held in memory(responses):
        print(f"memory after {number:6,} responses: {held / 1024:8,.0f} KiB")


if __name__ == "__main__":
    main()
